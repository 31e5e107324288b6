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
pub mod names;
pub mod pool;

use std::sync::Arc;

use fipd_core::{Ledger, System};
use fipd_crds::fipd_io::{self, AddressClaim};
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::controller::{
    client::Remote,
    events::Events,
    queue::{self, Queue},
    site::Site,
    store::{Key, Objects},
    tasks::{count, finish, quiet, spawn},
    waiters::{self, News},
};
use crate::{
    clusters::{ClusterSession, adoption},
    metrics::reconcile::counted,
};
use claim::Claims;
use pool::{
    Pools,
    kind::Kind,
    observe::{self, Object},
    source::{self, Sources},
};

/// API of all own kinds.
pub const API: &str = "apis/fipd.io/v1alpha1";

/// Reconciles at once.
const CLAIMS_AT_ONCE: usize = 16;
const POOLS_AT_ONCE: usize = 4;

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
    let mut tasks = JoinSet::new();
    if !site.session.settings.claims.pool_objects
        && let Err(error) = source::close_all(&site).await
    {
        tracing::warn!(cluster = %site.name, "pools of its objects are not closed yet: {error}");
    }
    pools(&site, &remote, &events, &mut tasks);
    let claims = Claims::new(Arc::clone(&site), remote, events, queue);
    let all = Arc::clone(&claims);
    let slim = |claim: AddressClaim| Some(claim::observe::slim(claim));
    count(&site, "AddressClaims", &claims.objects);
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
        counted(&site.system, "addressclaim", move |key| {
            Arc::clone(&worker).reconcile(key)
        }),
    ));
    tasks.spawn(waiters::listen(
        site.ipam.clone(),
        cancel.clone(),
        move |ledger, news| claims.heard(ledger, news),
    ));
    adoption::keep(&site.session, &site.system, &inventory).await;
    finish(tasks).await;
}

/// Pool objects, in both directions. A cluster whose pools cannot be listed has its claims served all the same.
fn pools(site: &Arc<Site>, remote: &Remote, events: &Arc<Events>, tasks: &mut JoinSet<()>) {
    let mirrors = Pools::new(Arc::clone(site), remote.clone(), Arc::clone(events));
    let objects = Arc::clone(&mirrors.objects);
    let sources = |kind, objects: &Arc<Objects<Object>>| {
        let (site, remote, events) = (Arc::clone(site), remote.clone(), Arc::clone(events));
        Sources::new(site, remote, events, kind, Arc::clone(objects))
    };
    let own = Objects::new();
    let cluster = sources(Kind::Pool, &objects);
    let namespaced = sources(Kind::Namespaced, &own);
    let (mirror, source) = (Arc::clone(&mirrors.queue), Arc::clone(&cluster.queue));
    let slim = |pool: fipd_io::Pool| Some(observe::slim(pool));
    spawn(tasks, site, Arc::clone(&objects), slim, move |key| {
        mirror.add(key.clone());
        source.add(key.clone());
    });
    let (heard, worker) = (Arc::clone(&mirrors), Arc::clone(&mirrors));
    let hear = move |ledger: &Ledger, news: &News<'_>| heard.heard(ledger, news);
    let work = move |key| Arc::clone(&worker).reconcile(key);
    let queue = Arc::clone(&mirrors.queue);
    keep(site, &objects, queue, hear, work, tasks);
    follow_ranges(site, move || mirrors.queue_all(), tasks);
    follow_source(site, cluster, objects, tasks);
    // Switched off, it may still have finalizers to take off; its role may have gone, which then shows in the log.
    let made = |ledger: &Ledger| ledger.pools().any(|pool| namespaced.key_of(pool).is_some());
    if !site.session.settings.claims.pool_objects && !site.ipam.read(made) {
        return;
    }
    let queue = Arc::clone(&namespaced.queue);
    let slim = |pool: fipd_io::NamespacedPool| Some(observe::slim_namespaced(pool));
    spawn(tasks, site, Arc::clone(&own), slim, move |key| {
        queue.add(key.clone());
    });
    follow_source(site, namespaced, own, tasks);
}

/// Works on the objects of one kind as sources of pools.
fn follow_source(
    site: &Arc<Site>,
    all: Arc<Sources>,
    objects: Arc<Objects<Object>>,
    tasks: &mut JoinSet<()>,
) {
    let (heard, worker) = (Arc::clone(&all), Arc::clone(&all));
    let hear = move |ledger: &Ledger, news: &News<'_>| heard.heard(ledger, news);
    let work = move |key| Arc::clone(&worker).reconcile(key);
    keep(site, &objects, Arc::clone(&all.queue), hear, work, tasks);
    follow_ranges(site, move || all.queue_all(), tasks);
}

/// Calls `then` whenever load balancers in clusters draw from other ranges.
fn follow_ranges(site: &Arc<Site>, then: impl Fn() + Send + 'static, tasks: &mut JoinSet<()>) {
    let (clusters, cancel) = (site.session.clusters.clone(), site.cancel());
    tasks.spawn(async move {
        let follow = clusters.follow_ranges(then);
        let _ = cancel.run_until_cancelled(follow).await;
    });
}

/// Works on a queue once the objects are known.
fn keep<W, F>(
    site: &Arc<Site>,
    objects: &Arc<Objects<Object>>,
    queue: Arc<Queue<Key>>,
    hear: impl Fn(&Ledger, &News<'_>) + Send + 'static,
    work: W,
    tasks: &mut JoinSet<()>,
) where
    W: Fn(Key) -> F + Send + 'static,
    F: Future<Output = queue::Next> + Send + 'static,
{
    let (cancel, objects) = (site.cancel(), Arc::clone(objects));
    let work = counted(&site.system, "pool", work);
    tasks.spawn(waiters::listen(site.ipam.clone(), cancel.clone(), hear));
    tasks.spawn(async move {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = objects.completed() => {}
        }
        queue::run(queue, POOLS_AT_ONCE, cancel, work).await;
    });
}
