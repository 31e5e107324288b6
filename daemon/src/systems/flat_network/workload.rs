//! Labels of workloads whose pods are on a flat network.
//!
//! Labels are applied under a field manager of their own, so that nothing else of a workload is touched. They are taken off by a
//! merge patch: the original's are its own in the eyes of the API server, and no apply of fipd's would remove them.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use fipd_crds::flat_network::names::{FLAT_MODE, IP_TYPE, SUBNET};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        batch::v1::{CronJob, Job},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::controller::{
    Reconciled,
    client::{Patch, Remote},
    context::Context,
    events::Events,
    kind::{DAEMON_SET, DEPLOYMENT, JOB, Kind},
    meta::{Meta, View},
    queue::Next,
    reconcile::{self, Controller},
    site::Site,
    store::{Key, Objects},
};
use crate::validation::flat_network::{annotations::PodAddresses, labels};

const STATEFUL_SET: Kind = Kind::namespaced("apis/apps/v1", "statefulsets", "StatefulSet");
const CRON_JOB: Kind = Kind::namespaced("apis/batch/v1", "cronjobs", "CronJob");

/// The field manager of the labels.
const MANAGER: &str = "fipd-flat-workloads";
/// The labels that are written.
const LABELS: [&str; 3] = [IP_TYPE, SUBNET, FLAT_MODE];

/// How a subnet is attached, `macvlan` or `ipvlan`, by its name; `None`: there is no such subnet.
pub type FlatModes = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A workload whose pods are on a flat network, or that has labels as if they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadView {
    pub meta: Meta,
    /// Of [`LABELS`], those that it has.
    pub labels: BTreeMap<&'static str, String>,
    /// What its pods ask for; `None`: they are on no flat network.
    pub ask: Option<PodAddresses>,
}

/// The workloads of one kind.
pub struct WorkloadController {
    context: Context<WorkloadView>,
    modes: FlatModes,
}

/// The workloads of all kinds.
pub struct Workloads([Arc<WorkloadController>; 5]);

/// Keeps labels until the session ends. The subnets must be known by then.
pub fn start(
    site: &Arc<Site>,
    events: &Arc<Events>,
    modes: &FlatModes,
    tasks: &mut JoinSet<()>,
) -> Workloads {
    let of = |kind: Kind| {
        let remote = Remote::new(site.session.client.clone()).with_manager(MANAGER);
        let (site, events) = (Arc::clone(site), Arc::clone(events));
        Arc::new(WorkloadController {
            context: Context::new(kind, site, remote, events, Objects::new()),
            modes: Arc::clone(modes),
        })
    };
    let kinds = [DEPLOYMENT, DAEMON_SET, STATEFUL_SET, CRON_JOB, JOB];
    let all = kinds.map(of);
    let [deployments, daemon_sets, stateful_sets, cron_jobs, jobs] = &all;
    follow(deployments, tasks, |one: Deployment| {
        (one.metadata, Some(one.spec.template))
    });
    follow(daemon_sets, tasks, |one: DaemonSet| {
        (one.metadata, Some(one.spec.template))
    });
    follow(stateful_sets, tasks, |one: StatefulSet| {
        (one.metadata, Some(one.spec.template))
    });
    // Its pods have the template of its Jobs (g1-13).
    follow(cron_jobs, tasks, |one: CronJob| {
        let jobs = one.spec.job_template.spec;
        (one.metadata, jobs.map(|spec| spec.template))
    });
    follow(jobs, tasks, |one: Job| {
        (one.metadata, one.spec.map(|spec| spec.template))
    });
    all.iter().for_each(|one| reconcile::work(one, tasks));
    Workloads(all)
}

/// Follows the workloads of a kind; `parts` are metadata and template of one.
fn follow<K>(
    controller: &Arc<WorkloadController>,
    tasks: &mut JoinSet<()>,
    parts: fn(K) -> (ObjectMeta, Option<PodTemplateSpec>),
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let context = &controller.context;
    let queue = Arc::clone(&context.queue);
    let view = move |one: K| {
        let (meta, template) = parts(one);
        view(meta, template)
    };
    context.follow(tasks, view, move |key| queue.add(key.clone()));
}

