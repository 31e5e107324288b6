//! The deciding part: from IPRules and Services to IPRuleConfigs, and what became of each in its status.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::Text;
use fipd_crds::ip_rule::{CONFIG_FINALIZER, IPRule, IPRuleConfig, RULE_FINALIZER};
use k8s_openapi::jiff;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use super::{
    agent::standing::active,
    names::{CONFIG, RULE, config_target, reference, rule_target},
    observe::{self, Agent, Config, Node, Rule, Slice, Svc},
    plan::{Known, Outlook, Told, outlook, wants_endpoints},
    status,
    step::{Scope, Step, is_so, step},
};
use crate::{
    clock,
    controllers::{
        Trouble,
        events::Events,
        merge::change,
        objects::{Key, Objects, Seen},
        queue::{Next, Queue},
        remote::{Patch, Remote},
        site::Site,
    },
    fip_rules::ip_rule::warnings,
    metrics::ip_rule as figures,
};

/// All is looked at so often without any change, unless an IPRule says less.
const INTERVAL: Duration = Duration::from_secs(600);
/// A change is followed by a look at all after this time, so that many at once are one.
const GATHER: Duration = Duration::from_millis(20);
/// A status is written so long after what it is about at the earliest.
const SHOW_AFTER: Duration = Duration::from_secs(1);
/// How long it is believed that this cluster is the one that it was.
const BELIEVED: Duration = Duration::from_secs(10);
/// Nodes that do not answer are looked at so often at the least.
const WAIT: Duration = Duration::from_secs(30);

