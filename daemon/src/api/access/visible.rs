//! What of the ledger a caller sees. What is out of its scope looks as if it were not there.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{
    AuditEntry, Lease, LeaseFilter, LeaseKey, LeasePrefix, Ledger, Network, Pool, PoolId, Quota,
    Scope,
};

use crate::api::{access::auth::Caller, convert, problem::Problem};

/// The ledger within a scope.
#[derive(Clone, Copy)]
pub struct VisibleLedger<'a> {
    pub ledger: &'a Ledger,
    pub scope: &'a Scope,
}

impl Caller {
    /// What of the ledger this caller sees.
    pub fn within<'a>(&'a self, ledger: &'a Ledger) -> VisibleLedger<'a> {
        VisibleLedger {
            ledger,
            scope: &self.scope,
        }
    }
}

impl<'a> VisibleLedger<'a> {
    /// The pool of a full name, or of a short name that no other pool in scope has.
    pub fn pool(&self, name: &str) -> Result<&'a Arc<Pool>, Problem> {
        Ok(self.ledger.find_pool_in(name, self.scope)?)
    }

    /// The key of an address, or of a prefix with its length, in a network, all as they are in a path.
    pub fn key_and_length(
        &self,
        network: &str,
        text: &str,
    ) -> Result<(LeaseKey, Option<u8>), Problem> {
        let (address, length) = convert::prefix("address", text)?;
        let network = self.network(network)?.id;
        Ok((LeaseKey { network, address }, length))
    }

    /// The same for what is to be done to the lease. What is in the lease of a prefix, or around one, is refused: whoever
    /// means that names it.
    pub fn key(&self, network: &str, text: &str) -> Result<LeaseKey, Problem> {
        let (key, length) = self.key_and_length(network, text)?;
        let asked = key.prefix(length);
        let Some(lease) = self.lease_over(asked) else {
            return Ok(key);
        };
        let prefix = lease.prefix();
        let meant = length.map_or(lease.key == key, |_| prefix == asked);
        match meant {
            true => Ok(key),
            false => {
                let allowed = format!("{prefix}, as that is what is leased there");
                Err(Problem::invalid("address", text, allowed))
            }
        }
    }

    pub fn pool_id(&self, name: &str) -> Result<PoolId, Problem> {
        Ok(self.pool(name)?.id)
    }

    /// The network of a name; with a scope of pools only those that have one of them.
    pub fn network(&self, name: &str) -> Result<&'a Network, Problem> {
        let known = self.ledger.network_by_name(name);
        let known = known.filter(|network| self.has_network(network));
        known.ok_or_else(|| Problem::not_found("network", name).about("network", name))
    }

    pub fn has_network(&self, network: &Network) -> bool {
        let scope = self.scope;
        let listed = scope.networks.is_empty() || scope.networks.contains(&network.id);
        listed && (scope.pools.is_empty() || self.pools_of(network) > 0)
    }

    /// How many pools in scope the network has. No pool is looked at but those that the scope names.
    pub fn pools_of(&self, network: &Network) -> usize {
        let scope = self.scope;
        if !scope.networks.is_empty() && !scope.networks.contains(&network.id) {
            return 0;
        }
        if scope.pools.is_empty() {
            return self.ledger.pool_count(network.id);
        }
        let named: BTreeSet<PoolId> = scope.pools.iter().copied().collect();
        let pools = named.iter().filter_map(|id| self.ledger.pool(*id));
        pools.filter(|pool| pool.spec.network == network.id).count()
    }

    pub fn lease(&self, key: LeaseKey) -> Option<&'a Arc<Lease>> {
        let lease = self.ledger.lease(key);
        lease.filter(|lease| self.scope.has_lease(lease))
    }

    /// The lease of the address, or of the prefix around it.
    pub fn lease_around(&self, key: LeaseKey) -> Option<&'a Arc<Lease>> {
        let lease = self.ledger.lease_around(key);
        lease.filter(|lease| self.scope.has_lease(lease))
    }

    /// The lease around the prefix, or the lowest in it.
    fn lease_over(&self, prefix: LeasePrefix) -> Option<Arc<Lease>> {
        let inside = LeaseFilter {
            network: Some(prefix.key.network),
            within: Some(prefix.span()),
            scope: self.scope.clone(),
            ..LeaseFilter::default()
        };
        let inside = || {
            self.ledger
                .leases(&inside, None, 1)
                .leases
                .into_iter()
                .next()
        };
        self.lease_around(prefix.key).cloned().or_else(inside)
    }

    pub fn has_quota(&self, quota: &Quota) -> bool {
        let pool = self.ledger.pool(quota.pool);
        pool.is_some_and(|pool| self.scope.has_pool(pool))
            && self.scope.has_tenant(Some(&quota.tenant))
    }

    /// Whether an audit entry is about a pool or network in scope.
    pub fn has_entry(&self, entry: &AuditEntry) -> bool {
        let scope = self.scope;
        let network = || {
            let pool = entry.pool.and_then(|id| self.ledger.pool(id));
            entry.network.or_else(|| Some(pool?.spec.network))
        };
        (scope.pools.is_empty() || entry.pool.is_some_and(|id| scope.pools.contains(&id)))
            && (scope.networks.is_empty()
                || network().is_some_and(|id| scope.networks.contains(&id)))
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::{NetworkId, Op, PoolSpec, Timestamp};

    use super::*;

    #[test]
    fn a_network_counts_the_pools_that_the_caller_sees() {
        let mut ledger = Ledger::new();
        let blue = Network {
            id: NetworkId(1),
            name: "blue".into(),
            hold: None,
        };
        ledger.apply(&Op::PutNetwork(blue.clone()));
        for (id, network) in [(1, 0), (2, 1), (3, 1)] {
            let spec = PoolSpec {
                network: NetworkId(network),
                ..PoolSpec::own(format!("p{id}"), vec!["10.0.0.0/24".parse().unwrap()])
            };
            ledger.apply(&Op::PutPool(Arc::new(Pool {
                id: PoolId(id),
                spec,
                created: Timestamp(0),
                generation: 1,
            })));
        }
        let count = |pools: &[u32], networks: &[u32]| {
            let scope = Scope {
                pools: pools.iter().copied().map(PoolId).collect(),
                networks: networks.iter().copied().map(NetworkId).collect(),
                ..Scope::default()
            };
            let (ledger, scope) = (&ledger, &scope);
            VisibleLedger { ledger, scope }.pools_of(&blue)
        };
        assert_eq!(count(&[], &[]), 2);
        assert_eq!(count(&[], &[1]), 2);
        assert_eq!(count(&[], &[0]), 0);
        assert_eq!(count(&[1, 2, 2, 9], &[]), 1);
        assert_eq!(count(&[2, 3], &[0]), 0);
    }
}
