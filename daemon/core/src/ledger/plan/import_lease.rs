//! Leases of an import.

use std::{collections::BTreeSet, sync::Arc};

use super::import::{Trial, invalid, made};
use crate::{
    Action, Contender, Family, Identity, ImportedLease, Lease, LeaseKey, LeasePrefix, LeaseState,
    Op, PoolId, Refusal, RowFate, Text,
    ledger::{Ledger, draft::Stop, identities, index::charges::charge, intern::fingerprint},
};

impl Trial {
    pub(super) fn lease(&mut self, ledger: &Ledger, row: &ImportedLease) -> Result<RowFate, Stop> {
        let network = self.network_named(ledger, &row.network)?.id;
        let key = LeaseKey {
            network,
            address: row.lease.key.address.to_canonical(),
        };
        let length = row.lease.length;
        let prefix = LeasePrefix { key, length }.leasable()?;
        let pool = match &row.pool {
            None => self.pool_around(ledger, prefix),
            Some(name) => {
                let pool = self.pool_named(ledger, name)?;
                let family = Some(Family::of(key.address));
                let length = pool.spec.lease_length();
                if pool.spec.network != network || pool.spec.family() != family {
                    let allowed = format!("a pool of network {} and this family", row.network);
                    return Err(invalid("pool", name, &allowed));
                }
                if length != prefix.length {
                    let allowed = format!("/{length}, which pool {name} gives");
                    return Err(invalid("address", prefix.net(), &allowed));
                }
                Some(pool.id)
            }
        };
        self.bring_lease(ledger, key);
        let over = ledger.lease_over(prefix).map(|lease| lease.key);
        if let Some(over) = over {
            self.bring_lease(ledger, over);
        }
        if let Some(over) = self.small.lease_over(prefix)
            && over.prefix() != prefix
        {
            return Err(Refusal::overlap(prefix, over).into());
        }
        let known = self.small.rows.leases.get(&key).cloned();
        let since = known.as_ref().map(|known| known.since);
        let mut lease = Lease {
            key,
            pool,
            since: row.since.or(since).unwrap_or(self.draft.now),
            ..row.lease.clone()
        };
        sound_uses(&lease)?;
        if let Some(known) = &known {
            fill(&mut lease, known);
        }
        sound(&lease)?;
        if known.as_deref() == Some(&lease) {
            return Ok(RowFate::Same);
        }
        may_have(ledger, &lease, known.as_deref())?;
        let counted = known.as_deref().and_then(charge);
        let beyond = match charge(&lease).filter(|new| counted.as_ref() != Some(new)) {
            Some(charge) => self.beyond_quota(ledger, charge)?,
            None => false,
        };
        if known.is_none() {
            self.fresh.push(prefix);
        }
        let detail = if beyond {
            "beyond the tenant's quota"
        } else {
            ""
        };
        let prints = identities(&lease).map(fingerprint);
        self.draft.flight.identities.extend(prints);
        let lease = Arc::new(lease);
        self.draft.put(&lease, Action::Imported, Text::from(detail));
        self.small.apply(&Op::PutLease(lease));
        Ok(made(known.is_some()))
    }

    /// As [`Ledger::pool_around`], with what the rows before have made of the pools.
    fn pool_around(&self, ledger: &Ledger, prefix: LeasePrefix) -> Option<PoolId> {
        let changed = |id: &PoolId| self.small.rows.pools.contains_key(id);
        let there = ledger.pools_around(prefix);
        let there = there.filter(|(.., id)| !changed(id));
        let nearest = there.chain(self.small.pools_around(prefix)).min();
        nearest.map(|(.., pool)| pool)
    }
}

/// Who holds the address keeps it, and nobody who uses it is left out. After a restore nobody new gets a free one.
fn may_have(ledger: &Ledger, lease: &Lease, known: Option<&Lease>) -> Result<(), Stop> {
    let owner = |lease: &Lease| lease.owner().map(|holder| holder.identity.clone());
    match known.map(owner) {
        Some(Some(holds)) if owner(lease).as_ref() != Some(&holds) => {
            return Err(Refusal::AddressTaken {
                address: lease.prefix(),
                owner: holds.to_string(),
            }
            .into());
        }
        // The ports of a member that a restored file does not know look free.
        Some(Some(_)) if known.is_some_and(|known| gives_more(lease, known)) => {
            ledger.check_restored(lease.key.network)?;
        }
        Some(Some(_)) => {}
        Some(None) if lease.owner().is_none() => {}
        Some(None) | None => ledger.check_restored(lease.key.network)?,
    }
    if let Some(lost) = known.and_then(|known| left_out(lease, known)) {
        let allowed = "every owner and contender of the lease; release first who is to go";
        return Err(invalid("members", lost, allowed));
    }
    Ok(())
}

