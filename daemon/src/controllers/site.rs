//! A cluster as its controllers see it.

use std::sync::Arc;

use fipd_core::{ClusterId, Ledger, Pool, System, Text};
use tokio_util::sync::CancellationToken;

use crate::{clusters::ClusterSession, ipam::Ipam};

/// A cluster as the controllers see it.
pub struct Site {
    pub session: ClusterSession,
    pub name: Text,
    pub id: ClusterId,
    pub ipam: Ipam,
    pub system: System,
}

impl Site {
    pub fn new(session: ClusterSession, system: System) -> Self {
        let (name, id, ipam) = (
            Text::clone(&session.name),
            session.id.clone(),
            session.ipam.clone(),
        );
        Self {
            session,
            name,
            id,
            ipam,
            system,
        }
    }

    /// Who asks, for the audit log.
    pub fn actor(&self) -> Text {
        self.session.actor(&self.system)
    }

    /// The mirror of a FloatingIPPool of this cluster.
    pub fn mirror_in<'a>(&self, ledger: &'a Ledger, pool: &str) -> Option<&'a Arc<Pool>> {
        ledger.mirror(&self.system, &self.id, pool)
    }

    pub fn cancel(&self) -> CancellationToken {
        self.session.cancel.clone()
    }
}
