//! Claims and Clusters that come and go, whoever is dead at the moment. No name is used twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fipd_tests::cluster_api::IpamObjects;
use fipd_tests::testbed::cluster_api::ApiVersion;
use fipd_tests::testbed::wait_until;
use tokio::task::JoinHandle;

use crate::Dice;
use crate::management::{NAMESPACE, NODES};

pub const CLAIM: &str = "IPAddressClaim";
pub const CLUSTER: &str = "Cluster";
const WORKERS: u32 = 4;
/// Living objects at once.
const CLAIMS: usize = 36;
const CLUSTERS: usize = 6;
/// Between two requests of a worker.
const PAUSE: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(180);

/// Names that were asked for, noted before the request is sent.
#[derive(Debug, Default)]
pub struct Asked {
    claims: Names,
    clusters: Names,
}

#[derive(Debug, Default)]
struct Names {
    made: BTreeSet<String>,
    deleted: BTreeSet<String>,
}

impl Names {
    fn living(&self) -> Vec<String> {
        self.made.difference(&self.deleted).cloned().collect()
    }
}

impl Asked {
    fn of(&mut self, kind: &str) -> (&mut Names, usize) {
        match kind {
            CLUSTER => (&mut self.clusters, CLUSTERS),
            _ => (&mut self.claims, CLAIMS),
        }
    }

    pub fn made(&self) -> usize {
        self.claims.made.len() + self.clusters.made.len()
    }

    /// Whether the claim was to go, by itself or with its Cluster.
    pub fn was_deleted(&self, claim: &str) -> bool {
        let of_cluster = ["vip-cp-", "vip-ingress-"].iter();
        let mut of_cluster = of_cluster.filter_map(|prefix| claim.strip_prefix(prefix));
        self.claims.deleted.contains(claim)
            || of_cluster.any(|cluster| self.clusters.deleted.contains(cluster))
    }

    /// Deletes what was asked to be deleted while nobody answered, and claims until so many are left; waits until they are gone.
    pub async fn finish(mut self, objects: &IpamObjects, left: usize) -> Self {
        let living = self.claims.living();
        let surplus = living.len().saturating_sub(left);
        self.claims.deleted.extend(living.into_iter().take(surplus));
        for (kind, names) in [(CLAIM, &self.claims), (CLUSTER, &self.clusters)] {
            for name in &names.deleted {
                let path = format!("{NAMESPACE}/{name}");
                let what = format!("{kind} {name} is gone");
                let gone = wait_until(&what, DEADLINE, || async {
                    let Some(object) = objects.get(kind, &path).await? else {
                        return Ok(());
                    };
                    if object["metadata"]["deletionTimestamp"].is_null() {
                        objects.delete(kind, &path).await?;
                    }
                    anyhow::bail!("{object}")
                });
                gone.await.unwrap();
            }
        }
        self
    }
}

/// Workers that ask until they are told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn start(objects: &IpamObjects, asked: &Arc<Mutex<Asked>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let workers = (0..WORKERS).map(|number| {
            let worker = Worker {
                objects: objects.clone(),
                asked: Arc::clone(asked),
                dice: Dice(0x10ad ^ (u64::from(number + 1) << 32)),
                number,
                count: 0,
            };
            tokio::spawn(worker.work(Arc::clone(&stop)))
        });
        Self {
            workers: workers.collect(),
            stop,
        }
    }

    pub async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await.unwrap();
        }
    }
}

struct Worker {
    objects: IpamObjects,
    asked: Arc<Mutex<Asked>>,
    dice: Dice,
    number: u32,
    count: u32,
}

impl Worker {
    async fn work(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            let kind = match self.dice.roll(8) {
                0 => CLUSTER,
                _ => CLAIM,
            };
            // What it comes to is for the reader to see: the request may be lost with its server.
            let _unknown = tokio::time::timeout(PATIENCE, self.ask(kind)).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Creates an object or deletes one.
    async fn ask(&mut self, kind: &'static str) -> anyhow::Result<()> {
        let (more, one) = (self.dice.roll(5) > 1, self.dice.roll(1_000) as usize);
        self.count += 1;
        let fresh = format!("{}{}-{}", kind.to_lowercase(), self.number, self.count);
        let (makes, name) = {
            let mut asked = self.asked.lock().unwrap();
            let (names, most) = asked.of(kind);
            let living = names.living();
            let makes = living.is_empty() || more && living.len() < most;
            let name = match makes {
                true => fresh,
                false => living[one % living.len()].clone(),
            };
            let noted = if makes {
                &mut names.made
            } else {
                &mut names.deleted
            };
            noted.insert(name.clone());
            (makes, name)
        };
        let path = format!("{NAMESPACE}/{name}");
        match (makes, kind) {
            (false, _) => self.objects.delete(kind, &path).await,
            (true, CLUSTER) => {
                let cluster = ApiVersion::V1Beta2.cluster(&name, NAMESPACE);
                self.objects.make(kind, &path, cluster).await
            }
            (true, _) => self.objects.claim(&path, NODES).await,
        }
    }
}
