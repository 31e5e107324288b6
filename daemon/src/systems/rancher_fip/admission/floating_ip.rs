//! Whether a FloatingIP may be stored. An update is judged by what it changes.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Identity, Lease, LeaseKey, LeaseState, NetworkId, Pool, System, Tenant};
use fipd_crds::{
    floating_ip::FloatingIPSpec,
    labels::{HOLDER, PROJECT_NAME},
};
use serde_json::Value;

use super::{
    Book, invalid,
    review::{Object, Question, Verdict},
    spec,
};
use crate::validation::{
    Wrong,
    floating_ip::{ADDRESS, POOL, POOL_KIND, address, place, pool, project},
    held_address::{self, keeps},
};

const KIND: &str = "FloatingIP";

/// What the object asks for.
struct AskedAddress<'a> {
    object: &'a Object,
    identity: Identity,
    pool: &'a str,
    address: Option<IpAddr>,
}

pub fn judge(question: &Question, book: Book<'_>) -> Verdict {
    match look(question, book) {
        Ok(warnings) => Verdict::warned(warnings),
        Err(verdict) => verdict,
    }
}

fn look(question: &Question, book: Book<'_>) -> Result<Vec<String>, Verdict> {
    let object = &question.object;
    let now: FloatingIPSpec = spec(&object.spec)?;
    let before = question.before();
    let old = before.and_then(|old| spec::<FloatingIPSpec>(&old.spec).ok());
    let label = object.label(PROJECT_NAME);
    let moved = before.is_none_or(|old| old.label(PROJECT_NAME) != label);
    let other_pool = old
        .as_ref()
        .is_none_or(|old| old.floating_ip_pool != now.floating_ip_pool);
    let other_address = old.as_ref().is_none_or(|old| old.ip_addr != now.ip_addr);
    let said = project(label).map_err(|wrong| invalid(&wrong));
    if !other_pool && !other_address {
        return if moved {
            said.map(|project| moving(&project, question, &now, book))
        } else {
            Ok(Vec::new())
        };
    }
    let pool_name = pool(&now.floating_ip_pool).map_err(|wrong| invalid(&wrong))?;
    let ask = AskedAddress {
        object,
        identity: identity(question, book),
        pool: pool_name,
        address: address(&now.ip_addr).map_err(|wrong| invalid(&wrong))?,
    };
    if let Some((held, network)) = held(before, &ask.identity, book) {
        keeps(ADDRESS, ask.address, held).map_err(|wrong| invalid(&wrong))?;
        if other_pool {
            let mirror = usable(pool_name, book)?;
            if network.is_some_and(|network| network != mirror.spec.network) {
                return Err(elsewhere(&ask, held));
            }
            goes(&ask, held, &mirror, (&said?, book))?;
            return Ok(Vec::new());
        }
        return if moved {
            Ok(moving(&said?, question, &now, book))
        } else {
            Ok(Vec::new())
        };
    }
    let mirror = usable(pool_name, book)?;
    gets(&ask, &mirror, (&said?, book))?;
    Ok(Vec::new())
}

/// The pool of that name, if it gives addresses.
fn usable(name: &str, book: Book<'_>) -> Result<Arc<Pool>, Verdict> {
    let mirror = book.mirror(name).filter(|pool| !pool.spec.closed);
    let there = book.cluster.has_pool(name);
    let why = match mirror {
        Some(mirror) if there => return Ok(Arc::clone(mirror)),
        Some(_) | None if there => {
            "the FloatingIPPool of this name gives no addresses; its condition Ready says why"
        }
        Some(_) | None => {
            "there is no FloatingIPPool of this name; create it first or name another"
        }
    };
    Err(invalid(&Wrong::new(POOL, name, why)).for_now())
}

