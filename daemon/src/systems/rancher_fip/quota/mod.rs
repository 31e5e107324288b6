//! FloatingIPProjectQuotas: each is kept in the address book as a quota of its project in every pool that it names, and
//! shows what the project holds.
//!
//! An object with a value that cannot be taken changes nothing: its last good limits stay. One that is being deleted
//! takes the project's FloatingIPs with it; the limits are 0 until they are gone, then they go, and the finalizer last.

mod apply;
mod end;
pub mod observe;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::{Ledger, PoolId, Tenant, Text};
use fipd_crds::floating_ip::FloatingIPProjectQuota;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::rancher::{Data, Rancher};
use crate::{
    controller::{
        Reconciled,
        confirm_absence::AbsenceCheck,
        context::Context,
        meta::{Meta, View},
        queue::Next,
        reconcile::Controller,
        store::{Key, Malformed},
        waiters::LedgerEvent,
    },
    systems::rancher_fip::{
        kinds::QUOTA,
        settings::{RancherFipQuotas, RancherFipSettings},
    },
    validation::quota as validate,
};

/// The controller of all FloatingIPProjectQuotas of a management cluster.
pub struct Quotas {
    context: Context<FloatingIPProjectQuota>,
    rancher: Arc<Rancher>,
    data: Arc<Data>,
    /// The display name of each project when it was last looked at.
    called: Mutex<BTreeMap<Key, String>>,
    /// Projects that hold something of a pool without a quota there.
    unlimited: Mutex<BTreeMap<PoolId, BTreeSet<Key>>>,
    /// When an object that has left limits behind was first found missing.
    missing: AbsenceCheck<Key>,
    /// Told when everything may be different.
    lost_track: Notify,
}

impl View for FloatingIPProjectQuota {
    fn meta(&self) -> Meta {
        Meta::of(&self.metadata)
    }
}

impl Controller for Quotas {
    type View = FloatingIPProjectQuota;

    const METRIC: &'static str = "floatingipprojectquota";
    const WORKERS: usize = 4;

    fn context(&self) -> &Context<FloatingIPProjectQuota> {
        &self.context
    }

    /// They were waited for before, where there is such a kind.
    fn completed(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        let (_, edited) = self.context.waiters.affected(ledger, event);
        let LedgerEvent::Changes(changes) = event else {
            return self.lost_track.notify_one();
        };
        if edited {
            self.context.queue_all();
        }
        let mut tenants: BTreeSet<Tenant> = BTreeSet::new();
        let mut pools: BTreeSet<PoolId> = BTreeSet::new();
        for change in *changes {
            tenants.extend(change.tenants.iter().cloned());
            let leases = change.leases.iter().filter_map(|one| ledger.lease(one.key));
            tenants.extend(leases.filter_map(|lease| lease.tenant.clone()));
            pools.extend(change.pools.iter().copied());
        }
        let projects = tenants.iter().map(|tenant| Key::new("", &tenant.0));
        projects.for_each(|key| self.touched(key));
        let unlimited = self.unlimited.lock();
        let of_pools = pools.iter().filter_map(|pool| unlimited.get(pool));
        of_pools.flatten().for_each(|key| self.touched(key.clone()));
    }

    async fn reconcile(&self, key: &Key, quota: Option<Arc<FloatingIPProjectQuota>>) -> Reconciled {
        match quota {
            Some(quota) => {
                self.missing.forget(key);
                self.keep(key, &quota).await
            }
            None => self.gone(key).await,
        }
    }

    async fn release(
        &self,
        key: &Key,
        meta: &Meta,
        quota: Option<Arc<FloatingIPProjectQuota>>,
    ) -> Reconciled {
        self.missing.forget(key);
        self.end(key, meta, quota.as_deref()).await
    }

    async fn malformed(&self, key: &Key, object: &Malformed) -> Reconciled {
        self.missing.forget(key);
        self.context.warn_malformed(key, object);
        Ok(Next::Done)
    }
}

impl Quotas {
    pub fn new(
        context: Context<FloatingIPProjectQuota>,
        rancher: Arc<Rancher>,
        data: Arc<Data>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            rancher,
            data,
            called: Mutex::new(BTreeMap::new()),
            unlimited: Mutex::new(BTreeMap::new()),
            missing: AbsenceCheck::default(),
            lost_track: Notify::new(),
        })
    }

    /// An object appeared, changed or went. Whether its project is called otherwise than before.
    pub fn changed(&self, key: &Key) -> bool {
        self.context.queue.add(key.clone());
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

    /// Queues an object whose status may have to be another.
    fn touched(&self, key: Key) {
        if self.data.quotas.seen(&key).is_some() {
            self.context.queue_status(key);
        }
    }
}

/// The project that a quota object is about.
fn tenant(key: &Key) -> Tenant {
    Tenant(Text::clone(&key.name))
}

/// Rows read from the ledger at once; a reader must not hold it for longer.
const PAGE: usize = 1_000;

impl Quotas {
    /// Queues all objects, and all that only the ledger knows, whenever it is not known what changed.
    pub async fn keep_track(self: Arc<Self>) {
        let cancel = self.context.site.cancel();
        while (cancel.run_until_cancelled(self.lost_track.notified()).await).is_some() {
            self.context.queue_all();
            // Where no quota is required an admin may have set some by hand.
            let settings = self.context.site.settings::<RancherFipSettings>();
            if settings.quotas == RancherFipQuotas::Required {
                self.queue_known().await;
            }
        }
    }

    /// Queues the projects that have quotas in pools of the cluster.
    async fn queue_known(&self) {
        let mut pools: Vec<PoolId> = Vec::new();
        let site = &self.context.site;
        site.ipam
            .for_each_pool(|_, pool| pools.extend(site.is_mirror(pool).then_some(pool.id)));
        for pool in pools {
            let mut after: Option<(PoolId, Tenant)> = None;
            loop {
                let ipam = &self.context.site.ipam;
                let page = ipam.read(|ledger| ledger.quotas(None, Some(pool), after.clone(), PAGE));
                for usage in &page {
                    self.context.queue.add(Key::new("", &usage.quota.tenant.0));
                }
                after = page
                    .last()
                    .map(|last| (last.quota.pool, last.quota.tenant.clone()));
                if page.len() < PAGE {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// There is no such object.
    pub(super) async fn gone(&self, key: &Key) -> Reconciled {
        self.note_unlimited(key, &[]);
        if self.rows(key).is_empty() {
            self.missing.forget(key);
            return Ok(Next::Done);
        }
        let target = QUOTA.target(key);
        let look = self.data.remote.get::<Value>(&target);
        if let Some(wait) = self.missing.confirm(key, look).await? {
            return Ok(Next::After(wait));
        }
        self.set_limits(key, &BTreeMap::new()).await?;
        Ok(Next::Done)
    }
}
