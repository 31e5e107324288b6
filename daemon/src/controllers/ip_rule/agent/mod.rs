//! Agents: fipd as a DaemonSet on nodes that have no package of it. One of a cluster counts; the others say so.

pub mod standing;
mod status;
mod workload;

use std::sync::Arc;

use fipd_core::Text;
use fipd_crds::ip_rule::{AGENT_WORKLOAD, Agent as RawAgent};
use k8s_openapi::{api::apps::v1::DaemonSet, jiff};
use kube::{Api, runtime::watcher};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::{
    standing::{Standing, standing},
    workload::{Workload, has},
};
use super::{
    names::{AGENT, agent_target, reference},
    observe::{self, Agent},
};
use crate::{
    clusters::adoption::PAGE,
    controllers::{
        Trouble,
        events::Events,
        merge::change,
        objects::{Key, Objects, follow_some},
        queue::{self, Next, Queue},
        remote::{Patch, Remote, Target},
        site::Site,
    },
    metrics::reconcile::counted,
};

/// What the DaemonSet of an Agent says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Running {
    uid: Text,
    /// Of the Agent.
    owner: Option<Text>,
    object: Value,
    desired: i64,
    current: i64,
    ready: i64,
}

/// The controller of the Agents of a cluster.
pub struct Agents {
    site: Arc<Site>,
    remote: Remote,
    events: Arc<Events>,
    /// Those of others, too: the deciding part looks at them as well.
    all: Arc<Objects<Agent>>,
    running: Arc<Objects<Running>>,
    queue: Arc<Queue<Key>>,
}

fn slim(set: DaemonSet) -> Option<Running> {
    let object = json!({ "metadata": { "labels": set.metadata.labels }, "spec": set.spec });
    let status = set.status.unwrap_or_default();
    let owners = set.metadata.owner_references.unwrap_or_default();
    let owner = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true));
    Some(Running {
        uid: set.metadata.uid.unwrap_or_default().into(),
        owner: owner.map(|owner| owner.uid.into()),
        object,
        desired: status.desired_number_scheduled.into(),
        current: status.current_number_scheduled.into(),
        ready: status.number_ready.into(),
    })
}

