//! The deciding part: from IPRules and Services to IPRuleConfigs, and what became of each in its status.

mod config;
mod rule;

pub use self::{config::Configs, rule::Rules};

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::Text;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::metrics as figures;
use super::{
    config_change::{is_overgrown, is_so},
    gather,
    names::{CONFIG, RULE},
    observe::{Agent, Config, Machine, Node, Rule, Slice, Svc},
    plan::{ConfigPlan, PlanInput, plan, wants_endpoints},
};
use crate::{
    controller::{
        Reconciled,
        client::Remote,
        context::Context,
        events::Events,
        queue::{Next, Queue},
        site::Site,
        store::{Key, Objects},
    },
    nodes::{AgentView, NodeView, Nodes},
};

/// A status is written so long after what it is about at the earliest.
const SHOW_AFTER: Duration = Duration::from_secs(1);
/// EndpointSlices that are not read yet are waited for so long before it is decided without them.
const PODS: Duration = Duration::from_secs(5);
const LOOK_FOR_PODS: Duration = Duration::from_millis(200);

/// The deciding part for a cluster.
pub struct Decider {
    pub(super) site: Arc<Site>,
    pub rules: Context<Rule>,
    pub configs: Context<Config>,
    pub services: Arc<Objects<Svc>>,
    pub slices: Arc<Objects<Slice>>,
    pub nodes: Arc<Objects<Node>>,
    pub agents: Arc<Objects<Agent>>,
    /// One key: all of it.
    pub all: Arc<Queue<Key>>,
    pub status_queue: Arc<Queue<Key>>,
    /// Whether the pods behind Services are to be followed.
    pub needs_slices: watch::Sender<bool>,
    plan: Mutex<Option<Arc<ConfigPlan>>>,
    /// How long the last look took.
    looking: Mutex<Duration>,
    /// When the cluster was last asked who it is.
    verified: Mutex<Option<Instant>>,
    /// Since when EndpointSlices are needed and not known.
    pods_unknown: Mutex<Option<Instant>>,
}

/// What stands for all of it.
pub fn everything() -> Key {
    Key::new("", "")
}

impl Decider {
    pub fn new(
        site: Arc<Site>,
        remote: Remote,
        events: Arc<Events>,
        config_queue: Arc<Queue<Key>>,
    ) -> Arc<Self> {
        let (own, client, all) = (Arc::clone(&site), remote.clone(), Arc::clone(&events));
        let rules = Context::new(RULE, own, client, all, Objects::new());
        let configs = Context::new(CONFIG, Arc::clone(&site), remote, events, Objects::new());
        Arc::new(Self {
            site,
            rules,
            configs: configs.with_queue(config_queue),
            services: Objects::new(),
            slices: Objects::new(),
            nodes: Objects::new(),
            agents: Objects::new(),
            all: Queue::new(),
            status_queue: Queue::new(),
            needs_slices: watch::Sender::new(false),
            plan: Mutex::default(),
            looking: Mutex::default(),
            verified: Mutex::default(),
            pods_unknown: Mutex::default(),
        })
    }

    /// Something that decides about all changed: soon there is a look at it, so that many changes at once are one.
    pub fn changed(&self) {
        self.all
            .add_after(everything(), gather(*self.looking.lock()));
    }

    /// An IPRuleConfig changed, or went.
    pub fn config_changed(&self, key: &Key) {
        self.configs.queue.add(key.clone());
        self.status_queue.add_after(key.clone(), SHOW_AFTER);
        if self.configs.objects.seen(key).is_none() {
            // It may have been the last one that an IPRule waits for.
            let rules = self.rules.objects.all().into_iter();
            let ending = rules.filter(|(_, rule)| rule.meta.is_terminating());
            let ending = ending.map(|(key, _)| key);
            let malformed = self.rules.objects.malformed().into_iter();
            let waiting = ending.chain(malformed.map(|(key, _)| key));
            waiting.for_each(|key| self.rules.queue.add(key));
        }
    }

    /// Nodes came, went or turned, or what nodes are in scope did.
    pub fn nodes_changed(&self) {
        for (key, config) in self.configs.objects.all() {
            if !config.is_present() {
                self.configs.queue.add(key.clone());
            }
            self.status_queue.add_after(key, SHOW_AFTER);
        }
    }

    /// Waits until all lists are complete: what is not in an incomplete one may be there.
    pub async fn completed(&self) {
        self.rules.objects.completed().await;
        self.configs.objects.completed().await;
        self.services.completed().await;
        self.nodes.completed().await;
        self.agents.completed().await;
    }

    /// Looks at everything together.
    pub async fn look(self: Arc<Self>, key: Key) -> Next {
        match self.try_look().await {
            Ok(next) => next,
            Err(trouble) => trouble.next("all IPRules", &key),
        }
    }

