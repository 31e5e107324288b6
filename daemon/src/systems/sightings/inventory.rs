//! The Services of a cluster that are not ours, as owners of leases.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use fipd_core::{
    Holder, Identity, Lease, LeaseKey, Ledger, Lookout, NetworkId, Release, Request, Span, System,
    Text,
    sighting::{Moot, SightingRules},
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Resource as _, api::ListParams};
use parking_lot::Mutex;

use super::{
    kept::{self, Kept, Shown},
    list::{self, Services, SightingList, present},
    observe::ForeignService,
    report,
    stage::{self, Stage, Stages},
};
use crate::{
    clusters::{
        CallError, ClusterSession,
        absence::Presence,
        adoption::{Inventory, Sighting, complete_list},
        lenient::Lenient,
        sightings::ConfirmedSightings,
    },
    controller::{kind::SERVICE, store::Key},
    system::RunningSystems,
};

/// What networks wait for is looked at again after this at the latest: it may change with the configuration.
const LOOK: Duration = Duration::from_secs(5);

/// A pool that has new addresses waits so long for others, and all of them for one list.
const GATHER: Duration = Duration::from_millis(100);
/// New pools wait at most so long for a list that is under way.
const POOLS_WAIT: Duration = Duration::from_secs(30);
/// The most addresses of Services in one list, in pools or not.
const MOST_SHOWN: usize = 262_144;

/// The foreign Services of a cluster.
pub struct ForeignInventory {
    session: ClusterSession,
    systems: RunningSystems,
    latest: Mutex<Latest>,
}

/// What the latest list said.
#[derive(Default)]
struct Latest {
    /// Who shows an address, the one that has it first.
    users: BTreeMap<LeaseKey, Holder>,
    /// Contenders for what is held for their own cluster.
    moot: Vec<Moot>,
    /// Services that hold more than they show.
    partial: BTreeSet<Identity>,
    /// Networks in which others have still to be adopted.
    waiting: BTreeSet<NetworkId>,
    adopts: BTreeSet<NetworkId>,
    /// What the latest list began with, also one that failed.
    confirmed: Arc<ConfirmedSightings>,
    /// The revision of the ledger at which the latest list began, also one that failed.
    seen: u64,
    /// Since when the list that is under way holds new pools.
    since: Option<Instant>,
    /// fipd may not list Services.
    forbidden: bool,
}

impl Latest {
    /// Who shows addresses of the span.
    fn users_in(&self, network: NetworkId, span: Span) -> impl Iterator<Item = &Holder> {
        let users = self.users.range(LeaseKey::within(network, span));
        users.map(|(_, user)| user)
    }
}

impl Drop for ForeignInventory {
    fn drop(&mut self) {
        self.end_look_out();
    }
}

impl ForeignInventory {
    pub fn new(session: ClusterSession, systems: RunningSystems) -> Self {
        Self {
            session,
            systems,
            latest: Mutex::default(),
        }
    }

    /// Has pools wait that are new to the cluster, from the first list of the session on.
    pub fn look_out(&self) {
        let confirmed = Arc::clone(&self.session.confirmed_sightings().borrow());
        let stages = Stages::of(&self.session, &confirmed);
        self.latest.lock().since = Some(Instant::now());
        self.register(stages.of_stage(|stage| stage == Stage::Hold), 0);
    }

    fn end_look_out(&self) {
        let session = &self.session;
        session.ipam.end_look_out(&session.id, &System::foreign());
    }

    fn register(&self, networks: BTreeSet<NetworkId>, seen: u64) {
        let lookout = Lookout {
            name: Text::clone(&self.session.name),
            networks,
            seen,
        };
        let session = &self.session;
        session
            .ipam
            .look_out(&session.id, &System::foreign(), lookout);
    }

    /// Waits until there is a network to look at.
    pub async fn ready(&self) {
        let mut revisions = self.session.ipam.revisions();
        loop {
            revisions.borrow_and_update();
            let networks = self.session.mapped_networks();
            let waits = |network: &NetworkId| {
                let waits = |ledger: &Ledger| stage::waits(&self.session, ledger, *network);
                self.session.ipam.read(waits)
            };
            if networks.is_empty() || !networks.iter().all(waits) {
                return;
            }
            let _ = tokio::time::timeout(LOOK, revisions.changed()).await;
        }
    }

