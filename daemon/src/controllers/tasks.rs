//! What runs while a system serves a cluster.

use std::{sync::Arc, time::Duration};

use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::{
    objects::{Key, Objects, follow},
    queue::Queue,
    site::Site,
};
use crate::clusters::lenient::Lenient;

/// Follows a kind of the cluster.
pub fn spawn<K, T>(
    tasks: &mut JoinSet<()>,
    site: &Site,
    objects: Arc<Objects<T>>,
    slim: impl Fn(K) -> Option<T> + Send + Sync + 'static,
    changed: impl Fn(&Key) + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
    T: PartialEq + Send + Sync + 'static,
{
    let api: Api<Lenient<K>> = Api::all(site.session.client.clone());
    tasks.spawn(follow(api, objects, slim, changed, site.cancel()));
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

/// Lets work that was begun end.
pub async fn finish(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a task of the controllers ended abnormally");
        }
    }
}
