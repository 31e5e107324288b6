//! Objects that are to get an address: created by the bench, and watched until the address is shown.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use serde_json::{Value, json};

use super::figure::{median, millis};
use crate::testbed::wait_until;

/// Concurrent creators.
pub const CREATORS: usize = 16;
const DEADLINE: Duration = Duration::from_secs(300);

/// What is created, and where its address shows.
pub struct Subject {
    pub api: Api<DynamicObject>,
    /// Without a name.
    pub object: Value,
    /// Kind of the object of the same name that shows the address.
    pub shows: Api<DynamicObject>,
    /// Path of the field that is set once there is an address.
    pub shown: &'static str,
}

/// Samples of what the API server takes for the writes on the way to an address: two creates and a patch of a status.
#[derive(Default)]
pub struct WriteFloor(Vec<Duration>);

/// Many objects created at once.
pub struct Bulk {
    /// Until the last was created.
    pub creating: Duration,
    /// Until the last had its address.
    pub all: Duration,
}

pub type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Send>>;

/// Deletes all objects, and waits until they and what was made for them are gone.
pub async fn delete_all(api: &Api<DynamicObject>, made: &Api<DynamicObject>) -> Result<()> {
    let there = api.list_metadata(&ListParams::default()).await?;
    let params = &DeleteParams::default();
    let all = there.into_iter().map(|object| async move {
        api.delete(&object.name_any(), params).await?;
        anyhow::Ok(())
    });
    let all = stream::iter(all).buffer_unordered(CREATORS);
    all.try_collect::<()>().await?;
    for api in [api, made] {
        wait_until("what was created is gone", DEADLINE, || async {
            let left = api.list(&ListParams::default().limit(1)).await?;
            ensure!(left.items.is_empty(), "some are left");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

impl WriteFloor {
    /// Takes a sample with an object that fipd leaves alone.
    pub async fn sample(&mut self, subject: &Subject, name: &str) -> Result<()> {
        let condition = json!({
            "type": "Bench", "status": "True", "reason": "Bench", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let body = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        let (api, params) = (&subject.api, PatchParams::default());
        let start = Instant::now();
        subject.make(name).await?;
        let created = start.elapsed();
        api.patch_status(name, &params, &body).await?;
        self.0.push(start.elapsed() + created);
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The median without the first `warm_up` samples, in milliseconds.
    pub fn p50(&self, warm_up: usize) -> Result<f64> {
        median(self.0.get(warm_up..).unwrap_or_default()).map(millis)
    }
}

impl Subject {
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
        let mut object = self.object.clone();
        object["metadata"]["name"] = json!(name);
        let object = serde_json::from_value(object)?;
        let made = self.api.create(&PostParams::default(), &object).await;
        made.map(drop).with_context(|| format!("create {name}"))
    }

    /// A watch from the present on.
    pub async fn watch(&self) -> Result<Events> {
        let api = &self.shows;
        let now = api.list_metadata(&ListParams::default().limit(1)).await?;
        let version = now.metadata.resource_version;
        let version = version.context("a list has a resourceVersion")?;
        let parameters = WatchParams::default().timeout(290);
        Ok(api.watch(&parameters, &version).await?.boxed())
    }

    /// The name of the next object that was written and shows an address.
    pub async fn next_served(&self, events: &mut Events) -> Result<String> {
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
