//! What of the address book a token is for.

use serde::{Deserialize, Serialize};

use crate::{Lease, NetworkId, Pool, PoolId, Tenant};

/// A part of the address book. An empty list does not limit; the others all do. Numbers, not names: a pool that takes over
/// a name is not in scope by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    pub pools: Vec<PoolId>,
    pub networks: Vec<NetworkId>,
    pub tenants: Vec<Tenant>,
}

impl Scope {
    /// Whether nothing is left out.
    pub fn is_all(&self) -> bool {
        self.pools.is_empty() && self.networks.is_empty() && self.tenants.is_empty()
    }

    /// A scope of tenants has every pool of its pools and networks: tenants share pools.
    pub fn has_pool(&self, pool: &Pool) -> bool {
        allows(&self.pools, &pool.id) && allows(&self.networks, &pool.spec.network)
    }

    pub fn has_lease(&self, lease: &Lease) -> bool {
        (self.pools.is_empty() || lease.pool.is_some_and(|pool| self.pools.contains(&pool)))
            && allows(&self.networks, &lease.key.network)
            && self.has_tenant(lease.tenant.as_ref())
    }

    /// What is charged to nobody is in no scope of tenants.
    pub fn has_tenant(&self, tenant: Option<&Tenant>) -> bool {
        self.tenants.is_empty() || tenant.is_some_and(|tenant| self.tenants.contains(tenant))
    }
}

fn allows<T: PartialEq>(list: &[T], one: &T) -> bool {
    list.is_empty() || list.contains(one)
}
