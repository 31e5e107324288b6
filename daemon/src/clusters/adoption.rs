//! Taking in what a cluster already uses, before a network that waits for it gives anything new.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use fipd_core::{
    Actor, Adopt, Adoption, Answer, Holder, Identity, Lease, LeaseKey, LeasePrefix, LeaseState,
    Ledger, NetworkId, Request, System, Tenant, Text, Timestamp,
};
use futures::{StreamExt, future::BoxFuture, stream};
use kube::{
    Api,
    api::{ListParams, ObjectList},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;

pub use super::sweep::keep;
use super::{
    CallError, ClusterSession, absence::Presence, answers::PAGE, memory::weight, watch::LIST,
};
use crate::{
    backoff::Backoff,
    ipam::{Ipam, IpamError},
};

/// Objects per page of a list where metadata alone is asked for.
const METADATA_PAGE: u32 = 500;
/// Pages of one list at most.
pub const PAGES: usize = 10_000;
/// Why a list is given up whose next page is the one that was read.
pub const SAME_PAGE: &str = "the API server names the same page as the next one, again and again";
/// How often a list that expired between two pages is begun again before it counts as failed.
const RESTARTS: usize = 3;
/// Leases of one read: a reader holds the ledger for at most 1,000 rows.
const PAGE_OF_LEASES: usize = 1_000;
/// Requests under way at once; the writer commits them in groups.
pub const AT_ONCE: usize = 256;

/// One object of a cluster and the addresses it uses, none of them perhaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub holder: Holder,
    pub tenant: Option<Tenant>,
    /// Addresses and prefixes in use by it, with their networks.
    pub uses: Vec<LeasePrefix>,
    /// Since when, as far as known: decides who is the older of two users.
    pub since: Timestamp,
}

/// What a system knows of the objects of a cluster that may own leases.
pub trait Inventory: Send + Sync {
    /// Kinds ([`Identity::kind`]) whose objects are listed. Leases of other kinds are never touched.
    fn kinds(&self) -> BTreeSet<&'static str>;

    /// Every object that is there, from complete lists (see [`complete_list`]): an object left out looks gone.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>>;

    /// A fresh read of one object, not from a cache.
    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Presence>;

    /// Whether an owner that the latest list had shows all that it holds; else it counts as absent, and keeps by
    /// [`Inventory::heir`] what it shows.
    fn is_whole(&self, _identity: &Identity) -> bool {
        true
    }

    /// Whether a network counts as adopted by the latest list.
    fn adopts(&self, _network: NetworkId) -> bool {
        true
    }

    /// Called before a list, and before it is known whether the cluster answers.
    fn begin(&self) {}

    /// Called once all of that list is in the address book, or it failed.
    fn end(&self, _is_taken_in: bool) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether an object that holds less than before still shows an address that it waits for.
    fn still_shows(&self, _holder: &Holder, _key: LeaseKey) -> bool {
        false
    }

