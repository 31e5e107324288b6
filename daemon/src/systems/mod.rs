//! The systems, and what runs them. A new one is its folder and an entry of [`ALL`].
//!
//! A controller is a folder with the same steps as files, pure where it can be: `observe` (what is kept of the
//! API's objects), `validate` (raw object to typed input), `plan` (what to ask the address book), `apply`
//! (what to write), `status` (what to show). They run on [`crate::controller`]. Nothing here decides about an
//! address: that is the ledger's, through [`crate::ipam`].

pub mod claims;
pub mod cluster_api;
#[cfg(test)]
mod conformance_tests;
pub mod flat_network;
pub mod ip_rule;
pub mod kube_fip;
pub mod rancher_fip;
mod sightings;
#[cfg(test)]
mod sixth_tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use fipd_core::{System, Text};
use futures::future::BoxFuture;

use crate::{
    admission::Admission,
    adopt::Takeovers,
    clusters::{ClusterSession, SystemRunner},
    config::{ClusterSettings, Systems},
    fip_v1::FloatingIps,
    metrics::Original,
    system::{self, Means, RunningSystem, RunningSystems},
};

/// All systems of this build.
pub static ALL: &[&dyn system::System] = &[
    &rancher_fip::RancherFip,
    &claims::AddressClaims,
    &ip_rule::IpRule,
    &kube_fip::KubeFip,
    &cluster_api::ClusterApi,
    &flat_network::FlatNetwork,
];

/// What the configuration knows of each.
pub static SYSTEMS: LazyLock<Systems> = LazyLock::new(|| {
    let all = ALL.iter().map(|system| system.config());
    Systems(all.collect::<Vec<_>>().leak())
});

/// The systems of a daemon; one for all clusters, since clusters of a system look at each other.
#[derive(Clone)]
pub struct Runner {
    systems: Vec<(&'static dyn system::System, Arc<dyn RunningSystem>)>,
}

impl Runner {
    pub fn new(means: &Means) -> Self {
        Self::of(ALL, means)
    }

    /// The same of these systems. A host that decides nothing has those with a part there.
    pub fn of(systems: &[&'static dyn system::System], means: &Means) -> Self {
        let decides = !means.only_host;
        let systems = systems.iter();
        let here = systems.filter(|one| decides || one.config().has_agent_part());
        Self {
            systems: here.map(|one| (*one, one.start(means))).collect(),
        }
    }

    /// What takes over from the originals.
    pub fn takeovers(&self) -> Takeovers {
        let systems = self.systems.iter();
        Takeovers::new(systems.filter_map(|(system, running)| {
            Some((system.config().name.parse().ok()?, running.takeover()?))
        }))
    }

    /// What can be asked for something.
    pub fn running(&self) -> RunningSystems {
        let systems = self.systems.iter();
        let systems = systems.map(|(system, running)| (system.config().name, running.clone()));
        RunningSystems(Arc::new(systems.collect()))
    }

    /// Decides what the stock LB controllers ask.
    pub fn floating_ips(&self) -> Option<Box<dyn FloatingIps>> {
        self.systems.iter().find_map(|(_, one)| one.floating_ips())
    }

    /// Judges what API servers ask.
    pub fn admission(&self) -> Admission {
        let systems = self.systems.iter();
        Admission::new(
            systems.filter_map(|(system, running)| Some((system.asks()?, running.judge()?))),
        )
    }

    /// How the series of each system are registered: those of its original, where that has any, and fipd's own.
    pub fn originals(&self) -> Vec<Original> {
        let all = self.systems.iter().cloned();
        all.map(|(system, running)| {
            let own = Arc::clone(&running);
            Original {
                system: system.config().name,
                register: Box::new(move |registry| running.register_metrics(registry)),
                register_own: Box::new(move |registry| own.register_own_metrics(registry)),
            }
        })
        .collect()
    }
}

impl SystemRunner for Runner {
    fn known(&self, clusters: &[(&Text, &BTreeSet<System>, &ClusterSettings)]) {
        for (system, running) in &self.systems {
            let with = clusters.iter().filter(|(_, systems, _)| {
                systems
                    .iter()
                    .any(|one| one.as_str() == system.config().name)
            });
            let with: BTreeMap<_, _> = with.map(|(name, _, settings)| (*name, *settings)).collect();
            running.set_clusters(&with);
        }
    }

    fn run(&self, session: ClusterSession, system: System) -> BoxFuture<'static, ()> {
        if system == System::foreign() {
            return sightings::run(session, self.running());
        }
        let mut systems = self.systems.iter();
        if let Some((_, running)) = systems.find(|(one, _)| one.config().name == system.as_str()) {
            return running.run(session);
        }
        Box::pin(async move {
            tracing::error!(cluster = %session.name, %system, "there are no controllers for this system");
            session.cancel.cancelled().await;
        })
    }
}
