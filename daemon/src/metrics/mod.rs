//! What Prometheus reads: `fipd_*`.
//!
//! Counters of requests are kept here; everything else is read from the ledger, the store and the cluster registry
//! at the moment it is asked for. There is no series per lease.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use fipd_core::{LeaseFilter, LeaseState, Ledger, Pool, Timestamp};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, text::encode},
    metrics::{
        MetricType, counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram,
    },
    registry::{Registry, Unit},
};
use tokio::sync::Semaphore;

use crate::{
    backups::Backups,
    clusters::{ClusterState, Clusters},
    controllers::rancher_fip::guests::status::{GuestViews, Phase},
    helm::Helm,
    ipam::Ipam,
    store::Condition,
};

/// How old the count of leases by state may be: it is the one figure that takes a walk over all leases.
const COUNT_AGE: Duration = Duration::from_secs(15);

/// All series; cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram>,
    fip_v1: Family<CallLabels, Counter>,
    fip_v1_seconds: Family<PathLabels, Histogram>,
    /// One text at a time is made.
    rendering: Arc<Semaphore>,
    last: Mutex<Option<Arc<str>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

/// A call of an LB controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    path: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    path: &'static str,
}

/// Bounds in seconds: from an answer out of memory to one that waits for a slow disk.
fn request_buckets() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0,
    ])
}

impl Metrics {
    /// Series over this address book and these clusters.
    pub fn new(
        ipam: Ipam,
        clusters: Clusters,
        backups: Backups,
        guests: GuestViews,
        helm: Option<&Helm>,
    ) -> Self {
        let mut registry = Registry::with_prefix("fipd");
        if let Some(helm) = helm {
            helm.register(&mut registry);
        }
        let requests = Family::default();
        registry.register("http_requests", "HTTP requests answered", requests.clone());
        let seconds = Family::new_with_constructor(request_buckets as fn() -> Histogram);
        registry.register_with_unit(
            "http_request_duration",
            "Time until the answer of a request begins",
            Unit::Seconds,
            seconds.clone(),
        );
        let fip_v1 = Family::default();
        registry.register(
            "fip_v1_requests",
            "Calls of LB controllers answered",
            fip_v1.clone(),
        );
        let fip_v1_seconds = Family::new_with_constructor(request_buckets as fn() -> Histogram);
        registry.register_with_unit(
            "fip_v1_request_duration",
            "Time until a call of an LB controller is decided",
            Unit::Seconds,
            fip_v1_seconds.clone(),
        );
        registry.register_collector(Box::new(State {
            ipam,
            clusters,
            backups,
            guests,
            counted: Mutex::default(),
        }));
        Self(Arc::new(Inner {
            registry,
            requests,
            seconds,
            fip_v1,
            fip_v1_seconds,
            rendering: Arc::new(Semaphore::new(1)),
            last: Mutex::default(),
        }))
    }

    /// Notes an answered request. `route` is the pattern, never the path.
    pub fn request(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        // Methods are free text on the wire; series are not.
        let method = match method.as_str() {
            known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE") => known,
            _ => "other",
        };
        let labels = RequestLabels {
            method: method.to_owned(),
            route: route.to_owned(),
            status: status.as_u16(),
        };
        self.0.requests.get_or_create(&labels).inc();
        let route = RouteLabels {
            route: route.to_owned(),
        };
        self.0
            .seconds
            .get_or_create(&route)
            .observe(took.as_secs_f64());
    }

    /// Notes a call of an LB controller; `path` is without its prefix.
    pub fn fip_v1(&self, path: &'static str, code: StatusCode, took: Duration) {
        let labels = CallLabels {
            path,
            code: code.as_u16(),
        };
        self.0.fip_v1.get_or_create(&labels).inc();
        let path = PathLabels { path };
        self.0
            .fip_v1_seconds
            .get_or_create(&path)
            .observe(took.as_secs_f64());
    }

    /// The text of all series. While one is being made, which takes a walk over all leases and asks the disk,
    /// everybody else gets the last one.
    pub async fn text(&self) -> Arc<str> {
        let rendering = Arc::clone(&self.0.rendering);
        let last = || self.0.last.lock().clone();
        let permit = match (rendering.clone().try_acquire_owned(), last()) {
            (Err(_), Some(last)) => return last,
            (Err(_), None) => rendering.acquire_owned().await.ok(),
            (Ok(permit), _) => Some(permit),
        };
        let inner = Arc::clone(&self.0);
        let rendered = tokio::task::spawn_blocking(move || {
            let text: Arc<str> = inner.render().into();
            *inner.last.lock() = Some(Arc::clone(&text));
            drop(permit);
            text
        });
        match rendered.await {
            Ok(text) => text,
            Err(error) => {
                tracing::error!(%error, "metrics could not be written");
                last().unwrap_or_default()
            }
        }
    }
}

impl Inner {
    fn render(&self) -> String {
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &self.registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        text
    }
}