impl Workloads {
    /// Has the workloads of a subnet looked at: it appeared, changed or went.
    pub fn subnet_changed(&self, subnet: &str) {
        for controller in &self.0 {
            let context = &controller.context;
            for (key, workload) in context.objects.all() {
                if workload
                    .ask
                    .as_ref()
                    .is_some_and(|ask| ask.subnet == subnet)
                {
                    context.queue.add(key);
                }
            }
        }
    }
}

impl Controller for WorkloadController {
    type View = WorkloadView;

    const METRIC: &'static str = "flatworkload";
    const WORKERS: usize = 2;

    fn context(&self) -> &Context<WorkloadView> {
        &self.context
    }

    async fn reconcile(&self, key: &Key, workload: Option<Arc<WorkloadView>>) -> Reconciled {
        let Some(workload) = workload else {
            return Ok(Next::Done);
        };
        let ask = workload.ask.as_ref();
        let mode = ask.and_then(|ask| (self.modes)(&ask.subnet));
        let write = plan(self.context.kind, key, &workload, mode);
        if let Some((patch, body)) = write {
            let target = self.context.kind.target(key);
            self.context.remote.patch(&target, patch, &body).await?;
        }
        Ok(Next::Done)
    }

    async fn release(&self, _: &Key, _: &Meta, _: Option<Arc<WorkloadView>>) -> Reconciled {
        Ok(Next::Done)
    }
}

impl View for WorkloadView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

/// Nothing of a workload that has neither pods on a flat network nor the labels of one. Its version is left out, which would be
/// another with every change of its status.
fn view(mut meta: ObjectMeta, template: Option<PodTemplateSpec>) -> Option<WorkloadView> {
    let template = template.and_then(|template| template.metadata);
    let annotations = template.and_then(|meta| meta.annotations);
    let ask = annotations.and_then(|annotations| asked(&annotations));
    let mut all = meta.labels.take().unwrap_or_default();
    let labels = LABELS.into_iter();
    let labels: BTreeMap<_, _> = labels
        .filter_map(|label| Some((label, all.remove(label)?)))
        .collect();
    (ask.is_some() || !labels.is_empty()).then(|| WorkloadView {
        labels,
        ask,
        meta: Meta {
            version: String::new(),
            ..Meta::of(&meta)
        },
    })
}

/// What its pods ask for; nothing where that makes no sense, which the pods are told.
fn asked(annotations: &BTreeMap<String, String>) -> Option<PodAddresses> {
    PodAddresses::read("", annotations).ok().flatten()
}

/// The labels that a workload is to have. Where the subnet is not there, its mode is what was said of it last.
fn wanted(workload: &WorkloadView, mode: Option<String>) -> BTreeMap<&'static str, String> {
    let Some(ask) = &workload.ask else {
        return BTreeMap::new();
    };
    let kind = match ask.is_specific() {
        true => "specific",
        false => "auto",
    };
    let mode = mode.or_else(|| workload.labels.get(FLAT_MODE).cloned());
    let mode = mode.map(|mode| (FLAT_MODE, labels::name(&mode)));
    let labels = [
        (IP_TYPE, kind.to_owned()),
        (SUBNET, labels::name(&ask.subnet)),
    ];
    labels.into_iter().chain(mode).collect()
}

/// How to write what differs of the labels; `None`: nothing does.
fn plan(
    kind: Kind,
    key: &Key,
    workload: &WorkloadView,
    mode: Option<String>,
) -> Option<(Patch, Value)> {
    let wanted = wanted(workload, mode);
    if wanted == workload.labels {
        return None;
    }
    let uid = &*workload.meta.uid;
    if wanted.is_empty() {
        let gone = workload.labels.keys().map(|label| (*label, Value::Null));
        let labels: BTreeMap<&str, Value> = gone.collect();
        let body = json!({ "metadata": { "uid": uid, "labels": labels } });
        return Some((Patch::Merge, body));
    }
    // By the UID nothing is made where the workload is gone.
    let body = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": { "namespace": &*key.namespace, "name": &*key.name, "uid": uid, "labels": wanted },
    });
    Some((Patch::Apply, body))
}

#[cfg(test)]
mod tests;
