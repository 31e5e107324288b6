//! `api.operator.brtrm.dev`: the kinds of ip-rule-operator, in the union of its versions, and fipd's optional fields.
//!
//! An [`IPRule`] says which load balancer addresses go by which routing table, an [`IPRuleConfig`] is the rule for one source
//! address that came of it, and an [`Agent`] brings the rules to nodes that have no fipd installed. The names and annotations
//! below stand in users' clusters; none may ever change.

mod agent;
mod config;
mod rule;

pub use agent::{Agent, AgentSpec, AgentStatus};
pub use config::{IPRuleConfig, IPRuleConfigSpec, IPRuleConfigStatus};
pub use rule::{IPRule, IPRuleSpec, IPRuleStatus};

/// The API group of all three kinds.
pub const GROUP: &str = "api.operator.brtrm.dev";

/// [`IPRuleConfigSpec::state`]: nodes are to have the rule.
pub const PRESENT: &str = "present";
/// [`IPRuleConfigSpec::state`]: nodes are to remove the rule and to say so.
pub const ABSENT: &str = "absent";

/// Label of all that the operator makes.
pub const MANAGED_BY: &str = "managed-by";
/// Value of [`MANAGED_BY`]; both controller and nodes ignore an [`IPRuleConfig`] without it.
pub const OPERATOR: &str = "ip-rule-operator";
/// How the names of [`IPRuleConfig`]s begin.
pub const CONFIG_PREFIX: &str = "iprc-";
/// Annotation of an [`IPRuleConfig`] that is present: hex SHA-256 of what it says.
pub const SPEC_HASH: &str = "iprule.operator.brtrm.dev/spec-hash";
/// Annotation of an [`IPRuleConfig`] that is absent: since when (RFC 3339). fipd's own.
pub const ABSENT_SINCE: &str = "iprule.operator.brtrm.dev/absent-since";
/// Start of the annotations by which nodes say that a rule is gone; the name of the node follows.
pub const CLEANUP_PREFIX: &str = "cleanup.iprule.agent.brtrm.dev/";
/// The one value of those.
pub const DONE: &str = "done";
/// Start of the annotations by which nodes say that they have the rule as its hash says. fipd's own.
pub const APPLIED_PREFIX: &str = "applied.iprule.agent.brtrm.dev/";
/// Finalizer of [`IPRule`]s: their rules go first. fipd's own; the original had none.
pub const RULE_FINALIZER: &str = "iprule.operator.brtrm.dev/rules";
/// Finalizer of [`IPRuleConfig`]s: the rule goes first on all nodes. fipd's own; the original had none.
pub const CONFIG_FINALIZER: &str = "iprule.operator.brtrm.dev/nodes";

/// The leader-election Lease of the original.
pub const LEASE: &str = "fed43742.brtrm.dev";
/// Where the original runs.
pub const NAMESPACE: &str = "ip-rule-operator-system";
/// The names that an [`Agent`] may have: that of the first versions and that of the later ones.
pub const AGENT_NAMES: [&str; 2] = ["default", "agent"];
/// The name of the DaemonSet of an [`Agent`] and of its service account, and the value of its label `app`.
pub const AGENT_WORKLOAD: &str = "iprule-agent";
/// Annotation of that DaemonSet's pods: a change of it is a rollout.
pub const TEMPLATE_HASH: &str = "iprule.operator.brtrm.dev/template-hash";

#[cfg(test)]
mod tests;
