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
mod uninstall;

use crate::{
    controller::client::Remote,
    helm::{Access, Helm, KeyError, Keys, Release},
};

pub use error::{BUSY, ChartError};
pub use installed::{InstalledReleases, ReleaseMark, ReleaseOwner, release_names};
pub use states::{ChartProgress, GuestCharts};

/// A release that a guest is to have, as settings write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartRelease {
    /// How the keys begin that say it.
    pub prefix: &'static str,
    pub name: String,
    pub namespace: String,
    pub chart: String,
    /// URL of a repository, an OCI reference or a path.
    pub reference: String,
    pub version: String,
    /// YAML text.
    pub values: String,
}

/// A guest that answers, and what works on its releases.
pub struct ReachedGuest<'a> {
    pub id: String,
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

impl ChartRelease {
    fn parse(&self) -> Result<Release, KeyError> {
        let keys = Keys {
            chart_name: &self.chart,
            chart_ref: &self.reference,
            chart_version: &self.version,
            namespace: &self.namespace,
            values: &self.values,
        };
        Release::from_keys(self.prefix, keys)?.named(&self.name)
    }
}

impl ReachedGuest<'_> {
    fn access(&self) -> Access<'_> {
        Access {
            cluster: &self.name,
            kubeconfig: self.kubeconfig,
        }
    }
}
