//! Whether a FloatingIP or a FloatingIPPool may be deleted. What uses an address is named; what nobody uses may go, and so may
//! what the cluster itself clears away.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Lease, LeaseState, Ledger};
use fipd_crds::labels::{CLUSTER_NAME, FORCE_DELETE, HOLDER, services};
use serde_json::Value;

use super::{
    Book, POOL, QUOTA, ReviewedKind, floating_ip,
    review::{Object, Question, Verdict},
    some,
};
use crate::systems::rancher_fip::names::ServiceRef;

/// The controllers of a cluster that delete what has lost its namespace or owner. One without accounts of its own for each
/// controller deletes under its own name.
const CONTROLLERS: [&str; 3] = [
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:kube-controller-manager",
];
/// The most holders that a message names.
const NAMED: usize = 5;

/// Whether the delete may be judged at all; `None`: it passes whatever is in use.
pub fn subject<'a>(kind: &ReviewedKind, question: &'a Question) -> Option<&'a Object> {
    let guarded = *kind != QUOTA && !question.subresource;
    let old = question.old.as_ref().filter(|_| guarded)?;
    let forced = old.annotation(FORCE_DELETE) == Some("true");
    let ends = old.metadata.deletion_timestamp.is_some();
    let clears = CONTROLLERS.contains(&&*question.user);
    (!forced && !ends && !clears).then_some(old)
}

pub fn judge(kind: &ReviewedKind, question: &Question, object: &Object, book: Book<'_>) -> Verdict {
    let denied = match *kind == POOL {
        true => pool_in_use(question, book),
        false => fip_in_use(question, object, book),
    };
    denied.map_or_else(Verdict::allowed, Verdict::forbidden)
}

fn fip_in_use(question: &Question, object: &Object, book: Book<'_>) -> Option<String> {
    let (address, user) =
        shown_lease(object, book.ledger).or_else(|| assigned(question, object, book))?;
    Some(format!(
        "{address} is in use by {user}: delete that Service or make it no load balancer first; with the annotation \
         {FORCE_DELETE}=true this object can be deleted, and the Service keeps the address"
    ))
}

/// The lease of the Service that the object shows, as long as that Service has it.
fn shown_lease(object: &Object, ledger: &Ledger) -> Option<(IpAddr, String)> {
    let identity = ServiceRef::parse(object.annotation(HOLDER)?)?
        .holder()
        .identity;
    let shown = |lease: &&Arc<Lease>| {
        let texts = [object.spec.get("ipAddr"), object.status.get("ipAddr")];
        let mut texts = texts.into_iter().flatten().filter_map(Value::as_str);
        texts.any(|text| text.parse() == Ok(lease.key.address))
    };
    let leases = ledger.leases_of(&identity);
    let lease = leases.iter().find(shown)?;
    let names = identity.cluster.as_ref().and_then(|id| ledger.cluster(id));
    let name = names.and_then(|record| record.names.first().cloned());
    let id = || identity.cluster.clone().map(|id| id.0);
    let cluster = name.or_else(id).unwrap_or_default();
    let user = service(&identity.namespace, &identity.name, &cluster);
    Some((lease.key.address, user))
}

/// The object's own lease, where its labels name a Service and the Service's cluster does not say otherwise.
fn assigned(question: &Question, object: &Object, book: Book<'_>) -> Option<(IpAddr, String)> {
    // One that showed a Service's lease has the lease itself once the Service gave it up.
    if object
        .annotation(HOLDER)
        .and_then(ServiceRef::parse)
        .is_some()
    {
        return None;
    }
    let cluster = object.label(CLUSTER_NAME)?;
    let mut users = services(object.metadata.labels.as_ref()?);
    users.retain(|user| !user.namespace.is_empty() && !user.name.is_empty());
    let first = users.first()?;
    let own = floating_ip::identity(question, book);
    let leases = book.ledger.leases_of(&own);
    let mut leases = leases.iter();
    let lease = leases.find(|lease| lease.state == LeaseState::Allocated)?;
    let address = lease.key.address;
    if book.cluster.shows_nowhere(cluster, address) {
        return None;
    }
    let mut user = service(&first.namespace, &first.name, cluster);
    if users.len() > 1 {
        user.push_str(&format!(" and {} more", users.len() - 1));
    }
    Some((address, user))
}

fn service(namespace: &str, name: &str, cluster: &str) -> String {
    format!("Service {namespace}/{name} of cluster {cluster}")
}

fn pool_in_use(question: &Question, book: Book<'_>) -> Option<String> {
    let pool = book.mirror(&question.name)?;
    let leases = book.ledger.pool_leases(pool.id, None, Ledger::SCAN);
    let held = leases.iter().filter_map(|lease| {
        let owner = &lease.owner()?.identity;
        Some(format!("{} by {owner}", lease.key.address))
    });
    let held: Vec<String> = held.collect();
    (!held.is_empty()).then(|| {
        format!(
            "addresses of the pool are in use: {}; delete their FloatingIPs and Services first; with the annotation \
             {FORCE_DELETE}=true the pool can be deleted, gives no more addresses, and the leases stay until they are released",
            some(held.iter(), NAMED).join(", ")
        )
    })
}
