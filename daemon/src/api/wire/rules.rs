//! Policy-routing rules of this host.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// One rule, or one source of an indexed set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleView {
    /// `applied`, `missing`, `indexed` (the packet filter marks its packets), `surplus`; `foreign`, `kernel`.
    pub state: String,
    /// The set that wants it.
    pub owner: Option<String>,
    /// As `ip rule` shows it.
    pub rule: String,
    /// `ipv4` or `ipv6`.
    pub family: String,
    pub priority: u32,
    pub source: Option<String>,
    /// Null: its packets go nowhere, or it is none that asks a table.
    pub table: Option<u32>,
    /// Value and mask, in hexadecimal.
    pub mark: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleWarning {
    pub code: String,
    pub text: String,
}

/// How often something had to be repaired since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleDrift {
    /// Own rules that another removed.
    pub removed: u64,
    /// Rules of fipd's tag that are not fipd's, or twice.
    pub added: u64,
    /// Times that the table of the packet filter was not as fipd left it.
    pub index: u64,
    /// Times that notifications were lost.
    pub overruns: u64,
}

/// A source that two sets want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleClash {
    pub source: String,
    pub winner: String,
    pub loser: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RulePage {
    /// `off`, `starting`, `active`, `paused` or `degraded`.
    pub state: String,
    /// What it waits for, or why rules cannot be changed.
    pub reason: Option<String>,
    /// The Node that this host is.
    pub node: Option<String>,
    /// The tag of fipd's rules.
    pub protocol: u8,
    /// When the kernel was last looked at; null: not yet, so that nothing else here is known.
    pub at: Option<String>,
    /// Rules that are to be.
    pub desired: u64,
    /// Sources that the packet filter marks; beside those rules.
    pub indexed: u64,
    /// Desired rules that are not in the kernel.
    pub missing: u64,
    /// Rules of fipd's tag that are not desired.
    pub surplus: u64,
    /// Rules of other programs.
    pub foreign: u64,
    pub drift: RuleDrift,
    pub warnings: Vec<RuleWarning>,
    /// The first 100.
    pub clashes: Vec<RuleClash>,
    pub rules: Vec<RuleView>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ForeignRulePage {
    /// In the kernel's order.
    pub rules: Vec<RuleView>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleStep {
    /// `add` or `delete`.
    pub does: String,
    pub rule: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RulePlan {
    pub state: String,
    pub reason: Option<String>,
    /// When the kernel was last looked at; null: not yet, so that no step is known.
    pub at: Option<String>,
    pub adds: u64,
    pub deletes: u64,
    /// Rules that cannot be deleted without deleting another's; the first 100.
    pub stuck: Vec<String>,
    /// In their order.
    pub steps: Vec<RuleStep>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

/// Which rules of the list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct RuleQuery {
    /// Part of the rule as it is shown, or of its owner.
    pub q: Option<String>,
    /// `applied`, `missing`, `indexed` or `surplus`.
    pub state: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlushRules {
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
}

/// Rules of others that ask a table are removed once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PruneForeignRules {
    #[schema(minimum = 1, maximum = 4294967295_i64)]
    pub table: i64,
    /// First and last; all when left out.
    #[schema(max_items = 2, min_items = 2)]
    pub priorities: Option<[u32; 2]>,
    /// `plan` of an answer to the same request without it: exactly that is done. Left out: nothing is removed.
    pub plan: Option<String>,
}

/// What was removed, or would be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RulesRemoved {
    pub dry_run: bool,
    pub message: String,
    pub count: u64,
    /// The first 1000.
    pub rules: Vec<String>,
    /// What confirms this plan, if it is one that has to be.
    pub plan: Option<String>,
}
