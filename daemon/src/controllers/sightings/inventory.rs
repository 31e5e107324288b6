//! The Services of a cluster that are not ours, as owners of leases.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fipd_core::{
    Holder, Identity, LeaseKey, Ledger, Lookout, NetworkId, System, Text, sighting::SightingRules,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Resource as _, api::ListParams};
use parking_lot::Mutex;

use super::{
    guest::Guest,
    kept::{Kept, Shown},
    list::{self, List, Services, present},
    observe::{self, ForeignService},
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
    config::RancherFipRole,
    controllers::{
        objects::Key,
        rancher_fip::{
            names::{self, KIND_SERVICE},
            rancher::Ranchers,
        },
    },
};

/// What networks wait for is looked at again after this at the latest: it may change with the configuration.
const LOOK: Duration = Duration::from_secs(5);

/// A pool that has new addresses waits so long for others, and all of them for one list.
const GATHER: Duration = Duration::from_millis(100);
/// The most addresses of Services in one list, in pools or not.
const MOST_SHOWN: usize = 262_144;

/// The foreign Services of a cluster.
pub struct ForeignInventory {
    session: ClusterSession,
    ranchers: Ranchers,
    latest: Mutex<Latest>,
}

/// What the latest list said.
#[derive(Default)]
struct Latest {
    /// Who shows an address, the one that has it first.
    users: BTreeMap<LeaseKey, Holder>,
    /// Services that hold more than they show.
    partial: BTreeSet<Identity>,
    /// Networks in which others have still to be adopted.
    waiting: BTreeSet<NetworkId>,
    adopts: BTreeSet<NetworkId>,
    /// What the latest list began with, also one that failed, and the revision of the ledger then.
    confirmed: Arc<ConfirmedSightings>,
    began: u64,
    /// fipd may not list Services.
    forbidden: bool,
}

impl Drop for ForeignInventory {
    fn drop(&mut self) {
        self.session.ipam.end_look_out(&self.session.id);
    }
}

impl ForeignInventory {
    pub fn new(session: ClusterSession, ranchers: Ranchers) -> Self {
        Self {
            session,
            ranchers,
            latest: Mutex::default(),
        }
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

    /// Lets networks go that begin to wait while fipd may not list Services. Does not end.
    pub async fn keep_open(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
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
            latest.began = self.session.ipam.read(Ledger::revision);
            latest.waiting.clear();
        }
        let listed = self.services().await;
        if listed.is_err() {
            // New pools do not wait for a cluster that does not answer.
            self.session.ipam.end_look_out(&self.session.id);
        }
        let services = self.permitted(listed).await?;
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
        let shown: Shown = services
            .iter()
            .map(|(identity, service)| {
                let addresses = service.as_ref().map(|service| service.addresses.clone());
                (identity.clone(), addresses)
            })
            .collect();
        let users = list::users(ipam, services, stages).await;
        let kept = Kept::of(&self.session);
        let mut rules = SightingRules::new(&self.session.id, &confirmed.keys);
        kept.all().for_each(|lease| rules.count(lease));
        let guest = Guest::of(&self.session, &self.ranchers);
        let list = List::of(ipam, &mut rules, &users, stages, &guest).await;
        report::show(&self.session, &list, &kept, stages, &users);
        let there = kept.owners().into_iter();
        let there = there.filter(|one| shown.contains_key(&one.identity));
        let mut sightings = list.adopt;
        sightings.extend(there.map(present));
        let mut latest = self.latest.lock();
        latest.users = list.users;
        latest.partial = kept.partial(&shown);
        latest.waiting = stages.of_stage(|stage| stage == Stage::Waiting);
        latest.adopts = stages.of_stage(|stage| stage == Stage::Hold);
        sightings
    }

    /// Foreign Services; without what they show where an object cannot be read.
    async fn services(&self) -> Result<Services, CallError> {
        let api: Api<Lenient<Service>> = Api::all(self.session.client.clone());
        let shown = AtomicUsize::new(0);
        let keep = |service: Lenient<Service>| {
            let identity = self.identity(&Key::of(service.meta()));
            let Ok(service) = service.0 else {
                return Some((identity, None));
            };
            let service = self.foreign(service)?;
            let of_it = service.addresses.len();
            // One too many counts as one that cannot be read: what it has stays.
            let fits = shown.fetch_add(of_it, Ordering::Relaxed) + of_it <= MOST_SHOWN;
            Some((identity, Some(service).filter(|_| fits)))
        };
        let what = "list Services of others";
        complete_list(&self.session, &api, ListParams::default(), what, keep).await
    }

    fn foreign(&self, service: Service) -> Option<ForeignService> {
        let session = &self.session;
        let own = &session.settings.rancher_fip;
        let serves = session.systems.contains(&System::rancher_fip())
            && own.role == RancherFipRole::Downstream;
        observe::foreign(service, serves, own.class_less)
    }

    fn identity(&self, key: &Key) -> Identity {
        Identity {
            system: System::foreign(),
            ..names::identity(&self.session.id, KIND_SERVICE, key)
        }
    }

    /// By a list of the one object: what it needs of rights is what the lists need.
    async fn presence(&self, identity: &Identity) -> Presence {
        let key = names::key(identity);
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
        let held = self.session.ipam.read(|ledger| {
            let mut leases = ledger.leases_of(identity);
            leases.extend(ledger.contentions_of(identity));
            leases
        });
        let mut held = held.iter().map(|lease| lease.key.address);
        match found {
            Some(service) if held.all(|address| service.addresses.contains(&address)) => {
                Presence::Present
            }
            Some(_) | None => Presence::Gone,
        }
    }
}

impl Inventory for ForeignInventory {
    fn kinds(&self) -> BTreeSet<&'static str> {
        BTreeSet::from([KIND_SERVICE])
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

    fn taken_in(&self) {
        let latest = self.latest.lock();
        let lookout = Lookout {
            name: Text::clone(&self.session.name),
            networks: latest.adopts.clone(),
            seen: latest.began,
        };
        drop(latest);
        self.session.ipam.look_out(&self.session.id, lookout);
    }

    fn still_shows(&self, holder: &Holder, key: LeaseKey) -> bool {
        let latest = self.latest.lock();
        let shows = latest.users.get(&key);
        shows.is_some_and(|user| user.identity == holder.identity)
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
                let (waiting, known, began) = {
                    let latest = self.latest.lock();
                    let known = Arc::clone(&latest.confirmed);
                    (latest.waiting.clone(), known, latest.began)
                };
                if grown > began {
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

    /// Another Service of the cluster that shows it, or this one under what it still shows.
    fn heir(&self, gone: &Holder, key: LeaseKey) -> Option<Holder> {
        let member = |ledger: &Ledger| {
            let lease = ledger.lease(key);
            lease.is_some_and(|lease| lease.held_by(&gone.identity))
        };
        let heir = self.latest.lock().users.get(&key).cloned();
        heir.filter(|_| self.session.ipam.read(member))
    }
}

#[cfg(test)]
mod tests;
