//! Leases with several members.
//!
//! Who names a sharing key and its ports joins a lease of the group in which nobody uses one of them; where there is
//! none, it gets an address of its own that others of the group may join.

use std::{collections::BTreeSet, sync::Arc};

use super::wants::AskedWant;
use crate::{
    Action, Allocate, Choice, Holder, Lease, LeaseKey, Member, Pool, PortClaim, Refusal, Share,
    Want,
    ledger::{
        Ledger,
        draft::{Draft, Stop},
        index::groups::{ShareGroup, group, joinable},
    },
};

impl Ledger {
    /// The most leases of a group that are looked at for one to join.
    const LOOKS: usize = 64;

    /// What is to be shared, its ports in order and each once; `None` where nothing is.
    pub(super) fn check_share(ask: &Allocate) -> Result<Option<Share>, Refusal> {
        let Some(share) = &ask.share else {
            return Ok(None);
        };
        if ask.probe {
            let allowed = "false where an address may be shared";
            return Err(Refusal::invalid("probe", true, allowed));
        }
        if !(1..=Share::MAX_KEY).contains(&share.key.len()) {
            let allowed = format!("1 to {} bytes", Share::MAX_KEY);
            return Err(Refusal::invalid("share.key", &share.key, allowed));
        }
        let ports: BTreeSet<PortClaim> = share.ports.iter().copied().collect();
        if ports.len() > Share::MAX_PORTS {
            let allowed = format!("at most {} ports", Share::MAX_PORTS);
            return Err(Refusal::invalid("share.ports", ports.len(), allowed));
        }
        if let Some(zero) = ports.iter().find(|claim| claim.port == 0) {
            return Err(Refusal::invalid(
                "share.ports",
                zero,
                "ports from 1 to 65535",
            ));
        }
        if ports.is_empty() {
            return Ok(None);
        }
        if let Some(want) = ask.wants.iter().find(|want| want.count != 1) {
            let allowed = "1 where an address may be shared";
            return Err(Refusal::invalid("count", want.count, allowed));
        }
        let open = |want: &&Want| matches!(want.pool, Choice::Any(_));
        if ask.wants.iter().any(|want| open(&want)) {
            let allowed = "the name of a pool where an address may be shared";
            return Err(Refusal::invalid("pool", "", allowed));
        }
        let (key, ports) = (Arc::clone(&share.key), ports.into_iter().collect());
        Ok(Some(Share { key, ports }))
    }

