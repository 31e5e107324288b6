//! fipd's own kinds in clusters: claims on addresses, answered from the ledger.
//!
//! ```text
//!  own pool of fipd (offered by the configuration) --+
//!                                                    +--> AddressClaim --> lease --> its status
//! ```
//!
//! A claim names a pool by the object that stands for it in the cluster, and uses only what the configuration offers
//! to the cluster. The lease is the claim's by cluster, namespace and name, and charged to the namespace
//! (`CLUSTER/NAMESPACE`). What a claim's status shows is believed only while its network adopts the cluster for the
//! first time; from then on the ledger alone decides, and the status follows it. The finalizer is written before the
//! address is asked for, so that a claim that goes has given its address back; one that goes without a word is found
//! by the sweep. Nothing here waits for another cluster.

pub mod claim;
pub mod names;

use std::sync::Arc;

use fipd_core::System;
use fipd_crds::fipd_io::AddressClaim;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use super::{
    events::Events,
    objects::Key,
    queue::{self, Queue},
    remote::Remote,
    site::Site,
    tasks::{finish, quiet, spawn},
    wakes,
};
use crate::clusters::{ClusterSession, adoption};
use claim::Claims;

/// API of all own kinds.
pub const API: &str = "apis/fipd.io/v1alpha1";

/// Reconciles at once.
const CLAIMS_AT_ONCE: usize = 16;

/// Runs the system on a cluster until the session ends.
pub fn run(session: ClusterSession) -> BoxFuture<'static, ()> {
    Box::pin(serve(Arc::new(Site::new(session, System::claims()))))
}

async fn serve(site: Arc<Site>) {
    let cancel = site.cancel();
    let remote = Remote::new(site.session.client.clone());
    let queue = Queue::<Key>::new();
    let idle = Arc::clone(&queue);
    let events = Arc::new(Events::start(
        site.session.recorder.clone(),
        cancel.clone(),
        move || quiet(Arc::clone(&idle)),
    ));
    let claims = Claims::new(Arc::clone(&site), remote, events, queue);
    let mut tasks = JoinSet::new();
    let all = Arc::clone(&claims);
    let slim = |claim: AddressClaim| Some(claim::observe::slim(claim));
    let objects = Arc::clone(&claims.objects);
    spawn(&mut tasks, &site, objects, slim, move |key| {
        all.queue.add(key.clone());
    });
    tokio::select! {
        () = cancel.cancelled() => return,
        () = claims.objects.completed() => {}
    }
    let inventory = claim::adopt::ClaimInventory::new(Arc::clone(&site));
    if adoption::first(&site.session, &site.system, &inventory)
        .await
        .is_none()
    {
        return;
    }
    let worker = Arc::clone(&claims);
    tasks.spawn(queue::run(
        Arc::clone(&claims.queue),
        CLAIMS_AT_ONCE,
        cancel.clone(),
        move |key| Arc::clone(&worker).reconcile(key),
    ));
    tasks.spawn(wakes::listen(
        site.ipam.clone(),
        cancel.clone(),
        move |ledger, news| claims.heard(ledger, news),
    ));
    adoption::keep(&site.session, &site.system, &inventory).await;
    finish(tasks).await;
}
