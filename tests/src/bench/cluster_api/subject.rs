//! Objects that are to get an address: created by the bench, and watched until the address is shown.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::{CLAIM, CLASS, CREATORS, DEADLINE, GROUP, NAMESPACE};
use crate::cluster_api::IpamObjects;
use crate::testbed::cluster_api::ApiVersion;

/// What is created, and where its address shows.
pub struct Subject<'a> {
    objects: &'a IpamObjects,
    kind: &'static str,
    /// Without a name.
    object: Value,
    /// Path of the field that is set once there is an address.
    shown: &'static str,
}

/// Many objects created at once.
pub struct Bulk {
    /// Until the last was created.
    pub creating: Duration,
    /// Until the last had its address.
    pub all: Duration,
}

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Send>>;

/// A reference to a pool of Cluster API's group.
pub fn pool_ref(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": GROUP, "kind": kind, "name": name })
}

impl<'a> Subject<'a> {
    /// Claims on a pool.
    pub fn claim(objects: &'a IpamObjects, kind: &str, pool: &str) -> Self {
        Self {
            objects,
            kind: CLAIM,
            object: json!({ "spec": { "poolRef": pool_ref(kind, pool) } }),
            shown: "/status/addressRef/name",
        }
    }

    /// Clusters of the bench's class.
    pub fn cluster(objects: &'a IpamObjects) -> Self {
        Self {
            objects,
            kind: "Cluster",
            object: ApiVersion::V1Beta2.cluster("", CLASS),
            shown: "/spec/controlPlaneEndpoint/host",
        }
    }

    /// From just before its create request until a watch event shows its address.
    pub async fn one(&self, name: &str) -> Result<Duration> {
        let mut events = self.watch().await?;
        let start = Instant::now();
        self.make(name).await?;
        while self.next_served(&mut events).await? != name {}
        Ok(start.elapsed())
    }

    /// Creates so many; how long that took.
    pub async fn create(&self, prefix: &str, count: usize) -> Result<Duration> {
        let start = Instant::now();
        let all = (0..count).map(|number| async move {
            let name = format!("{prefix}-{number:04}");
            self.make(&name).await
        });
        let all = stream::iter(all).buffer_unordered(CREATORS);
        all.try_collect::<()>().await?;
        Ok(start.elapsed())
    }

    /// The same, until each of them has its address.
    pub async fn at_once(&self, prefix: &str, count: usize) -> Result<Bulk> {
        let mut events = self.watch().await?;
        let start = Instant::now();
        let served = async {
            let mut names = BTreeSet::new();
            while names.len() < count {
                let name = self.next_served(&mut events).await?;
                if name.starts_with(prefix) {
                    names.insert(name);
                }
            }
            anyhow::Ok(start.elapsed())
        };
        let (creating, all) = tokio::try_join!(self.create(prefix, count), served)?;
        Ok(Bulk { creating, all })
    }

    async fn make(&self, name: &str) -> Result<()> {
        let path = format!("{NAMESPACE}/{name}");
        self.objects
            .make(self.kind, &path, self.object.clone())
            .await
    }

    fn api(&self) -> Api<DynamicObject> {
        self.objects.of(self.kind, Some(NAMESPACE))
    }

    /// A watch from the present on.
    async fn watch(&self) -> Result<Events> {
        let api = self.api();
        let now = api.list_metadata(&ListParams::default().limit(1)).await?;
        let version = now.metadata.resource_version;
        let version = version.context("a list has a resourceVersion")?;
        let parameters = WatchParams::default().timeout(290);
        Ok(api.watch(&parameters, &version).await?.boxed())
    }

    /// The name of the next object that was written and shows an address.
    async fn next_served(&self, events: &mut Events) -> Result<String> {
        loop {
            let event = tokio::time::timeout(DEADLINE, events.next());
            let event = event.await.context("no event within the deadline")?;
            match event.context("the watch ended")?? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let shown = object.data.pointer(self.shown).and_then(Value::as_str);
                    if shown.is_some_and(|shown| !shown.is_empty()) {
                        return Ok(object.name_any());
                    }
                }
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => bail!("watch: {error:?}"),
            }
        }
    }
}
