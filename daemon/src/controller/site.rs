//! A cluster as its controllers see it.

use std::sync::Arc;

use fipd_core::{
    ClusterId, Handover, Holder, LeaseKey, Ledger, NetworkId, Origin, Pool, Release, ReleaseScope,
    Request, System, Tenant, Text,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clusters::{
        ClusterSession, ClustersError,
        adoption::{self, Inventory},
        memory::Memory,
    },
    config::{PoolFacts, PoolLink, TypedSettings},
    ipam::{Ipam, IpamError},
};

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
        Self {
            name: Text::clone(&session.name),
            id: session.id.clone(),
            ipam: session.ipam.clone(),
            session,
            system,
        }
    }

    /// What the configuration says of a system here.
    pub fn settings<T: TypedSettings>(&self) -> &T {
        self.session.settings.of()
    }

    /// Takes in what the cluster uses already, before anything new is given; `false`: the session is over.
    pub async fn adopt_first(&self, inventory: &dyn Inventory) -> bool {
        let adopted = adoption::first(&self.session, &self.system, inventory).await;
        adopted.is_some()
    }

    /// Releases leases in the address book.
    pub async fn release(&self, scope: ReleaseScope, reason: &str) -> Result<(), IpamError> {
        let release = Release {
            scope,
            actor: self.actor(),
            reason: reason.into(),
        };
        self.ipam.submit(Request::Release(release)).await.map(drop)
    }

    /// Gives a lease to another holder.
    pub async fn transfer(
        &self,
        from: Holder,
        to: Holder,
        key: LeaseKey,
        reason: &str,
    ) -> Result<(), IpamError> {
        let handover = Handover {
            from,
            to,
            keys: vec![key],
            actor: self.actor(),
            reason: reason.into(),
        };
        let handed = self.ipam.submit(Request::Handover(handover));
        handed.await.map(drop)
    }

    /// Who asks, for the audit log.
    pub fn actor(&self) -> Text {
        self.session.actor(&self.system)
    }

    /// Who is charged for the objects of a namespace, where no project is.
    pub fn tenant_of(&self, namespace: &str) -> Tenant {
        Tenant(format!("{}/{namespace}", self.name).into())
    }

    /// The mirror of a FloatingIPPool of this cluster.
    pub fn mirror_in<'a>(&self, ledger: &'a Ledger, pool: &str) -> Option<&'a Arc<Pool>> {
        ledger.mirror(&self.system, &self.id, pool)
    }

    /// The name of the object of this cluster that the pool mirrors, if it mirrors one.
    pub fn object_of(&self, pool: &Pool) -> Option<String> {
        match &pool.spec.origin {
            Origin::Mirror {
                system,
                cluster,
                object,
                ..
            } if *cluster == self.id && *system == self.system => Some(object.to_string()),
            Origin::Mirror { .. } | Origin::Own => None,
        }
    }

    /// Whether the pool mirrors an object of this cluster.
    pub fn is_mirror(&self, pool: &Pool) -> bool {
        self.object_of(pool).is_some()
    }

    /// The network of that name for a pool of this cluster, made where it is missing. From then on it waits for this
    /// cluster.
    pub async fn expect_network(
        &self,
        pool: &str,
        name: Option<&str>,
    ) -> Result<NetworkId, ClustersError> {
        let facts = PoolFacts {
            cluster: &self.session.names,
            system: &self.system,
            namespace: None,
            interface: None,
            link: &PoolLink::NONE,
            pool,
            annotation: name,
            own_network: None,
        };
        let (network, _) = self.session.network_of(&facts, None).await?;
        Ok(network)
    }

    pub fn cancel(&self) -> CancellationToken {
        self.session.cancel.clone()
    }

    /// What is kept of its objects is charged to this.
    pub fn memory(&self) -> Memory {
        self.session.memory.clone()
    }
}