    /// Lets networks go that begin to wait while fipd may not list Services, and new pools that wait for a list that takes too
    /// long. Does not end.
    pub async fn keep_open(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let since = self.latest.lock().since;
            if since.is_some_and(|since| since.elapsed() > POOLS_WAIT) {
                self.end_look_out();
            }
            if self.latest.lock().forbidden {
                stage::open_networks(&self.session).await;
            }
        }
    }

    async fn sightings(&self) -> Result<Vec<Sighting>, CallError> {
        let confirmed = Arc::clone(&self.session.confirmed_sightings().borrow());
        let stages = Stages::of(&self.session, &confirmed);
        {
            // One that fails is repeated after a pause: nothing asks for it earlier.
            let mut latest = self.latest.lock();
            latest.confirmed = Arc::clone(&confirmed);
            latest.waiting.clear();
        }
        let services = self.permitted(self.services().await).await?;
        let begun = stages.begin_previews(&self.session).await;
        begun.map_err(|error| {
            let source = kube::Error::Service(error.to_string().into());
            let what = "note the first list of foreign Services".to_owned();
            CallError::Api { what, source }
        })?;
        Ok(self.judge(&services, &stages, &confirmed).await)
    }

    /// Notes whether fipd may list Services. What it may not read holds back no adoption.
    async fn permitted<T>(&self, listed: Result<T, CallError>) -> Result<T, CallError> {
        let status = listed.as_ref().err().and_then(CallError::status);
        let forbidden = status == Some(403);
        self.latest.lock().forbidden = forbidden;
        if forbidden || listed.is_ok() {
            report::rights(&self.session, forbidden);
        }
        if forbidden {
            stage::open_networks(&self.session).await;
        }
        listed
    }

    async fn judge(
        &self,
        services: &Services,
        stages: &Stages,
        confirmed: &ConfirmedSightings,
    ) -> Vec<Sighting> {
        let ipam = &self.session.ipam;
        let shown = services.iter();
        let shown: Shown<'_> = shown
            .map(|(identity, service)| (identity, service.as_ref()))
            .collect();
        let users = list::users(ipam, services, stages).await;
        let kept = Kept::of(&self.session);
        let mut rules = SightingRules::new(&self.session.id, &confirmed.keys);
        let all: Vec<_> = kept.all().collect();
        for some in all.chunks(Ledger::SCAN) {
            ipam.read(|ledger| some.iter().for_each(|lease| rules.count(ledger, lease)));
        }
        let held_for = self.systems.held_for(&self.session);
        let list = SightingList::of(ipam, &mut rules, &users, stages, held_for).await;
        report::show(&self.session, &list, &kept, stages, &users);
        let there = kept.owners().into_iter();
        let there = there.filter(|one| shown.contains_key(&one.identity));
        let mut sightings = list.adopt;
        sightings.extend(there.map(present));
        let mut latest = self.latest.lock();
        latest.users = list.users;
        latest.moot = list.moot;
        latest.partial = kept.partial(&shown);
        latest.waiting = stages.of_stage(|stage| stage == Stage::Waiting);
        latest.adopts = stages.of_stage(|stage| stage == Stage::Hold);
        sightings
    }

    /// Ends contentions of Services for what is held for their own cluster. One that fails is repeated with the next list.
    async fn withdraw(&self, moot: Vec<Moot>) {
        for one in moot {
            let (owner, address) = (one.contender.identity.to_string(), one.key.address);
            let release = Release {
                scope: one.scope(),
                actor: self.session.actor(&System::foreign()),
                reason: "the address is held for its own cluster".into(),
            };
            let ended = self.session.ipam.submit(Request::Release(release)).await;
            if let Err(error) = ended {
                tracing::warn!(cluster = %self.session.name, owner, %address, %error, "still contends");
            }
        }
    }

    /// Foreign Services; without what they show where an object cannot be read.
    async fn services(&self) -> Result<Services, CallError> {
        let api: Api<Lenient<Service>> = Api::all(self.session.client.clone());
        let keep = |service: Lenient<Service>| {
            let identity = self.identity(&Key::of(service.meta()));
            match service.0 {
                Ok(service) => Some((identity, Some(self.foreign(service)?))),
                Err(_) => Some((identity, None)),
            }
        };
        let what = "list Services of others";
        let listed = complete_list(&self.session, &api, ListParams::default(), what, keep);
        let mut services = listed.await?;
        let cut = cut(&mut services, MOST_SHOWN);
        report::limit(&self.session, cut.then_some(MOST_SHOWN));
        Ok(services)
    }

    fn foreign(&self, service: Service) -> Option<ForeignService> {
        let is_ours = self.systems.serve(&self.session, &service);
        (!is_ours).then(|| ForeignService::of(service))
    }

    fn identity(&self, key: &Key) -> Identity {
        key.identity(System::foreign(), &self.session.id, SERVICE.kind)
    }

    /// By a list of the one object: what it needs of rights is what the lists need.
    async fn presence(&self, identity: &Identity) -> Presence {
        let key = Key::of_identity(identity);
        let session = &self.session;
        let api: Api<Lenient<Service>> = Api::namespaced(session.client.clone(), &key.namespace);
        let one = ListParams::default().fields(&format!("metadata.name={}", key.name));
        let Ok(list) = session
            .call("read a Service of others", api.list(&one))
            .await
        else {
            return Presence::Unknown;
        };
        let mut found = list.items.into_iter();
        let found = match found.find(|one| Key::of(one.meta()) == key) {
            Some(Lenient(Ok(service))) => self.foreign(service),
            Some(Lenient(Err(_))) => return Presence::Unknown,
            None => None,
        };
        let mut held = Vec::new();
        let each = |lease: &Arc<Lease>| held.push(Arc::clone(lease));
        self.session.ipam.for_each_lease_with(identity, each);
        match found {
            Some(service)
                if held
                    .iter()
                    .all(|lease| kept::shows_all(&service.addresses, lease, identity)) =>
            {
                Presence::Present
            }
            Some(_) | None => Presence::Gone,
        }
    }
}

