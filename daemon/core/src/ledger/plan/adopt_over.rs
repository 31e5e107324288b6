//! A prefix found in use in which there are leases already.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use ipnet::{IpSubnets, Ipv4Subnets, Ipv6Subnets};
use smallvec::SmallVec;

use super::adopt::{contend, contenders_beside, exclusive, is_foreign_there, others};
use crate::{
    Action, Answer, Contender, Family, Holder, Labels, Lease, LeasePrefix, LeaseState, Span,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable, Stop},
    },
};

impl Ledger {
    /// Somebody uses more than what these leases cover. What is its own already, cools or was kept for a foreign object of
    /// its cluster gives way. It contends for what anybody else has, and all around that is its own.
    pub(super) fn adopt_over(
        &self,
        mut draft: Draft,
        prefix: LeasePrefix,
        over: &[Arc<Lease>],
        asker: Contender,
    ) -> Draw {
        let (gone, stay): (SmallVec<[_; 1]>, SmallVec<[_; 1]>) =
            (over.iter().cloned()).partition(|lease: &Arc<Lease>| gives_way(lease, &asker.holder));
        let Some(parts) = around(prefix, &stay) else {
            // Too many to have them: at least it contends.
            return contend(draft, &stay, prefix, &asker);
        };
        let is_part = |lease: &Arc<Lease>| is_its(lease, &asker.holder, &parts);
        let mut taken = None;
        if gone.len() != parts.len() || !gone.iter().all(is_part) {
            taken = self.take_parts(&mut draft, prefix, (&gone, &parts), &asker)?;
        }
        match taken.filter(|_| stay.is_empty()) {
            Some(lease) => Ok((draft, Answer::Adopted { lease })),
            None => contend(draft, &stay, prefix, &asker),
        }
    }

    /// The parts become the asker's in place of these leases; the first of them.
    fn take_parts(
        &self,
        draft: &mut Draft,
        prefix: LeasePrefix,
        (gone, parts): (&[Arc<Lease>], &[LeasePrefix]),
        asker: &Contender,
    ) -> Result<Option<Arc<Lease>>, Stop> {
        // Nobody is given what is free between them meanwhile.
        self.lock(LockedTable::Pools, draft)?;
        draft.flight.edits.push(prefix.key.network);
        for lease in gone {
            let why = format!("{prefix} is in use");
            draft.delete(lease, Action::Released, why.into());
        }
        let mut first = None;
        for part in parts {
            let (holder, tenant) = (asker.holder.clone(), asker.tenant.clone());
            let pool = self.pool_around(*part);
            let mut next = exclusive(*part, pool, holder, tenant, draft.now);
            for lease in gone
                .iter()
                .filter(|lease| part.span().covers(&lease.span()))
            {
                take_over(&mut next, lease);
            }
            let next = Arc::new(next);
            draft.put(&next, Action::Adopted, "its parts were leased".into());
            first.get_or_insert(next);
        }
        Ok(first)
    }
}

/// Whether a lease in what the holder uses becomes its own.
fn gives_way(lease: &Lease, holder: &Holder) -> bool {
    let mut owners = lease.owners();
    owners.all(|owner| *owner == holder.identity) || is_foreign_there(lease, holder)
}

/// Whether it is one of these parts, and the holder has it in use.
fn is_its(lease: &Lease, holder: &Holder, parts: &[LeasePrefix]) -> bool {
    let is_part = parts.binary_search(&lease.prefix()).is_ok();
    is_part && lease.state == LeaseState::Allocated && lease.has_member(holder)
}

/// The largest prefixes of what none of these leases in the prefix has, in order; `None`: more than [`Ledger::SCAN`].
fn around(prefix: LeasePrefix, leases: &[Arc<Lease>]) -> Option<Vec<LeasePrefix>> {
    let all = prefix.span();
    let mut gaps: Vec<Span> = Vec::new();
    let mut from = Some(all.first);
    for lease in leases {
        let span = lease.span();
        let before = from.zip(span.first.checked_sub(1));
        let gap = before.filter(|(first, last)| first <= last);
        gaps.extend(gap.map(|(first, last)| Span { first, last, ..all }));
        from = span.last.checked_add(1);
    }
    let rest = from.filter(|first| *first <= all.last);
    gaps.extend(rest.map(|first| Span { first, ..all }));
    let nets = gaps.into_iter().flat_map(prefixes);
    let parts = nets.map(|net| LeasePrefix::of(prefix.key.network, net));
    let parts: Vec<LeasePrefix> = parts.take(Ledger::SCAN + 1).collect();
    Some(parts).filter(|parts| parts.len() <= Ledger::SCAN)
}

/// The largest prefixes of the span.
fn prefixes(span: Span) -> IpSubnets {
    match span.family {
        Family::V4 => {
            let address = |number| Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX));
            Ipv4Subnets::new(address(span.first), address(span.last), 0).into()
        }
        Family::V6 => {
            let address = Ipv6Addr::from_bits;
            Ipv6Subnets::new(address(span.first), address(span.last), 0).into()
        }
    }
}

/// What the lease of the prefix keeps of a lease in it.
fn take_over(next: &mut Lease, gone: &Lease) {
    let Some(owner) = next.owner().map(|holder| holder.identity.clone()) else {
        return;
    };
    let contenders = if gone.held_by(&owner) {
        next.tenant = next.tenant.take().or_else(|| gone.tenant.clone());
        if next.labels == Labels::default() {
            next.labels.clone_from(&gone.labels);
        }
        others(gone, &owner)
    } else {
        contenders_beside(gone, &owner)
    };
    for contender in contenders {
        add_contender(next, gone.prefix(), &contender);
    }
    next.contenders.sort_by_key(|one| one.since);
}

/// A contender for a lease that covered `from` contends for that part; whoever does so for several is one, by its longest use.
fn add_contender(lease: &mut Lease, from: LeasePrefix, contender: &Contender) {
    let to = lease.prefix();
    let Some(mut moved) = contender.moved(from, to) else {
        return;
    };
    let identity = &moved.holder.identity;
    let mut known = lease.contenders.iter_mut();
    match known.find(|one| one.holder.identity == *identity) {
        Some(known) => {
            if moved.since < known.since {
                std::mem::swap(known, &mut moved);
            }
            for used in moved.used_of(to) {
                known.adds(used, to);
            }
        }
        None => lease.contenders.push(moved),
    }
}
