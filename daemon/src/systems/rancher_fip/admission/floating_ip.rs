//! Whether a FloatingIP may be stored. An update is judged by what it changes.

use std::net::IpAddr;

use fipd_core::{Identity, Lease, LeaseKey, LeaseState, NetworkId, Pool, Tenant};
use fipd_crds::{
    floating_ip::FloatingIPSpec,
    labels::{HOLDER, PROJECT_NAME},
};
use serde_json::Value;

use super::{
    Book,
    review::{Object, Question, Verdict},
    spec,
};
use crate::{
    controller::store::Key,
    systems::rancher_fip::names::{self, KIND_FLOATING_IP, ServiceRef},
    validation::{
        Wrong,
        floating_ip::{ADDRESS, POOL, POOL_KIND, address, place, pool, project},
        held_address::{self, keeps},
    },
};

/// What the object asks for.
struct AskedAddress<'a> {
    object: &'a Object,
    identity: Identity,
    pool: &'a str,
    address: Option<IpAddr>,
    book: Book<'a>,
}

pub fn judge(question: &Question, book: Book<'_>) -> Result<Vec<String>, Verdict> {
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
    let project = project(label).map_err(Verdict::from);
    let stays = |project: Result<Tenant, Verdict>| match moved {
        true => Ok(moving(&project?, question, &now, book)),
        false => Ok(Vec::new()),
    };
    if !other_pool && !other_address {
        return stays(project);
    }
    let ask = AskedAddress {
        object,
        identity: identity(question, book),
        pool: pool(&now.floating_ip_pool)?,
        address: address(&now.ip_addr)?,
        book,
    };
    let Some((held, network)) = held(before, &ask.identity, book) else {
        let mirror = ask.usable()?;
        ask.gets(mirror, &project?)?;
        return Ok(Vec::new());
    };
    keeps(ADDRESS, ask.address, held)?;
    if !other_pool {
        return stays(project);
    }
    // It takes its address to another pool, which must have it.
    let mirror = ask.usable()?;
    if network.is_some_and(|network| network != mirror.spec.network) {
        return Err(ask.elsewhere(held));
    }
    let project = project?;
    place(&mirror.spec, ask.pool, held).map_err(|_| ask.elsewhere(held).for_now())?;
    ask.is_free(held, mirror, &project)?;
    Ok(Vec::new())
}

impl<'a> AskedAddress<'a> {
    /// The pool that it names, if that gives addresses.
    fn usable(&self) -> Result<&'a Pool, Verdict> {
        let (book, name) = (self.book, self.pool);
        let mirror = book.mirror(name).filter(|pool| !pool.spec.closed);
        let there = book.cluster.has_pool(name);
        let why = match mirror {
            Some(mirror) if there => return Ok(mirror),
            Some(_) | None if there => {
                "the FloatingIPPool of this name gives no addresses; its condition Ready says why"
            }
            Some(_) | None => {
                "there is no FloatingIPPool of this name; create it first or name another"
            }
        };
        Err(Verdict::from(Wrong::new(POOL, name, why)).for_now())
    }

    fn elsewhere(&self, held: IpAddr) -> Verdict {
        held_address::elsewhere(POOL, self.pool, POOL_KIND, held).into()
    }

    /// It is to get an address.
    fn gets(&self, pool: &Pool, project: &Tenant) -> Result<(), Verdict> {
        match self.address {
            Some(address) => {
                let placed = place(&pool.spec, self.pool, address);
                placed.map_err(|wrong| Verdict::from(wrong).for_now())?;
                if self.is_free(address, pool, project)? {
                    quota(project, self.pool, pool, self.book)?;
                }
                Ok(())
            }
            None => {
                self.has_room(pool)?;
                quota(project, self.pool, pool, self.book)
            }
        }
    }

    /// Whether nobody has the address; `false`: it is the object's, or that of the Service which the object shows. Others must
    /// not have it.
    fn is_free(&self, address: IpAddr, pool: &Pool, project: &Tenant) -> Result<bool, Verdict> {
        let network = pool.spec.network;
        let key = LeaseKey { network, address };
        let Some(lease) = self.book.ledger.lease_around(key) else {
            return Ok(true);
        };
        if self.is_own(lease) {
            return Ok(false);
        }
        // What cools goes back to its last tenant, but nothing of a prefix.
        let cools = lease.state == LeaseState::Quarantined && lease.contenders.is_empty();
        if cools && lease.prefix() == key.whole() && lease.tenant.as_ref() == Some(project) {
            return Ok(true);
        }
        let allowed = format!(
            "the address is in use or kept for somebody; name a free address of FloatingIPPool {:?}, or none and get one",
            self.pool
        );
        Err(Verdict::from(Wrong::new(ADDRESS, &address.to_string(), allowed)).for_now())
    }

    fn is_own(&self, lease: &Lease) -> bool {
        let shown = self.object.annotation(HOLDER);
        let shows = |text: &str| {
            let holders = lease.members.iter().map(|member| &member.holder);
            let mut services = holders.filter_map(ServiceRef::of);
            services.any(|service| service.to_string() == text)
        };
        lease.held_by(&self.identity) || shown.is_some_and(shows)
    }

    /// Whether the pool has any address left.
    fn has_room(&self, pool: &Pool) -> Result<(), Verdict> {
        match self.book.ledger.usage(pool.id) {
            Some(usage) if usage.free == 0 => Err(Verdict::forbidden(format!(
                "{POOL}: FloatingIPPool {:?} has no free address: {} of {} are in use; free one, widen the pool or name another",
                self.pool, usage.used, usage.size
            ))
            .for_now()),
            Some(_) | None => Ok(()),
        }
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
    let key = Key::new(&question.namespace, &question.name);
    names::identity(book.cluster.id(), KIND_FLOATING_IP, &key)
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
