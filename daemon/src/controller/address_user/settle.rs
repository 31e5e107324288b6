//! What to ask the ledger for an object that uses an address, and what the ledger already says of it. Pure.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{
    Adopt, Allocate, Handover, Holder, Lease, LeaseKey, LeasePrefix, LeaseState, Ledger, Pool,
    Request, Span, Tenant, Text, Timestamp, Transfer, Want,
};

use super::{AddressUser, Edits, outcome::ShownLease};
use crate::{
    controller::unserved::{Unserved, contended},
    validation::held_address::gives,
};

/// Who asks.
#[derive(Clone, Debug)]
pub struct AddressAsker {
    pub holder: Holder,
    pub created: Timestamp,
    pub actor: Text,
}

/// What differs between kinds.
#[derive(Clone, Copy, Debug)]
pub struct AddressPolicy {
    pub inherits: Inheritance,
    /// An object that asks for another address than it has gets that.
    pub moves: bool,
    /// An object has a prefix where its pool gives prefixes.
    pub prefixes: bool,
    /// A new address is checked on the wire before the object shows it.
    pub probes: bool,
    /// What the audit log says where another tenant is charged.
    pub charge_reason: &'static str,
}

/// Which leases an object inherits from an earlier object of its name, or from an admin's reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inheritance {
    Nothing,
    /// What answers its wish: its pool, and the address if it names one. The rest is released.
    Wished,
    /// Whatever it asks for.
    Anything,
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

    /// Whether the lease is what is asked for. A pool keeps a lease that is out of its range by now.
    fn is_answered_by(&self, lease: &Lease) -> bool {
        let pool = &self.pool;
        let of_pool = || lease.pool == Some(pool.id) || gives(&pool.spec, lease.key.address);
        lease.key.network == pool.spec.network
            && self
                .address
                .map_or_else(of_pool, |address| address == lease.key.address)
    }

    fn wants(&self) -> Vec<Want> {
        vec![Want {
            pool: self.pool.id.into(),
            address: self.address,
            count: 1,
        }]
    }

    /// What adoption takes in.
    pub(super) fn recorded_prefix(&self) -> Option<LeasePrefix> {
        let network = self.pool.spec.network;
        let key = self.recorded.map(|address| LeaseKey { network, address });
        key.map(|key| self.pool.spec.prefix_at(key))
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
    /// It has an address, and asks for another one.
    Move(ShownLease, Box<Request>),
    /// It has an address that it does not use before that was checked on the wire.
    Probe(Arc<Lease>),
    Unserved(Unserved),
}

/// The leases of an owner against the parts of its wish.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseMatch<P> {
    /// One for each part that is served.
    pub kept: BTreeMap<P, Arc<Lease>>,
    /// Parts that need an address.
    pub missing: Vec<P>,
    /// Leases in use that answer no part.
    pub surplus: Vec<Arc<Lease>>,
}

/// Compares what an owner holds, the leases it prefers first, with the parts of its wish. `part`: the one that a lease
/// answers. What is reserved for the owner stays reserved unless it is kept.
pub fn compare<P: Copy + Ord>(
    parts: &[P],
    held: &[Arc<Lease>],
    part: impl Fn(&Lease) -> Option<P>,
) -> LeaseMatch<P> {
    let (mut kept, mut surplus) = (BTreeMap::new(), Vec::new());
    for lease in held {
        let part = part(lease).filter(|part| parts.contains(part));
        match part.filter(|part| !kept.contains_key(part)) {
            Some(part) => {
                kept.insert(part, Arc::clone(lease));
            }
            None if lease.state != LeaseState::Reserved => surplus.push(Arc::clone(lease)),
            None => {}
        }
    }
    let missing = parts.iter().copied();
    let missing = missing.filter(|part| !kept.contains_key(part)).collect();
    LeaseMatch {
        kept,
        missing,
        surplus,
    }
}

