//! Agents: fipd as a DaemonSet on nodes that have no package of it. One of a cluster counts; the others say so.

pub mod standing;
mod status;
mod workload;

use std::{sync::Arc, time::Duration};

use fipd_core::Text;
use fipd_crds::ip_rule::{AGENT_WORKLOAD, Agent as RawAgent};
use k8s_openapi::{api::apps::v1::DaemonSet, jiff};
use kube::{Api, runtime::watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use self::{
    standing::{Standing, standing},
    workload::{Workload, has},
};
use super::{
    names::{AGENT, is_original},
    observe::Agent,
};
use crate::{
    controller::{
        ReconcileError, Reconciled,
        client::Patch,
        context::Context,
        events::Events,
        kind::{CLUSTER_ROLE_BINDING, CONFIG_MAP, DAEMON_SET, SERVICE_ACCOUNT},
        meta::Meta,
        queue::Next,
        reconcile,
        reconcile::Controller,
        site::Site,
        store::{Key, Objects, follow},
    },
    systems::ip_rule::settings::IpRuleSettings,
};

/// What an Agent runs with is not watched, but for its DaemonSet: it is written again after this time.
const AGAIN: Duration = Duration::from_secs(300);

/// Why an Agent runs nothing, or not what it is to run; the reason stays the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    reason: &'static str,
    text: String,
}

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
    /// Those of others, too: the deciding part looks at them as well.
    context: Context<Agent>,
    running: Arc<Objects<Running>>,
    /// The Agent for which all was written last, and when.
    written: Mutex<Option<(Text, Instant)>>,
}

