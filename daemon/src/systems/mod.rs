//! The reconcilers of the systems.
//!
//! A controller is a folder with the same steps as files, pure where it can be: `observe` (what is kept of the
//! API's objects), `validate` (raw object to typed input), `plan` (what to ask the address book), `apply`
//! (what to write), `status` (what to show). They run on [`crate::controller`]. Nothing here decides about an
//! address: that is the ledger's, through [`crate::ipam`].

pub mod claims;
pub mod ip_rule;
pub mod rancher_fip;
mod sightings;

use std::collections::BTreeSet;

use fipd_core::{System, Text};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{
    clusters::{ClusterSession, SystemRunner},
    config::{ClusterSettings, Systems},
    guests::GuestBoard,
    helm::Helm,
    ipam::Ipam,
    metrics::Original,
    nodes::NodeBoard,
    rules::RuleBoard,
    systems::rancher_fip::settings::{RancherFipRole, RancherFipSettings},
};
/// What the configuration knows of each.
pub const SYSTEMS: Systems = Systems(&[
    &rancher_fip::settings::CONFIG,
    &claims::settings::CONFIG,
    &ip_rule::settings::CONFIG,
]);

/// Starts the controllers of each system; one for the whole daemon, since clusters of a system look at each other.
#[derive(Clone, Default)]
pub struct Runner {
    rancher_fip: rancher_fip::RancherFip,
    ip_rule: ip_rule::IpRule,
}

impl Runner {
    /// `me` is what this daemon calls itself in Leases, `own` what guests of Rancher are told of it; `guests` gets how these
    /// are doing. Without `helm` no charts are installed.
    pub fn new(
        me: Text,
        own: rancher_fip::guests::Own,
        guests: GuestBoard,
        helm: Option<Helm>,
    ) -> Self {
        Self {
            ip_rule: ip_rule::IpRule::new(Text::clone(&me), own.clone()),
            rancher_fip: rancher_fip::RancherFip::new(me, own, guests, helm),
        }
    }

    /// Brings the rules of clusters to this host, which is the Node of this name in one of them. `agent`: namespace and name
    /// of the Agent whose pod this is.
    #[must_use]
    pub fn with_host(mut self, board: RuleBoard, node: Text, agent: Option<(Text, Text)>) -> Self {
        self.ip_rule = self.ip_rule.with_host(board, node, agent);
        self
    }

    /// Tells there what Nodes there are.
    #[must_use]
    pub fn telling(mut self, nodes: NodeBoard) -> Self {
        self.ip_rule = self.ip_rule.telling(nodes);
        self
    }

    /// The rules of this host go once this is cancelled.
    #[must_use]
    pub fn leaving(mut self, stop: CancellationToken) -> Self {
        self.ip_rule = self.ip_rule.leaving(stop);
        self
    }

    /// Other daemons decide; this one only has a host.
    #[must_use]
    pub fn only_node(mut self) -> Self {
        self.ip_rule = self.ip_rule.only_node();
        self
    }

    /// Decides what the stock LB controller asks.
    pub fn requests(&self, ipam: Ipam) -> rancher_fip::requests::Requests {
        self.rancher_fip.requests(ipam)
    }

    /// Takes sites over from the originals.
    pub fn takeover(&self) -> rancher_fip::adopt::Takeover {
        self.rancher_fip.takeover()
    }

    /// Takes rules of this host over from the original ip-rule-operator.
    pub fn rule_takeover(&self, board: RuleBoard) -> ip_rule::adopt::Takeover {
        self.ip_rule.takeover(board)
    }

    /// How the series of each system's original are registered.
    pub fn originals(&self, ipam: Ipam, board: RuleBoard) -> Vec<Original> {
        let ranchers = self.ranchers();
        vec![
            Original {
                system: rancher_fip::settings::CONFIG.name,
                register: Box::new(move |registry| {
                    rancher_fip::metrics::register(registry, ipam.clone(), ranchers.clone());
                }),
            },
            Original {
                system: ip_rule::settings::CONFIG.name,
                register: Box::new(move |registry| {
                    ip_rule::metrics::register(registry, board.clone());
                }),
            },
        ]
    }

    /// What is known of the management clusters of the rancher-fip family.
    pub fn ranchers(&self) -> rancher_fip::rancher::Ranchers {
        self.rancher_fip.ranchers.clone()
    }
}

impl SystemRunner for Runner {
    fn known(&self, clusters: &[(&Text, &BTreeSet<System>, &ClusterSettings)]) {
        let family = System::rancher_fip();
        let managing = clusters.iter().filter(|(_, systems, settings)| {
            systems.contains(&family)
                && settings.of::<RancherFipSettings>().role == RancherFipRole::Management
        });
        let names = managing.map(|(name, ..)| Text::clone(name)).collect();
        self.rancher_fip.ranchers.configured(names);
        let system = System::ip_rule();
        let routed = clusters
            .iter()
            .filter(|(_, systems, _)| systems.contains(&system));
        self.ip_rule
            .known(&routed.map(|(name, ..)| *name).collect());
    }

    fn run(&self, session: ClusterSession, system: System) -> BoxFuture<'static, ()> {
        if system == System::rancher_fip() {
            return self.rancher_fip.run(session);
        }
        if system == System::claims() {
            return claims::run(session);
        }
        if system == System::foreign() {
            return sightings::run(session, self.ranchers());
        }
        if system == System::ip_rule() {
            return self.ip_rule.run(session);
        }
        Box::pin(async move {
            tracing::error!(cluster = %session.name, %system, "there are no controllers for this system");
            session.cancel.cancelled().await;
        })
    }
}
