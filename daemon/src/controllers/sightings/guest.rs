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

/// A cluster as FloatingIPs of its management cluster name it.
pub struct Guest {
    cluster: ClusterId,
    managed: bool,
    rancher: Option<Arc<Data>>,
    names: Vec<Text>,
}

impl Guest {
    pub fn of(session: &ClusterSession, ranchers: &Ranchers) -> Self {
        let rancher = session
            .management
            .as_ref()
            .and_then(|name| ranchers.get(name).data());
        let mut names = session.names.clone();
        names.extend(session.settings.rancher_fip.cluster_id.clone());
        if let Some(data) = &rancher {
            names.extend(data.clusters_called(&names));
        }
        Self {
            cluster: session.id.clone(),
            managed: session.management.is_some(),
            rancher,
            names,
        }
    }

    /// Whether the owner is an object of this cluster, or a FloatingIP for it. While Rancher has not been listed, any may be: what
    /// it holds is not given to others, so that nothing is lost by waiting.
    pub fn has(&self, identity: &Identity) -> bool {
        if identity.cluster.as_ref() == Some(&self.cluster) {
            return true;
        }
        if *identity.kind != *KIND_FLOATING_IP {
            return false;
        }
        let Some(data) = &self.rancher else {
            return self.managed;
        };
        let fip = (identity.cluster.as_ref() == Some(&data.cluster))
            .then(|| data.fips.get(&names::key(identity)))
            .flatten();
        let cluster = fip.and_then(|fip| fip.cluster.clone());
        cluster.is_some_and(|cluster| self.names.iter().any(|name| **name == *cluster))
    }
}
