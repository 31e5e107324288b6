//! Services that another program of the family served before: each keeps the address that its FloatingIP has.
//!
//! Such a FloatingIP holds its lease itself. The Service takes the lease over, and the object becomes the one
//! that shows it.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Adopt, ClusterId, Family, Handover, Holder, Lease, LeaseKey, Ledger, Release, ReleaseScope,
    Request, System, Tenant, Text,
};

use super::{
    observe::Svc,
    plan::{self, PoolsByFamily},
    validate::Wish,
};
use crate::{
    controller::{store::Key, unserved::Unserved, waiters::Cause},
    systems::rancher_fip::{
        floating_ip::observe::Fip,
        names::{self, FLOATING_IP, HOLDER, KIND_FLOATING_IP, PROJECT, ServiceRef},
    },
};

/// What is known of a Service when its FloatingIPs are looked at.
pub struct Look<'a> {
    /// The cluster of the FloatingIPs.
    pub management: &'a ClusterId,
    pub service: &'a ServiceRef,
    pub wish: &'a Wish,
    pub named: Option<&'a PoolsByFamily>,
    pub held: &'a [Arc<Lease>],
    /// Addresses that the Service shows.
    pub shown: &'a [IpAddr],
    /// Of the Service.
    pub project: &'a Tenant,
    /// Which Services there are in its cluster.
    pub lives: &'a (dyn Fn(&Key) -> bool + Sync),
    pub actor: Text,
}

/// Whether another program of the family serves it.
pub fn is_stock(svc: &Svc) -> bool {
    let noted = svc.mark(FLOATING_IP).is_some_and(|text| !text.is_empty());
    noted && svc.mark(HOLDER).is_none()
}

/// What to ask the address book for, so that the Service has what its FloatingIPs have.
pub fn requests(
    ledger: &Ledger,
    look: &Look<'_>,
    mut fips: Vec<(Key, Arc<Fip>)>,
) -> Result<Vec<Request>, Unserved> {
    let mut missing = plan::compare(look.wish, look.held, look.named).missing;
    fips.sort_by_key(|(_, fip)| !fip.recorded().is_some_and(|one| look.shown.contains(&one)));
    let mut requests = Vec::new();
    for (key, fip) in fips.iter().filter(|(_, fip)| fip.meta.deleted.is_none()) {
        let pool = ledger.mirror(&System::rancher_fip(), look.management, &fip.pool);
        let (Some(address), Some(pool)) = (fip.recorded(), pool) else {
            continue;
        };
        let place = LeaseKey {
            network: pool.spec.network,
            address,
        };
        let uid = Text::clone(&fip.meta.uid);
        let own = names::holder(look.management, KIND_FLOATING_IP, key, uid);
        let lease = ledger.lease_around(place);
        if lease.is_some_and(|lease| lease.held_by(&look.service.holder().identity)) {
            requests.extend(lease.and_then(|lease| withdraw(lease, &own, look)));
            continue;
        }
        let (request, of_pool) = match lease {
            None => (adopt(look, fip, place), Some(pool.id)),
            Some(lease) => match handover(look, lease, &own) {
                Some(request) => (request, lease.pool),
                None => continue,
            },
        };
        let family = Family::of(address);
        if !missing.contains(&family) || !plan::fits(look.wish, look.named, address, of_pool) {
            continue;
        }
        if fip.project.as_ref() != Some(look.project) {
            if look.shown.contains(&address) {
                return Err(of_another_project(key, place, look.project));
            }
            continue;
        }
        if fip.is_shared(&look.service.key, look.lives) {
            return Err(shared(key, place));
        }
        missing.retain(|one| *one != family);
        requests.push(request);
    }
    Ok(requests)
}

fn handover(look: &Look<'_>, lease: &Lease, own: &Holder) -> Option<Request> {
    let mut members = lease.members.iter();
    let member = members.find(|member| member.holder.identity == own.identity)?;
    Some(Request::Handover(Handover {
        from: member.holder.clone(),
        to: look.service.holder(),
        keys: vec![lease.key],
        actor: Text::clone(&look.actor),
        reason: Text::default(),
    }))
}

/// The FloatingIP was found using its address beside the Service, for which it uses it.
fn withdraw(lease: &Lease, own: &Holder, look: &Look<'_>) -> Option<Request> {
    let mut contenders = lease.contenders.iter();
    let contender = contenders.find(|one| one.holder.identity == own.identity)?;
    Some(Request::Release(Release {
        scope: ReleaseScope::Contention {
            contender: contender.holder.clone(),
            key: lease.key,
            beside: Some(look.service.holder().identity),
        },
        actor: Text::clone(&look.actor),
        reason: "its Service has the address".into(),
    }))
}

fn adopt(look: &Look<'_>, fip: &Fip, key: LeaseKey) -> Request {
    Request::Adopt(Adopt {
        length: None,
        key,
        holder: look.service.holder(),
        tenant: fip.project.clone(),
        since: fip.meta.created,
        actor: Text::clone(&look.actor),
    })
}

fn shared(key: &Key, place: LeaseKey) -> Unserved {
    let message = format!(
        "{} is shared with other Services by FloatingIP {}/{}, which fipd does not do: give each Service a FloatingIP of its own, or leave these to the controller that served them",
        place.address, key.namespace, key.name
    );
    Unserved::new("AddressShared", message, Some(Cause::Address(place)))
}

fn of_another_project(key: &Key, place: LeaseKey, project: &Tenant) -> Unserved {
    let message = format!(
        "{} is kept by FloatingIP {}/{} for another project than {}, which this Service belongs to: correct the label {PROJECT} of the one or the project of the other",
        place.address, key.namespace, key.name, project.0
    );
    Unserved::new("OtherProject", message, Some(Cause::Address(place)))
}

pub fn not_reached() -> Unserved {
    let message = format!(
        "annotation {FLOATING_IP} tells of a FloatingIP, and the management cluster has not been reached since the start; it is tried again when it is"
    );
    Unserved::new("WaitingForRancher", message, Some(Cause::Pools))
}

#[cfg(test)]
mod tests;
