//! What is to be done about one IPRuleConfig. Pure.
//!
//! ```text
//!  none --> present <--> absent --(every node in scope confirmed or is gone)--> none
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::{Text, Timestamp};
use fipd_crds::ip_rule::{
    ABSENT, ABSENT_SINCE, APPLIED_PREFIX, CLEANUP_PREFIX, CONFIG_FINALIZER, DONE, MANAGED_BY,
    OPERATOR, SPEC_HASH,
};
use serde_json::{Map, Value, json};

use super::{
    names::{CONFIG, RULE, of_node, spec_hash},
    observe::{Config, Node},
    plan::WantedConfig,
};
use crate::{clock, controller::merge_patch::change, systems::ip_rule::validate::Selector};

/// The most nodes that a status names.
const NAMED: usize = 20;
/// How much of the hash a node repeats.
const ECHO: usize = 16;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigChange {
    Nothing,
    Create(Value),
    /// A merge patch of what is not as it is to be.
    Repair(Value),
    /// A merge patch that makes it absent.
    Retire(Value),
    /// Nodes that have not confirmed yet.
    Wait(Vec<Text>),
    /// No node has the rule that is waited for: it may go. These had it and were silent for too long.
    Delete(Vec<Text>),
    /// Somebody deleted it: it may go, and is made anew.
    Disown,
}

/// Where the rule of an IPRuleConfig is to be.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// By name.
    pub nodes: &'a BTreeMap<Text, Arc<Node>>,
    pub rule: Option<&'a Selector>,
    /// Of the Agent that counts.
    pub agent: Option<&'a BTreeMap<String, String>>,
    pub patience: ConfigPatience,
}

/// How long a node that says nothing is waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigPatience {
    /// One that is not ready, or that never had the rule.
    pub unready: Duration,
    /// One that is ready and had the rule: fipd is not there any more.
    pub silent: Duration,
}

/// The nodes in scope that have not confirmed that a rule is gone.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pending {
    waited: Vec<Text>,
    unheard: Vec<Text>,
}

impl Scope<'_> {
    /// Those that the IPRule selects, and on which fipd is: in a pod of the Agent, or for itself, as what it said tells.
    fn in_scope(&self, config: &Config) -> impl Iterator<Item = (&Text, &Node)> {
        let nodes = self.nodes.iter().map(|(name, node)| (name, &**node));
        nodes.filter(|(name, node)| {
            let labels = &node.labels;
            let rule = self.rule.is_none_or(|selector| selector.matches(labels));
            let agent = self.agent.is_none_or(|agent| selects(agent, labels));
            rule && (agent
                || config
                    .annotations
                    .contains_key(&of_node(APPLIED_PREFIX, name)))
        })
    }

    /// The nodes in scope that may still have the rule. None is waited for without an end: it cleans itself when it is back,
    /// since nobody wants the rule then.
    fn pending(&self, config: &Config, now: Timestamp) -> Pending {
        let over = |patience: Duration, since: Timestamp| {
            let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            now.0.saturating_sub(since.0) >= patience
        };
        let ConfigPatience { unready, silent } = self.patience;
        let absent = config.annotations.get(ABSENT_SINCE);
        let absent = absent.and_then(|text| clock::parse_rfc3339(text));
        let says = |prefix: &str, node: &str| config.annotations.get(&of_node(prefix, node));
        let had = |name: &str| says(APPLIED_PREFIX, name).is_some();
        let done = |name: &str, node: &Node| {
            says(CLEANUP_PREFIX, name).is_some_and(|value| value == DONE)
                || node.unready.is_some_and(|since| over(unready, since))
                || (!had(name) && absent.is_some_and(|since| over(unready, since)))
        };
        let pending = self
            .in_scope(config)
            .filter(|(name, node)| !done(name, node));
        let pending = pending.map(|(name, _)| Text::clone(name));
        let unheard = absent.is_some_and(|since| over(silent, since));
        let (unheard, waited) = pending.partition(|name| unheard && had(name));
        Pending { waited, unheard }
    }

    /// The nodes in scope that have the rule as it is to be, and how many there are in scope.
    pub fn applied(&self, config: &Config) -> (Vec<Text>, usize) {
        let echo = echo(&spec_hash(&config.spec));
        let has =
            |name: &str| config.annotations.get(&of_node(APPLIED_PREFIX, name)) == Some(&echo);
        let all: Vec<&Text> = self.in_scope(config).map(|(name, _)| name).collect();
        let applied = all.iter().filter(|name| has(name));
        (applied.map(|name| Text::clone(name)).collect(), all.len())
    }
}

