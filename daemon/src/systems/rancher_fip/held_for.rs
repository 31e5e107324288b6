//! For whom owners have addresses.

use std::sync::Arc;

use fipd_core::{ClusterId, Identity, System, Text, sighting::HeldFor};

use crate::clusters::ClusterSession;

use super::{
    names::{self, KIND_FLOATING_IP},
    rancher::{Data, Ranchers},
    settings::RancherFipSettings,
};

/// How Rancher calls the cluster that it runs in.
const LOCAL: &str = "local";

/// A cluster as FloatingIPs of its management cluster name it.
pub struct Guest {
    cluster: ClusterId,
    names: Vec<Text>,
    managed: bool,
    rancher: Option<Arc<Data>>,
}

impl Guest {
    pub fn of(session: &ClusterSession, ranchers: &Ranchers) -> Self {
        let management = session.pools_in.get(&System::rancher_fip());
        let rancher = management.and_then(|name| ranchers.get(name).data());
        let mut names = session.names.clone();
        let settings = session.settings.of::<RancherFipSettings>();
        names.extend(settings.cluster_id.clone());
        if management == Some(&session.name) {
            names.push(LOCAL.into());
        }
        if let Some(data) = &rancher {
            names.extend(data.clusters_called(&names));
        }
        Self {
            cluster: session.id.clone(),
            names,
            managed: management.is_some(),
            rancher,
        }
    }

    /// For whom the owner has its addresses: a FloatingIP for the cluster that it names, all else for the one that it lives in.
    /// While Rancher has not been listed it is not known; where it does not list the FloatingIP, and where that names no cluster,
    /// not in its own cluster.
    pub fn held_for(&self, identity: &Identity) -> Option<HeldFor> {
        if *identity.kind != *KIND_FLOATING_IP {
            return None;
        }
        Some(self.of_floating_ip(identity))
    }

    fn of_floating_ip(&self, identity: &Identity) -> HeldFor {
        let is_here = identity.cluster.as_ref() == Some(&self.cluster);
        let or_another = |whether, held_for| match whether {
            true => held_for,
            false => HeldFor::Another,
        };
        let perhaps = |perhaps| or_another(perhaps, HeldFor::Unknown);
        let Some(data) = &self.rancher else {
            return perhaps(is_here || self.managed);
        };
        if identity.cluster.as_ref() != Some(&data.cluster) {
            return perhaps(is_here);
        }
        let Some(fip) = data.fips.get(&names::key(identity)) else {
            return perhaps(is_here);
        };
        let Some(cluster) = &fip.cluster else {
            return perhaps(is_here);
        };
        let named = self.names.iter().any(|name| **name == **cluster);
        or_another(named, HeldFor::This)
    }
}
