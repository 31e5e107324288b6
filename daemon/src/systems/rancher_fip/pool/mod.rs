//! FloatingIPPools: each is mirrored as a pool of the address book, and shows in its status what is used.
//!
//! A pool that cannot be taken as written changes nothing: its last good mirror stays. A pool whose object is
//! gone is closed, and removed once it is empty; no finalizer keeps it, so that its FloatingIPs stay deletable.

pub mod network;
pub mod observe;
pub mod plan;
pub mod status;

pub use crate::validation::pool as validate;

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{Answer, Ledger, Pool, Refusal, Request};
use fipd_crds::floating_ip::FloatingIPPool;
use k8s_openapi::jiff;
use kube::Resource;

use super::{floating_ip, rancher::Data};
use crate::{
    controller::{
        ReconcileError,
        conditions::ConditionUpdate,
        context::Context,
        meta::{Meta, View},
        queue::Next,
        reconcile::Controller,
        store::Key,
        waiters::LedgerEvent,
    },
    ipam::{Ipam, IpamError},
    systems::rancher_fip::settings::{RancherFipQuotas, RancherFipSettings},
    validation::{Wrong, mirror},
};

/// The controller of all FloatingIPPools of a management cluster.
pub struct Pools {
    context: Context<FloatingIPPool>,
    data: Arc<Data>,
}

impl View for FloatingIPPool {
    fn meta(&self) -> Meta {
        Meta::of(&self.metadata)
    }
}

impl Controller for Pools {
    type View = FloatingIPPool;

    const METRIC: &'static str = "floatingippool";
    const WORKERS: usize = 4;

    fn context(&self) -> &Context<FloatingIPPool> {
        &self.context
    }

    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        let queue = |pool: &Pool| {
            let object = self.context.site.object_of(pool);
            if let Some(object) = object {
                self.context.queue_status(Key::new("", &object));
            }
        };
        match event {
            // Each pool follows.
            LedgerEvent::Everything => {}
            LedgerEvent::Changes(changes) => {
                let touched = changes.iter().flat_map(|change| &change.pools);
                let touched: BTreeSet<_> = touched.copied().collect();
                let pools = touched.into_iter().filter_map(|id| ledger.pool(id));
                pools.for_each(|pool| queue(pool));
                if changes.iter().any(|change| change.other) {
                    self.context.queue_all();
                }
            }
        }
    }

    async fn reconcile(
        &self,
        key: &Key,
        object: Option<Arc<FloatingIPPool>>,
    ) -> Result<Next, ReconcileError> {
        let Some(object) = object else {
            return self.remove(key).await;
        };
        let verdict = match self.mirror(key, &object).await {
            Ok(ignored) => Ok(ignored),
            Err(Refused::Reconcile(trouble)) => return Err(trouble),
            Err(Refused::ConditionUpdate(says)) => Err(says),
        };
        self.write_status(key, &object, verdict).await
    }

    /// No finalizer of fipd keeps it: until it is gone it is a pool as any other.
    async fn release(
        &self,
        key: &Key,
        _: &Meta,
        object: Option<Arc<FloatingIPPool>>,
    ) -> Result<Next, ReconcileError> {
        match object {
            Some(object) => self.reconcile(key, Some(object)).await,
            None => Ok(Next::Done),
        }
    }
}

impl Pools {
    pub fn new(context: Context<FloatingIPPool>, data: Arc<Data>) -> Arc<Self> {
        Arc::new(Self { context, data })
    }

