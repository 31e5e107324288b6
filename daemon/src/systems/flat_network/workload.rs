//! Workloads whose pods are on a flat network: their labels, and the addresses that are kept for their pods.
//!
//! Labels are applied under a field manager of their own, so that nothing else of a workload is touched. They are taken off by a
//! merge patch: the original's are its own in the eyes of the API server, and no apply of fipd's would remove them.

pub mod reservation;
mod reserve;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use fipd_core::{Ledger, PoolId};
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
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::ip::FlatIpView;
use crate::controller::{
    Reconciled,
    client::{Patch, Remote},
    confirm_absence::AbsenceCheck,
    context::Context,
    events::Events,
    kind::{CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, Kind, STATEFUL_SET},
    meta::{Meta, View},
    queue::Next,
    reconcile::{self, Controller},
    site::Site,
    store::{Key, Objects},
    waiters::LedgerEvent,
};
use crate::validation::flat_network::{annotations::PodAddresses, labels};

/// The kinds of workloads.
const KINDS: [Kind; 5] = [DEPLOYMENT, DAEMON_SET, STATEFUL_SET, CRON_JOB, JOB];

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
    /// What they ask for makes no sense.
    pub is_malformed: bool,
    /// A Job that is over, or that something else made, for which the addresses are kept.
    pub keeps_nothing: bool,
}

/// The workloads of one kind.
pub struct WorkloadController {
    context: Context<WorkloadView>,
    modes: FlatModes,
    ips: Arc<Objects<FlatIpView>>,
    /// Those for which something is kept and that were found missing.
    missing: AbsenceCheck<Key>,
    /// Those that name addresses, by the pool.
    naming: Mutex<BTreeMap<PoolId, BTreeSet<Key>>>,
    /// What matters of one that was just read.
    read: WorkloadReader,
}

type WorkloadReader = fn(Value) -> serde_json::Result<Option<WorkloadView>>;

/// The workloads of all kinds. Cheap to share.
#[derive(Clone)]
pub struct Workloads([Arc<WorkloadController>; 5]);

/// A kind of workloads.
trait FlatWorkload:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
    fn parts(self) -> WorkloadParts;
}

/// What matters of a workload of any kind.
struct WorkloadParts {
    meta: ObjectMeta,
    template: Option<PodTemplateSpec>,
    /// See [`WorkloadView`].
    keeps_nothing: bool,
}

/// Keeps labels and addresses until the session ends. The subnets and the addresses of pods must be known by then.
pub fn start(
    site: &Arc<Site>,
    events: &Arc<Events>,
    (modes, ips): (&FlatModes, &Arc<Objects<FlatIpView>>),
    tasks: &mut JoinSet<()>,
) -> Workloads {
    let kinds: [(Kind, WorkloadReader); 5] = [
        (DEPLOYMENT, read::<Deployment>),
        (DAEMON_SET, read::<DaemonSet>),
        (STATEFUL_SET, read::<StatefulSet>),
        (CRON_JOB, read::<CronJob>),
        (JOB, read::<Job>),
    ];
    let of = |(kind, read): (Kind, WorkloadReader)| {
        let remote = Remote::new(site.session.client.clone()).with_manager(MANAGER);
        let (site, events) = (Arc::clone(site), Arc::clone(events));
        Arc::new(WorkloadController {
            context: Context::new(kind, site, remote, events, Objects::new()),
            modes: Arc::clone(modes),
            ips: Arc::clone(ips),
            missing: AbsenceCheck::default(),
            naming: Mutex::default(),
            read,
        })
    };
    let all = kinds.map(of);
    let [deployments, daemon_sets, stateful_sets, cron_jobs, jobs] = &all;
    reconcile::watch(deployments, view_of::<Deployment>, tasks);
    reconcile::watch(daemon_sets, view_of::<DaemonSet>, tasks);
    reconcile::watch(stateful_sets, view_of::<StatefulSet>, tasks);
    reconcile::watch(cron_jobs, view_of::<CronJob>, tasks);
    reconcile::watch(jobs, view_of::<Job>, tasks);
    let workloads = Workloads(all);
    workloads.queue_held();
    for one in &workloads.0 {
        reconcile::follow_and_work(one, tasks);
    }
    workloads
}

fn view_of<K: FlatWorkload>(one: K) -> Option<WorkloadView> {
    view(one.parts())
}

fn read<K: FlatWorkload>(object: Value) -> serde_json::Result<Option<WorkloadView>> {
    serde_json::from_value(object).map(view_of::<K>)
}