/// Reads the daemon's state when it is asked for.
struct State {
    ipam: Ipam,
    clusters: Clusters,
    backups: Backups,
    guests: GuestViews,
    counted: Mutex<Option<(Instant, BTreeMap<LeaseState, u64>)>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

type Labels<'a> = Vec<(&'a str, String)>;

/// One gauge or counter with its values.
struct Series<'a> {
    name: &'a str,
    help: &'a str,
    values: Vec<(Labels<'a>, f64)>,
}

impl Series<'_> {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut metric =
            encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        for (labels, value) in &self.values {
            let gauge = ConstGauge::new(*value);
            if labels.is_empty() {
                gauge.encode(metric)?;
                return Ok(());
            }
            gauge.encode(metric.encode_family(labels)?)?;
        }
        Ok(())
    }
}

impl Collector for State {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for series in self
            .pools()
            .into_iter()
            .chain(self.store())
            .chain(self.backups())
            .chain(self.clusters())
            .chain([self.guests()])
        {
            series.encode(&mut encoder)?;
        }
        self.leases().encode(&mut encoder)
    }
}

impl State {
    fn pools(&self) -> Vec<Series<'static>> {
        let all: Vec<Arc<Pool>> = self.ipam.read(|ledger| ledger.pools().cloned().collect());
        let mut figures: [Vec<(Labels<'static>, f64)>; 5] = Default::default();
        let mut full_in = Vec::new();
        let now = self.ipam.now();
        for pool in all {
            let (usage, network, forecast) = self.ipam.read(|ledger| {
                let network = ledger.network(pool.spec.network);
                (
                    ledger.usage(pool.id),
                    network.map(|network| network.name.to_string()),
                    ledger.forecast(pool.id, now),
                )
            });
            let Some(usage) = usage else { continue };
            let labels = vec![
                ("pool", pool.spec.name.to_string()),
                ("network", network.unwrap_or_default()),
            ];
            let hours = forecast.hours().into_iter();
            full_in.extend(hours.map(|hours| (labels.clone(), f64::from(hours) * 3_600.0)));
            let counts = [
                usage.size,
                usage.used,
                usage.free,
                usage.quarantined,
                usage.out_of_range,
            ];
            for (values, count) in figures.iter_mut().zip(counts) {
                values.push((labels.clone(), count as f64));
            }
        }
        let [size, used, free, quarantined, out] = figures;
        vec![
            Series {
                name: "pool_size",
                help: "Addresses the pool can give",
                values: size,
            },
            Series {
                name: "pool_used",
                help: "Of these, leased",
                values: used,
            },
            Series {
                name: "pool_free",
                help: "Of these, free",
                values: free,
            },
            Series {
                name: "pool_quarantined",
                help: "Of the used, cooling after a release",
                values: quarantined,
            },
            Series {
                name: "pool_out_of_range",
                help: "Leases outside of the pool's addresses",
                values: out,
            },
            Series {
                name: "pool_full_in_seconds",
                help: "Time until the pool is full at the pace of the last seven days; missing where that is not in sight",
                values: full_in,
            },
        ]
    }

    fn leases(&self) -> Series<'static> {
        let mut counted = self.counted.lock();
        let counts = match counted.as_ref() {
            Some((at, counts)) if at.elapsed() < COUNT_AGE => counts.clone(),
            Some(_) | None => {
                let fresh = count_states(&self.ipam);
                *counted = Some((Instant::now(), fresh.clone()));
                fresh
            }
        };
        let value = |(state, count): (LeaseState, u64)| {
            (
                vec![("state", crate::api::wire::text_of(&state))],
                count as f64,
            )
        };
        Series {
            name: "leases",
            help: "Leases by state",
            values: counts.into_iter().map(value).collect(),
        }
    }