    /// Makes the mirrors only, for before anything is adopted: addresses are in a network by their pool.
    pub async fn mirror_all(&self) -> Result<(), ReconcileError> {
        for (key, object) in self.data.pools.all() {
            if let (_, Err(Refused::Reconcile(trouble))) = (&key, self.mirror(&key, &object).await)
            {
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// Makes the mirror what the object says. Answers a remark for the condition.
    async fn mirror(&self, key: &Key, object: &FloatingIPPool) -> Result<Option<String>, Refused> {
        let raw = validate::raw(&object.spec);
        let ranges =
            validate::validate(raw.as_ref()).map_err(|wrong| invalid(unchanged(&wrong)))?;
        let facts = network::facts_of(&self.context.site, &key.name, object);
        let existing = self.existing(key);
        let network = self
            .context
            .site
            .session
            .network_of_mirror(&facts, existing.as_deref())
            .await;
        let (network, choice) = network
            .map_err(|error| Refused::Reconcile(ReconcileError::internal(error.to_string())))?;
        let settings = self
            .context
            .site
            .session
            .settings
            .of::<RancherFipSettings>();
        let source = mirror::Source {
            cluster: &self.context.site.id,
            cluster_name: &self.context.site.name,
            name: &key.name,
            uid: object.metadata.uid.as_deref().unwrap_or(""),
            quota_required: settings.quotas == RancherFipQuotas::Required,
        };
        let by_default = choice.is_default_for(existing.as_deref());
        let desired = mirror::desired(&source, &ranges, (network, by_default));
        if let Some(request) = plan::change(existing.as_deref(), desired, &self.context.site.name) {
            self.submit(request).await?;
        }
        Ok(choice.ignored_annotation)
    }

    async fn submit(&self, request: Request) -> Result<Answer, Refused> {
        match self.context.site.ipam.submit(request).await {
            Ok(answer) => Ok(answer),
            Err(IpamError::Refused(refusal)) if !matches!(refusal, Refusal::Stale { .. }) => {
                Err(invalid(refusal.to_string()))
            }
            Err(error) => Err(Refused::Reconcile(error.into())),
        }
    }

    async fn remove(&self, key: &Key) -> Result<Next, ReconcileError> {
        let Some(pool) = self.existing(key) else {
            return Ok(Next::Done);
        };
        let in_use = !pool_is_empty(&self.context.site.ipam, &pool);
        if let Some(request) = plan::removal(&pool, in_use, &self.context.site.name) {
            match self.context.site.ipam.submit(request).await {
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
        verdict: Result<Option<String>, ConditionUpdate>,
    ) -> Result<Next, ReconcileError> {
        let says = match verdict {
            Err(says) => {
                self.context.events.warning(
                    &object.object_ref(&()),
                    says.reason,
                    says.message.clone(),
                );
                says
            }
            Ok(remark) => self.ready(key, self.with_annotations(object, remark)),
        };
        self.warn_of_addresses(key, object);
        if let Some(rest) = self.context.status_rests(key) {
            return Ok(rest);
        }
        let pool = self.existing(key);
        let facts = pool.as_ref().and_then(|pool| {
            let facts = observe::facts(&self.context.site.ipam, pool, |project| {
                self.data.display_name(project)
            })?;
            let shared = self.context.site.session.clusters.shared_range_note(pool);
            Some(status::Facts { shared, ..facts })
        });
        let before = object.status.clone().unwrap_or_default();
        let shown = pool.as_deref().zip(facts.as_ref());
        let now = jiff::Timestamp::now();
        let after = status::desired(&before, &says, shown, object.metadata.generation, now);
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let write = self.context.write_status(key, uid, (&before, &after));
        write.await.map(|()| Next::Done)
    }

    /// The remark, and what is wrong with annotations that make no difference to the mirror.
    fn with_annotations(&self, object: &FloatingIPPool, remark: Option<String>) -> Option<String> {
        let Err(wrong) = floating_ip::return_after(object) else {
            return remark;
        };
        let reference = object.object_ref(&());
        self.context
            .events
            .warning(&reference, "InvalidAnnotation", wrong.clone());
        Some(remark.map_or_else(|| wrong.clone(), |remark| format!("{remark}; {wrong}")))
    }

    /// ConditionUpdate what the pool's addresses mean to others, as the admission webhook does where it is asked.
    fn warn_of_addresses(&self, key: &Key, object: &FloatingIPPool) {
        let Some(pool) = self.existing(key) else {
            return;
        };
        let (outside, overlap) = self.context.site.ipam.read(|ledger| {
            let usage = ledger.usage(pool.id);
            let overlap = observe::overlap(ledger, pool.id);
            (usage.is_some_and(|usage| usage.out_of_range > 0), overlap)
        });
        let reference = object.object_ref(&());
        if outside {
            self.context
                .events
                .warning(&reference, status::OUT_OF_RANGE, status::LEFT_OUT);
        }
        if let Some(overlap) = overlap {
            self.context
                .events
                .warning(&reference, "Overlapping", overlap);
        }
    }

    /// The verdict on a pool that is mirrored.
    fn ready(&self, key: &Key, remark: Option<String>) -> ConditionUpdate {
        let holds = self.existing(key).map(|pool| {
            self.context
                .site
                .ipam
                .read(|ledger| ledger.holds(pool.spec.network))
        });
        let holds = holds.unwrap_or_default();
        if holds.is_empty() {
            let message = remark.unwrap_or_else(|| "the pool gives addresses".into());
            return ConditionUpdate {
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
        ConditionUpdate {
            kind: status::READY,
            status: false,
            reason: "WaitingForAdoption",
            message,
        }
    }

    fn existing(&self, key: &Key) -> Option<Arc<Pool>> {
        self.context
            .site
            .ipam
            .read(|ledger| self.context.site.mirror_in(ledger, &key.name).cloned())
    }
}

/// Why a mirror is not what the object says.
enum Refused {
    /// The object is at fault.
    ConditionUpdate(ConditionUpdate),
    Reconcile(ReconcileError),
}

fn invalid(message: String) -> Refused {
    Refused::ConditionUpdate(ConditionUpdate {
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
