//! What a Service itself says before an address of it is released. Watches may be fed by a cluster that answers
//! in place of the right one, so a release at once needs a fresh read, and after it the proof that it was this
//! cluster that answered. A Service that terminates under our finalizer has said so by that alone.

use std::sync::Arc;

use fipd_core::{Identity, Lease};
use k8s_openapi::api::core::v1::Service;

use super::{
    observe::{self, Svc},
    status::BEHIND,
    validate::{self, Wish},
};
use crate::{
    controller::{
        ReconcileError,
        client::{CallError, Remote, Target},
        context::Context,
        kind::SERVICE,
        store::Key,
    },
    systems::rancher_fip::names::ServiceRef,
};

/// The Service as it is, if the answer is one at all: some proxies say 200 to everything.
pub async fn read(remote: &Remote, target: &Target) -> Result<Option<Svc>, CallError> {
    let Some(object) = remote.get::<Service>(target).await? else {
        return Ok(None);
    };
    let key = Key::of(&object.metadata);
    let svc = observe::all(object);
    let asked = Key::new(&target.namespace, &target.name);
    if key != asked || svc.uid.is_empty() {
        let why = "the answer is not this Service".to_owned();
        return Err(CallError::Unavailable(target.to_string(), why));
    }
    Ok(Some(svc))
}

/// Whether an object keeps the leases held under its name: as the instance that has one, as one that is served
/// and takes them over, or as one that shows the address, whoever serves it.
pub fn keeps(svc: &Svc, class_less: bool, identity: &Identity, held: &[Arc<Lease>]) -> bool {
    let mut members = held.iter().flat_map(|lease| &lease.members);
    held.is_empty()
        || members.any(|one| one.holder.identity == *identity && one.holder.instance == svc.uid)
        || validate::is_ours(svc, class_less, true)
        || shows_one(svc, held)
}

/// Whether the Service shows the address of one of these leases.
pub fn shows_one(svc: &Svc, held: &[Arc<Lease>]) -> bool {
    held.iter().any(|lease| svc.shows(lease.key.address))
}

/// The Service as this cluster has it.
pub async fn fresh(context: &Context<Svc>, key: &Key) -> Result<Option<Svc>, ReconcileError> {
    let target = SERVICE.target(key);
    let svc = read(&context.remote, &target).await?;
    let verified = context.site.session.verify_identity().await;
    verified.map_err(|error| CallError::Unavailable(target.to_string(), error.to_string()))?;
    Ok(svc)
}

/// Whether the Service really wishes what the watch told. If not, the watch is about to tell more.
pub async fn really_wishes(
    context: &Context<Svc>,
    service: &ServiceRef,
    wish: &Wish,
) -> Result<bool, ReconcileError> {
    let fresh = fresh(context, &service.key).await?;
    let same = fresh.is_some_and(|svc| {
        svc.uid == service.uid
            && !svc.terminating
            && validate::wish(&svc).is_ok_and(|now| now == *wish)
    });
    if !same {
        context.queue.add_after(service.key.clone(), BEHIND);
    }
    Ok(same)
}