impl FlatWorkload for Deployment {
    fn parts(self) -> WorkloadParts {
        WorkloadParts::lasting(self.metadata, self.spec.template)
    }
}

impl FlatWorkload for DaemonSet {
    fn parts(self) -> WorkloadParts {
        WorkloadParts::lasting(self.metadata, self.spec.template)
    }
}

impl FlatWorkload for StatefulSet {
    fn parts(self) -> WorkloadParts {
        WorkloadParts::lasting(self.metadata, self.spec.template)
    }
}

impl FlatWorkload for CronJob {
    /// Its pods have the template of its Jobs (g1-13).
    fn parts(self) -> WorkloadParts {
        let jobs = self.spec.job_template.spec;
        WorkloadParts::lasting(self.metadata, jobs.map(|spec| spec.template))
    }
}

impl FlatWorkload for Job {
    fn parts(self) -> WorkloadParts {
        let conditions = self.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        let is_over = conditions
            .any(|one| matches!(&*one.type_, "Complete" | "Failed") && one.status == "True");
        let mut owners = self.metadata.owner_references.iter().flatten();
        // That one keeps them.
        let is_made =
            owners.any(|owner| owner.controller == Some(true) && owner.kind == CRON_JOB.kind);
        let template = self.spec.map(|spec| spec.template);
        WorkloadParts {
            keeps_nothing: is_over || is_made,
            ..WorkloadParts::lasting(self.metadata, template)
        }
    }
}

impl WorkloadParts {
    /// Of one that makes pods for as long as it is there.
    fn lasting(meta: ObjectMeta, template: impl Into<Option<PodTemplateSpec>>) -> Self {
        Self {
            meta,
            template: template.into(),
            keeps_nothing: false,
        }
    }
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

    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        self.queue_affected(ledger, event);
    }

    async fn reconcile(&self, key: &Key, workload: Option<Arc<WorkloadView>>) -> Reconciled {
        let Some(workload) = workload else {
            return self.release_absent(key).await;
        };
        self.missing.forget(key);
        // Its pods are told what is wrong; what is kept for them stays.
        let next = match workload.is_malformed {
            true => Next::Done,
            false => self.reserve(key, Some(&workload)).await?,
        };
        let ask = workload.ask.as_ref();
        let mode = ask.and_then(|ask| (self.modes)(&ask.subnet));
        let write = plan(self.context.kind, key, &workload, mode);
        if let Some((patch, body)) = write {
            let target = self.context.kind.target(key);
            self.context.remote.patch(&target, patch, &body).await?;
        }
        Ok(next)
    }

    /// Its pods keep what they have; nothing is kept for others.
    async fn release(
        &self,
        key: &Key,
        _: &Meta,
        workload: Option<Arc<WorkloadView>>,
    ) -> Reconciled {
        match workload {
            Some(workload) => self.reserve(key, Some(&workload)).await,
            None => Ok(Next::Done),
        }
    }
}

impl View for WorkloadView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl WorkloadView {
    /// What is kept for its pods; `None`: nothing.
    pub fn named(&self) -> Option<&PodAddresses> {
        let keeps = !self.keeps_nothing && !self.meta.is_terminating();
        let ask = self.ask.as_ref().filter(|ask| ask.is_specific());
        ask.filter(|_| keeps)
    }
}

/// Nothing of a workload that has neither pods on a flat network nor the labels of one. Its version is left out, which would be
/// another with every change of its status.
fn view(parts: WorkloadParts) -> Option<WorkloadView> {
    let (mut meta, template) = (parts.meta, parts.template);
    let template = template.and_then(|template| template.metadata);
    let annotations = template.and_then(|meta| meta.annotations);
    let asked = annotations.map_or(Ok(None), |annotations| PodAddresses::read("", &annotations));
    let is_malformed = asked.is_err();
    let ask = asked.ok().flatten();
    let mut all = meta.labels.take().unwrap_or_default();
    let labels = LABELS.into_iter();
    let labels: BTreeMap<_, _> = labels
        .filter_map(|label| Some((label, all.remove(label)?)))
        .collect();
    (ask.is_some() || is_malformed || !labels.is_empty()).then(|| WorkloadView {
        labels,
        ask,
        is_malformed,
        keeps_nothing: parts.keeps_nothing,
        meta: Meta {
            version: String::new(),
            ..Meta::of(&meta)
        },
    })
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
