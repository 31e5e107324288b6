//! FloatingIPPools: each is mirrored as a pool of the address book, and shows in its status what is used.
//!
//! A pool that cannot be taken as written changes nothing: its last good mirror stays. A pool whose object is
//! gone is closed, and removed once it is empty; no finalizer keeps it, so that its FloatingIPs stay deletable.

pub mod network;
pub mod observe;
pub mod plan;
pub mod status;

pub use crate::validation::pool as validate;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::{Answer, Ledger, Origin, Pool, Refusal, Request, System};
use fipd_crds::floating_ip::FloatingIPPool;
use k8s_openapi::{api::core::v1::ObjectReference, jiff};
use kube::Resource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Site, floating_ip, rancher::Data};
use crate::{
    config::RancherFipQuotas,
    controller::{
        Trouble,
        client::{Patch, Target},
        events::Events,
        merge::{Says, diff},
        queue::{Next, Queue},
        store::{Key, Malformed, Seen},
        waiters::News,
    },
    ipam::{Ipam, IpamError},
    validation::{Wrong, mirror},
};

/// A pool's status is written at most once in this time; the latest wins.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// The controller of all FloatingIPPools of a management cluster.
pub struct Pools {
    site: Arc<Site>,
    data: Arc<Data>,
    events: Arc<Events>,
    pub queue: Arc<Queue<Key>>,
    written: Mutex<BTreeMap<Key, Instant>>,
}

