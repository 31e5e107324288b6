//! The part of a host that is a Node of the cluster: it wants the rules of the IPRuleConfigs in whose scope it is, and says on
//! each what became of it. It decides nothing and writes nothing but its own annotations, so that any number of hosts run it.
//!
//! ```text
//!  IPRuleConfigs, IPRules, Agents, own Node --wants--> RuleBoard --engine--> kernel
//!                      annotations <-- reports <-- progress
//! ```

mod wants;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::Text;
use fipd_crds::ip_rule::{
    APPLIED_PREFIX, Agent as RawAgent, CLEANUP_PREFIX, DONE, IPRule, IPRuleConfig,
};
use k8s_openapi::api::core::v1::Node as RawNode;
use kube::{Api, runtime::watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep},
};

use self::wants::{Seen, Want, wants};
use super::{
    agent::standing::active,
    names::{CONFIG, config_target, of_node, spec_hash},
    observe::{self, Agent, Config, Node, Rule},
    step::echo,
};
use crate::{
    clusters::adoption::PAGE,
    controllers::{
        Trouble,
        objects::{Key, Objects, follow_some},
        queue::{self, Next, Queue},
        remote::{CallError, Patch, Remote},
        site::Site,
        tasks::{finish, spawn},
    },
    metrics::reconcile::counted,
    rules::{Revision, RuleBoard},
};

/// How the wishes of clusters begin on the board.
pub const WISHES: &str = "ip-rule/";
/// Changes that come within this time are one.
const GATHER: Duration = Duration::from_millis(50);
/// A rule whose object went without having been made absent stays so long: the object is mostly made anew.
const GRACE: Duration = Duration::from_secs(2);
/// All is looked at so often without any change.
const AGAIN: Duration = Duration::from_secs(60);
/// Reports at once.
const REPORTS: usize = 8;

/// Who wants the rules of a cluster.
pub fn wisher(cluster: &str) -> Text {
    format!("{WISHES}{cluster}").into()
}

/// See the module.
pub struct NodePart {
    site: Arc<Site>,
    remote: Remote,
    board: RuleBoard,
    /// The Node that this host is.
    node: Text,
    configs: Arc<Objects<Config>>,
    rules: Arc<Objects<Rule>>,
    agents: Arc<Objects<Agent>>,
    nodes: Arc<Objects<Node>>,
    woken: Notify,
    /// What the kernel has, as of the last time that it was told.
    has: Mutex<Option<Arc<Has>>>,
    reports: Arc<Queue<Key>>,
}

/// What the kernel has.
#[derive(Default)]
struct Has {
    /// Hashes of the IPRuleConfigs whose rule is there.
    present: BTreeMap<Text, String>,
    /// Generations of those that are absent, and are not there.
    absent: BTreeMap<Text, Option<i64>>,
}

