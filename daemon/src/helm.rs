//! Charts in clusters, by the `helm` CLI.
//!
//! ```text
//!  keys of a config ──> Release ──┐
//!                                 ├─ plan ──> one operation ──> look again ──> ... until nothing is left to do
//!  status, metadata, list ──> State┘
//! ```
//!
//! Owns the CLI: at most two run at once, at most one per cluster, each with a deadline, in a process group of its own
//! and with a kubeconfig in a private file. A release that does not carry fipd's label is upgraded, since the original
//! cluster manager made it, and never uninstalled.

mod awaited;
mod cli;
mod command;
mod error;
mod files;
mod handle;
mod memory;
mod plan;
mod process;
mod progress;
mod release;
mod state;
mod stored;
mod values;

pub use command::{CHART_LABEL, OWNER, OWNER_LABEL, SYSTEM_LABEL};
pub use error::{ChartError, HelmError};
pub use files::ReleaseTarget;
pub use handle::{Access, Helm, Noted, Operations};
pub use plan::{ReleaseRefusal, Why, difference, other_chart};
pub use progress::{Activity, Last, Progress};
pub use release::{Chart, ChartRelease, ChartVersion, KeyError, Reference, Release, Unversioned};
pub use state::{Observed, Phase};
pub use stored::{SECRET_TYPE, Stored, chart_name, manifest};
pub use values::Values;

#[cfg(test)]
pub use {
    release::testing,
    stored::testing::{secret, with_manifest},
};
