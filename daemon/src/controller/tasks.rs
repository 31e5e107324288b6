//! What runs while a system serves a cluster.

use std::{fmt::Debug, sync::Arc, time::Duration};

use kube::{
    Api, Resource,
    api::ListParams,
    core::{ClusterResourceScope, PartialObjectMeta},
    runtime::watcher,
};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    Reconciled,
    events::Events,
    queue::{Queue, retries},
    reconcile::{self, Controller},
    site::Site,
};
use crate::{
    clusters::lenient::Lenient,
    controller::store::{Key, Objects, follow},
};

/// Follows a kind of the cluster.
pub fn spawn<K, T>(
    tasks: &mut JoinSet<()>,
    site: &Site,
    objects: Arc<Objects<T>>,
    view: impl Fn(K) -> Option<T> + Send + Sync + 'static,
    changed: impl Fn(&Key) + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    T: PartialEq + Debug + Send + Sync + 'static,
{
    let api = Api::all(site.session.client.clone());
    spawn_from(api, tasks, site, objects, view, changed);
}

/// Follows a kind of the cluster, or what is in one namespace of it.
pub fn spawn_from<K, T>(
    api: Api<Lenient<K>>,
    tasks: &mut JoinSet<()>,
    site: &Site,
    objects: Arc<Objects<T>>,
    view: impl Fn(K) -> Option<T> + Send + Sync + 'static,
    changed: impl Fn(&Key) + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    T: PartialEq + Debug + Send + Sync + 'static,
{
    tasks.spawn(follow(
        api,
        watcher::Config::default(),
        objects,
        view,
        changed,
        site.memory(),
        site.cancel(),
    ));
}

/// Shows how many objects of a kind there are, for as long as they are followed.
pub fn count<T>(site: &Site, kind: &'static str, objects: &Arc<Objects<T>>)
where
    T: PartialEq + Debug + Send + Sync + 'static,
{
    let objects = Arc::downgrade(objects);
    let count = move || objects.upgrade()?.count();
    site.session.counts(&site.system, kind, count);
}

/// Calls `then` whenever load balancers in clusters allocate from other ranges.
pub fn follow_ranges(site: &Site, then: impl Fn() + Send + 'static, tasks: &mut JoinSet<()>) {
    let (clusters, cancel) = (site.session.clusters.clone(), site.cancel());
    tasks.spawn(async move {
        let follow = clusters.follow_ranges(then);
        let _ = cancel.run_until_cancelled(follow).await;
    });
}

/// Works on objects that show a pool: what other load balancers allocate from is shown as well.
pub fn follow_pools<C: Controller>(controller: &Arc<C>, tasks: &mut JoinSet<()>) {
    reconcile::follow_and_work(controller, tasks);
    let all = Arc::clone(controller);
    let site = &controller.context().site;
    follow_ranges(site, move || all.context().queue_every_status(), tasks);
}

/// Waits until nobody waits in `queue`, for a while at most.
pub async fn quiet(queue: Arc<Queue<Key>>) {
    let idle = async {
        while !queue.is_idle() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(3), idle).await;
}

/// Writes Events of a cluster, each while nobody waits in `queue`.
pub fn events_behind(site: &Site, queue: &Arc<Queue<Key>>) -> Arc<Events> {
    let (recorder, queue) = (site.session.recorder.clone(), Arc::clone(queue));
    let idle = move || quiet(Arc::clone(&queue));
    Arc::new(Events::start(recorder, site.cancel(), idle))
}

/// Lets work that was begun end.
pub async fn finish(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a task of the controllers ended abnormally");
        }
    }
}

/// Waits until all objects of a kind are known, where there is such a kind that fipd may read; `false`: the session is
/// over.
pub async fn listed<K, T>(site: &Site, objects: &Objects<T>, what: &str) -> bool
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
    T: PartialEq + Debug,
{
    let (cancel, session) = (site.cancel(), &site.session);
    let api: Api<PartialObjectMeta<K>> = Api::all(session.client.clone());
    let first = ListParams::default().limit(1);
    let mut pauses = retries();
    while let Err(error) = session.call(what, api.list(&first)).await {
        if matches!(error.status(), Some(403 | 404)) {
            return !cancel.is_cancelled();
        }
        tracing::warn!(%error, "not all is known yet; it is tried again");
        tokio::select! {
            () = cancel.cancelled() => return false,
            () = tokio::time::sleep(pauses.pause()) => {}
        }
    }
    let listed = cancel.run_until_cancelled(objects.completed());
    listed.await.is_some()
}

/// Tries until it is done; `false`: the session is over.
pub async fn until<F>(cancel: &CancellationToken, what: &str, attempt: impl Fn() -> F) -> bool
where
    F: Future<Output = Reconciled<()>>,
{
    let mut pauses = retries();
    while let Err(trouble) = attempt().await {
        tracing::warn!(error = %trouble, "{what}; it is tried again");
        tokio::select! {
            () = cancel.cancelled() => return false,
            () = tokio::time::sleep(pauses.pause()) => {}
        }
    }
    !cancel.is_cancelled()
}
