//! The part of a host that is a Node of the cluster: it wants the rules of the IPRuleConfigs in whose scope it is, and says on
//! each what became of it. It decides nothing and writes nothing but its own annotations, so that any number of hosts run it.
//!
//! ```text
//!  IPRuleConfigs, IPRules, Agents, own Node --wants--> RuleBoard --engine--> kernel
//!                      annotations <-- reports <-- progress
//! ```

mod news;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::Text;
use fipd_crds::ip_rule::{Agent as RawAgent, IPRule, IPRuleConfig};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Node as RawNode;
use kube::{Api, runtime::watcher};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

pub use self::plan::LastRules;
use self::{
    news::{Said, news},
    plan::{Belongs, NodeInput, is_absent_by_hand, plan},
};
use super::{
    agent::standing::winner,
    gather,
    names::CONFIG,
    observe::{self, Agent, Config, Machine, Node, Rule},
};
use crate::{
    controller::{
        ReconcileError,
        client::{CallError, Patch, Remote},
        queue::{Next, Queue},
        reconcile::work_on,
        site::Site,
        store::{Key, Objects, follow},
        tasks::{finish, spawn},
    },
    rules,
    rules::{NodeFound, Reached, Revision, RuleBoard},
    system::HostMeans,
    systems::ip_rule::settings::WISHES,
};

/// A rule whose object went without having been made absent stays so long: the object is mostly made anew.
const GRACE: Duration = Duration::from_secs(2);
/// All is looked at so often without any change.
const AGAIN: Duration = Duration::from_secs(60);
/// Reports at once.
const REPORTS: usize = 8;
/// For the last words at the stop, that the rules are gone; the daemon waits little longer.
const LEAVE: Duration = Duration::from_millis(4_500);
const LAST_WORDS: usize = 32;

/// Who wants the rules of a cluster.
pub fn wisher(cluster: &str) -> Text {
    rules::wisher(WISHES, cluster)
}

/// See the module.
pub struct NodePart {
    site: Arc<Site>,
    remote: Remote,
    board: RuleBoard,
    /// The Node that this host is.
    node: Text,
    /// Whether this is the pod of an Agent.
    agent: bool,
    machine: Machine,
    configs: Arc<Objects<Config>>,
    rules: Arc<Objects<Rule>>,
    agents: Arc<Objects<Agent>>,
    nodes: Arc<Objects<Node>>,
    affected: Notify,
    seen: Arc<Mutex<LastRules>>,
    /// What was said last that counts, and how the kernel is since.
    told: Mutex<Option<(Arc<Said>, Arc<Reached>)>>,
    reports: Arc<Queue<Key>>,
}

