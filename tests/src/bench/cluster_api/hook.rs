//! The hook before a Cluster is created, asked over HTTPS as the core manager asks it: on a connection that it keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{CLASS, CLUSTER, NAMESPACE};
use crate::testbed::cluster_api::{ApiVersion, HOOKS};
use crate::testbed::{Fipd, Method, Visitor};

/// Between an answer and the next question. Cluster API asks once a second for each Cluster that waits.
const PAUSE: Duration = Duration::from_millis(5);

/// Asks again and again until it is told to stop.
pub struct Asker {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<Vec<Duration>>>,
}

impl Asker {
    pub async fn start(fipd: &Fipd) -> Result<Self> {
        let mut connection = Visitor::connect(fipd).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut samples = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                samples.push(ask(&mut connection).await?);
                tokio::time::sleep(PAUSE).await;
            }
            Ok(samples)
        });
        Ok(Self { stop, task })
    }

    /// How long each answer took.
    pub async fn stop(self) -> Result<Vec<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?
    }
}

/// Asks about a Cluster that has no endpoint yet.
async fn ask(connection: &mut Visitor) -> Result<Duration> {
    let path = format!("/hooks/{CLUSTER}/{HOOKS}/beforeclustercreate/fipd-vip?timeout=5s");
    let question = question().to_string();
    let start = Instant::now();
    let (body, status) = connection.send(Method::POST, &path, &question).await?;
    let taken = start.elapsed();
    let answer: Value = serde_json::from_str(&body)?;
    let waits = answer["status"] == "Success" && answer["retryAfterSeconds"] == 1;
    ensure!(status == 200 && waits, "{status}: {body}");
    Ok(taken)
}

fn question() -> Value {
    let mut cluster = ApiVersion::V1Beta1.cluster("asked", CLASS);
    cluster["metadata"]["namespace"] = json!(NAMESPACE);
    cluster["metadata"]["creationTimestamp"] = json!(Timestamp::now().to_string());
    json!({ "apiVersion": HOOKS, "kind": "BeforeClusterCreateRequest", "cluster": cluster })
}
