//! FloatingIPProjectQuotas: each is kept in the address book as a quota of its project in every pool that it names, and
//! shows what the project holds.
//!
//! An object with a value that cannot be taken changes nothing: its last good limits stay. One that is being deleted
//! takes the project's FloatingIPs with it; the limits are 0 until they are gone, then they go, and the finalizer last.

mod apply;
mod end;
mod left;
pub mod observe;
mod plan;
mod status;
mod track;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::{Ledger, PoolId, Tenant, Text};
use fipd_crds::floating_ip::FloatingIPProjectQuota;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use self::end::Ending;
use super::{
    API, Site,
    rancher::{Data, Rancher},
};
use crate::controller::{
    Trouble,
    client::Target,
    events::Events,
    queue::{Next, Queue},
    store::{Key, Malformed, Seen, created},
    waiters::{News, Wakes},
};
use crate::validation::quota as validate;

const KIND: &str = "FloatingIPProjectQuota";

/// The status of a quota is written at most once in this time; the latest wins.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// The controller of all FloatingIPProjectQuotas of a management cluster.
pub struct Quotas {
    site: Arc<Site>,
    rancher: Arc<Rancher>,
    data: Arc<Data>,
    events: Arc<Events>,
    wakes: Wakes,
    pub queue: Arc<Queue<Key>>,
    written: Mutex<BTreeMap<Key, Instant>>,
    /// The display name of each project when it was last looked at.
    called: Mutex<BTreeMap<Key, String>>,
    /// Projects that hold something of a pool without a quota there.
    unlimited: Mutex<BTreeMap<PoolId, BTreeSet<Key>>>,
    /// When an object that has left limits behind was first found missing.
    missing: Mutex<BTreeMap<Key, Instant>>,
    /// Told when everything may be different.
    lost_track: Notify,
}

impl Quotas {
    pub fn new(
        site: Arc<Site>,
        rancher: Arc<Rancher>,
        data: Arc<Data>,
        events: Arc<Events>,
    ) -> Arc<Self> {
        let wakes = Wakes::new(site.system.clone(), site.id.clone(), KIND);
        Arc::new(Self {
            site,
            rancher,
            data,
            events,
            wakes,
            queue: Queue::new(),
            written: Mutex::new(BTreeMap::new()),
            called: Mutex::new(BTreeMap::new()),
            unlimited: Mutex::new(BTreeMap::new()),
            missing: Mutex::new(BTreeMap::new()),
            lost_track: Notify::new(),
        })
    }

    /// An object appeared, changed or went. Whether its project is called otherwise than before.
    pub fn changed(&self, key: &Key) -> bool {
        self.queue.add(key.clone());
        let now = self.data.display_name(&key.name);
        let mut called = self.called.lock();
        let before = match &now {
            Some(name) => called.insert(key.clone(), name.clone()),
            None => called.remove(key),
        };
        before != now
    }

    /// A FloatingIP appeared or changed: the cluster that has its address may be another.
    pub fn fip_changed(&self, fip: &Key) {
        let fip = self.data.fips.get(fip);
        if let Some(project) = fip.and_then(|fip| fip.project.clone()) {
            self.touched(Key::new("", &project.0));
        }
    }

    /// Queues the objects that a change of the ledger concerns.
    pub fn heard(&self, ledger: &Ledger, news: &News<'_>) {
        let (_, edited) = self.wakes.heard(ledger, news);
        let News::Changes(changes) = news else {
            return self.lost_track.notify_one();
        };
        if edited {
            self.all();
        }
        let mut tenants: BTreeSet<Tenant> = BTreeSet::new();
        let mut pools: BTreeSet<PoolId> = BTreeSet::new();
        for change in *changes {
            tenants.extend(change.tenants.iter().cloned());
            let leases = change.leases.iter().filter_map(|key| ledger.lease(*key));
            tenants.extend(leases.filter_map(|lease| lease.tenant.clone()));
            pools.extend(change.pools.iter().copied());
        }
        let projects = tenants.iter().map(|tenant| Key::new("", &tenant.0));
        projects.for_each(|key| self.touched(key));
        let unlimited = self.unlimited.lock();
        let of_pools = pools.iter().filter_map(|pool| unlimited.get(pool));
        of_pools.flatten().for_each(|key| self.touched(key.clone()));
    }

    /// Queues all objects.
    fn all(&self) {
        let keys = self.data.quotas.keys().into_iter();
        keys.for_each(|key| self.queue.add(key));
    }

    /// Queues an object whose status may have to be another.
    fn touched(&self, key: Key) {
        if self.data.quotas.seen(&key).is_none() {
            return;
        }
        let pause = self.pause(&key);
        if pause.is_zero() {
            self.queue.add(key);
        } else {
            self.queue.add_after(key, pause);
        }
    }

    /// Brings one object up to date.
    pub async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        match self.try_reconcile(&key).await {
            Ok(next) => next,
            Err(trouble) => trouble.next(KIND, &key),
        }
    }

    async fn try_reconcile(&self, key: &Key) -> Result<Next, Trouble> {
        let seen = self.data.quotas.seen(key);
        if seen.is_some() {
            self.missing.lock().remove(key);
        }
        match seen {
            None => self.gone(key).await,
            Some(Seen::Malformed(object)) => match object.deleted {
                Some(since) => {
                    let ending = Ending {
                        uid: &object.uid,
                        finalizers: &object.finalizers,
                        since,
                    };
                    self.end(key, &ending, None).await
                }
                None => {
                    self.say_malformed(key, &object);
                    Ok(Next::Done)
                }
            },
            Some(Seen::Good(quota)) if quota.metadata.deletion_timestamp.is_some() => {
                let meta = &quota.metadata;
                let ending = Ending {
                    uid: meta.uid.as_deref().unwrap_or_default(),
                    finalizers: meta.finalizers.as_deref().unwrap_or_default(),
                    since: created(meta.deletion_timestamp.as_ref()),
                };
                self.end(key, &ending, Some(&quota)).await
            }
            Some(Seen::Good(quota)) => self.keep(key, &quota).await,
        }
    }

    /// How long the status of an object must rest.
    fn pause(&self, key: &Key) -> Duration {
        let written = self.written.lock().get(key).copied();
        written.map_or(Duration::ZERO, |at| {
            STATUS_PAUSE.saturating_sub(at.elapsed())
        })
    }

    fn say_malformed(&self, key: &Key, malformed: &Malformed) {
        let note = format!(
            "the object does not fit its schema ({}); its last good limits stay",
            malformed.error
        );
        self.events
            .warning(&reference(key, &malformed.uid), "Malformed", note);
    }
}

/// The project that a quota object is about.
fn tenant(key: &Key) -> Tenant {
    Tenant(Text::clone(&key.name))
}

fn reference(key: &Key, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(FloatingIPProjectQuota::api_version(&()).into_owned()),
        kind: Some(KIND.into()),
        name: Some(key.name.to_string()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// The object in the API.
fn target(key: &Key) -> Target {
    Target {
        api: API,
        plural: "floatingipprojectquotas",
        namespace: String::new(),
        name: key.name.to_string(),
    }
}
