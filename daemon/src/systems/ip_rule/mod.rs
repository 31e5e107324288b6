//! The ip-rule family: which sources go by which routing table, decided in a cluster and brought to its nodes.
//!
//! ```text
//!  IPRule, Service, EndpointSlice --assign--> IPRuleConfig (one a source) --> node part --> RuleBoard --> kernel
//!                                                 ^    annotations of nodes       |
//!                                                 +-------------------------------+
//! ```
//!
//! The deciding part runs where fipd leads, the node part wherever this host is a Node of the cluster. An IPRuleConfig goes
//! in two steps: it is made absent, and deleted once every node in scope has confirmed or is gone. Finalizers keep it and its
//! IPRule until then, whatever the garbage collector thinks. What cannot be understood, and what a list that is not whole
//! lacks, stays as it was.

pub mod admission;
pub mod adopt;
pub mod agent;
mod compat;
mod config_change;
mod decide;
mod host;
mod leaving;
pub mod metrics;
pub mod names;
mod node;
mod observe;
mod plan;
pub mod settings;
mod status;
mod validate;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::{System, Text};
use fipd_crds::ip_rule::{Agent, IPRule, IPRuleConfig};
use futures::future::BoxFuture;
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, runtime::watcher};
use tokio::task::JoinSet;

use self::{
    adopt::RuleTakeover,
    agent::Agents,
    decide::{Configs, Decider, Rules},
    host::RuleHost,
    node::NodePart,
};
use self::{node::wisher, settings::WISHES};
use crate::{
    admission::{Asks, Judge},
    adopt::Takeover,
    clusters::ClusterSession,
    config::{ClusterSettings, SystemConfig},
    controller::{
        client::Remote,
        endpoint::OwnEndpoint,
        leader_election::{self, Wanted},
        queue::Queue,
        reconcile,
        site::Site,
        store::{Key, follow},
        tasks::{count, events_behind, finish, spawn},
        webhook,
    },
    detach::Leaving,
    metrics::rules::register_original,
    nodes::NodeBoard,
    system::{self, Means, RunningSystem},
    systems::ip_rule::settings::IpRuleSettings,
};
use prometheus_client::registry::Registry;

/// Reconciles at once.
const STATUS_AT_ONCE: usize = 4;
/// Between losing the leadership and trying to have it again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long news are gathered before everything is looked at again, where the last look took that long: a look goes over all
/// objects, and is to take a fifth of the time at most.
fn gather(took: Duration) -> Duration {
    (took * 4).clamp(Duration::from_millis(2), Duration::from_secs(1))
}

/// The system.
pub struct IpRule;

impl system::System for IpRule {
    fn config(&self) -> &'static SystemConfig {
        &settings::CONFIG
    }

    fn asks(&self) -> Option<&'static Asks> {
        Some(&admission::ASKS)
    }

    #[cfg(any(test, feature = "fuzz"))]
    fn fuzz(&self) -> Option<crate::admission::FuzzJudge> {
        Some(admission::judge)
    }

    fn adopts(&self) -> Option<&'static str> {
        Some("Rules of the daemon's host that ip-rule-operator made")
    }

    fn leaving(&self) -> &'static dyn Leaving {
        &leaving::IpRuleLeaving
    }

    fn start(&self, means: &Means) -> Arc<dyn RunningSystem> {
        Arc::new(RunningIpRule::new(means))
    }
}

/// The system in a daemon.
#[derive(Clone)]
pub struct RunningIpRule {
    means: Means,
    host: Option<RuleHost>,
}

impl RunningIpRule {
    pub fn new(means: &Means) -> Self {
        let host = means.host.clone();
        Self {
            host: host.map(|host| RuleHost::new(means.rules.clone(), host)),
            means: means.clone(),
        }
    }
}

impl RunningSystem for RunningIpRule {
    fn set_clusters(&self, clusters: &BTreeMap<&Text, &ClusterSettings>) {
        // What other clusters wanted of this host is not wanted any more.
        if let Some(host) = &self.host {
            let all = clusters.keys().map(|name| wisher(name));
            host.board.set_expectations(WISHES, all.collect());
            host.keep_seen(|name| clusters.contains_key(name));
        }
    }

    fn judge(&self) -> Option<Arc<dyn Judge>> {
        Some(Arc::new(admission::RuleJudge))
    }

    fn takeover(&self) -> Option<Arc<dyn Takeover>> {
        let Means { me, rules, .. } = &self.means;
        Some(Arc::new(RuleTakeover::new(me.clone(), rules.clone())))
    }

    fn register_metrics(&self, registry: &mut Registry) {
        register_original(registry, self.means.rules.clone());
        if !self.means.only_host {
            metrics::register(registry);
        }
    }