/// Whether there are more addresses than `most`. Services beyond them count as ones that cannot be read: what they have stays.
fn cut(services: &mut Services, most: usize) -> bool {
    let (mut left, mut cut) = (most, false);
    for (_, service) in services {
        let shown = service
            .as_ref()
            .map_or(0, |service| service.addresses.len());
        match left.checked_sub(shown) {
            Some(rest) => left = rest,
            None => (*service, cut) = (None, true),
        }
    }
    cut
}

impl Inventory for ForeignInventory {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from([SERVICE.kind])
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>, CallError>> {
        Box::pin(self.sightings())
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Presence> {
        Box::pin(self.presence(identity))
    }

    fn is_whole(&self, identity: &Identity) -> bool {
        !self.latest.lock().partial.contains(identity)
    }

    fn adopts(&self, network: NetworkId) -> bool {
        self.latest.lock().adopts.contains(&network)
    }

    fn begin(&self) {
        let mut latest = self.latest.lock();
        latest.seen = self.session.ipam.read(Ledger::revision);
        latest.since.get_or_insert_with(Instant::now);
    }

    /// New pools do not wait for a cluster that does not answer.
    fn end(&self, is_taken_in: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (networks, seen, moot) = {
                let mut latest = self.latest.lock();
                latest.since = None;
                let moot = std::mem::take(&mut latest.moot);
                (latest.adopts.clone(), latest.seen, moot)
            };
            if !is_taken_in {
                self.end_look_out();
                return;
            }
            self.register(networks, seen);
            self.withdraw(moot).await;
        })
    }

    /// The lease may be of a prefix around what it shows.
    fn still_shows(&self, holder: &Holder, key: LeaseKey) -> bool {
        let span = |ledger: &Ledger| {
            let lease = ledger.lease_around(key)?;
            let mut parts = lease.parts_of(&holder.identity);
            let part = parts.find(|part| part.key == key)?;
            Some(part.span())
        };
        let span = self.session.ipam.read(span);
        let span = span.unwrap_or_else(|| Span::single(key.address));
        let latest = self.latest.lock();
        let mut users = latest.users_in(key.network, span);
        users.any(|user| user.identity == holder.identity)
    }

    /// Once something is confirmed, what fipd serves itself is adopted in a network, or a pool has addresses that it had not.
    fn due(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut revisions = self.session.ipam.revisions();
            let mut confirmed = self.session.confirmed_sightings();
            let mut growth = self.session.ipam.growth();
            loop {
                revisions.borrow_and_update();
                let grown = *growth.borrow_and_update();
                let said = Arc::clone(&confirmed.borrow_and_update());
                let (waiting, known, seen) = {
                    let latest = self.latest.lock();
                    let known = Arc::clone(&latest.confirmed);
                    (latest.waiting.clone(), known, latest.seen)
                };
                if grown > seen {
                    // Pools often come by the dozen.
                    tokio::time::sleep(GATHER).await;
                    return;
                }
                let open = self.session.ipam.read(|ledger| {
                    let mut waiting = waiting.iter();
                    waiting.any(|network| !stage::waits(&self.session, ledger, *network))
                });
                if open || said != known {
                    return;
                }
                tokio::select! {
                    Ok(()) = confirmed.changed() => {}
                    Ok(()) = growth.changed() => {}
                    Ok(()) = revisions.changed(), if !waiting.is_empty() => {}
                    () = tokio::time::sleep(LOOK), if !waiting.is_empty() => {}
                    else => std::future::pending().await,
                }
            }
        })
    }

    /// This one under what it still shows, or another Service of the cluster that shows it, or some of it.
    fn heir(&self, gone: &Holder, key: LeaseKey) -> Option<Holder> {
        let held = |ledger: &Ledger| {
            let lease = ledger.lease(key)?;
            lease.held_by(&gone.identity).then(|| lease.span())
        };
        let span = self.session.ipam.read(held)?;
        let latest = self.latest.lock();
        let users = latest.users_in(key.network, span);
        let heir = users.min_by_key(|user| user.identity != gone.identity);
        heir.cloned()
    }
}

#[cfg(test)]
mod tests;
