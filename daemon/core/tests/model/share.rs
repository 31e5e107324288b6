//! Sharing groups of the model.

use fipd_core::{
    Allocate, Choice, Holder, Lease, LeaseKey, LeaseState, Member, Op, Pool, PortClaim, Refusal,
    Share,
};

use super::{Model, Stop, pool::invalid};

/// What is to be shared; the histories break the limits of one field at a time.
pub fn wish(ask: &Allocate) -> Result<Option<Share>, Stop> {
    let Some(mut share) = ask.share.clone() else {
        return Ok(None);
    };
    if ask.probe {
        return invalid("probe");
    }
    if share.key.is_empty() {
        return invalid("share.key");
    }
    if share.ports.iter().any(|claim| claim.port == 0) {
        return invalid("share.ports");
    }
    if share.ports.is_empty() {
        return Ok(None);
    }
    if ask.wants.iter().any(|want| want.count > 1) {
        return invalid("count");
    }
    if ask
        .wants
        .iter()
        .any(|want| matches!(want.pool, Choice::Any(_)))
    {
        return invalid("pool");
    }
    share.ports.sort();
    share.ports.dedup();
    Ok(Some(share))
}

fn clash(member: &Member, ports: &[PortClaim]) -> bool {
    ports.iter().any(|claim| member.ports.contains(claim))
}

fn refused<T>(lease: &Lease) -> Result<T, Stop> {
    let (address, why) = (lease.key.address, String::new());
    Err(Stop::Refused(Refusal::NotShareable { address, why }))
}

/// Gives a lease that the holder has this key and these ports; whether that is new.
pub fn again(lease: &mut Lease, share: &Share, holder: &Holder) -> Result<bool, Stop> {
    let before = lease.clone();
    let mine = |member: &Member| member.holder.identity == holder.identity;
    let alone = lease.members.len() == 1;
    let clashes = lease
        .members
        .iter()
        .any(|member| !mine(member) && clash(member, &share.ports));
    if clashes || (!alone && lease.group != Some(share.key.clone())) {
        return refused(lease);
    }
    lease.group = Some(share.key.clone());
    for member in &mut lease.members {
        if mine(member) {
            member.ports = share.ports.clone();
        }
    }
    Ok(*lease != before)
}

/// Takes key and ports off a lease of the holder alone; whether it had them.
pub fn alone(lease: &mut Lease) -> Result<bool, Stop> {
    if lease.group.is_none() {
        return Ok(false);
    }
    if lease.members.len() > 1 {
        return refused(lease);
    }
    lease.group = None;
    lease.members[0].ports = Vec::new();
    Ok(true)
}

/// Whether a member has a port that it did not have.
pub fn more_ports(lease: &Lease, before: &Lease) -> bool {
    let had = |member: &Member, claim: &PortClaim| {
        let same = |old: &&Member| old.holder.identity == member.holder.identity;
        let old = before.members.iter().find(same);
        old.is_some_and(|old| old.ports.contains(claim))
    };
    let mut members = lease.members.iter();
    members.any(|member| member.ports.iter().any(|claim| !had(member, claim)))
}

impl Model {
    fn group_busy(&self, like: &Lease) -> bool {
        let ops = self.flights.iter().flat_map(|flight| &flight.ops);
        let mut written = ops.filter_map(|op| match op {
            Op::PutLease(lease) => Some(lease),
            _ => None,
        });
        written.any(|lease| {
            lease.key.network == like.key.network
                && lease.tenant == like.tenant
                && lease.group == like.group
        })
    }

    /// The lease that the asker joins, with it in it.
    pub fn join(
        &self,
        pool: &Pool,
        named: Option<LeaseKey>,
        share: &Share,
        ask: &Allocate,
        joined: &[LeaseKey],
    ) -> Result<Option<Lease>, Stop> {
        let any = super::world(fipd_core::Family::V4)[0];
        let key = LeaseKey {
            network: pool.spec.network,
            address: any,
        };
        let mut like = super::new_lease(
            key.whole(),
            None,
            &ask.holder,
            &ask.tenant,
            fipd_core::Timestamp(0),
        );
        like.group = Some(share.key.clone());
        if self.group_busy(&like) {
            return Err(Stop::Busy);
        }
        if named.is_some_and(|key| self.locked(key)) {
            return Err(Stop::Busy);
        }
        for lease in &self.leases {
            let of_group = lease.key.network == pool.spec.network
                && lease.tenant == ask.tenant
                && lease.group == like.group
                && lease.pool == Some(pool.id)
                && !lease.held_by(&ask.holder.identity);
            let cluster = &ask.holder.identity.cluster;
            let near = pool.spec.share_across_clusters
                || lease
                    .members
                    .iter()
                    .all(|member| member.holder.identity.cluster == *cluster);
            let meant = named.is_none_or(|key| key == lease.key) && !joined.contains(&lease.key);
            if !of_group || !near || !meant {
                continue;
            }
            let open = lease.state == LeaseState::Allocated
                && lease.contenders.is_empty()
                && lease.members.iter().all(|member| !member.ports.is_empty());
            let clashes = lease
                .members
                .iter()
                .any(|member| clash(member, &share.ports));
            if (clashes || !open) && named.is_some() {
                return refused(lease);
            }
            if clashes || !open {
                continue;
            }
            if self.locked(lease.key) {
                return Err(Stop::Busy);
            }
            let mut next = lease.clone();
            next.members.push(Member {
                holder: ask.holder.clone(),
                ports: share.ports.clone(),
            });
            return Ok(Some(next));
        }
        Ok(None)
    }
}