    fn run(&self, session: ClusterSession) -> BoxFuture<'static, ()> {
        let system = self.clone();
        Box::pin(async move {
            let node = async {
                if let Some(host) = &system.host {
                    let seen = host.seen(&session.name, &session.id);
                    let site = site_of(session.clone());
                    let part = NodePart::new(site, host.board.clone(), &host.means, seen);
                    Arc::clone(&part).run().await;
                    if host.is_leaving() {
                        part.take_leave().await;
                    }
                }
            };
            let decide = async {
                while !system.means.only_host && !session.cancel.is_cancelled() {
                    system.decide(session.clone()).await;
                    tokio::select! {
                        () = session.cancel.cancelled() => {}
                        () = tokio::time::sleep(PAUSE) => {}
                    }
                }
            };
            tokio::join!(node, decide, session.cancel.cancelled());
        })
    }
}

impl RunningIpRule {
    /// For as long as this daemon leads there.
    async fn decide(&self, session: ClusterSession) {
        let settings = session.settings.of::<IpRuleSettings>();
        let run = |session| serve(site_of(session), &self.means.endpoint, &self.means.nodes);
        if !settings.leader_elect {
            return run(session).await;
        }
        let wanted = Wanted {
            leases: vec![Key::new(
                &settings.lease_lock_namespace,
                &settings.lease_lock_name,
            )],
            me: Text::clone(&self.means.me),
        };
        leader_election::while_held(&session, &System::ip_rule(), &wanted, |_| {}, run).await;
    }
}

fn site_of(session: ClusterSession) -> Arc<Site> {
    Arc::new(Site::new(session, System::ip_rule()))
}

async fn serve(site: Arc<Site>, own: &OwnEndpoint, nodes: &NodeBoard) {
    let cancel = site.cancel();
    let remote = Remote::new(site.session.client.clone());
    let queue = Queue::<Key>::new();
    let events = events_behind(&site, &queue);
    let decider = Decider::new(Arc::clone(&site), remote, Arc::clone(&events), queue);
    nodes.tell(&site.name, &decider);
    count(&site, "IPRules", &decider.rules.objects);
    count(&site, "IPRuleConfigs", &decider.configs.objects);
    let mut tasks = JoinSet::new();
    let agents = Agents::start(&site, &events, &decider.agents, &mut tasks);
    watch(&site, &decider, &agents, &mut tasks);
    tokio::select! {
        () = cancel.cancelled() => return,
        () = decider.completed() => {}
    }
    work(&site, &decider, &mut tasks);
    decider.changed();
    let settings = &site.session.settings.of::<IpRuleSettings>().webhook;
    webhook::keep(&admission::ASKS, settings, own, &site, &events, &mut tasks);
    cancel.cancelled().await;
    finish(tasks).await;
    metrics::gone(&site.name);
}

fn watch(site: &Arc<Site>, decider: &Arc<Decider>, agents: &Arc<Agents>, tasks: &mut JoinSet<()>) {
    let all = Arc::clone(decider);
    let view = |one: IPRule| Some(observe::Rule::of(one));
    decider.rules.follow(tasks, view, move |key| {
        all.rules.queue.add(key.clone());
        all.changed();
    });
    let all = Arc::clone(decider);
    let view = |one: IPRuleConfig| Some(observe::config(one));
    let configs = &decider.configs;
    configs.follow(tasks, view, move |key| all.config_changed(key));
    let then = |act: fn(&Decider)| {
        let all = Arc::clone(decider);
        move |_: &Key| act(&all)
    };
    let services = Arc::clone(&decider.services);
    spawn::<Service, _>(
        tasks,
        site,
        services,
        observe::service,
        then(Decider::changed),
    );
    let view = |one: Node| Some(observe::node(one));
    let nodes = Arc::clone(&decider.nodes);
    spawn(tasks, site, nodes, view, then(Decider::nodes_changed));
    let all = Arc::clone(decider);
    let view = |one: Agent| Some(observe::Agent::of(one));
    let agents = Arc::clone(agents);
    spawn(tasks, site, Arc::clone(&decider.agents), view, move |_| {
        all.nodes_changed();
        agents.changed();
    });
    tasks.spawn(watch_slices(Arc::clone(site), Arc::clone(decider)));
}

/// From the first IPRule on that needs them.
async fn watch_slices(site: Arc<Site>, decider: Arc<Decider>) {
    let cancel = site.cancel();
    let mut needs = decider.needs_slices.subscribe();
    tokio::select! {
        () = cancel.cancelled() => return,
        // The sender lives in the decider: it cannot go away while this waits.
        _ = needs.wait_for(|needs| *needs) => {}
    }
    follow::<EndpointSlice, _>(
        Api::all(site.session.client.clone()),
        watcher::Config::default(),
        Arc::clone(&decider.slices),
        observe::slice,
        |_: &Key| decider.changed(),
        site.memory(),
        cancel,
    )
    .await;
}

fn work(site: &Arc<Site>, decider: &Arc<Decider>, tasks: &mut JoinSet<()>) {
    let look = (decider, Decider::look);
    tasks.spawn(reconcile::work_on(site, "iprules", (&decider.all, 1), look));
    reconcile::work(&Arc::new(Configs(Arc::clone(decider))), tasks);
    let (queue, show) = (
        (&decider.status_queue, STATUS_AT_ONCE),
        (decider, Decider::show),
    );
    tasks.spawn(reconcile::work_on(site, "ipruleconfig-status", queue, show));
    reconcile::work(&Arc::new(Rules(Arc::clone(decider))), tasks);
}
