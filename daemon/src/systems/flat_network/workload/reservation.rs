//! What is to be done about the addresses that are kept for the pods of a workload. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_core::{
    Allocate, Holder, Identity, Lease, LeaseKey, LeaseState, Ledger, Pool, Request, Reserve,
    System, Tenant, Text, Want,
};

use super::KINDS;
use crate::validation::{flat_network::workload::WorkloadRef, held_address::gives};

/// What is to be done about one workload. An address that one of its pods has is none of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReservationPlan {
    /// Nobody has them.
    pub reserve: Vec<LeaseKey>,
    /// They were kept before the cluster left, and are again.
    pub revive: Vec<LeaseKey>,
    /// What it names no more, and what somebody else was found using, by the instance of the workload that has it.
    pub release: BTreeMap<Holder, Vec<LeaseKey>>,
    /// Others have them.
    pub taken: Vec<(IpAddr, Identity)>,
}

/// Plans the reservations of the workload `own`, which names these addresses of the pool; `None`: there is no such pool.
pub fn plan(
    ledger: &Ledger,
    own: &Identity,
    (pool, named): (Option<&Pool>, &[IpAddr]),
    is_own_pod: impl Fn(&Identity) -> bool,
) -> ReservationPlan {
    let mut plan = ReservationPlan::default();
    let places: BTreeSet<LeaseKey> = named
        .iter()
        .filter_map(|address| place(pool?, *address))
        .collect();
    for lease in ledger.leases_of(own) {
        let Some(holder) = lease.owner() else {
            continue;
        };
        // Who was found using the address has it before whom it is kept for.
        let stays = places.contains(&lease.key) && lease.contenders.is_empty();
        match (stays, lease.state) {
            (false, _) => {
                let keys = plan.release.entry(holder.clone()).or_default();
                keys.push(lease.key);
            }
            (true, LeaseState::Orphaned) => plan.revive.push(lease.key),
            (true, _) => {}
        }
    }
    for place in places {
        let Some(lease) = ledger.lease_around(place) else {
            plan.reserve.push(place);
            continue;
        };
        // What cools has no owner, and is free within a time.
        let owner = lease.owner().map(|owner| &owner.identity);
        let other = owner.filter(|owner| *owner != own && !is_own_pod(owner));
        plan.taken
            .extend(other.map(|other| (place.address, other.clone())));
    }
    plan
}

/// Where the ledger has the address, if the pool gives it.
pub fn place(pool: &Pool, address: IpAddr) -> Option<LeaseKey> {
    let network = pool.spec.network;
    (!pool.spec.closed && gives(&pool.spec, address)).then_some(LeaseKey { network, address })
}

/// The request that keeps an address for the workload, without end.
pub fn request(
    holder: Holder,
    tenant: Tenant,
    (pool, address): (&Pool, IpAddr),
    actor: Text,
) -> Request {
    let want = Want {
        pool: pool.id.into(),
        address: Some(address),
        count: 1,
    };
    let ask = Allocate {
        holder,
        tenant: Some(tenant),
        wants: vec![want],
        waiting_since: None,
        by_admin: false,
        share: None,
        probe: false,
        actor,
    };
    Request::Reserve(Reserve { ask, until: None })
}

/// The workload for whose pods the address is kept; `None`: for no workload.
pub fn kept_for(lease: &Lease) -> Option<WorkloadRef> {
    let owner = &lease.owner()?.identity;
    let is_kind = KINDS.iter().any(|kind| *kind.kind == *owner.kind);
    (is_kind && owner.system == System::flat_network())
        .then(|| WorkloadRef::new(&owner.kind, &owner.namespace, &owner.name))
}

#[cfg(test)]
mod tests;