/// What an object holds goes before what it asks for: neither its status nor an edit of it or of a pool takes an address
/// away. One that moves keeps what it has until it has the other.
pub fn settle(
    ledger: &Ledger,
    policy: AddressPolicy,
    asker: &AddressAsker,
    wish: &Wished,
) -> AddressPlan {
    let wish = wish.as_ref();
    let holder = &asker.holder;
    let network = wish.ok().map(|wish| wish.pool.spec.network);
    let answers = |lease: &Lease| {
        wish.ok()
            .is_none_or(|wish| policy.is_answered_by(wish, lease, holder))
    };
    let mut leases = policy.leases_of(ledger, holder, wish.ok());
    // Of two that one has which moves, the older one is shown.
    let age = |lease: &Lease| policy.moves.then_some(lease.since);
    leases.sort_by_key(|lease| match holds(lease, holder) {
        true => (false, Some(lease.key.network) != network, age(lease)),
        false => (true, lease.state != LeaseState::Allocated, age(lease)),
    });
    let found = compare(&[()], &leases, |lease| {
        let has = policy.inherits != Inheritance::Nothing || holds(lease, holder);
        (has && answers(lease)).then_some(())
    });
    if let Some(lease) = found.kept.get(&()) {
        // Also what an earlier object of its name left, which nobody else would release.
        let held = found.surplus.iter().filter(|lease| {
            let inherits = policy.inherits != Inheritance::Nothing;
            holds(lease, holder) || inherits && lease.state == LeaseState::Allocated
        });
        let contended = ledger.contentions_of(&holder.identity);
        let contended = contended.iter().filter(|_| policy.moves);
        let surplus = held.chain(contended);
        let surplus = surplus.flat_map(|lease| lease.parts_of(&holder.identity));
        let surplus = surplus.map(|part| part.key);
        let frees = policy.moves || policy.inherits == Inheritance::Wished;
        let surplus = surplus.filter(|_| frees && wish.is_ok()).collect();
        let probe = policy.probes.then(|| probe(asker, lease, wish.ok()));
        let keep = || keep(ledger, policy, asker, (lease, surplus), wish.ok());
        return probe.flatten().unwrap_or_else(keep);
    }
    let held = leases.iter().find(|lease| holds(lease, holder));
    if let (true, Some(lease), Ok(wish)) = (policy.moves, held, wish) {
        let request = Box::new(asker.allocate(wish.tenant.clone(), wish.wants()));
        return AddressPlan::Move(ShownLease::of(ledger, lease), request);
    }
    ask(ledger, policy, asker, wish)
}

/// Asks for an address for an object that has none.
fn ask(
    ledger: &Ledger,
    policy: AddressPolicy,
    asker: &AddressAsker,
    wish: Result<&AddressWish, &Unserved>,
) -> AddressPlan {
    if let Some(kept) = wish.ok().and_then(|wish| wish.kept.as_ref()) {
        return AddressPlan::Ask(Box::new(asker.take(kept)));
    }
    let recorded = wish.ok().and_then(AddressWish::recorded_prefix);
    let contentions = ledger.contentions_of(&asker.holder.identity);
    let uses = |lease: &&Arc<Lease>| {
        let named = wish.ok().and_then(|wish| wish.address);
        let has = |address| lease.is_used_by(&asker.holder.identity, Span::single(address));
        let other = policy.moves && named.is_some_and(|address| !has(address));
        let same = |prefix: LeasePrefix| {
            let key = prefix.key;
            key.network == lease.key.network && has(key.address)
        };
        let inherits = policy.inherits != Inheritance::Nothing;
        !other && recorded.map_or(inherits, same)
    };
    if let Some(lease) = contentions.iter().find(uses) {
        return AddressPlan::Unserved(contended(lease));
    }
    match (wish, recorded) {
        (Err(problem), _) => AddressPlan::Unserved(problem.clone()),
        (Ok(wish), Some(prefix)) => {
            AddressPlan::Ask(Box::new(asker.adopt(prefix, Some(wish.tenant.clone()))))
        }
        (Ok(wish), None) => {
            let mut allocate = asker.allocation(wish.tenant.clone(), wish.wants());
            allocate.probe = policy.probes && wish.pool.spec.allocation_length.is_none();
            AddressPlan::Ask(Box::new(Request::Allocate(allocate)))
        }
    }
}

/// The check of a lease that the object does not use yet; `None`: it needs none.
fn probe(
    asker: &AddressAsker,
    lease: &Arc<Lease>,
    wish: Option<&AddressWish>,
) -> Option<AddressPlan> {
    if lease.state == LeaseState::Probing {
        return Some(AddressPlan::Probe(Arc::clone(lease)));
    }
    let reserved = lease.state == LeaseState::Reserved && lease.prefix().is_address();
    let answers =
        |wish: &&AddressWish| lease.pool == Some(wish.pool.id) && wish.is_answered_by(lease);
    let wish = wish.filter(|wish| reserved && answers(wish))?;
    let allocate = Allocate {
        probe: true,
        ..asker.allocation(wish.tenant.clone(), wish.wants())
    };
    Some(AddressPlan::Ask(Box::new(Request::Allocate(allocate))))
}

/// Shows the lease once this instance of the object is its holder and the right tenant is charged.
fn keep(
    ledger: &Ledger,
    policy: AddressPolicy,
    asker: &AddressAsker,
    (lease, surplus): (&Lease, Vec<LeaseKey>),
    wish: Option<&AddressWish>,
) -> AddressPlan {
    if !holds(lease, &asker.holder) {
        let tenant = wish.map(|wish| wish.tenant.clone());
        return AddressPlan::Ask(Box::new(asker.adopt(lease.prefix(), tenant)));
    }
    let shown = ShownLease {
        surplus,
        ..ShownLease::of(ledger, lease)
    };
    match wish.and_then(|wish| charge(policy, asker, lease, wish)) {
        Some(request) => AddressPlan::Charge(shown, Box::new(request)),
        None => AddressPlan::Show(shown),
    }
}