impl Pools {
    pub fn new(site: Arc<Site>, data: Arc<Data>, events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self {
            site,
            data,
            events,
            queue: Queue::new(),
            written: Mutex::new(BTreeMap::new()),
        })
    }

    /// Brings mirror and status of one pool up to date.
    pub async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        match self.try_reconcile(&key).await {
            Ok(next) => next,
            Err(trouble) => trouble.next("FloatingIPPool", &key),
        }
    }

    /// Makes the mirrors only, for before anything is adopted: addresses are in a network by their pool.
    pub async fn mirror_all(&self) -> Result<(), Trouble> {
        for (key, object) in self.data.pools.all() {
            if let (_, Err(Refused::Trouble(trouble))) = (&key, self.mirror(&key, &object).await) {
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// Queues the pools whose status a change of the ledger may change.
    pub fn heard(&self, ledger: &Ledger, news: &News<'_>) {
        match news {
            News::Everything => {
                for pool in ledger.pools() {
                    self.touched(pool);
                }
            }
            News::Changes(changes) => {
                let mut pools: Vec<_> = changes
                    .iter()
                    .flat_map(|change| change.pools.iter().copied())
                    .collect();
                pools.sort_unstable();
                pools.dedup();
                for pool in pools.into_iter().filter_map(|id| ledger.pool(id)) {
                    self.touched(pool);
                }
                if changes.iter().any(|change| change.other) {
                    self.data
                        .pools
                        .keys()
                        .into_iter()
                        .for_each(|key| self.queue.add(key));
                }
            }
        }
    }

    /// Queues all pools when load balancers in clusters draw from other ranges.
    pub async fn follow_ranges(self: Arc<Self>) {
        let follow = self.site.session.clusters.follow_ranges(|| {
            let keys = self.data.pools.keys().into_iter();
            keys.for_each(|key| self.queue.add(key));
        });
        let cancel = self.site.cancel();
        let _ = cancel.run_until_cancelled(follow).await;
    }

    fn touched(&self, pool: &Pool) {
        if let Origin::Mirror {
            system,
            cluster,
            object,
            ..
        } = &pool.spec.origin
            && *cluster == self.site.id
            && *system == System::rancher_fip()
        {
            let key = Key::new("", object);
            let pause = self.pause(&key);
            if pause.is_zero() {
                self.queue.add(key);
            } else {
                self.queue.add_after(key, pause);
            }
        }
    }

    async fn try_reconcile(&self, key: &Key) -> Result<Next, Trouble> {
        match self.data.pools.seen(key) {
            None => self.remove(key).await,
            Some(Seen::Malformed(malformed)) => {
                self.say_malformed(key, &malformed);
                Ok(Next::Done)
            }
            Some(Seen::Good(object)) => {
                let verdict = match self.mirror(key, &object).await {
                    Ok(ignored) => Ok(ignored),
                    Err(Refused::Trouble(trouble)) => return Err(trouble),
                    Err(Refused::Says(says)) => Err(says),
                };
                self.write_status(key, &object, verdict).await
            }
        }
    }

    /// Makes the mirror what the object says. Answers a remark for the condition.
    async fn mirror(&self, key: &Key, object: &FloatingIPPool) -> Result<Option<String>, Refused> {
        let raw = validate::raw(&object.spec);
        let ranges =
            validate::validate(raw.as_ref()).map_err(|wrong| invalid(unchanged(&wrong)))?;
        let facts = network::facts_of(&self.site, &key.name, object);
        let existing = self.existing(key);
        let network = self
            .site
            .session
            .network_of_mirror(&facts, existing.as_deref())
            .await;
        let (network, choice) =
            network.map_err(|error| Refused::Trouble(Trouble::internal(error.to_string())))?;
        let settings = &self.site.session.settings.rancher_fip;
        let source = mirror::Source {
            cluster: &self.site.id,
            cluster_name: &self.site.name,
            name: &key.name,
            uid: object.metadata.uid.as_deref().unwrap_or(""),
            quota_required: settings.quotas == RancherFipQuotas::Required,
        };
        let by_default = choice.is_default_for(existing.as_deref());
        let desired = mirror::desired(&source, &ranges, (network, by_default));
        if let Some(request) = plan::change(existing.as_deref(), desired, &self.site.name) {
            self.submit(request).await?;
        }
        Ok(choice.ignored_annotation)
    }

    async fn submit(&self, request: Request) -> Result<Answer, Refused> {
        match self.site.ipam.submit(request).await {
            Ok(answer) => Ok(answer),
            Err(IpamError::Refused(refusal)) if !matches!(refusal, Refusal::Stale { .. }) => {
                Err(invalid(refusal.to_string()))
            }
            Err(error) => Err(Refused::Trouble(error.into())),
        }
    }

    async fn remove(&self, key: &Key) -> Result<Next, Trouble> {
        self.written.lock().remove(key);
        let Some(pool) = self.existing(key) else {
            return Ok(Next::Done);
        };
        let in_use = !pool_is_empty(&self.site.ipam, &pool);
        if let Some(request) = plan::removal(&pool, in_use, &self.site.name) {
            match self.site.ipam.submit(request).await {
                // A lease came between; the change of the ledger brings this back.
                Ok(_) | Err(IpamError::Refused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Next::Done)
    }

    async fn write_status(
        &self,
        key: &Key,
        object: &FloatingIPPool,
        verdict: Result<Option<String>, Says>,
    ) -> Result<Next, Trouble> {
        let says = match verdict {
            Err(says) => {
                self.events
                    .warning(&object.object_ref(&()), says.reason, says.message.clone());
                says
            }
            Ok(remark) => self.ready(key, self.with_annotations(object, remark)),
        };
        self.warn_of_addresses(key, object);
        let pause = self.pause(key);
        if !pause.is_zero() {
            return Ok(Next::After(pause));
        }
        let pool = self.existing(key);
        let facts = pool.as_ref().and_then(|pool| {
            let facts = observe::facts(&self.site.ipam, pool, |project| {
                self.data.display_name(project)
            })?;
            let shared = self.site.session.clusters.shared_range_note(pool);
            Some(status::Facts { shared, ..facts })
        });
        let before = object.status.clone().unwrap_or_default();
        let shown = pool.as_deref().zip(facts.as_ref());
        let now = jiff::Timestamp::now();
        let after = status::desired(&before, &says, shown, object.metadata.generation, now);
        let (old, new) = (encode(&before)?, encode(&after)?);
        if let Some(patch) = diff(&old, &new) {
            self.written.lock().insert(key.clone(), Instant::now());
            let body = json!({ "metadata": { "uid": object.metadata.uid }, "status": patch });
            self.data
                .remote
                .patch_status(&target(key), Patch::Merge, &body)
                .await?;
        }
        Ok(Next::Done)
    }

    /// The remark, and what is wrong with annotations that make no difference to the mirror.
    fn with_annotations(&self, object: &FloatingIPPool, remark: Option<String>) -> Option<String> {
        let Err(wrong) = floating_ip::return_after(object) else {
            return remark;
        };
        let reference = object.object_ref(&());
        self.events
            .warning(&reference, "InvalidAnnotation", wrong.clone());
        Some(remark.map_or_else(|| wrong.clone(), |remark| format!("{remark}; {wrong}")))
    }

    /// Says what the pool's addresses mean to others, as the admission webhook does where it is asked.
    fn warn_of_addresses(&self, key: &Key, object: &FloatingIPPool) {
        let Some(pool) = self.existing(key) else {
            return;
        };
        let (outside, overlap) = self.site.ipam.read(|ledger| {
            let usage = ledger.usage(pool.id);
            let overlap = observe::overlap(ledger, pool.id);
            (usage.is_some_and(|usage| usage.out_of_range > 0), overlap)
        });
        let reference = object.object_ref(&());
        if outside {
            self.events
                .warning(&reference, status::OUT_OF_RANGE, status::LEFT_OUT);
        }
        if let Some(overlap) = overlap {
            self.events.warning(&reference, "Overlapping", overlap);
        }
    }

    /// The verdict on a pool that is mirrored.
    fn ready(&self, key: &Key, remark: Option<String>) -> Says {
        let holds = self.existing(key).map(|pool| {
            self.site
                .ipam
                .read(|ledger| ledger.holds(pool.spec.network))
        });
        let holds = holds.unwrap_or_default();
        if holds.is_empty() {
            let message = remark.unwrap_or_else(|| "the pool gives addresses".into());
            return Says {
                kind: status::READY,
                status: true,
                reason: "Mirrored",
                message,
            };
        }
        let names: Vec<String> = holds.iter().map(ToString::to_string).collect();
        let message = format!(
            "no new address is given until what is in use is known; waiting for {}",
            names.join(", ")
        );
        Says {
            kind: status::READY,
            status: false,
            reason: "WaitingForAdoption",
            message,
        }
    }

    fn existing(&self, key: &Key) -> Option<Arc<Pool>> {
        self.site
            .ipam
            .read(|ledger| self.site.mirror_in(ledger, &key.name).cloned())
    }

    /// How long the status of a pool must rest.
    fn pause(&self, key: &Key) -> Duration {
        let written = self.written.lock().get(key).copied();
        written.map_or(Duration::ZERO, |at| {
            STATUS_PAUSE.saturating_sub(at.elapsed())
        })
    }

    fn say_malformed(&self, key: &Key, malformed: &Malformed) {
        let reference = ObjectReference {
            api_version: Some(FloatingIPPool::api_version(&()).into_owned()),
            kind: Some(FloatingIPPool::kind(&()).into_owned()),
            name: Some(key.name.to_string()),
            uid: Some(malformed.uid.clone()),
            ..ObjectReference::default()
        };
        let note = format!(
            "the object does not fit its schema ({}); its last good state stays",
            malformed.error
        );
        self.events.warning(&reference, "Malformed", note);
    }
}

/// Why a mirror is not what the object says.
enum Refused {
    /// The object is at fault.
    Says(Says),
    Trouble(Trouble),
}

fn invalid(message: String) -> Refused {
    Refused::Says(Says {
        kind: status::READY,
        status: false,
        reason: "Invalid",
        message,
    })
}

fn unchanged(wrong: &Wrong) -> String {
    format!("{wrong}; the pool is not changed until this is corrected")
}

fn pool_is_empty(ipam: &Ipam, pool: &Pool) -> bool {
    ipam.read(|ledger| ledger.pool_leases(pool.id, None, 1).is_empty())
}

fn encode(status: &impl serde::Serialize) -> Result<Value, Trouble> {
    serde_json::to_value(status).map_err(|error| Trouble::internal(error.to_string()))
}

fn target(key: &Key) -> Target {
    Target {
        api: super::API,
        plural: "floatingippools",
        namespace: String::new(),
        name: key.name.to_string(),
    }
}