/// The deciding part for a cluster.
pub struct Decider {
    pub(super) site: Arc<Site>,
    pub(super) remote: Remote,
    pub(super) events: Arc<Events>,
    pub rules: Arc<Objects<Rule>>,
    pub configs: Arc<Objects<Config>>,
    pub services: Arc<Objects<Svc>>,
    pub slices: Arc<Objects<Slice>>,
    pub nodes: Arc<Objects<Node>>,
    pub agents: Arc<Objects<Agent>>,
    /// One key: all of it.
    pub all: Arc<Queue<Key>>,
    pub rule_queue: Arc<Queue<Key>>,
    pub config_queue: Arc<Queue<Key>>,
    pub status_queue: Arc<Queue<Key>>,
    /// Whether the pods behind Services are to be followed.
    pub needs_slices: watch::Sender<bool>,
    outlook: Mutex<Option<Arc<Outlook>>>,
    /// When the cluster was last asked who it is.
    verified: Mutex<Option<Instant>>,
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
        Arc::new(Self {
            site,
            remote,
            events,
            rules: Objects::new(),
            configs: Objects::new(),
            services: Objects::new(),
            slices: Objects::new(),
            nodes: Objects::new(),
            agents: Objects::new(),
            all: Queue::new(),
            rule_queue: Queue::new(),
            config_queue,
            status_queue: Queue::new(),
            needs_slices: watch::Sender::new(false),
            outlook: Mutex::default(),
            verified: Mutex::default(),
        })
    }

    /// Something that decides about all changed.
    pub fn changed(&self) {
        self.all.add_after(everything(), GATHER);
    }

    /// An IPRuleConfig changed, or went.
    pub fn config_changed(&self, key: &Key) {
        self.config_queue.add(key.clone());
        self.status_queue.add_after(key.clone(), SHOW_AFTER);
        if self.configs.seen(key).is_none() {
            // It may have been the last one that an IPRule waits for.
            let rules = self.rules.all().into_iter();
            let ending = rules.filter(|(_, rule)| rule.meta.terminating);
            ending.for_each(|(key, _)| self.rule_queue.add(key));
        }
    }

    /// Nodes came, went or turned, or what nodes are in scope did.
    pub fn nodes_changed(&self) {
        for (key, config) in self.configs.all() {
            if !config.is_present() {
                self.config_queue.add(key.clone());
            }
            self.status_queue.add_after(key, SHOW_AFTER);
        }
    }

    /// Waits until all lists are complete: what is not in an incomplete one may be there.
    pub async fn completed(&self) {
        self.rules.completed().await;
        self.configs.completed().await;
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

    async fn try_look(&self) -> Result<Next, Trouble> {
        let rules: Vec<Arc<Rule>> = self.rules.all().into_iter().map(|(_, rule)| rule).collect();
        let needs = wants_endpoints(&rules);
        self.needs_slices
            .send_if_modified(|now| std::mem::replace(now, needs) != needs);
        if needs && !self.slices.is_complete() {
            return Ok(Next::After(Duration::from_millis(200)));
        }
        let mut failed = None;
        for rule in rules
            .iter()
            .filter(|rule| !rule.is_protected() && !rule.meta.terminating)
        {
            // Before there is anything to remove.
            if let Err(trouble) = self.protect(rule).await {
                failed = Some(trouble);
            }
        }
        let now = Arc::new(outlook(&self.known(rules)));
        let interval = now.interval.unwrap_or(INTERVAL).min(INTERVAL);
        let before = self.outlook.lock().replace(Arc::clone(&now));
        self.enqueue(before.as_deref(), &now);
        self.count(&now);
        failed.map_or(Ok(Next::After(interval)), Err)
    }

    fn known(&self, rules: Vec<Arc<Rule>>) -> Known {
        let malformed = self.rules.keys().into_iter();
        let malformed =
            malformed.filter(|key| matches!(self.rules.seen(key), Some(Seen::Malformed(_))));
        let slices = match *self.needs_slices.borrow() {
            true => self
                .slices
                .all()
                .into_iter()
                .map(|(_, slice)| slice)
                .collect(),
            false => Vec::new(),
        };
        Known {
            rules,
            malformed: malformed.map(|key| key.name).collect(),
            services: self.services.all(),
            slices,
        }
    }

    /// Queues what is not as it is to be, and the IPRules of which something else is to be said.
    fn enqueue(&self, before: Option<&Outlook>, now: &Outlook) {
        for (name, wanted) in &now.wanted {
            let key = Key::new("", name);
            let so = self
                .configs
                .get(&key)
                .is_some_and(|found| is_so(&found, wanted));
            if !so {
                self.config_queue.add(key);
            }
        }
        for (key, _) in self.configs.all() {
            if !now.wanted.contains_key(&key.name) {
                self.config_queue.add(key);
            }
        }
        for key in self.rules.keys() {
            self.rule_queue.add(key);
        }
        if before.is_some_and(|before| before.nodes != now.nodes) {
            self.nodes_changed();
        }
    }

    fn count(&self, outlook: &Outlook) {
        let configs = self.configs.all();
        let absent = configs
            .iter()
            .filter(|(_, config)| config.is_ours() && !config.is_present());
        figures::stand(&self.site.name, outlook.wanted.len(), absent.count());
    }

    async fn protect(&self, rule: &Rule) -> Result<(), Trouble> {
        // A merge patch replaces the whole list, so it must be the list that was read.
        let mut finalizers = rule.meta.finalizers.clone();
        finalizers.push(RULE_FINALIZER.into());
        let patch = json!({ "metadata": {
            "uid": &*rule.meta.uid, "resourceVersion": rule.meta.version, "finalizers": finalizers,
        } });
        let target = rule_target(&rule.meta.name);
        let after: IPRule = self
            .remote
            .patch_seen(&target, Patch::Merge, &patch)
            .await?;
        self.rules
            .set(&Key::new("", &rule.meta.name), observe::rule(after));
        Ok(())
    }

    /// Brings one IPRuleConfig up to date.
    pub async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        match self.try_reconcile(&key).await {
            Ok(next) => next,
            Err(trouble) => trouble.next(CONFIG, &key),
        }
    }

    async fn try_reconcile(&self, key: &Key) -> Result<Next, Trouble> {
        let Some(outlook) = self.outlook.lock().clone() else {
            return Ok(Next::Done);
        };
        let found = match self.configs.seen(key) {
            Some(Seen::Malformed(object)) => {
                tracing::warn!(
                    name = &*key.name,
                    error = object.error,
                    "an IPRuleConfig does not fit its schema; it is left as it is"
                );
                return Ok(Next::Done);
            }
            Some(Seen::Good(found)) => Some(found),
            None => None,
        };
        let owner = found.as_ref().and_then(|found| found.owner());
        let held = owner.is_some_and(|owner| outlook.held.contains(&owner.name));
        let nodes = self.node_map();
        let agents = self.agents.all();
        let scope = Scope {
            nodes: &nodes,
            rule: owner.and_then(|owner| outlook.nodes.get(&owner.name)),
            agent: active(&agents).map(|agent| &agent.spec.node_selector),
            patience: self.site.session.settings.ip_rule.node_timeout,
        };
        let wanted = outlook.wanted.get(&key.name);
        let step = step(
            &key.name,
            wanted,
            held,
            found.as_deref(),
            &scope,
            clock::now(),
        );
        let next = self.apply(key, step, found.as_deref()).await?;
        if let Some(owner) = owner {
            self.rule_queue.add(Key::new("", &owner.name));
        }
        Ok(next)
    }

    async fn apply(&self, key: &Key, step: Step, found: Option<&Config>) -> Result<Next, Trouble> {
        let target = config_target(&key.name);
        let written = match (step, found) {
            (Step::Create(object), _) => {
                let made: IPRuleConfig = self.remote.create_seen(&target, &object).await?;
                figures::created();
                made
            }
            (Step::Repair(patch), _) => {
                let made = self
                    .remote
                    .patch_seen(&target, Patch::Merge, &patch)
                    .await?;
                figures::updated();
                made
            }
            (Step::Retire(patch), Some(found)) => {
                self.trusted(found).await?;
                let made = self
                    .remote
                    .patch_seen(&target, Patch::Merge, &patch)
                    .await?;
                if found.is_present() {
                    figures::marked_absent();
                }
                made
            }
            (Step::Wait(nodes), _) => {
                tracing::debug!(
                    name = &*key.name,
                    ?nodes,
                    "waiting for nodes to remove the rule"
                );
                let patience = self.site.session.settings.ip_rule.node_timeout;
                return Ok(Next::After(
                    WAIT.min(patience / 2 + Duration::from_millis(500)),
                ));
            }
            (Step::Delete, Some(found)) => {
                let (uid, version) = (&found.meta.uid, &found.meta.version);
                if !found.meta.terminating {
                    self.remote.delete_version(&target, uid, version).await?;
                }
                self.let_go(key, found).await?;
                return Ok(Next::Done);
            }
            (Step::LetGo, Some(found)) => {
                self.let_go(key, found).await?;
                return Ok(Next::Done);
            }
            (Step::Nothing, _) | (Step::Retire(_) | Step::Delete | Step::LetGo, None) => {
                return Ok(Next::Done);
            }
        };
        self.configs.set(key, observe::config(written));
        self.config_queue.add(key.clone());
        Ok(Next::Done)
    }

    async fn let_go(&self, key: &Key, found: &Config) -> Result<(), Trouble> {
        let meta = &found.meta;
        self.remote
            .drop_finalizer(
                &config_target(&key.name),
                &meta.uid,
                &meta.finalizers,
                CONFIG_FINALIZER,
            )
            .await?;
        Ok(())
    }

    /// That no wrong list makes rules go: the cluster must be the one that it was, and an IPRule that is in no list must
    /// not be there.
    async fn trusted(&self, config: &Config) -> Result<(), Trouble> {
        let verified = *self.verified.lock();
        if verified.is_none_or(|at| at.elapsed() > BELIEVED) {
            let verified = self.site.session.verify_identity().await;
            verified.map_err(|error| Trouble::internal(error.to_string()))?;
            *self.verified.lock() = Some(Instant::now());
        }
        let Some(owner) = config.owner() else {
            return Ok(());
        };
        if self.rules.seen(&Key::new("", &owner.name)).is_some() {
            return Ok(());
        }
        let there: Option<IPRule> = self.remote.get(&rule_target(&owner.name)).await?;
        let same = there.is_some_and(|rule| rule.metadata.uid.as_deref() == Some(&*owner.uid));
        match same {
            true => Err(Trouble::internal(format!(
                "IPRule {} is there and was in no list",
                owner.name
            ))),
            false => Ok(()),
        }
    }

    /// Says on an IPRuleConfig which nodes have it.
    pub async fn show(self: Arc<Self>, key: Key) -> Next {
        match self.try_show(&key).await {
            Ok(()) => Next::Done,
            Err(trouble) => trouble.next(CONFIG, &key),
        }
    }

    async fn try_show(&self, key: &Key) -> Result<(), Trouble> {
        let (Some(outlook), Some(config)) = (self.outlook.lock().clone(), self.configs.get(key))
        else {
            return Ok(());
        };
        if !config.is_ours() || config.meta.terminating {
            return Ok(());
        }
        let nodes = self.node_map();
        let agents = self.agents.all();
        let owner = config.owner();
        let scope = Scope {
            nodes: &nodes,
            rule: owner.and_then(|owner| outlook.nodes.get(&owner.name)),
            agent: active(&agents).map(|agent| &agent.spec.node_selector),
            patience: Duration::ZERO,
        };
        let after = status::of_config(&config, &scope, jiff::Timestamp::now());
        let patch =
            change(&config.status, &after).map_err(|error| Trouble::internal(error.to_string()))?;
        if let Some(patch) = patch {
            let body = json!({ "metadata": { "uid": &*config.meta.uid }, "status": patch });
            let after: IPRuleConfig = self
                .remote
                .patch_status_seen(&config_target(&key.name), Patch::Merge, &body)
                .await?;
            self.configs.set(key, observe::config(after));
        }
        Ok(())
    }

    /// Brings the status of one IPRule up to date, or lets it go once nothing of it is left.
    pub async fn reconcile_rule(self: Arc<Self>, key: Key) -> Next {
        match self.try_rule(&key).await {
            Ok(()) => Next::Done,
            Err(trouble) => trouble.next(RULE, &key),
        }
    }

    async fn try_rule(&self, key: &Key) -> Result<(), Trouble> {
        let rule = match self.rules.seen(key) {
            None => return Ok(()),
            Some(Seen::Malformed(object)) => {
                let reference = reference(RULE, "", &key.name, &object.uid);
                let note = format!(
                    "the object does not fit its schema ({}); what it had stays as it was",
                    object.error
                );
                self.events.warning(&reference, "Malformed", note);
                return Ok(());
            }
            Some(Seen::Good(rule)) => rule,
        };
        if rule.meta.terminating {
            return self.end_rule(key, &rule).await;
        }
        let Some(outlook) = self.outlook.lock().clone() else {
            return Ok(());
        };
        let Some(told) = outlook.rules.get(&key.name) else {
            return Ok(());
        };
        let after = status::of_rule(&rule, told, jiff::Timestamp::now());
        let patch =
            change(&rule.status, &after).map_err(|error| Trouble::internal(error.to_string()))?;
        if let Some(patch) = patch {
            let body = json!({ "metadata": { "uid": &*rule.meta.uid }, "status": patch });
            let after: IPRule = self
                .remote
                .patch_status_seen(&rule_target(&key.name), Patch::Merge, &body)
                .await?;
            self.rules.set(key, observe::rule(after));
        }
        self.tell(&rule, told);
        Ok(())
    }

    /// Its finalizer goes after its last IPRuleConfig, and that after its last rule on a node.
    async fn end_rule(&self, key: &Key, rule: &Rule) -> Result<(), Trouble> {
        let mine = |config: &Config| config.owners.iter().any(|owner| owner.uid == rule.meta.uid);
        let configs = self.configs.all();
        // Until the next look at all, IPRuleConfigs may still be made of it.
        let counts = self
            .outlook
            .lock()
            .as_ref()
            .is_none_or(|outlook| outlook.rules.contains_key(&key.name));
        if counts || configs.iter().any(|(_, config)| mine(config)) {
            return Ok(());
        }
        let meta = &rule.meta;
        self.remote
            .drop_finalizer(
                &rule_target(&key.name),
                &meta.uid,
                &meta.finalizers,
                RULE_FINALIZER,
            )
            .await?;
        Ok(())
    }

    fn tell(&self, rule: &Rule, told: &Told) {
        let reference = reference(RULE, "", &rule.meta.name, &rule.meta.uid);
        match told {
            Told::Wrong(wrong) => {
                self.events
                    .warning(&reference, status::INVALID, status::wrong(wrong))
            }
            Told::Counts { lost, .. } => {
                if let Some((reason, message)) = status::lost(lost) {
                    self.events.warning(&reference, reason, message);
                }
                for warning in warnings(&rule.spec) {
                    self.events.warning(&reference, "Questionable", warning);
                }
            }
        }
    }

    fn node_map(&self) -> BTreeMap<Text, Node> {
        let nodes = self.nodes.all().into_iter();
        nodes
            .map(|(key, node)| (key.name, Node::clone(&node)))
            .collect()
    }
}