/// Whether labels are as the `nodeSelector` of an Agent says.
pub fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    let mut all = selector.iter();
    all.all(|(key, value)| labels.get(key) == Some(value))
}

/// What a node says once it has the rule.
pub fn echo(hash: &str) -> String {
    hash.chars().take(ECHO).collect()
}

/// The first nodes, for a status.
pub fn named(nodes: &[Text]) -> Vec<String> {
    nodes.iter().take(NAMED).map(ToString::to_string).collect()
}

/// Whether it is as it is to be, but for what costs more to compare.
pub fn is_so(found: &Config, wanted: &WantedConfig) -> bool {
    let owned = matches!(found.owners.as_slice(), [owner] if *owner == wanted.owner);
    let hash = found.annotations.get(SPEC_HASH);
    found.spec == wanted.spec
        && owned
        && found.labelled
        && found.is_protected()
        && !found.meta.is_terminating()
        && hash.is_some_and(|hash| *hash == spec_hash(&wanted.spec))
        && !found.annotations.contains_key(ABSENT_SINCE)
        && found.of_nodes(CLEANUP_PREFIX).next().is_none()
}

/// `held`: its IPRule cannot be understood, so that it stays as it was.
pub fn plan_change(
    name: &str,
    wanted: Option<&WantedConfig>,
    held: bool,
    found: Option<&Config>,
    scope: &Scope<'_>,
    now: Timestamp,
) -> ConfigChange {
    match (wanted, found) {
        (None, None) => ConfigChange::Nothing,
        (Some(wanted), None) => ConfigChange::Create(object(name, wanted)),
        (Some(_), Some(found)) if found.meta.is_terminating() => ConfigChange::Disown,
        (Some(wanted), Some(found)) if is_so(found, wanted) => tidy(found, scope),
        (Some(wanted), Some(found)) => ConfigChange::Repair(repair(found, wanted, scope)),
        (None, Some(found)) if !found.is_ours() => ConfigChange::Nothing,
        (None, Some(found))
            if held && found.spec.state != ABSENT && !found.meta.is_terminating() =>
        {
            ConfigChange::Nothing
        }
        (None, Some(found)) => match retire(found, scope, now) {
            Some(patch) => ConfigChange::Retire(patch),
            None => {
                let pending = scope.pending(found, now);
                if pending.waited.is_empty() {
                    ConfigChange::Delete(pending.unheard)
                } else {
                    ConfigChange::Wait(pending.waited)
                }
            }
        },
    }
}

fn object(name: &str, wanted: &WantedConfig) -> Value {
    json!({
        "apiVersion": CONFIG.api_version(), "kind": CONFIG.kind,
        "metadata": {
            "name": name, "labels": { MANAGED_BY: OPERATOR }, "finalizers": [CONFIG_FINALIZER],
            "annotations": { SPEC_HASH: spec_hash(&wanted.spec) }, "ownerReferences": owners(wanted),
        },
        "spec": wanted.spec,
    })
}

fn owners(wanted: &WantedConfig) -> Value {
    let owner = &wanted.owner;
    json!([{ "apiVersion": RULE.api_version(), "kind": RULE.kind, "name": owner.name, "uid": owner.uid, "controller": true }])
}