impl NodePart {
    /// `seen`: what an earlier session of the same cluster understood.
    pub fn new(
        site: Arc<Site>,
        board: RuleBoard,
        means: &HostMeans,
        seen: Arc<Mutex<LastRules>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            remote: Remote::new(site.session.client.clone()),
            site,
            board,
            node: Text::clone(&means.node),
            agent: means.agent.is_some(),
            machine: Machine::this(),
            configs: Objects::new(),
            rules: Objects::new(),
            agents: Objects::new(),
            nodes: Objects::new(),
            affected: Notify::new(),
            seen,
            told: Mutex::default(),
            reports: Queue::new(),
        })
    }

    /// Until the session ends. What is wanted then stays wanted: the cluster has only become silent.
    pub async fn run(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        self.watch(&mut tasks);
        let cancel = self.site.cancel();
        let complete = async {
            self.configs.completed().await;
            self.rules.completed().await;
            self.agents.completed().await;
            self.nodes.completed().await;
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            () = complete => {}
        }
        let (queue, report) = ((&self.reports, REPORTS), (&self, Self::report));
        tasks.spawn(work_on(&self.site, "ipruleconfig-node", queue, report));
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.follow() => {}
        }
        finish(tasks).await;
    }

    fn watch(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let site = &self.site;
        let wake = || {
            let all = Arc::clone(self);
            move |_: &Key| all.affected.notify_one()
        };
        let (all, node) = (Arc::clone(self), Text::clone(&self.node));
        let view = move |one: IPRuleConfig| Some(observe::config_on(one, &node));
        let changed = move |key: &Key| {
            all.reports.add(key.clone());
            all.affected.notify_one();
        };
        spawn(tasks, site, Arc::clone(&self.configs), view, changed);
        let view = |one: IPRule| Some(Rule::of(one));
        spawn(tasks, site, Arc::clone(&self.rules), view, wake());
        let view = |one: RawAgent| Some(Agent::of(one));
        spawn(tasks, site, Arc::clone(&self.agents), view, wake());
        let api: Api<_> = Api::all(site.session.client.clone());
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.node));
        let view = |one: RawNode| Some(observe::node(one));
        tasks.spawn(follow(
            api,
            only,
            Arc::clone(&self.nodes),
            view,
            wake(),
            site.memory(),
            site.cancel(),
        ));
    }

    /// Says what is wanted with every change, and notes what the kernel has.
    async fn follow(&self) {
        let mut progress = self.board.progress();
        let mut views = self.board.views();
        let mut vrfs = self.board.view().vrfs.clone();
        loop {
            let began = Instant::now();
            let said = self.want();
            let looked = Instant::now();
            let waits = self.seen.lock().waits();
            let again = sleep(if waits { GRACE } else { AGAIN });
            tokio::pin!(again);
            let mut noted: Option<Arc<Reached>> = None;
            loop {
                let reached = Arc::clone(&progress.borrow_and_update());
                let alike = noted.as_ref().is_some_and(|noted| noted.is_alike(&reached));
                if let Some((revision, said)) = &said
                    && reached.revision >= *revision
                    && !alike
                {
                    self.note(Arc::clone(said), Arc::clone(&reached));
                    noted = Some(reached);
                }
                tokio::select! {
                    () = self.affected.notified() => break,
                    () = &mut again => break,
                    // The board lives in self: neither channel ends.
                    Ok(()) = progress.changed() => {}
                    Ok(()) = views.changed() => {
                        let now = views.borrow_and_update().vrfs.clone();
                        if std::mem::replace(&mut vrfs, now) != vrfs {
                            break;
                        }
                    }
                }
            }
            sleep_until(looked + gather(looked - began)).await;
        }
    }

    /// The Node that has the name of this host.
    fn this_node(&self) -> Option<Arc<Node>> {
        self.nodes.get(&Key::new("", &self.node))
    }

    /// Whether the Node of this name is certainly another machine. This host has nothing to say of it then.
    fn is_another(&self, node: Option<&Node>) -> bool {
        node.is_some_and(|node| node.machine.is_other(&self.machine))
    }

    fn tell_found(&self, node: Option<&Node>) {
        let (cluster, name) = (&self.site.name, &self.node);
        let found = match node {
            Some(_) if self.is_another(node) => NodeFound::Other(format!(
                "Node {name} of cluster {cluster} is another machine, as its machineID and bootID say: no rule of that cluster \
                 is wanted on this host. See node in [host]"
            )),
            Some(_) => NodeFound::Here,
            None => NodeFound::Nowhere,
        };
        self.board.found(&wisher(cluster), found);
    }

    /// Says what is wanted. Answers that, and the revision from which on it counts. `None`: it is not known yet.
    fn want(&self) -> Option<(Revision, Arc<Said>)> {
        let node = self.this_node();
        self.tell_found(node.as_deref());
        if self.is_another(node.as_deref()) {
            *self.told.lock() = None;
            self.board.want(&wisher(&self.site.name), Vec::new());
            return None;
        }
        let agents = self.agents.all();
        let counts = winner(&agents);
        let rules = self.rules.all().into_iter();
        let vrfs = self.board.view().vrfs.clone();
        let malformed = self.configs.malformed().into_iter();
        let before = self.board.wish(&wisher(&self.site.name));
        let want = NodeInput {
            cluster: &self.site.name,
            name: &self.node,
            node: node.as_deref(),
            rules: rules.map(|(key, rule)| (key.name, rule)).collect(),
            agent: match (self.agent, counts) {
                (false, _) => Belongs::Nobody,
                // Also another than its own: that one's pods come in its place.
                (true, Some((_, agent))) => Belongs::To(&agent.spec.node_selector),
                (true, None) => Belongs::Left,
            },
            agents_fit: self.agents.malformed().is_empty(),
            vrfs: vrfs.as_deref(),
            malformed: malformed.map(|(key, _)| key.name).collect(),
            before: before.as_deref().map_or(&[], Vec::as_slice),
        };
        let configs = self.configs.values();
        let mut seen = self.seen.lock();
        let (sets, present) = plan(&want, &configs, &mut seen, Instant::now(), GRACE)?;
        let wanted: BTreeSet<_> = sets.iter().flat_map(|set| &set.sources).copied().collect();
        let gone = |config: &&Arc<Config>| {
            config.is_ours()
                && !config.is_present()
                && !is_absent_by_hand(config)
                && config
                    .source()
                    .is_none_or(|source| !wanted.contains(&source))
        };
        let absent = configs.iter().filter(gone);
        let absent = absent.map(|config| (Text::clone(&config.meta.name), config.meta.generation));
        let said = Said {
            absent: absent.collect(),
            present,
        };
        let revision = self.board.want(&wisher(&self.site.name), sets);
        Some((revision, Arc::new(said)))
    }

    /// So the kernel is: each object of which there is something to say is queued.
    fn note(&self, said: Arc<Said>, reached: Arc<Reached>) {
        *self.told.lock() = Some((said, reached));
        for (key, config) in self.configs.all() {
            if self.news(&config).is_some() {
                self.reports.add(key);
            }
        }
    }

    fn news(&self, config: &Config) -> Option<(Patch, Value)> {
        let (said, reached) = self.told.lock().clone()?;
        news(config, &self.node, &said, &reached)
    }

    /// After the session: the rules of this host go with fipd, and nobody is to wait for it.
    pub async fn take_leave(self: Arc<Self>) {
        if self.is_another(self.this_node().as_deref()) {
            return;
        }
        let leave = async {
            let mut progress = self.board.progress();
            // What goes is told step by step.
            loop {
                let reached = match progress.wait_for(|reached| reached.flushed).await {
                    Ok(reached) => Arc::clone(&reached),
                    Err(_) => return,
                };
                self.last_words(&reached).await;
                if reached.lingering.is_empty() || progress.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(LEAVE, leave).await.is_err() {
            tracing::warn!(
                cluster = &*self.site.name,
                "not all IPRuleConfigs could be told that the rules of this host are gone; those are waited for as long as \
                 silent-timeout says"
            );
        }
    }

    async fn last_words(self: &Arc<Self>, reached: &Arc<Reached>) {
        let before = self.told.lock().as_ref().map(|(said, _)| Arc::clone(said));
        let said = before.as_deref().cloned().unwrap_or_default();
        let said = Said {
            present: BTreeMap::new(),
            ..said
        };
        *self.told.lock() = Some((Arc::new(said), Arc::clone(reached)));
        let all = self.configs.all().into_iter();
        let all = all.filter(|(_, config)| self.news(config).is_some());
        let words = futures::stream::iter(all);
        let say = |(key, _)| Arc::clone(self).report(key).map(drop);
        words.for_each_concurrent(LAST_WORDS, say).await;
    }

    async fn report(self: Arc<Self>, key: Key) -> Next {
        let Some(config) = self.configs.get(&key) else {
            return Next::Done;
        };
        let Some((patch, body)) = self.news(&config) else {
            return Next::Done;
        };
        match self
            .remote
            .patch_seen::<IPRuleConfig>(&CONFIG.target(&key), patch, &body)
            .await
        {
            Ok(after) => {
                self.keep(&key, &config, observe::config_on(after, &self.node));
                Next::Done
            }
            // Gone, or changed since: the watch tells.
            Err(CallError::NotFound(_) | CallError::Conflict(..)) => Next::Done,
            // A failed `test` comes as 422.
            Err(CallError::Rejected(..)) if patch == Patch::Json => {
                Next::After(Duration::from_secs(5))
            }
            Err(error) => ReconcileError::from(error).next(CONFIG.kind, &key),
        }
    }

    /// Keeps the answer to our write, unless it shows somebody else's change or the watch reported one meanwhile: what is kept
    /// has no version that would tell which is later. The watch delivers those; after the session, when none runs, such a
    /// report may be sent twice.
    fn keep(&self, key: &Key, before: &Config, after: Config) {
        if observe::without_reports(before) == observe::without_reports(&after) {
            self.configs.update(key, after, |seen, _| seen != before);
        }
    }
}

#[cfg(test)]
mod tests;