/// Whether the lease is in use by exactly this holder.
pub fn holds(lease: &Lease, holder: &Holder) -> bool {
    lease.state == LeaseState::Allocated && lease.has_member(holder)
}

/// Whether any lease is the holder's own, in whatever state. What an earlier object of its name left is not.
pub(super) fn holds_any(ledger: &Ledger, holder: &Holder) -> bool {
    let leases = ledger.leases_of(&holder.identity);
    leases.iter().any(|lease| lease.has_member(holder))
}

/// The request that takes in what an object shows, where the ledger knows of nothing that is its own.
pub(super) fn to_take_in(
    ledger: &Ledger,
    asker: &AddressAsker,
    wish: &AddressWish,
) -> Option<Request> {
    let prefix = wish.recorded_prefix()?;
    (!holds_any(ledger, &asker.holder)).then(|| match &wish.kept {
        Some(kept) => asker.take(kept),
        None => asker.adopt(prefix, Some(wish.tenant.clone())),
    })
}

/// The request that charges the lease to another tenant; `None`: it is charged to the right one.
fn charge(
    policy: AddressPolicy,
    asker: &AddressAsker,
    lease: &Lease,
    wish: &AddressWish,
) -> Option<Request> {
    let moved = lease.tenant.as_ref() != Some(&wish.tenant) && lease.members.len() == 1;
    moved.then(|| {
        Request::Transfer(Transfer {
            key: lease.key,
            from: Some(asker.holder.clone()),
            to: asker.holder.clone(),
            tenant: Some(wish.tenant.clone()),
            force: false,
            actor: Text::clone(&asker.actor),
            reason: policy.charge_reason.into(),
        })
    })
}

impl AddressPolicy {
    pub const fn of<U: AddressUser>() -> Self {
        Self {
            inherits: U::INHERITS,
            moves: matches!(U::EDITS, Edits::Followed),
            prefixes: U::PREFIXES,
            probes: false,
            charge_reason: U::CHARGE_REASON,
        }
    }

    /// Whether the lease of the holder is what it is to have.
    fn is_answered_by(self, wish: &AddressWish, lease: &Lease, holder: &Holder) -> bool {
        match self.inherits {
            _ if self.moves => wish.is_answered_by(lease),
            // Wherever it is: who holds it may use it, and no edit takes it away. Of an earlier object of the name it inherits what
            // it does not show otherwise: another program may have allocated that.
            Inheritance::Wished => {
                let shows = |address| address == lease.key.address;
                let is_inherited = wish.recorded.is_none_or(shows);
                holds(lease, holder) || is_inherited && wish.is_answered_by(lease)
            }
            Inheritance::Nothing | Inheritance::Anything => true,
        }
    }

    /// What the holder has that the object can show.
    fn leases_of(
        self,
        ledger: &Ledger,
        holder: &Holder,
        wish: Option<&AddressWish>,
    ) -> Vec<Arc<Lease>> {
        if !self.prefixes {
            return ledger.addresses_of(&holder.identity);
        }
        let mut leases = ledger.leases_of(&holder.identity);
        if let Some(wish) = wish {
            let spec = &wish.pool.spec;
            leases.retain(|lease| lease.prefix() == spec.prefix_at(lease.key));
        }
        leases
    }
}

impl AddressAsker {
    /// The request for an address or prefix that the object uses.
    pub fn adopt(&self, prefix: LeasePrefix, tenant: Option<Tenant>) -> Request {
        Request::Adopt(Adopt {
            length: prefix.explicit_length(),
            key: prefix.key,
            holder: self.holder.clone(),
            tenant,
            since: self.created,
            actor: Text::clone(&self.actor),
        })
    }

    pub(super) fn take(&self, kept: &KeptLease) -> Request {
        Request::Handover(Handover {
            from: kept.from.clone(),
            to: self.holder.clone(),
            keys: vec![kept.key],
            actor: Text::clone(&self.actor),
            reason: kept.reason.into(),
        })
    }

    /// The request for new addresses, all or none.
    pub fn allocate(&self, tenant: Tenant, wants: Vec<Want>) -> Request {
        Request::Allocate(self.allocation(tenant, wants))
    }

    fn allocation(&self, tenant: Tenant, wants: Vec<Want>) -> Allocate {
        Allocate {
            holder: self.holder.clone(),
            tenant: Some(tenant),
            wants,
            waiting_since: Some(self.created),
            by_admin: false,
            share: None,
            probe: false,
            actor: Text::clone(&self.actor),
        }
    }
}

#[cfg(test)]
mod tests;
