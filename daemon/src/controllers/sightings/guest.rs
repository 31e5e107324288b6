//! Which owners have addresses for this cluster.

use std::sync::Arc;

use fipd_core::{ClusterId, Identity, Text};

use crate::{
    clusters::ClusterSession,
    controllers::rancher_fip::{
        names::{self, KIND_FLOATING_IP},
        rancher::{Data, Ranchers},
    },
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
        let management = session.management.as_ref();
        let rancher = management.and_then(|name| ranchers.get(name).data());
        let mut names = session.names.clone();
        names.extend(session.settings.rancher_fip.cluster_id.clone());
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

    /// Whether the owner is an object of this cluster, or a FloatingIP for it; one that names no cluster is for its own. While Rancher
    /// has not been listed, any may be: what it holds is not given to others, so that nothing is lost by waiting.
    pub fn has(&self, identity: &Identity) -> bool {
        let is_here = identity.cluster.as_ref() == Some(&self.cluster);
        if *identity.kind != *KIND_FLOATING_IP {
            return is_here;
        }
        let Some(data) = &self.rancher else {
            return is_here || self.managed;
        };
        let fip = (identity.cluster.as_ref() == Some(&data.cluster))
            .then(|| data.fips.get(&names::key(identity)))
            .flatten();
        match fip.and_then(|fip| fip.cluster.clone()) {
            Some(cluster) => self.names.iter().any(|name| **name == *cluster),
            None => is_here,
        }
    }
}
