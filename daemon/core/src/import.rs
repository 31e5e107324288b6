//! Networks, separations, pools, quotas and leases from outside, decided together.

use crate::{Actor, Lease, PoolId, PoolSpec, Refusal, Tenant, Text, Timestamp};

/// Rows to write, all or none. A row may stand on the ones before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    pub rows: Vec<ImportRow>,
    /// Tenants may have more than their quotas.
    pub force: bool,
    pub actor: Actor,
}

/// One row. Networks and pools are meant by name: they may come with the same import.
#[derive(Clone, Debug, PartialEq)]
pub enum ImportRow {
    Network(Text),
    /// Of two networks an admin says that they are two.
    Separation(Text, Text),
    Pool(Box<ImportedPool>),
    Quota {
        pool: Text,
        tenant: Tenant,
        limit: u64,
    },
    Lease(Box<ImportedLease>),
}

/// A pool that is made, or whose specification becomes this one.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedPool {
    /// Takes the place of `spec.network`; `None`: the network `default`, which nobody chose.
    pub network: Option<Text>,
    /// Takes the place of `spec.network_by_default`; `None`: as it is while the pool stays in its network.
    pub network_by_default: Option<bool>,
    pub spec: PoolSpec,
    /// What a new one gets where that is possible: a number that no pool ever had.
    pub id: Option<PoolId>,
    pub created: Option<Timestamp>,
    pub generation: Option<u64>,
}

/// A lease as it shall be. An admin's word: neither adoption nor reserved ends count. Quotas do, and after a restore
/// nobody new gets a free address.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedLease {
    /// Takes the place of `lease.key.network`.
    pub network: Text,
    /// Takes the place of `lease.pool`; `None`: the pool around the address, if there is one.
    pub pool: Option<Text>,
    /// Takes the place of `lease.since`; `None`: as it is, or from now on.
    pub since: Option<Timestamp>,
    pub lease: Lease,
}

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowFate {
    Created,
    Changed,
    /// It is so already.
    Same,
    Refused(Refusal),
}

impl Import {
    /// The most rows of one import.
    pub const MAX_ROWS: usize = 200_000;
}