fn view(set: DaemonSet) -> Option<Running> {
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

impl Controller for Agents {
    type View = Agent;

    const METRIC: &'static str = "agent";
    const WORKERS: usize = 1;

    fn context(&self) -> &Context<Agent> {
        &self.context
    }

    async fn completed(&self) {
        self.running.completed().await;
        self.context.objects.completed().await;
    }

    async fn reconcile(&self, key: &Key, agent: Option<Arc<Agent>>) -> Reconciled {
        match agent {
            Some(agent) => self.bring(key, &agent).await,
            None => Ok(Next::Done),
        }
    }

    /// What it runs goes with it by its owner reference.
    async fn release(&self, _: &Key, _: &Meta, _: Option<Arc<Agent>>) -> Reconciled {
        Ok(Next::Done)
    }
}

impl Agents {
    pub fn start(
        site: &Arc<Site>,
        events: &Arc<Events>,
        all: &Arc<Objects<Agent>>,
        tasks: &mut JoinSet<()>,
    ) -> Arc<Self> {
        let agents = Arc::new(Self {
            context: Context::of_site(AGENT, site, events, all),
            running: Objects::new(),
            written: Mutex::default(),
        });
        let api: Api<_> = Api::all(site.session.client.clone());
        let only = format!("metadata.name={AGENT_WORKLOAD}");
        let only = watcher::Config::default().fields(&only);
        let (followed, cancel) = (Arc::clone(&agents), site.cancel());
        tasks.spawn(async move {
            let changed = |_: &Key| followed.changed();
            follow(
                api,
                only,
                Arc::clone(&followed.running),
                view,
                changed,
                followed.context.site.memory(),
                cancel,
            )
            .await;
        });
        reconcile::work(&agents, tasks);
        agents
    }

    /// One Agent or its DaemonSet changed: what any of them is to say may be something else.
    pub fn changed(&self) {
        self.context.queue_all();
    }

    async fn bring(&self, key: &Key, agent: &Agent) -> Reconciled {
        let all = self.context.objects.all();
        let standing = standing(key, &all);
        let running = self.running(key, &agent.meta.uid);
        let done = match standing {
            Standing::Active => self.run(key, agent).await,
            // Two would program one node: the DaemonSet of one that was active goes.
            Standing::Inactive(_) | Standing::InvalidName => {
                self.stop(key, running.as_deref()).await.map(|()| None)
            }
        };
        // What went wrong is said on the object before it is tried again.
        let (obstacle, trouble) = match done {
            Ok(obstacle) => (obstacle, None),
            Err(trouble) => (Some(Obstacle::of(&trouble)), Some(trouble)),
        };
        if let Some(Obstacle { reason, text }) = &obstacle {
            self.context
                .warn(key, &agent.meta.uid, reason, text.clone());
        }
        let after = status::desired(
            agent,
            &standing,
            running.as_deref(),
            obstacle.as_ref(),
            jiff::Timestamp::now(),
        );
        let (uid, change) = (&agent.meta.uid, (&agent.status, &after));
        let view = Agent::of::<RawAgent>;
        self.context.show_status(key, uid, change, view).await?;
        trouble.map_or(Ok(Next::After(AGAIN)), Err)
    }

    async fn stop(&self, key: &Key, running: Option<&Running>) -> Reconciled<()> {
        if let Some(running) = running {
            let set = DAEMON_SET.named(&key.namespace, AGENT_WORKLOAD);
            self.context.remote.delete(&set, &running.uid).await?;
        }
        Ok(())
    }

    /// Has the pods of an Agent run; answers why they do not.
    async fn run(&self, key: &Key, agent: &Agent) -> Reconciled<Option<Obstacle>> {
        let settings = self.context.site.session.settings.of::<IpRuleSettings>();
        let image = match image(&agent.spec.image, settings.agent_image()) {
            Ok(image) => image,
            Err(obstacle) => return Ok(Some(obstacle)),
        };
        let workload = Workload {
            agent: key.clone(),
            uid: agent.meta.uid.to_string(),
            cluster: self.context.site.name.to_string(),
            image,
            spec: agent.spec.clone(),
        };
        let wanted = workload.daemon_set();
        if self.is_so(key, &agent.meta.uid, &wanted) {
            return Ok(None);
        }
        let namespace = &*key.namespace;
        for (kind, namespace, object) in [
            (SERVICE_ACCOUNT, namespace, workload.account()),
            (CLUSTER_ROLE_BINDING, "", workload.binding()),
            (CONFIG_MAP, namespace, workload.config()),
            (DAEMON_SET, namespace, wanted),
        ] {
            let target = kind.named(namespace, AGENT_WORKLOAD);
            let remote = &self.context.remote;
            remote.patch(&target, Patch::Apply, &object).await?;
        }
        *self.written.lock() = Some((Text::clone(&agent.meta.uid), Instant::now()));
        Ok(None)
    }

    /// The DaemonSet of the Agent with this UID.
    fn running(&self, key: &Key, agent: &Text) -> Option<Arc<Running>> {
        let found = self.running.get(&Key::new(&key.namespace, AGENT_WORKLOAD));
        found.filter(|found| found.owner.as_ref() == Some(agent))
    }

    /// Whether its DaemonSet is as wanted, and what belongs to that was written a while ago at most.
    fn is_so(&self, key: &Key, agent: &Text, wanted: &Value) -> bool {
        let written = self.written.lock();
        let lately = written
            .as_ref()
            .is_some_and(|(of, at)| of == agent && at.elapsed() < AGAIN);
        let found = self.running(key, agent);
        let has_part = |path: &str| {
            let found = found.as_ref().and_then(|found| found.object.pointer(path));
            found
                .zip(wanted.pointer(path))
                .is_some_and(|(found, wanted)| has(found, wanted))
        };
        lately && has_part("/metadata/labels") && has_part("/spec")
    }
}

impl Obstacle {
    fn of(trouble: &ReconcileError) -> Self {
        Self {
            reason: "NotApplied",
            text: format!("{trouble}; it is tried again"),
        }
    }
}

/// The image that an Agent's pods run: its own, or what fipd is told. The original's is never run: its rules have no tag.
fn image(own: &str, told: Option<String>) -> Result<String, Obstacle> {
    let told = told.filter(|told| !is_original(told));
    let missing = "neither agent-image in [cluster.ip-rule] nor RELATED_IMAGE_AGENT_IMAGE says which image of fipd it is to run";
    match (own, told) {
        (own, told) if is_original(own) => told.ok_or_else(|| Obstacle {
            reason: "OriginalImage",
            text: format!(
                "spec.image {own:?} is the original's agent, which would make rules beside fipd's, and {missing}: nothing is run"
            ),
        }),
        ("", Some(told)) => Ok(told),
        ("", None) => Err(Obstacle {
            reason: "NoImage",
            text: format!("spec.image is empty, and {missing}: nothing is run"),
        }),
        (own, _) => Ok(own.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_runs_fipd_and_never_the_originals_image() {
        let told = || Some("r/fipd:1".to_owned());
        assert_eq!(image("mine:1", told()).unwrap(), "mine:1");
        assert_eq!(image("", told()).unwrap(), "r/fipd:1");
        assert_eq!(image("x/iprule-agent:v1.0.0", told()).unwrap(), "r/fipd:1");
        let reason =
            |own: &str, told: Option<&str>| image(own, told.map(str::to_owned)).unwrap_err().reason;
        assert_eq!(reason("", None), "NoImage");
        assert_eq!(reason("", Some("iprule-agent:latest")), "NoImage");
        assert_eq!(reason("iprule-agent:latest", None), "OriginalImage");
    }
}
