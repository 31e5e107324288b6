//! What to ask the ledger for an object that uses an address, and what the ledger already says of it. Pure.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Adopt, Allocate, Handover, Holder, Lease, LeaseKey, LeaseState, Ledger, Pool, Request, Tenant,
    Text, Timestamp, Transfer, Want,
};

use super::{AddressUser, outcome::ShownLease};
use crate::controller::unserved::{Unserved, contended};

/// Who asks.
#[derive(Clone, Debug)]
pub struct AddressAsker {
    pub holder: Holder,
    pub created: Timestamp,
    pub actor: Text,
    /// Gets what an object of its name left, or an admin reserved for it, whatever it asks for.
    pub inherits: bool,
    /// What the audit log says where another tenant is charged.
    pub charge_reason: &'static str,
}

/// What an object asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressWish {
    pub tenant: Tenant,
    pub pool: Arc<Pool>,
    /// This address and no other.
    pub address: Option<IpAddr>,
    /// The address in the status, where that counts even after the adoption of the network.
    pub recorded: Option<IpAddr>,
    /// What somebody keeps for the object.
    pub kept: Option<KeptLease>,
}

impl AddressWish {
    pub fn new(tenant: Tenant, pool: Arc<Pool>, address: Option<IpAddr>) -> Self {
        Self {
            tenant,
            pool,
            address,
            recorded: None,
            kept: None,
        }
    }

    fn recorded_key(&self) -> Option<LeaseKey> {
        let network = self.pool.spec.network;
        self.recorded.map(|address| LeaseKey { network, address })
    }
}

/// What an object asks for, or why that cannot be told.
pub type Wished = Result<AddressWish, Unserved>;

/// A lease that passes from another holder to the object.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptLease {
    pub from: Holder,
    pub key: LeaseKey,
    pub reason: &'static str,
}

/// What is to be done about an object.
#[derive(Clone, Debug, PartialEq)]
pub enum AddressPlan {
    /// All is decided.
    Show(ShownLease),
    /// The same, but for the tenant that is charged.
    Charge(ShownLease, Box<Request>),
    Ask(Box<Request>),
    Unserved(Unserved),
}

/// What an object holds goes before what it asks for: neither its status nor an edit of it or of a pool takes an address
/// away.
pub fn settle(ledger: &Ledger, asker: &AddressAsker, wish: &Wished) -> AddressPlan {
    let wish = wish.as_ref();
    let identity = &asker.holder.identity;
    let network = wish.ok().map(|wish| wish.pool.spec.network);
    let leases = ledger.leases_of(identity);
    let held = leases.iter().filter(|lease| holds(lease, &asker.holder));
    if let Some(lease) = held.min_by_key(|lease| Some(lease.key.network) != network) {
        let shown = ShownLease::of(ledger, lease);
        let charge = wish.ok().and_then(|wish| charge(asker, lease, wish));
        return match charge {
            Some(request) => AddressPlan::Charge(shown, Box::new(request)),
            None => AddressPlan::Show(shown),
        };
    }
    let left = leases
        .iter()
        .min_by_key(|lease| lease.state != LeaseState::Allocated);
    if let Some(lease) = left.filter(|_| asker.inherits) {
        let tenant = wish.ok().map(|wish| wish.tenant.clone());
        return AddressPlan::Ask(Box::new(asker.adopt(lease.key, tenant)));
    }
    if let Some(kept) = wish.ok().and_then(|wish| wish.kept.as_ref()) {
        return AddressPlan::Ask(Box::new(asker.take(kept)));
    }
    let recorded = wish.ok().and_then(AddressWish::recorded_key);
    let contentions = ledger.contentions_of(identity);
    let uses = |lease: &&Arc<Lease>| recorded.map_or(asker.inherits, |key| key == lease.key);
    if let Some(lease) = contentions.iter().find(uses) {
        return AddressPlan::Unserved(contended(lease));
    }
    match (wish, recorded) {
        (Err(problem), _) => AddressPlan::Unserved(problem.clone()),
        (Ok(wish), Some(key)) => {
            AddressPlan::Ask(Box::new(asker.adopt(key, Some(wish.tenant.clone()))))
        }
        (Ok(wish), None) => AddressPlan::Ask(Box::new(asker.allocate(wish))),
    }
}

/// Whether the lease is in use by exactly this holder.
pub fn holds(lease: &Lease, holder: &Holder) -> bool {
    lease.state == LeaseState::Allocated
        && lease.members.iter().any(|member| member.holder == *holder)
}

/// The request that charges the lease to another tenant; `None`: it is charged to the right one.
fn charge(asker: &AddressAsker, lease: &Lease, wish: &AddressWish) -> Option<Request> {
    let moved = lease.tenant.as_ref() != Some(&wish.tenant) && lease.members.len() == 1;
    moved.then(|| {
        Request::Transfer(Transfer {
            key: lease.key,
            from: Some(asker.holder.clone()),
            to: asker.holder.clone(),
            tenant: Some(wish.tenant.clone()),
            force: false,
            actor: Text::clone(&asker.actor),
            reason: asker.charge_reason.into(),
        })
    })
}

impl AddressAsker {
    pub fn new<U: AddressUser>(holder: Holder, created: Timestamp, actor: Text) -> Self {
        Self {
            holder,
            created,
            actor,
            inherits: U::INHERITS,
            charge_reason: U::CHARGE_REASON,
        }
    }

    /// The request for an address that the object uses.
    pub fn adopt(&self, key: LeaseKey, tenant: Option<Tenant>) -> Request {
        Request::Adopt(Adopt {
            key,
            holder: self.holder.clone(),
            tenant,
            since: self.created,
            actor: Text::clone(&self.actor),
        })
    }

    fn take(&self, kept: &KeptLease) -> Request {
        Request::Handover(Handover {
            from: kept.from.clone(),
            to: self.holder.clone(),
            keys: vec![kept.key],
            actor: Text::clone(&self.actor),
            reason: kept.reason.into(),
        })
    }

    fn allocate(&self, wish: &AddressWish) -> Request {
        Request::Allocate(Allocate {
            holder: self.holder.clone(),
            tenant: Some(wish.tenant.clone()),
            wants: vec![Want {
                pool: wish.pool.id.into(),
                address: wish.address,
                count: 1,
            }],
            waiting_since: Some(self.created),
            by_admin: false,
            share: None,
            probe: false,
            actor: Text::clone(&self.actor),
        })
    }
}

#[cfg(test)]
mod tests;
