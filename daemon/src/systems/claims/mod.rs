//! fipd's own kinds in clusters: claims on addresses, answered from the ledger.
//!
//! ```text
//!  own pool of fipd (offered by the configuration) --> Pool with our label --+
//!                                                                           +--> AddressClaim --> lease --> its status
//!  Pool and NamespacedPool of others --> pool (mirror) ----------------------+
//! ```
//!
//! A claim names a pool by the object that stands for it in the cluster, and uses only what the configuration offers
//! to the cluster. The lease is the claim's by cluster, namespace and name, and charged to the namespace
//! (`CLUSTER/NAMESPACE`). What a claim's status shows is believed only while its network adopts the cluster for the
//! first time; from then on the ledger alone decides, and the status follows it. The finalizer is written before the
//! address is asked for, so that a claim that goes has given its address back; one that goes without a word is found
//! by the sweep. Nothing here waits for another cluster.

pub mod claim;
mod leaving;
pub mod names;
pub mod pool;
pub mod settings;

use std::sync::Arc;

use fipd_core::System;
use fipd_crds::fipd_io::{self, AddressClaim};
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::{
    clusters::{ClusterSession, adoption},
    config::SystemConfig,
    controller::{
        address_user::inventory::AddressInventory,
        context::Context,
        events::Events,
        pool_source::close_all,
        queue::Queue,
        reconcile,
        reconcile::Controller,
        site::Site,
        store::{Key, Objects},
        tasks::{count, events_behind, finish, follow_pools},
    },
    detach::Leaving,
    system::{self, Means, RunningSystem},
    systems::claims::{
        names::{CLAIM, NAMESPACED_POOL, POOL},
        settings::ClaimsSettings,
    },
};
use claim::{ClaimController, ManagedClaims};
use pool::{
    PoolObjects, observe,
    source::{ClaimPoolSource, ClaimPools, OFF},
};

/// The system.
#[derive(Clone, Copy)]
pub struct AddressClaims;

impl system::System for AddressClaims {
    fn config(&self) -> &'static SystemConfig {
        &settings::CONFIG
    }

    fn leaving(&self) -> &'static dyn Leaving {
        &leaving::ClaimsLeaving
    }

    fn start(&self, _means: &Means) -> Arc<dyn RunningSystem> {
        Arc::new(*self)
    }
}

impl RunningSystem for AddressClaims {
    fn run(&self, session: ClusterSession) -> BoxFuture<'static, ()> {
        Box::pin(serve(Arc::new(Site::new(session, System::claims()))))
    }
}

async fn serve(site: Arc<Site>) {
    let cancel = site.cancel();
    let queue = Queue::<Key>::new();
    let events = events_behind(&site, &queue);
    let mut tasks = JoinSet::new();
    if !site.session.settings.of::<ClaimsSettings>().pool_objects
        && let Err(error) = close_all(&site, OFF).await
    {
        tracing::warn!(cluster = %site.name, "pools of its objects are not closed yet: {error}");
    }
    pools(&site, &events, &mut tasks);
    let context = Context::of_site(CLAIM, &site, &events, &Objects::new());
    let claims = ClaimController::new(context.with_queue(queue), ManagedClaims);
    let objects = &claims.context().objects;
    count(&site, "AddressClaims", objects);
    let view = |claim: AddressClaim| Some(claim::observe::ClaimView::of(claim));
    reconcile::watch(&claims, view, &mut tasks);
    tokio::select! {
        () = cancel.cancelled() => return,
        () = objects.completed() => {}
    }
    let inventory = AddressInventory(Arc::clone(&claims));
    if !site.adopt_first(&inventory).await {
        return;
    }
    reconcile::follow_and_work(&claims, &mut tasks);
    adoption::keep(&site.session, &site.system, &inventory).await;
    finish(tasks).await;
}

/// Pool objects, in both directions. A cluster whose pools cannot be listed has its claims served all the same.
fn pools(site: &Arc<Site>, events: &Arc<Events>, tasks: &mut JoinSet<()>) {
    let (objects, own) = (Objects::new(), Objects::new());
    let mirrors = PoolObjects::new(Context::of_site(POOL, site, events, &objects));
    let settings = site.session.settings.of::<ClaimsSettings>();
    let source = || ClaimPoolSource {
        settings: settings.clone(),
    };
    let cluster = ClaimPools::new(Context::of_site(POOL, site, events, &objects), source());
    let namespaced = Context::of_site(NAMESPACED_POOL, site, events, &own);
    let namespaced = ClaimPools::new(namespaced, source());
    let (mirror, source) = (Arc::clone(&mirrors), Arc::clone(&cluster));
    let view = |pool: fipd_io::Pool| Some(observe::view(pool));
    mirrors.context().follow(tasks, view, move |key| {
        mirror.context().queue.add(key.clone());
        source.context().queue.add(key.clone());
    });
    follow_pools(&mirrors, tasks);
    follow_pools(&cluster, tasks);
    // Switched off, it may still have finalizers to take off; its role may have gone, which then shows in the log.
    let mut made = false;
    site.ipam
        .for_each_pool(|_, pool| made |= namespaced.key_of(pool).is_some());
    if !settings.pool_objects && !made {
        return;
    }
    let view = |pool: fipd_io::NamespacedPool| Some(observe::namespaced_view(pool));
    reconcile::watch(&namespaced, view, tasks);
    follow_pools(&namespaced, tasks);
}