    /// What the holder's identity has already, in the group and with the ports that it names.
    pub(super) fn share_again(
        &self,
        asked: &mut [AskedWant<'_>],
        share: &Share,
        holder: &Holder,
    ) -> Result<(), Stop> {
        for want in asked {
            for lease in &mut want.existing {
                let mut more = false;
                let mut next = Lease::clone(lease);
                if next.group.as_ref() != Some(&share.key) && next.members.len() > 1 {
                    let why = "others share it under another key; release it first";
                    return Err(not_shareable(lease, why.to_owned()).into());
                }
                next.group = Some(Arc::clone(&share.key));
                for member in &mut next.members {
                    if member.holder.identity == holder.identity {
                        more |= !share.ports.iter().all(|port| member.ports.contains(port));
                        member.ports.clone_from(&share.ports);
                    } else if let Some(clash) = clash(lease, member, &share.ports) {
                        return Err(clash.into());
                    }
                }
                if more {
                    // The ports of a member that a restored file does not know look free.
                    self.check_restored(lease.key.network)?;
                }
                if next != **lease {
                    *lease = Arc::new(next);
                    want.reshared = true;
                }
            }
        }
        Ok(())
    }

    /// What the holder's identity has already, for itself: without naming a key it shares nothing.
    pub(super) fn alone_again(asked: &mut [AskedWant<'_>]) -> Result<(), Stop> {
        for want in asked {
            let shared = want.existing.iter_mut();
            for lease in shared.filter(|lease| lease.group.is_some()) {
                if lease.members.len() > 1 {
                    let why =
                        "others share it already; name its key and ports, or release it first";
                    return Err(not_shareable(lease, why.to_owned()).into());
                }
                let mut next = Lease::clone(lease);
                next.group = None;
                for member in &mut next.members {
                    member.ports.clear();
                }
                *lease = Arc::new(next);
                want.reshared = true;
            }
        }
        Ok(())
    }

    /// Answers wants with leases of the group, where there is one to join. A port counts as a free address does while
    /// those are held.
    pub(super) fn join(
        &self,
        asked: &mut [AskedWant<'_>],
        share: &Share,
        ask: &Allocate,
    ) -> Result<(), Stop> {
        let mut joined = BTreeSet::new();
        for want in asked.iter_mut().filter(|want| want.missing > 0) {
            self.check_open(&want.pool.spec)?;
            self.join_one(want, share, ask, &mut joined)?;
        }
        Ok(())
    }

    fn join_one(
        &self,
        want: &mut AskedWant<'_>,
        share: &Share,
        ask: &Allocate,
        joined: &mut BTreeSet<LeaseKey>,
    ) -> Result<(), Stop> {
        let network = want.pool.spec.network;
        let of: ShareGroup = (network, ask.tenant.clone(), Arc::clone(&share.key));
        Stop::busy_if(self.drafts.locks_group(&of))?;
        let found = match want.key {
            Some(key) => self.joinable_at(key, &want.pool, &of, share, ask)?,
            None => {
                let keys = self.index.groups.of(&of).take(Self::LOOKS);
                let mut leases = keys.filter_map(|key| self.rows.leases.get(&key));
                leases.find(|lease| {
                    !joined.contains(&lease.key)
                        && near(lease, &want.pool, ask)
                        && clashes(lease, share).is_none()
                })
            }
        };
        let Some(lease) = found else {
            return Ok(());
        };
        self.settled(std::iter::once(lease.key))?;
        self.check_restored(lease.key.network)?;
        joined.insert(lease.key);
        let mut next = Lease::clone(lease);
        next.members.push(Member {
            holder: ask.holder.clone(),
            ports: share.ports.clone(),
        });
        want.joins = Some(Arc::new(next));
        want.missing -= 1;
        Ok(())
    }

    /// The lease of the named address, if it is of the group; refused where it has no room for the asker.
    fn joinable_at(
        &self,
        key: LeaseKey,
        pool: &Pool,
        of: &ShareGroup,
        share: &Share,
        ask: &Allocate,
    ) -> Result<Option<&Arc<Lease>>, Stop> {
        self.settled(std::iter::once(key))?;
        let lease = self.rows.leases.get(&key);
        let Some(lease) =
            lease.filter(|lease| group(lease).as_ref() == Some(of) && near(lease, pool, ask))
        else {
            return Ok(None);
        };
        if let Some(clash) = clashes(lease, share) {
            return Err(clash.into());
        }
        if joinable(lease).is_none() {
            let why = format!(
                "it is not in use, somebody else uses it, or it has {} members",
                Lease::MAX_MEMBERS
            );
            return Err(not_shareable(lease, why).into());
        }
        Ok(Some(lease))
    }
}

impl Draft {
    /// Writes a lease that the holder has joined.
    pub fn join(&mut self, lease: &Arc<Lease>, holder: &Holder) {
        let others = lease.members.len().saturating_sub(1);
        let detail = format!("shared with {others} others").into();
        self.put_for(
            Arc::clone(lease),
            Action::Allocated,
            &holder.identity,
            detail,
        );
    }
}

impl Lease {
    /// Others of the group may join the only member.
    pub(super) fn open_to(&mut self, share: &Share) {
        self.group = Some(Arc::clone(&share.key));
        for member in &mut self.members {
            member.ports.clone_from(&share.ports);
        }
    }
}

/// Whether the asker may be a member by pool and cluster.
fn near(lease: &Lease, pool: &Pool, ask: &Allocate) -> bool {
    let mine = &ask.holder.identity;
    let alike = |member: &Member| {
        pool.spec.share_across_clusters || member.holder.identity.cluster == mine.cluster
    };
    lease.pool == Some(pool.id) && !lease.held_by(mine) && lease.members.iter().all(alike)
}

/// Whose port in the lease is asked for once more.
fn clashes(lease: &Lease, share: &Share) -> Option<Refusal> {
    let mut members = lease.members.iter();
    members.find_map(|member| clash(lease, member, &share.ports))
}

fn clash(lease: &Lease, member: &Member, ports: &[PortClaim]) -> Option<Refusal> {
    let claim = ports.iter().find(|claim| member.ports.contains(claim))?;
    let owner = &member.holder.identity;
    Some(not_shareable(lease, format!("{claim} is that of {owner}")))
}

fn not_shareable(lease: &Lease, why: String) -> Refusal {
    Refusal::NotShareable {
        address: lease.key.address,
        why,
    }
}