/// With these annotations and with the finalizer, where nobody changed the object meanwhile.
fn guarded(found: &Config, annotations: Map<String, Value>) -> Value {
    let (uid, version) = (&found.meta.uid, &found.meta.version);
    let mut meta = json!({ "uid": uid, "resourceVersion": version, "annotations": annotations });
    if let Some(all) = finalizers(found) {
        meta["finalizers"] = all;
    }
    meta
}

fn finalizers(found: &Config) -> Option<Value> {
    let add = !found.is_protected() && !found.meta.is_terminating();
    let mut all = found.meta.finalizers.clone();
    all.push(CONFIG_FINALIZER.to_owned());
    add.then(|| json!(all))
}

/// Takes what nodes said that are no more away, once that is much: an object has room for 256 KiB of such words.
fn tidy(found: &Config, scope: &Scope<'_>) -> ConfigChange {
    if !is_overgrown(found, scope.nodes.len()) {
        return ConfigChange::Nothing;
    }
    let meta = guarded(found, strangers(found, scope));
    ConfigChange::Repair(json!({ "metadata": meta }))
}

/// Whether more nodes have said something than there are.
pub fn is_overgrown(found: &Config, nodes: usize) -> bool {
    found.of_nodes(APPLIED_PREFIX).count() > nodes
}

fn strangers(found: &Config, scope: &Scope<'_>) -> Map<String, Value> {
    if !is_overgrown(found, scope.nodes.len()) {
        return Map::new();
    }
    let prefixes = [APPLIED_PREFIX, CLEANUP_PREFIX];
    let known = |name| prefixes.map(|prefix| of_node(prefix, name));
    let known: BTreeSet<String> = scope.nodes.keys().flat_map(|name| known(name)).collect();
    let said = prefixes
        .into_iter()
        .flat_map(|prefix| found.of_nodes(prefix));
    let gone = said.filter(|(key, _)| !known.contains(*key));
    gone.map(|(key, _)| (key.clone(), Value::Null)).collect()
}

/// Takes all that nodes said of an earlier removal away.
fn without_acks(found: &Config) -> Map<String, Value> {
    let acks = found.of_nodes(CLEANUP_PREFIX);
    acks.map(|(key, _)| (key.clone(), Value::Null)).collect()
}

fn repair(found: &Config, wanted: &WantedConfig, scope: &Scope<'_>) -> Value {
    let mut annotations = strangers(found, scope);
    annotations.extend(without_acks(found));
    annotations.insert(SPEC_HASH.to_owned(), json!(spec_hash(&wanted.spec)));
    if found.annotations.contains_key(ABSENT_SINCE) {
        annotations.insert(ABSENT_SINCE.to_owned(), Value::Null);
    }
    let mut meta = guarded(found, annotations);
    meta["labels"] = json!({ MANAGED_BY: OPERATOR });
    meta["ownerReferences"] = owners(wanted);
    let spec = change(&found.spec, &wanted.spec).ok().flatten();
    json!({ "metadata": meta, "spec": spec.unwrap_or_else(|| json!({})) })
}

/// `None`: it is absent in full.
fn retire(found: &Config, scope: &Scope<'_>, now: Timestamp) -> Option<Value> {
    let absent = found.spec.state == ABSENT && found.annotations.contains_key(ABSENT_SINCE);
    let hashed = found.annotations.contains_key(SPEC_HASH);
    if absent && !hashed && finalizers(found).is_none() {
        return None;
    }
    let mut annotations = strangers(found, scope);
    if !absent {
        annotations.extend(without_acks(found));
        annotations.insert(ABSENT_SINCE.to_owned(), json!(clock::rfc3339(now)));
    }
    if hashed {
        annotations.insert(SPEC_HASH.to_owned(), Value::Null);
    }
    let meta = guarded(found, annotations);
    Some(json!({ "metadata": meta, "spec": { "state": ABSENT } }))
}

#[cfg(test)]
mod tests;
