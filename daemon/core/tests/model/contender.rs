//! Contenders of the model: what each uses is a plain list of prefixes.

use fipd_core::{Action, Contender, Holder, Lease, LeaseKey, LeasePrefix, Op, Tenant, Timestamp};
use ipnet::IpNet;

use super::{Flight, Model, Stop, new_lease, owner, prefix::touch};

/// What it uses of the lease.
pub fn uses(contender: &Contender, lease: LeasePrefix) -> Vec<LeasePrefix> {
    let mut uses = Vec::new();
    for net in &contender.uses {
        let address = net.addr();
        let key = LeaseKey {
            address,
            ..lease.key
        };
        let length = net.prefix_len();
        uses.push(LeasePrefix { key, length });
    }
    if uses.is_empty() {
        uses.push(lease);
    }
    uses
}

/// How a contender that uses these says so in the lease.
pub fn said_uses(uses: &[LeasePrefix], lease: LeasePrefix) -> Vec<IpNet> {
    let mut said = Vec::new();
    for one in uses {
        if one.length <= lease.length {
            return Vec::new();
        }
        let in_another = |other: &LeasePrefix| other.length < one.length && touch(*other, *one);
        if !uses.iter().any(in_another) {
            said.push(IpNet::new(one.key.address, one.length).expect("a prefix"));
        }
    }
    said.sort();
    said.dedup();
    assert!(said.len() <= Contender::MAX_USES, "histories are short");
    said
}

/// Notes that the holder uses the prefix; whether that was not known.
pub fn contend(
    lease: &mut Lease,
    (holder, tenant): (&Holder, &Option<Tenant>),
    (used, since): (LeasePrefix, Timestamp),
) -> bool {
    let whole = lease.prefix();
    let place = lease
        .contenders
        .iter()
        .position(|one| one.holder.identity == holder.identity);
    let known = place.map(|at| lease.contenders[at].clone());
    let mut all = vec![used];
    if let Some(known) = &known {
        all.extend(uses(known, whole));
    }
    let mut next = Contender {
        holder: holder.clone(),
        tenant: tenant.clone(),
        since,
        uses: said_uses(&all, whole),
    };
    if let Some(known) = &known
        && known.holder == next.holder
    {
        next.since = since.min(known.since);
        if tenant.is_none() {
            next.tenant = known.tenant.clone();
        }
    }
    if known.is_some_and(|known| known == next) {
        return false;
    }
    let place = place.unwrap_or_else(|| {
        lease.contenders.push(next.clone());
        lease.contenders.len() - 1
    });
    lease.contenders[place] = next;
    lease.contenders.sort_by_key(|one| one.since);
    true
}

/// Contenders for a part go on as contenders for what is more.
pub fn take_in(lease: &mut Lease, from: LeasePrefix, contenders: Vec<Contender>) {
    let whole = lease.prefix();
    for one in contenders {
        let mut all = uses(&one, from);
        let mut known = lease.contenders.iter_mut();
        match known.find(|known| known.holder.identity == one.holder.identity) {
            // It stays where it is: those of one age keep their order.
            Some(known) => {
                all.extend(uses(known, whole));
                if one.since < known.since {
                    *known = one;
                }
                known.uses = said_uses(&all, whole);
            }
            None => lease.contenders.push(Contender {
                uses: said_uses(&all, whole),
                ..one
            }),
        }
    }
    lease.contenders.sort_by_key(|one| one.since);
}

/// Ends what the holder uses from these keys on, or all; whether anything ends.
pub fn end(lease: &mut Lease, holder: &Holder, keys: Option<&[LeaseKey]>) -> bool {
    let whole = lease.prefix();
    let before = lease.contenders.clone();
    lease.contenders.retain_mut(|one| {
        let Some(keys) = keys.filter(|_| one.holder == *holder) else {
            return one.holder != *holder;
        };
        let mut keys = keys.to_vec();
        keys.sort();
        for key in keys {
            let all = uses(one, whole);
            let mut left = all.clone();
            left.retain(|used| used.key != key);
            if left.is_empty() {
                return false;
            }
            one.uses = said_uses(&left, whole);
        }
        true
    });
    lease.contenders != before
}

impl Model {
    /// Every contender's own part of the lease, the largest first, then the oldest; it contends for what another got of that.
    pub fn pass_parts(
        &self,
        flight: &mut Flight,
        lease: &Lease,
        action: Action,
        now: Timestamp,
    ) -> Result<(), Stop> {
        let network = lease.key.network;
        if self.flights.iter().any(Flight::locks_pools) || self.edited(network) {
            return Err(Stop::Busy);
        }
        flight.edits.push(network);
        let mut heirs: Vec<Lease> = Vec::new();
        for length in 0..=128 {
            for one in &lease.contenders {
                let mut used = uses(one, lease.prefix());
                used.retain(|used| used.length == length);
                for used in used {
                    if !heirs.iter().any(|heir| touch(heir.prefix(), used)) {
                        let pool = self.pool_of(used);
                        heirs.push(new_lease(used, pool, &one.holder, &one.tenant, now));
                    }
                }
            }
        }
        heirs.sort_by_key(|heir| heir.key);
        for heir in &mut heirs {
            let there = heir.prefix();
            for one in &lease.contenders {
                if heir.held_by(&one.holder.identity) {
                    continue;
                }
                let mut used = uses(one, lease.prefix());
                used.retain(|used| touch(*used, there));
                if !used.is_empty() {
                    heir.contenders.push(Contender {
                        uses: said_uses(&used, there),
                        ..one.clone()
                    });
                }
            }
        }
        flight.keys.push(lease.prefix());
        flight.ops.push(Op::DeleteLease(lease.key));
        let address = Some(lease.key.address);
        flight.audit.push((action, address, owner(lease)));
        for heir in &heirs {
            flight.put(heir, Action::PassedOn, owner(heir));
        }
        Ok(())
    }
}