    fn store(&self) -> Vec<Series<'static>> {
        let stats = self.ipam.reader().stats();
        let epoch = self.ipam.read(|ledger| ledger.epoch().copied());
        let hold = epoch
            .and_then(|epoch| epoch.hold)
            .map_or(0, |hold| hold.left);
        let plain = |value: f64| vec![(Vec::new(), value)];
        let serving = if stats.condition == Condition::Serving {
            1.0
        } else {
            0.0
        };
        let mut all = vec![
            Series {
                name: "store_up",
                help: "1 while decisions are taken",
                values: plain(serving),
            },
            Series {
                name: "store_commits",
                help: "Commits since the start",
                values: plain(stats.commits as f64),
            },
            Series {
                name: "store_commit_seconds",
                help: "Time spent in commits since the start",
                values: plain(Duration::from_nanos(stats.commit_nanos).as_secs_f64()),
            },
            Series {
                name: "store_decisions",
                help: "Decisions made durable since the start",
                values: plain(stats.decisions as f64),
            },
            Series {
                name: "store_failed_commits",
                help: "Commits that failed and were looked up in the reopened file",
                values: plain(stats.failed_commits as f64),
            },
            Series {
                name: "store_epoch",
                help: "How often the store was restored from a backup",
                values: plain(epoch.map_or(0, |epoch| epoch.number) as f64),
            },
            Series {
                name: "restore_hold_seconds",
                help: "Time left in which free addresses are held after a restore",
                values: plain(hold as f64 / 1_000.0),
            },
            Series {
                name: "clock_ahead_seconds",
                help: "How far the time of the address book is ahead of the clock",
                values: plain(self.ipam.ahead().as_secs_f64()),
            },
            Series {
                name: "requests_waiting",
                help: "Requests to the address book without an answer yet",
                values: plain(self.ipam.waiting() as f64),
            },
        ];
        if let Ok((used, free)) = self.ipam.reader().disk() {
            all.push(Series {
                name: "store_bytes",
                help: "Bytes the store uses",
                values: plain(used as f64),
            });
            all.push(Series {
                name: "store_disk_free_bytes",
                help: "Bytes free on the store's disk",
                values: plain(free as f64),
            });
        }
        all
    }

    fn backups(&self) -> Vec<Series<'static>> {
        let standing = self.backups.standing();
        let failed = if standing.failure.is_some() { 1.0 } else { 0.0 };
        let seconds = |at: Timestamp| (Vec::new(), at.0 as f64 / 1_000.0);
        vec![
            Series {
                name: "backup_last_success_timestamp_seconds",
                help: "When the newest backup that the daemon keeps was made",
                values: standing.last.map(seconds).into_iter().collect(),
            },
            Series {
                name: "backup_failed",
                help: "1 while the last attempt to make a backup has failed",
                values: vec![(Vec::new(), failed)],
            },
        ]
    }

    fn guests(&self) -> Series<'static> {
        let phases = self.guests.phases().into_iter();
        let value = |(phase, count): (Phase, usize)| {
            (vec![("phase", phase.as_str().to_owned())], count as f64)
        };
        Series {
            name: "guest_clusters",
            help: "Clusters of Rancher that are looked after, by how they are doing",
            values: phases.map(value).collect(),
        }
    }

    fn clusters(&self) -> Vec<Series<'static>> {
        let now = crate::clock::now().0;
        let mut up = Vec::new();
        let mut since = Vec::new();
        let mut leases = Vec::new();
        for view in self.clusters.views() {
            let labels = vec![("cluster", view.name.to_string())];
            let ready = if view.state == ClusterState::Ready {
                1.0
            } else {
                0.0
            };
            up.push((labels.clone(), ready));
            let age = Duration::from_millis(now.saturating_sub(view.since.0)).as_secs_f64();
            let state = ("state", view.state.as_str().to_owned());
            since.push(([labels.clone(), vec![state]].concat(), age));
            leases.push((labels, view.leases as f64));
        }
        vec![
            Series {
                name: "cluster_up",
                help: "1 while the cluster is reached and served",
                values: up,
            },
            Series {
                name: "cluster_state_age_seconds",
                help: "For how long the cluster is in its state",
                values: since,
            },
            Series {
                name: "cluster_leases",
                help: "Leases of the cluster",
                values: leases,
            },
        ]
    }
}

/// Walks over all leases, a page at a time.
fn count_states(ipam: &Ipam) -> BTreeMap<LeaseState, u64> {
    let states = [
        LeaseState::Allocated,
        LeaseState::Reserved,
        LeaseState::Probing,
        LeaseState::Quarantined,
        LeaseState::Orphaned,
    ];
    let mut counts: BTreeMap<_, _> = states.map(|state| (state, 0)).into();
    let mut after = None;
    loop {
        let page = ipam.read(|ledger| ledger.leases(&LeaseFilter::default(), after, Ledger::SCAN));
        for lease in &page.leases {
            *counts.entry(lease.state).or_default() += 1;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::System;
    use futures::future::BoxFuture;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::clusters::{ClusterSession, Options, SystemRunner};

    struct NoRunner;

    impl SystemRunner for NoRunner {
        fn run(&self, _: ClusterSession, _: System) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test]
    async fn while_a_text_is_made_everybody_else_gets_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(crate::clock::now)).unwrap();
        let stop = CancellationToken::new();
        let started = Clusters::start(
            Options::default(),
            ipam.clone(),
            Arc::new(NoRunner),
            stop.clone(),
        );
        let (clusters, _registry) = started.await.unwrap();
        let schedule = crate::backups::Schedule::new(&crate::config::Backup::default(), dir.path());
        let backups = Backups::new(ipam.clone(), schedule);
        let metrics = Metrics::new(ipam, clusters, backups, GuestViews::default(), None);
        let first = metrics.text().await;
        assert!(first.contains("fipd_store_up 1"), "{first}");
        metrics.request(&Method::GET, "/x", StatusCode::OK, Duration::ZERO);
        let rendering = metrics.0.rendering.try_acquire().unwrap();
        assert_eq!(metrics.text().await, first);
        drop(rendering);
        assert!(metrics.text().await.contains("/x"));
        stop.cancel();
    }
}