/// It takes its address to another pool, which must have it.
fn goes(
    ask: &AskedAddress<'_>,
    held: IpAddr,
    pool: &Pool,
    (project, book): (&Tenant, Book<'_>),
) -> Result<(), Verdict> {
    place(&pool.spec, ask.pool, held).map_err(|_| elsewhere(ask, held).for_now())?;
    free(ask, held, pool, (project, book)).map(drop)
}

fn elsewhere(ask: &AskedAddress<'_>, held: IpAddr) -> Verdict {
    invalid(&held_address::elsewhere(POOL, ask.pool, POOL_KIND, held))
}

/// It is to get an address.
fn gets(
    ask: &AskedAddress<'_>,
    pool: &Pool,
    (project, book): (&Tenant, Book<'_>),
) -> Result<(), Verdict> {
    match ask.address {
        Some(address) => {
            place(&pool.spec, ask.pool, address).map_err(|wrong| invalid(&wrong).for_now())?;
            if free(ask, address, pool, (project, book))? == Free::Own {
                return Ok(());
            }
        }
        None => room(ask, pool, book)?,
    }
    quota(project, ask.pool, pool, book)
}

/// What makes an address one that the object may have.
#[derive(PartialEq)]
enum Free {
    /// It has it, or shows who has.
    Own,
    Unused,
}

/// Whether nobody else has the address.
fn free(
    ask: &AskedAddress<'_>,
    address: IpAddr,
    pool: &Pool,
    (project, book): (&Tenant, Book<'_>),
) -> Result<Free, Verdict> {
    let network = pool.spec.network;
    let Some(lease) = book.ledger.lease(LeaseKey { network, address }) else {
        return Ok(Free::Unused);
    };
    if is_own(ask, lease) {
        return Ok(Free::Own);
    }
    // What cools goes back to its last tenant.
    let cools = lease.state == LeaseState::Quarantined && lease.contenders.is_empty();
    if cools && lease.tenant.as_ref() == Some(project) {
        return Ok(Free::Unused);
    }
    let allowed = format!(
        "the address is in use or kept for somebody; name a free address of FloatingIPPool {:?}, or none and get one",
        ask.pool
    );
    Err(invalid(&Wrong::new(ADDRESS, &address.to_string(), allowed)).for_now())
}

/// Whether the lease is the object's, or that of the Service which the object shows.
fn is_own(ask: &AskedAddress<'_>, lease: &Lease) -> bool {
    let shown = ask.object.annotation(HOLDER);
    let shows = |text: &str| {
        let mut holders = lease.members.iter().map(|member| &member.holder);
        holders.any(|holder| {
            let (
                Identity {
                    kind,
                    namespace,
                    name,
                    ..
                },
                uid,
            ) = (&holder.identity, &holder.instance);
            let cluster = holder
                .identity
                .cluster
                .as_ref()
                .map_or("", |cluster| &cluster.0);
            format!("{kind}/{cluster}/{namespace}/{name}/{uid}") == text
        })
    };
    lease.held_by(&ask.identity) || shown.is_some_and(shows)
}

/// Whether the pool has any address left.
fn room(ask: &AskedAddress<'_>, pool: &Pool, book: Book<'_>) -> Result<(), Verdict> {
    match book.ledger.usage(pool.id) {
        Some(usage) if usage.free == 0 => Err(Verdict::forbidden(format!(
            "{POOL}: FloatingIPPool {:?} has no free address: {} of {} are in use; free one, widen the pool or name another",
            ask.pool, usage.used, usage.size
        ))
        .for_now()),
        Some(_) | None => Ok(()),
    }
}

/// Whether the project may have one more of the pool.
fn quota(project: &Tenant, name: &str, pool: &Pool, book: Book<'_>) -> Result<(), Verdict> {
    let row = book.ledger.quota(pool.id, project);
    let limit = match row.map(|row| row.quota.limit) {
        Some(limit) => limit,
        None if pool.spec.quota_required => 0,
        None => return Ok(()),
    };
    let used = book.ledger.charged(pool.id, project);
    if used < limit {
        return Ok(());
    }
    let project = &project.0;
    let todo = if limit == 0 {
        format!(
            "let FloatingIPProjectQuota {project:?} allow some in spec.floatingIPQuota[{name:?}]"
        )
    } else {
        format!(
            "delete a FloatingIP of the project, or raise spec.floatingIPQuota[{name:?}] of FloatingIPProjectQuota {project:?}"
        )
    };
    Err(Verdict::forbidden(format!(
        "quota exceeded: project {project:?} has {used} addresses of FloatingIPPool {name:?}, its quota is {limit}; {todo}"
    ))
    .for_now())
}

/// The label names another project, which does not change who holds the address.
fn moving(
    project: &Tenant,
    question: &Question,
    now: &FloatingIPSpec,
    book: Book<'_>,
) -> Vec<String> {
    let Some(mirror) = book.mirror(&now.floating_ip_pool) else {
        return Vec::new();
    };
    let identity = identity(question, book);
    let leases = book.ledger.leases_of(&identity);
    if leases
        .iter()
        .all(|lease| lease.tenant.as_ref() == Some(project))
    {
        return Vec::new();
    }
    let denied = quota(project, &now.floating_ip_pool, mirror, book).err();
    let denied = denied.and_then(|verdict| verdict.denied).into_iter();
    let warnings = denied.map(|denial| {
        format!(
            "the address stays charged to the project that it was of before: {}",
            denial.message
        )
    });
    warnings.collect()
}

pub(super) fn identity(question: &Question, book: Book<'_>) -> Identity {
    Identity {
        system: System::rancher_fip(),
        cluster: Some(book.cluster.id().clone()),
        kind: KIND.into(),
        namespace: question.namespace.as_str().into(),
        name: question.name.as_str().into(),
        interface: "".into(),
    }
}

/// The address that the object had before the update, by the address book or by its status; the network by the book alone.
fn held(
    before: Option<&Object>,
    identity: &Identity,
    book: Book<'_>,
) -> Option<(IpAddr, Option<NetworkId>)> {
    let before = before?;
    let leases = book.ledger.leases_of(identity);
    let lease = leases
        .iter()
        .find(|lease| lease.state == LeaseState::Allocated);
    if let Some(lease) = lease {
        return Some((lease.key.address, Some(lease.key.network)));
    }
    let shown = before.status.get("ipAddr").and_then(Value::as_str);
    Some((shown?.parse().ok()?, None))
}
