//! What a FloatingIP asks the ledger for, and what the ledger says of the Service that it shows. Pure.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{ClusterId, Holder, Identity, Lease, LeaseKey, Ledger, Pool, Span, System, Tenant};

use super::observe::Fip;
use crate::{
    controller::{
        address_user::{
            outcome::{AddressOutcome, ShownLease},
            settle::{AddressWish, KeptLease, Wished, holds},
        },
        unserved::{Unserved, contended},
        waiters::Cause,
    },
    systems::rancher_fip::names::{self, ServiceRef},
    validation::{Wrong, floating_ip as rules},
};

/// What is to be done about a FloatingIP that shows the lease of a Service.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceView {
    Show(Box<AddressOutcome>),
    /// The Service has given the lease up.
    Delete,
    /// The same, but the object was there before: it keeps the address.
    HandBack,
    /// Somebody is about to change the object.
    Leave,
}

/// What a FloatingIP of this management cluster asks for.
pub fn wish(ledger: &Ledger, management: &ClusterId, fip: &Fip) -> Wished {
    let (project, address) = asks_for(fip)?;
    let pool = mirror(ledger, management, fip)
        .ok_or_else(|| unknown_pool("spec.floatingIPPool", &fip.pool))?;
    let recorded = fip.recorded();
    let wanted = recorded.or(address);
    let kept = kept(ledger, management, fip, (&project, wanted), pool);
    Ok(AddressWish {
        recorded,
        kept,
        ..AddressWish::new(project, Arc::clone(pool), address)
    })
}

fn mirror<'a>(ledger: &'a Ledger, management: &ClusterId, fip: &Fip) -> Option<&'a Arc<Pool>> {
    ledger.mirror(&System::rancher_fip(), management, &fip.pool)
}

/// The lease that a former FloatingIP left to the Service which this one is for.
fn kept(
    ledger: &Ledger,
    management: &ClusterId,
    fip: &Fip,
    (project, wanted): (&Tenant, Option<IpAddr>),
    pool: &Pool,
) -> Option<KeptLease> {
    let called = fip.cluster.as_deref()?;
    let services = fip.users();
    let [service] = services.as_slice() else {
        return None;
    };
    let from = names::reported_service(management, called, service);
    let leases = ledger.addresses_of(&from.identity);
    let fits = |lease: &&Arc<Lease>| {
        lease.pool == Some(pool.id)
            && lease.tenant.as_ref() == Some(project)
            && wanted.is_none_or(|wanted| wanted == lease.key.address)
    };
    let key = leases.iter().find(fits)?.key;
    let reason = "its Service has a FloatingIP again";
    Some(KeptLease { from, key, reason })
}

/// Whether the recorded address belongs to the Service that another program made the object for, which then takes it
/// over.
pub fn yields(
    ledger: &Ledger,
    own: &Holder,
    fip: &Fip,
    is_for: &dyn Fn(&Identity) -> bool,
) -> bool {
    let place = || {
        let network = mirror(ledger, own.identity.cluster.as_ref()?, fip)?
            .spec
            .network;
        let address = fip.recorded()?;
        ledger.lease(LeaseKey { network, address })
    };
    let owner = place().and_then(|lease| lease.owner());
    let leases = ledger.addresses_of(&own.identity);
    let held = leases.iter().any(|lease| holds(lease, own));
    !held && owner.is_some_and(|owner| is_for(&owner.identity))
}

/// For a FloatingIP that shows the lease of a Service. `own` is its own identity, which has the lease once the
/// Service gave it up.
pub fn view(ledger: &Ledger, own: &Identity, service: &ServiceRef, fip: &Fip) -> ServiceView {
    let made_here = service.made(&own.name);
    let end = if made_here {
        ServiceView::Delete
    } else {
        ServiceView::HandBack
    };
    if !ledger.addresses_of(own).is_empty() {
        return end;
    }
    let address: Option<IpAddr> = fip.wanted.parse().ok();
    let has = |lease: &&Arc<Lease>| Some(lease.key.address) == address;
    let holder = service.holder();
    let leases = ledger.addresses_of(&holder.identity);
    let held: Vec<&Arc<Lease>> = leases
        .iter()
        .filter(|lease| lease.members.iter().any(|member| member.holder == holder))
        .collect();
    if let Some(lease) = held.iter().copied().find(has) {
        return ServiceView::Show(Box::new(Ok(ShownLease::of(ledger, lease))));
    }
    // It may contend for a prefix around the address.
    let contentions = ledger.contentions_of(&holder.identity);
    let uses = |lease: &&Arc<Lease>| {
        address.is_some_and(|one| lease.is_used_by(&holder.identity, Span::single(one)))
    };
    if let Some(lease) = contentions.iter().find(uses) {
        return ServiceView::Show(Box::new(Err(contended(lease))));
    }
    let same_family = |lease: &&Arc<Lease>| {
        address.is_some_and(|one| one.is_ipv4() == lease.key.address.is_ipv4())
    };
    // One that is ours moves to another address with its Service, another's passes to the next instance.
    let goes_on = if made_here {
        held.iter().copied().any(|lease| same_family(&lease))
    } else {
        leases.iter().any(|lease| has(&lease))
    };
    if goes_on { ServiceView::Leave } else { end }
}

/// Whom it charges and which address it names. The address that the status shows goes before the one of the spec.
pub fn asks_for(fip: &Fip) -> Result<(Tenant, Option<IpAddr>), Unserved> {
    let project = fip.project.as_ref().map(|project| &*project.0);
    let project = rules::project(project).map_err(|wrong| invalid("MissingProject", &wrong))?;
    rules::pool(&fip.pool).map_err(|wrong| invalid("Invalid", &wrong))?;
    let address = match fip.shown() {
        Some(address) => Some(address),
        None => rules::address(&fip.wanted).map_err(|wrong| invalid("Invalid", &wrong))?,
    };
    Ok((project, address))
}

fn invalid(reason: &'static str, wrong: &Wrong) -> Unserved {
    Unserved::new(reason, wrong.to_string(), None)
}

/// The pool does not exist (yet).
pub fn unknown_pool(field: &str, pool: &str) -> Unserved {
    let message =
        format!("{field}: no usable FloatingIPPool {pool:?}; it is tried again when one appears");
    Unserved::new("PoolNotFound", message, Some(Cause::Pools))
}

#[cfg(test)]
mod tests;