/// Whether somebody uses the address or a port of it who did not as far as is known.
fn gives_more(lease: &Lease, known: &Lease) -> bool {
    lease.members.iter().any(|member| {
        let identity = &member.holder.identity;
        match known.member(identity) {
            Some(before) => !member.ports.iter().all(|port| before.ports.contains(port)),
            None => known.contender(identity).is_none(),
        }
    })
}

/// What the row does not say of its owners stays.
fn fill(lease: &mut Lease, known: &Lease) {
    for member in &mut lease.members {
        if let Some(before) = known.member(&member.holder.identity) {
            if member.holder.instance.is_empty() {
                member.holder = before.holder.clone();
            }
            if member.ports.is_empty() {
                member.ports.clone_from(&before.ports);
            }
        }
    }
    for contender in &mut lease.contenders {
        if let Some(before) = known.contender(&contender.holder.identity) {
            contender.tenant = contender.tenant.take().or_else(|| before.tenant.clone());
            for used in before.used_of(known.prefix()) {
                contender.adds(used, known.prefix());
            }
        }
    }
    lease.tenant = lease.tenant.take().or_else(|| known.tenant.clone());
    lease.group = lease.group.take().or_else(|| known.group.clone());
    if lease.labels.is_empty() && !lease.members.is_empty() {
        lease.labels.clone_from(&known.labels);
    }
}

/// Who uses the address and is not in the row.
fn left_out<'a>(lease: &Lease, known: &'a Lease) -> Option<&'a Identity> {
    identities(known).find(|one| !identities(lease).any(|named| named == *one))
}

/// What contenders use are parts of the lease.
fn sound_uses(lease: &Lease) -> Result<(), Stop> {
    let mut contenders = lease.contenders.iter();
    let Some(wrong) = contenders.find(|one| !one.is_sound(lease.prefix())) else {
        let uses = lease.part_uses(|_| true);
        let most = 2 * Lease::MAX_USES;
        let allowed = format!("at most {most} of one lease");
        return match uses > most {
            true => Err(invalid("uses", uses, &allowed)),
            false => Ok(()),
        };
    };
    let uses: Vec<String> = wrong.uses.iter().map(ToString::to_string).collect();
    let allowed = format!(
        "at most {} prefixes inside the lease, in address order, none inside another; none for the whole lease",
        Contender::MAX_USES
    );
    Err(invalid("uses", uses.join(" "), &allowed))
}

/// What [`Lease`] promises of itself.
fn sound(lease: &Lease) -> Result<(), Stop> {
    let cools = lease.state == LeaseState::Quarantined;
    if cools != lease.members.is_empty() {
        let allowed = "at least one, and none while the address cools";
        return Err(invalid("members", lease.members.len(), allowed));
    }
    if lease.group.is_none() && lease.members.len() > 1 {
        let allowed = "one without a sharing group";
        return Err(invalid("members", lease.members.len(), allowed));
    }
    if lease.members.len() > Lease::MAX_MEMBERS {
        let allowed = format!("at most {}", Lease::MAX_MEMBERS);
        return Err(invalid("members", lease.members.len(), &allowed));
    }
    lease
        .check_labels()
        .map_err(|(value, allowed)| invalid("labels", value, &allowed))?;
    let mut ports = BTreeSet::new();
    let mut claims = lease.members.iter().flat_map(|member| &member.ports);
    if let Some(twice) = claims.find(|claim| !ports.insert(**claim)) {
        return Err(invalid("ports", twice, "each port for one member"));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = identities(lease).find(|identity| !seen.insert(*identity)) {
        let allowed = "each owner once, as member or contender";
        return Err(invalid("owner", twice, allowed));
    }
    if !lease
        .contenders
        .is_sorted_by_key(|contender| contender.since)
    {
        let allowed = "the oldest first";
        return Err(invalid("contenders", "out of order", allowed));
    }
    let (fine, allowed) = match lease.state {
        LeaseState::Quarantined | LeaseState::Probing => (lease.until.is_some(), "a time"),
        LeaseState::Reserved => (true, "a time or nothing"),
        LeaseState::Allocated | LeaseState::Orphaned => {
            (lease.until.is_none(), "nothing in this state")
        }
    };
    if fine {
        return Ok(());
    }
    let until = lease.until.map_or_else(String::new, |at| at.to_string());
    Err(invalid("until", until, allowed))
}
