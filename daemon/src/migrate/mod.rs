//! From macvlan (`macvlan.cluster.cattle.io`) to flat-network, as the original migrator does it: `fipd migrate flat-network`.
//!
//! What is converted, and how, is decided by pure functions (`subnet`, `workload`, `service`, and `file` for the file of a backup).
//! The commands look at what is in the cluster, skip what is done, and go on after a failure: each can be run again at any time.

mod apply;
mod attachment;
mod backup;
mod clean;
mod file;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod kinds;
mod metadata;
mod prompt;
mod report;
mod restore;
mod service;
mod session;
mod subnet;
mod workload;

use crate::controller::client::CallError;

pub use apply::{MigratedParts, migrate};
pub use backup::{SavedParts, backup};
pub use clean::clean;
pub use file::{FileObject, LONGEST as LONGEST_FILE, read as read_file};
pub use prompt::somebody_is_there;
pub use report::{MigratedObject, MigrationReport, ObjectOutcome};
pub use restore::restore;
pub use session::{Consent, MigrationOptions, MigrationSession};
pub use workload::WorkloadKind;

/// Why a command ended early; its report says what was done before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrateError {
    /// A flag or the input file.
    #[error("{0}")]
    Input(String),
    /// The cluster, or a file that cannot be written.
    #[error("{0}")]
    Failed(String),
}

impl From<CallError> for MigrateError {
    fn from(error: CallError) -> Self {
        Self::Failed(error.to_string())
    }
}