    async fn try_look(&self) -> Reconciled {
        let rules = self.rules.objects.values();
        let needs = wants_endpoints(&rules);
        self.needs_slices
            .send_if_modified(|now| std::mem::replace(now, needs) != needs);
        let unknown = needs && !self.slices.is_complete();
        if self.waits_for_pods(unknown) {
            return Ok(Next::After(LOOK_FOR_PODS));
        }
        let mut failed = None;
        let bare = |rule: &&Arc<Rule>| !rule.is_protected() && !rule.meta.is_terminating();
        for rule in rules.iter().filter(bare) {
            // Before there is anything to remove.
            if let Err(trouble) = self.protect(rule).await {
                failed = Some(trouble);
            }
        }
        let began = Instant::now();
        let now = Arc::new(plan(&self.known(rules)));
        let before = self.plan.lock().replace(Arc::clone(&now));
        self.enqueue(before.as_deref(), &now);
        self.count(&now);
        *self.looking.lock() = began.elapsed();
        let again = match unknown {
            true => now.again().min(LOOK_FOR_PODS),
            false => now.again(),
        };
        failed.map_or(Ok(Next::After(again)), Err)
    }

    /// Whether to look again before anything is decided: EndpointSlices are mostly read within a moment.
    fn waits_for_pods(&self, unknown: bool) -> bool {
        let mut since = self.pods_unknown.lock();
        if !unknown {
            *since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() < PODS
    }

    fn known(&self, rules: Vec<Arc<Rule>>) -> PlanInput {
        let slices = match *self.needs_slices.borrow() {
            true => self.slices.is_complete().then(|| self.slices.values()),
            false => Some(Vec::new()),
        };
        // One that is being deleted holds nothing: what came of it goes first.
        let malformed = self.rules.objects.malformed().into_iter();
        let malformed = malformed.filter(|(_, object)| object.meta.deleted.is_none());
        PlanInput {
            rules,
            malformed: malformed.map(|(key, _)| key.name).collect(),
            services: self.services.all(),
            slices,
        }
    }

    /// Queues what is not as it is to be, and the IPRules of which something else is to be said.
    fn enqueue(&self, before: Option<&ConfigPlan>, now: &ConfigPlan) {
        for (name, wanted) in &now.wanted {
            let key = Key::new("", name);
            let found = self.configs.objects.get(&key);
            if found.is_none_or(|found| !is_so(&found, wanted)) {
                self.configs.queue.add(key);
            }
        }
        let nodes = self.nodes.keys().len();
        for (key, config) in self.configs.objects.all() {
            if is_overgrown(&config, nodes) || !now.wanted.contains_key(&key.name) {
                self.configs.queue.add(key);
            }
        }
        for key in self.rules.objects.keys() {
            self.rules.queue.add(key);
        }
        if before.is_some_and(|before| before.nodes != now.nodes) {
            self.nodes_changed();
        }
    }

    fn count(&self, plan: &ConfigPlan) {
        let configs = self.configs.objects.all();
        let absent = configs
            .iter()
            .filter(|(_, config)| config.is_ours() && !config.is_present());
        figures::stand(&self.site.name, plan.wanted.len(), absent.count());
    }

    fn node_map(&self) -> BTreeMap<Text, Arc<Node>> {
        let nodes = self.nodes.all().into_iter();
        nodes.map(|(key, node)| (key.name, node)).collect()
    }
}

/// What the label of a role begins with; the role is the rest of its key.
const ROLE: &str = "node-role.kubernetes.io/";

impl Nodes for Decider {
    fn nodes(&self) -> Vec<NodeView> {
        let this = Machine::this();
        let view = |(name, node): (Text, Arc<Node>)| NodeView {
            roles: roles(&node.labels),
            unready: node.unready,
            here: !node.machine.id.is_empty() && node.machine.id == this.id,
            name,
        };
        self.node_map().into_iter().map(view).collect()
    }

    fn agents(&self) -> Vec<AgentView> {
        let view = |(key, agent): (Key, Arc<Agent>)| AgentView {
            name: format!("{}/{}", key.namespace, key.name),
            wanted: agent.status.desired_number_scheduled,
            ready: agent.status.number_ready,
        };
        self.agents.all().into_iter().map(view).collect()
    }
}

fn roles(labels: &BTreeMap<String, String>) -> Vec<String> {
    let roles = labels.keys().filter_map(|key| key.strip_prefix(ROLE));
    roles.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_the_rest_of_its_label() {
        let labels = [
            "node-role.kubernetes.io/control-plane",
            "node-role.kubernetes.io/etcd",
            "zone",
        ];
        let labels = labels.map(|key| (key.to_owned(), String::new()));
        assert_eq!(roles(&labels.into()), ["control-plane", "etcd"]);
    }
}