impl NodePart {
    pub fn new(site: Arc<Site>, board: RuleBoard, node: Text) -> Arc<Self> {
        Arc::new(Self {
            remote: Remote::new(site.session.client.clone()),
            site,
            board,
            node,
            configs: Objects::new(),
            rules: Objects::new(),
            agents: Objects::new(),
            nodes: Objects::new(),
            woken: Notify::new(),
            has: Mutex::default(),
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
        let worker = Arc::clone(&self);
        tasks.spawn(queue::run(
            Arc::clone(&self.reports),
            REPORTS,
            cancel.clone(),
            counted(&self.site.system, "ipruleconfig-node", move |key| {
                Arc::clone(&worker).report(key)
            }),
        ));
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
            move |_: &Key| all.woken.notify_one()
        };
        let all = Arc::clone(self);
        spawn(
            tasks,
            site,
            Arc::clone(&self.configs),
            |one: IPRuleConfig| Some(observe::config(one)),
            move |key| {
                all.reports.add(key.clone());
                all.woken.notify_one();
            },
        );
        spawn(
            tasks,
            site,
            Arc::clone(&self.rules),
            |one: IPRule| Some(observe::rule(one)),
            wake(),
        );
        spawn(
            tasks,
            site,
            Arc::clone(&self.agents),
            |one: RawAgent| Some(observe::agent(one)),
            wake(),
        );
        let api: Api<_> = Api::all(site.session.client.clone());
        let only = watcher::Config::default()
            .page_size(PAGE)
            .fields(&format!("metadata.name={}", self.node));
        let slim = |one: RawNode| Some(observe::node(one));
        tasks.spawn(follow_some(
            api,
            only,
            Arc::clone(&self.nodes),
            slim,
            wake(),
            site.cancel(),
        ));
    }

    /// Says what is wanted with every change, and notes what the kernel has.
    async fn follow(&self) {
        let mut seen = Seen::default();
        let mut progress = self.board.progress();
        let mut views = self.board.views();
        let mut vrfs = Arc::clone(&self.board.view().vrfs);
        loop {
            let (revision, has) = self.want(&mut seen);
            let again = sleep(if seen.waits() { GRACE } else { AGAIN });
            tokio::pin!(again);
            let mut told = false;
            loop {
                tokio::select! {
                    () = self.woken.notified() => break,
                    () = &mut again => break,
                    // The board lives in self: neither channel ends.
                    Ok(reached) = progress.wait_for(|reached| *reached >= revision), if !told => {
                        drop(reached);
                        told = true;
                        self.note(Arc::clone(&has));
                    }
                    Ok(()) = views.changed() => {
                        let now = Arc::clone(&views.borrow_and_update().vrfs);
                        if std::mem::replace(&mut vrfs, now) != vrfs {
                            break;
                        }
                    }
                }
            }
            sleep(GATHER).await;
        }
    }

    /// Says what is wanted, and what the kernel has once that is done.
    fn want(&self, seen: &mut Seen) -> (Revision, Arc<Has>) {
        let node = self.nodes.get(&Key::new("", &self.node));
        let agents = self.agents.all();
        let rules = self.rules.all().into_iter();
        let want = Want {
            cluster: &self.site.name,
            node: node.as_deref(),
            rules: rules.map(|(key, rule)| (key.name, rule)).collect(),
            agent: active(&agents).map(|agent| &agent.spec.node_selector),
            vrfs: &self.board.view().vrfs,
        };
        let configs: Vec<Arc<Config>> = self
            .configs
            .all()
            .into_iter()
            .map(|(_, config)| config)
            .collect();
        let (sets, present) = wants(&want, &configs, seen, Instant::now(), GRACE);
        let wanted: BTreeSet<_> = sets.iter().flat_map(|set| &set.sources).copied().collect();
        let gone = |config: &&Arc<Config>| {
            config.is_ours()
                && !config.is_present()
                && config
                    .source()
                    .is_none_or(|source| !wanted.contains(&source))
        };
        let absent = configs.iter().filter(gone);
        let absent = absent.map(|config| (Text::clone(&config.meta.name), config.meta.generation));
        let has = Has {
            absent: absent.collect(),
            present,
        };
        let revision = self.board.want(&wisher(&self.site.name), sets);
        (revision, Arc::new(has))
    }

    /// The kernel has it: each object of which there is something to say is queued.
    fn note(&self, has: Arc<Has>) {
        *self.has.lock() = Some(has);
        for (key, config) in self.configs.all() {
            if self.news(&config).is_some() {
                self.reports.add(key);
            }
        }
    }

    /// The patch that says what became of it, where it does not say so yet.
    fn news(&self, config: &Config) -> Option<(Patch, Value)> {
        let has = self.has.lock().clone()?;
        let (name, meta) = (&config.meta.name, &config.meta);
        let applied = of_node(APPLIED_PREFIX, &self.node);
        let cleaned = of_node(CLEANUP_PREFIX, &self.node);
        if !config.is_ours() {
            return None;
        }
        if config.is_present() {
            let says = config.annotations.get(&applied);
            let hash = has
                .present
                .get(name)
                .filter(|hash| **hash == spec_hash(&config.spec));
            let says_now = hash.map(|hash| echo(hash));
            // Without a rule here, in or out of scope, it says nothing.
            if says == says_now.as_ref()
                || meta.terminating
                || (says_now.is_none() && has.present.contains_key(name))
            {
                return None;
            }
            let body =
                json!({ "metadata": { "uid": meta.uid, "annotations": { applied: says_now } } });
            return Some((Patch::Merge, body));
        }
        let gone = has
            .absent
            .get(name)
            .is_some_and(|generation| *generation == meta.generation);
        if !gone
            || config
                .annotations
                .get(&cleaned)
                .is_some_and(|value| value == DONE)
            || config.annotations.is_empty()
        {
            return None;
        }
        let place = format!(
            "/metadata/annotations/{}",
            cleaned.replace('~', "~0").replace('/', "~1")
        );
        // Were it present again since, and absent once more, this would be a word of before.
        let body = json!([
            { "op": "test", "path": "/metadata/uid", "value": meta.uid },
            { "op": "test", "path": "/metadata/generation", "value": meta.generation },
            { "op": "add", "path": place, "value": DONE },
        ]);
        Some((Patch::Json, body))
    }

    async fn report(self: Arc<Self>, key: Key) -> Next {
        let Some((patch, body)) = self.configs.get(&key).and_then(|config| self.news(&config))
        else {
            return Next::Done;
        };
        match self
            .remote
            .patch_seen::<IPRuleConfig>(&config_target(&key.name), patch, &body)
            .await
        {
            Ok(after) => {
                self.configs.set(&key, observe::config(after));
                Next::Done
            }
            // Gone, or changed since: the watch tells.
            Err(CallError::NotFound(_) | CallError::Conflict(..)) => Next::Done,
            // A failed `test` comes as 422.
            Err(CallError::Rejected(..)) if patch == Patch::Json => {
                Next::After(Duration::from_secs(5))
            }
            Err(error) => Trouble::from(error).next(CONFIG, &key),
        }
    }
}
