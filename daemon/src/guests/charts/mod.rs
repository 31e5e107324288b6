//! Charts in guests: which releases a system wants there, whose a release is, and how either engine brings or removes it.
//!
//! A system says by [`owner::ChartOwner`] what it wants, and by [`owner::ChartRemover`] what has to be so before its
//! releases go. The rest is the same for all: nothing is removed on an old look or for a release that cannot be brought,
//! and nothing that another installed is removed at all.

mod bring;
mod engine;
mod error;
pub mod helm_chart;
mod installed;
pub mod owner;
mod states;
pub mod steps;
#[cfg(test)]
mod tests;
mod uninstall;
mod unmarked;

use super::GuestSystem;
use crate::{
    controller::client::Remote,
    helm::{Access, Helm},
};

pub use crate::helm::{ChartError, ChartRelease, Unversioned};
pub use error::{BUSY, OTHER_LOAD_BALANCER};
pub use installed::{
    InstalledReleases, ReleaseMark, ReleaseOwner, newest_revision, owner as release_owner,
    release_names,
};
pub use states::{ChartProgress, GuestCharts};

/// A guest that answers, and what works on its releases.
pub struct ReachedGuest<'a> {
    pub id: String,
    /// That works on them.
    pub system: GuestSystem,
    /// What helm calls it.
    pub name: String,
    pub kubeconfig: &'a str,
    pub remote: &'a Remote,
    pub helm: &'a Helm,
}

/// Whether there is more to be done soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Yes,
    NotYet,
}

impl ReachedGuest<'_> {
    fn access(&self) -> Access<'_> {
        Access {
            cluster: &self.name,
            kubeconfig: self.kubeconfig,
            system: self.system.mark(),
        }
    }
}