    /// Returns when a list would tell more than the latest one, beside what is the same for all.
    fn due(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Who gets a lease whose owner is gone, without a moment in between; `None`: it is free.
    fn heir(&self, _gone: &Holder, _key: LeaseKey) -> Option<Holder> {
        None
    }
}

/// Why a cluster's system was not adopted; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error(transparent)]
    Cluster(#[from] CallError),
    #[error(transparent)]
    Ipam(#[from] IpamError),
}

/// What an adoption found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// The complete list it was made from.
    pub sightings: Vec<Sighting>,
    /// Addresses now or already held by who uses them.
    pub held: usize,
    /// Addresses that another holds: their users are contenders.
    pub contended: Vec<(Identity, Arc<Lease>)>,
    /// Addresses that could not be taken in, with the reason.
    pub refused: Vec<(Identity, LeaseKey, String)>,
    pub marked: BTreeSet<NetworkId>,
}

/// Lists everything, between two checks that it is the same cluster that answers.
pub async fn observe(
    session: &ClusterSession,
    inventory: &dyn Inventory,
) -> Result<Vec<Sighting>, CallError> {
    session.verify_identity().await?;
    let sightings = inventory.list().await?;
    session.verify_identity().await?;
    Ok(sightings)
}

/// One complete list, every address in it requested for its user, and the networks that waited marked.
///
/// A single address that is refused (malformed, out of reach) is reported and does not keep the rest waiting.
pub async fn adopt(
    session: &ClusterSession,
    system: &System,
    inventory: &dyn Inventory,
) -> Result<Adopted, AdoptError> {
    inventory.begin();
    let adopted = list_and_take_in(session, system, inventory).await;
    inventory.end(adopted.is_ok()).await;
    adopted
}

async fn list_and_take_in(
    session: &ClusterSession,
    system: &System,
    inventory: &dyn Inventory,
) -> Result<Adopted, AdoptError> {
    // Read before the list: a network that starts waiting meanwhile gets a list of its own.
    let networks = session.networks(system);
    let sightings = observe(session, inventory).await?;
    let mut adopted = Adopted {
        sightings,
        ..Adopted::default()
    };
    take_in(session, system, &mut adopted).await?;
    for network in networks.into_iter().filter(|one| inventory.adopts(*one)) {
        mark(session, system, network).await?;
        adopted.marked.insert(network);
    }
    Ok(adopted)
}

/// Marks one network as having adopted this system of this cluster from a complete list.
pub async fn mark(
    session: &ClusterSession,
    system: &System,
    network: NetworkId,
) -> Result<(), IpamError> {
    let adopted = |ledger: &Ledger| ledger.truly_adopted(network, &session.id, system);
    if session.ipam.read(adopted) {
        return Ok(());
    }
    let place = (network, session.id.0.clone(), system.clone());
    note_adopted(&session.ipam, place, false, session.actor(system)).await
}

/// Notes that a network does not wait any more for a system of a cluster.
pub(super) async fn note_adopted(
    ipam: &Ipam,
    (network, cluster, system): (NetworkId, Text, System),
    skipped: bool,
    actor: Actor,
) -> Result<(), IpamError> {
    let marker = Adoption {
        network,
        cluster,
        system,
        at: ipam.now(),
        skipped,
    };
    let request = Request::MarkAdopted { marker, actor };
    ipam.submit(request).await.map(drop)
}

async fn take_in(
    session: &ClusterSession,
    system: &System,
    adopted: &mut Adopted,
) -> Result<(), IpamError> {
    let actor = session.actor(system);
    let mut requests = Vec::new();
    // A reader holds the ledger for at most 1,000 rows.
    for some in adopted.sightings.chunks(500) {
        let uses = some
            .iter()
            .flat_map(|seen| seen.uses.iter().map(move |prefix| (seen, *prefix)));
        let missing: Vec<_> = session.ipam.read(|ledger| {
            let is_missing = |(seen, prefix): &(&Sighting, LeasePrefix)| {
                let lease = ledger.lease_around(prefix.key);
                let lease = lease.filter(|lease| lease.span().covers(&prefix.span()));
                !lease.is_some_and(|lease| holds(lease, &seen.holder))
            };
            uses.clone().filter(is_missing).collect()
        });
        adopted.held += uses.count() - missing.len();
        requests.extend(missing.into_iter().map(|(seen, prefix)| Adopt {
            length: prefix.explicit_length(),
            key: prefix.key,
            holder: seen.holder.clone(),
            tenant: seen.tenant.clone(),
            since: seen.since,
            actor: actor.clone(),
        }));
    }
    // Of two that use one address the older one keeps it.
    requests.sort_by(|one, other| {
        let by_name = || one.holder.identity.cmp(&other.holder.identity);
        one.since.cmp(&other.since).then_with(by_name)
    });
    let mut answers = stream::iter(requests)
        .map(|adopt| {
            let (identity, key) = (adopt.holder.identity.clone(), adopt.key);
            let answer = session.ipam.submit(Request::Adopt(adopt));
            async move { (identity, key, answer.await) }
        })
        .buffered(AT_ONCE);
    while let Some((identity, key, answer)) = answers.next().await {
        match answer {
            Ok(Answer::Contended { lease }) => adopted.contended.push((identity, lease)),
            Ok(_) => adopted.held += 1,
            Err(IpamError::Refused(refusal)) => {
                adopted.refused.push((identity, key, refusal.to_string()))
            }
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

/// Whether an adoption would change nothing.
fn holds(lease: &Lease, holder: &Holder) -> bool {
    lease.state == LeaseState::Allocated
        && lease.members.iter().any(|member| member.holder == *holder)
}

/// What `keep` makes of each object of a kind, page by page; a list that expires midway is begun again. Anything but the
/// whole is an error: an incomplete list is no list.
pub async fn complete_list<K, T>(
    session: &ClusterSession,
    api: &Api<K>,
    params: ListParams,
    what: &str,
    keep: impl Fn(K) -> Option<T>,
) -> Result<Vec<T>, CallError>
where
    K: Clone + DeserializeOwned + Debug,
    T: Debug,
{
    let list = |params: ListParams| {
        let api = api.clone();
        async move { api.list(&params).await }
    };
    whole(session, list, params.limit(PAGE), what, keep).await
}

/// The same of the metadata alone, which is all that the API server sends.
pub async fn complete_metadata<K, T>(
    session: &ClusterSession,
    api: &Api<K>,
    what: &str,
    keep: impl Fn(PartialObjectMeta<K>) -> Option<T>,
) -> Result<Vec<T>, CallError>
where
    K: Clone + DeserializeOwned + Debug,
    T: Debug,
{
    let list = |params: ListParams| {
        let api = api.clone();
        async move { api.list_metadata(&params).await }
    };
    let params = ListParams::default().limit(METADATA_PAGE);
    whole(session, list, params, what, keep).await
}

async fn whole<K, T, F>(
    session: &ClusterSession,
    list: impl Fn(ListParams) -> F,
    params: ListParams,
    what: &str,
    keep: impl Fn(K) -> Option<T>,
) -> Result<Vec<T>, CallError>
where
    K: Clone,
    T: Debug,
    F: Future<Output = Result<ObjectList<K>, kube::Error>>,
{
    let all = async {
        let mut restarts = 0;
        loop {
            match pages(session, &list, params.clone(), what, &keep).await {
                Err(err) if err.status() == Some(410) && restarts < RESTARTS => restarts += 1,
                result => return result,
            }
        }
    };
    tokio::time::timeout(LIST, all).await.unwrap_or_else(|_| {
        let text = format!("not all pages were there within {} s", LIST.as_secs());
        Err(CallError::service(what, text))
    })
}

async fn pages<K, T, F>(
    session: &ClusterSession,
    list: &impl Fn(ListParams) -> F,
    mut params: ListParams,
    what: &str,
    keep: &impl Fn(K) -> Option<T>,
) -> Result<Vec<T>, CallError>
where
    K: Clone,
    T: Debug,
    F: Future<Output = Result<ObjectList<K>, kube::Error>>,
{
    let mut all = Vec::new();
    let mut charge = session.memory.charge();
    let mut refused = None;
    for _ in 0..PAGES {
        let page = match session.call(what, list(params.clone())).await {
            Ok(page) => page,
            Err(error) => {
                let smaller = params.limit.zip(error.exceeded());
                let smaller = smaller.and_then(|(page, exceeded)| exceeded.smaller_page(page));
                let noted = matches!(error, CallError::Api { .. });
                params.limit = Some(smaller.ok_or(error)?);
                refused = noted.then(|| session.memory.trouble()).flatten();
                continue;
            }
        };
        if let Some(refused) = refused.take() {
            session.memory.overcame(&refused);
        }
        for kept in page.items.into_iter().filter_map(keep) {
            charge.add(weight(&kept)).map_err(|error| {
                session.memory.refused(format!("{what}: {error}"));
                CallError::service(what, error.to_string())
            })?;
            all.push(kept);
        }
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) if params.continue_token.as_ref() == Some(&next) => {
                return Err(CallError::service(what, SAME_PAGE.to_owned()));
            }
            Some(next) => params = params.continue_token(&next),
            None => return Ok(all),
        }
    }
    let text = format!("the API server names more than {PAGES} pages");
    Err(CallError::service(what, text))
}

/// The first adoption of a session: tried with growing pauses until it succeeds. `None`: the session is over.
pub async fn first(
    session: &ClusterSession,
    system: &System,
    inventory: &dyn Inventory,
) -> Option<Adopted> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    let adopted = async {
        loop {
            let err = match adopt(session, system, inventory).await {
                Ok(adopted) => return adopted,
                Err(err) => err,
            };
            if !session.cancel.is_cancelled() {
                tracing::warn!(cluster = %session.name, %system, "not adopted yet, tried again soon: {err}");
            }
            tokio::time::sleep(backoff.pause()).await;
        }
    };
    let adopted = session.cancel.run_until_cancelled(adopted).await?;
    report(session, system, &adopted);
    Some(adopted)
}

pub(super) fn report(session: &ClusterSession, system: &System, adopted: &Adopted) {
    for (identity, key, why) in &adopted.refused {
        tracing::warn!(cluster = %session.name, %system, owner = %identity, address = %key.address, "not adopted: {why}");
    }
    for (identity, lease) in &adopted.contended {
        let holder = lease.owner().map(|owner| owner.identity.to_string());
        let holder = holder.unwrap_or_default();
        tracing::warn!(cluster = %session.name, %system, owner = %identity, address = %lease.prefix(), holder, "in use by another; waits as contender");
    }
    tracing::info!(
        cluster = %session.name, %system, objects = adopted.sightings.len(), held = adopted.held,
        contended = adopted.contended.len(), refused = adopted.refused.len(), networks = adopted.marked.len(), "adopted"
    );
}

/// Leases of owners, by instance: a name may have been given to another object meanwhile.
pub(super) type Held = BTreeMap<Identity, BTreeMap<Holder, Vec<LeaseKey>>>;

/// Owners of leases of one (cluster, system) of the given kinds, and which each has. Orphaned leases are not
/// looked at, since only an admin frees them, nor reserved ones, whose owner is yet to come.
pub(super) fn held(
    session: &ClusterSession,
    system: &System,
    kinds: &BTreeSet<&'static str>,
) -> Held {
    let mut held = Held::new();
    let id = &session.id;
    for_each_held(session, system, |lease| {
        if matches!(lease.state, LeaseState::Orphaned | LeaseState::Reserved) {
            return;
        }
        for member in &lease.members {
            let identity = &member.holder.identity;
            let ours = identity.system == *system
                && identity.cluster.as_ref() == Some(id)
                && kinds.contains(&*identity.kind);
            if ours {
                held.entry(identity.clone())
                    .or_default()
                    .entry(member.holder.clone())
                    .or_default()
                    .push(lease.key);
            }
        }
    });
    // Nobody else ends the contending of what fipd does not serve.
    if *system == System::foreign() {
        hold_contended(session, &mut held);
    }
    held
}

fn hold_contended(session: &ClusterSession, held: &mut Held) {
    let id = &session.id;
    for_each_contended(session, |lease| {
        let contenders = lease.contenders.iter();
        for one in contenders.filter(|one| one.holder.identity.is_foreign()) {
            let holder = &one.holder;
            if holder.identity.cluster.as_ref() == Some(id) {
                let of_owner = held.entry(holder.identity.clone()).or_default();
                let keys = of_owner.entry(holder.clone()).or_default();
                keys.extend(one.used_of(lease.prefix()).map(|used| used.key));
            }
        }
    });
}

/// Visits the leases of a system in the cluster.
pub fn for_each_held(session: &ClusterSession, system: &System, visit: impl FnMut(&Arc<Lease>)) {
    let (ipam, id) = (&session.ipam, &session.id);
    let page =
        |after| ipam.read(|ledger| ledger.cluster_leases(id, Some(system), after, PAGE_OF_LEASES));
    for_each_lease(page, visit);
}

/// Visits the leases that the cluster contends for.
pub fn for_each_contended(session: &ClusterSession, visit: impl FnMut(&Arc<Lease>)) {
    let (ipam, id) = (&session.ipam, &session.id);
    let page = |after| ipam.read(|ledger| ledger.contended_by(id, after, PAGE_OF_LEASES));
    for_each_lease(page, visit);
}

/// Visits all leases of which `page` reads up to [`PAGE_OF_LEASES`] after a key, one page after the other.
fn for_each_lease(
    page: impl Fn(Option<LeaseKey>) -> Vec<Arc<Lease>>,
    mut visit: impl FnMut(&Arc<Lease>),
) {
    let mut after = None;
    loop {
        let leases = page(after);
        leases.iter().for_each(&mut visit);
        match leases.last() {
            Some(last) if leases.len() >= PAGE_OF_LEASES => after = Some(last.key),
            Some(_) | None => return,
        }
    }
}
