//! The policy-routing rules of a host: which ones there are to be, and the steps from those that there are.
//!
//! ```text
//!  Policy + Balanced --assign--> Assignment --RuleSet--> placed --> desired --> Desired { rules, index }
//!                                                                                  |
//!  kernel rules ----------------------------------------------------------------- diff --> Step, Step, ...
//! ```
//!
//! A rule is fipd's by its protocol tag and by nothing else. The kernel's ways of adding and deleting were measured: they
//! are told where they matter.

mod assign;
mod desired;
mod diff;
mod limits;
mod own;
mod places;
mod rule;
mod takeover;
mod unclaimed;

pub use assign::{Assignment, Balanced, Clash, Policy, SourceMode, Target, Way, assign};
pub use desired::{Desired, HostSettings, Marks, Mode, RuleSet, SetKey, desired, marks_of};
pub use diff::{Plan, Step, diff, is_own};
pub use limits::{
    BAND_FIRST, BAND_LAST, CILIUM_MARKS, LimitError, MARK_MASK, check_band, check_mark_mask,
    check_priority, check_protocol, check_table,
};
pub use own::{
    Interference, left_after, own_rules, owned, stay_beside_refused, stay_without_journal,
};
pub use places::{Place, Places, placed, used};
pub use rule::{FwMark, HostOrNet, KERNEL, KernelRule, Rule, RuleAction, UNTAGGED};
pub use takeover::{Asked, Here, Refusal, Takeover, asked, take_over};
pub use unclaimed::Unclaimed;