impl Agents {
    pub fn start(
        site: &Arc<Site>,
        events: &Arc<Events>,
        all: &Arc<Objects<Agent>>,
        tasks: &mut JoinSet<()>,
    ) -> Arc<Self> {
        let agents = Arc::new(Self {
            site: Arc::clone(site),
            remote: Remote::new(site.session.client.clone()),
            events: Arc::clone(events),
            all: Arc::clone(all),
            running: Objects::new(),
            queue: Queue::new(),
        });
        let api: Api<_> = Api::all(site.session.client.clone());
        let only = format!("metadata.name={AGENT_WORKLOAD}");
        let only = watcher::Config::default().page_size(PAGE).fields(&only);
        let (followed, cancel) = (Arc::clone(&agents), site.cancel());
        tasks.spawn(async move {
            let changed = |_: &Key| followed.changed();
            follow_some(
                api,
                only,
                Arc::clone(&followed.running),
                slim,
                changed,
                cancel,
            )
            .await;
        });
        let (worker, waiting, cancel) = (Arc::clone(&agents), Arc::clone(&agents), site.cancel());
        let work = counted(&site.system, "agent", move |key| {
            Arc::clone(&worker).reconcile(key)
        });
        tasks.spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = async { waiting.running.completed().await; waiting.all.completed().await; } => {}
            }
            queue::run(Arc::clone(&waiting.queue), 1, cancel, work).await;
        });
        agents
    }

    /// One Agent or its DaemonSet changed: what any of them is to say may be something else.
    pub fn changed(&self) {
        self.all
            .keys()
            .into_iter()
            .for_each(|key| self.queue.add(key));
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        match self.try_reconcile(&key).await {
            Ok(()) => Next::Done,
            Err(trouble) => trouble.next(AGENT, &key),
        }
    }

    async fn try_reconcile(&self, key: &Key) -> Result<(), Trouble> {
        let all = self.all.all();
        let Some(agent) = self.all.get(key).filter(|agent| !agent.meta.terminating) else {
            return Ok(());
        };
        let standing = standing(key, &all);
        let mine = Key::new(&key.namespace, AGENT_WORKLOAD);
        let running = self.running.get(&mine);
        let running = running.filter(|running| running.owner.as_ref() == Some(&agent.meta.uid));
        match standing {
            Standing::Active => self.run(key, &agent).await?,
            // Two would program one node: the DaemonSet of one that was active goes.
            Standing::Inactive(_) | Standing::InvalidName => {
                if let Some(running) = &running {
                    self.remote
                        .delete(
                            &target("apis/apps/v1", "daemonsets", &key.namespace),
                            &running.uid,
                        )
                        .await?;
                }
            }
        }
        let after = status::desired(
            &agent,
            &standing,
            running.as_deref(),
            jiff::Timestamp::now(),
        );
        let patch =
            change(&agent.status, &after).map_err(|error| Trouble::internal(error.to_string()))?;
        if let Some(patch) = patch {
            let body = json!({ "metadata": { "uid": &*agent.meta.uid }, "status": patch });
            let place = agent_target(&key.namespace, &key.name);
            let after: RawAgent = self
                .remote
                .patch_status_seen(&place, Patch::Merge, &body)
                .await?;
            self.all.set(key, observe::agent(after));
        }
        Ok(())
    }

    async fn run(&self, key: &Key, agent: &Agent) -> Result<(), Trouble> {
        let told = self.site.session.settings.ip_rule.agent_image();
        let image = Some(agent.spec.image.as_str())
            .filter(|image| !image.is_empty())
            .or(told.as_deref());
        let Some(image) = image else {
            let note = "spec.image is empty, and neither agent-image in [cluster.ip-rule] nor RELATED_IMAGE_AGENT_IMAGE says \
                        which image of fipd it is to run: nothing is run";
            self.events.warning(
                &reference(AGENT, &key.namespace, &key.name, &agent.meta.uid),
                "NoImage",
                note,
            );
            return Ok(());
        };
        let workload = Workload {
            agent: key.clone(),
            uid: agent.meta.uid.to_string(),
            cluster: self.site.name.to_string(),
            image: image.to_owned(),
            spec: agent.spec.clone(),
        };
        let wanted = workload.daemon_set();
        let found = self.running.get(&Key::new(&key.namespace, AGENT_WORKLOAD));
        let owned = found
            .as_ref()
            .is_some_and(|found| found.owner.as_ref() == Some(&agent.meta.uid));
        let is_so = |found: &Arc<Running>| {
            let has_part = |path: &str| {
                let (found, wanted) = (found.object.pointer(path), wanted.pointer(path));
                found
                    .zip(wanted)
                    .is_some_and(|(found, wanted)| has(found, wanted))
            };
            has_part("/metadata/labels") && has_part("/spec")
        };
        if owned && found.as_ref().is_some_and(is_so) {
            return Ok(());
        }
        let namespace = &key.namespace;
        let rbac = "apis/rbac.authorization.k8s.io/v1";
        for (target, object) in [
            (
                target("api/v1", "serviceaccounts", namespace),
                workload.account(),
            ),
            (target(rbac, "clusterrolebindings", ""), workload.binding()),
            (target("api/v1", "configmaps", namespace), workload.config()),
            (target("apis/apps/v1", "daemonsets", namespace), wanted),
        ] {
            self.remote.patch(&target, Patch::Apply, &object).await?;
        }
        Ok(())
    }
}

/// All that it runs with has one name.
fn target(api: &'static str, plural: &'static str, namespace: &str) -> Target {
    Target {
        api,
        plural,
        namespace: namespace.to_owned(),
        name: AGENT_WORKLOAD.to_owned(),
    }
}
