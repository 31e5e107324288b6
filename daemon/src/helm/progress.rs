//! What goes on with each release, for status, pages and metrics.

use std::{collections::BTreeMap, time::Duration};

use fipd_core::Timestamp;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::{error::ChartError, files::ReleaseTarget, release::ChartVersion};

/// How a release stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The version that is wanted, empty where nobody named one and it is not known yet; `None` for one that is to go.
    pub wanted: Option<String>,
    pub activity: Activity,
    pub last: Option<Last>,
}

/// What is done about a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    #[default]
    Idle,
    /// For its cluster's turn, or a slot.
    Waiting { since: Timestamp },
    Running {
        operation: &'static str,
        since: Timestamp,
    },
}

/// What came of it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    pub at: Timestamp,
    /// `None`: it is as it should be.
    pub error: Option<ChartError>,
    /// Since when that is so.
    pub since: Timestamp,
}

/// All releases that were asked for since the start.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<BTreeMap<ReleaseTarget, Progress>>);

impl Board {
    pub fn waiting(&self, target: &ReleaseTarget, wanted: Option<String>, now: Timestamp) {
        let mut all = self.0.lock();
        let entry = all.entry(target.clone()).or_default();
        // One that was found without being named counts until there is another.
        if wanted.as_deref() != Some("") || entry.wanted.is_none() {
            entry.wanted = wanted;
        }
        entry.activity = Activity::Waiting { since: now };
    }

    /// The version is looked up.
    pub fn found(&self, target: &ReleaseTarget, version: &ChartVersion) {
        if let Some(entry) = self.0.lock().get_mut(target)
            && !version.is_newest()
        {
            entry.wanted = Some(version.to_string());
        }
    }

    pub fn running(&self, target: &ReleaseTarget, operation: &'static str, now: Timestamp) {
        if let Some(entry) = self.0.lock().get_mut(target) {
            entry.activity = Activity::Running {
                operation,
                since: now,
            };
        }
    }

    /// Nothing is done any more, whatever came of it.
    pub fn idle(&self, target: &ReleaseTarget) {
        if let Some(entry) = self.0.lock().get_mut(target) {
            entry.activity = Activity::Idle;
        }
    }

    pub fn idle_all(&self, cluster: &str) {
        for (_, entry) in (self.0.lock().iter_mut()).filter(|(target, _)| target.cluster == cluster)
        {
            entry.activity = Activity::Idle;
        }
    }

    pub fn ended(&self, target: &ReleaseTarget, error: Option<ChartError>, now: Timestamp) {
        if let Some(entry) = self.0.lock().get_mut(target) {
            let same = entry.last.as_ref().filter(|last| {
                last.error.as_ref().map(|error| error.reason)
                    == error.as_ref().map(|error| error.reason)
            });
            let since = same.map_or(now, |last| last.since);
            entry.last = Some(Last {
                at: now,
                error,
                since,
            });
        }
    }

    pub fn remove(&self, target: &ReleaseTarget) {
        self.0.lock().remove(target);
    }

    pub fn remove_cluster(&self, cluster: &str) {
        self.0.lock().retain(|target, _| target.cluster != cluster);
    }

    pub fn all(&self) -> BTreeMap<ReleaseTarget, Progress> {
        self.0.lock().clone()
    }
}

/// Name and value of a label.
type HelmLabel = (&'static str, &'static str);

/// `fipd_helm_operations_total` and `fipd_helm_operation_duration_seconds`.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    operations: Family<[HelmLabel; 2], Counter>,
    seconds: Family<[HelmLabel; 1], Histogram, fn() -> Histogram>,
}

fn buckets() -> Histogram {
    Histogram::new([0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0])
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            operations: Family::default(),
            seconds: Family::new_with_constructor(buckets),
        }
    }
}

impl Counters {
    pub fn count(&self, operation: &'static str, result: &'static str, took: Duration) {
        let labels = [("operation", operation), ("result", result)];
        self.operations.get_or_create(&labels).inc();
        let seconds = self.seconds.get_or_create(&[("operation", operation)]);
        seconds.observe(took.as_secs_f64());
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "helm_operations",
            "Runs of the helm CLI",
            self.operations.clone(),
        );
        registry.register_with_unit(
            "helm_operation_duration",
            "Time that a run of the helm CLI took",
            Unit::Seconds,
            self.seconds.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_lasts_keeps_its_beginning() {
        let board = Board::default();
        let target = ReleaseTarget {
            cluster: "east".into(),
            namespace: "lb".into(),
            name: "purelb".into(),
        };
        board.waiting(&target, Some("0.14.1".into()), Timestamp(1));
        let failed = |said: &str| ChartError {
            reason: "HelmFailed",
            message: said.into(),
        };
        board.ended(&target, Some(failed("one")), Timestamp(2));
        board.ended(&target, Some(failed("two")), Timestamp(5));
        let last = board.all()[&target].last.clone().unwrap();
        assert_eq!((last.at, last.since), (Timestamp(5), Timestamp(2)));
        assert!(last.error.unwrap().message.contains("two"));
        board.ended(&target, None, Timestamp(7));
        let last = board.all()[&target].last.clone().unwrap();
        assert_eq!((last.error, last.since), (None, Timestamp(7)));
    }

    #[test]
    fn the_series_have_the_names_that_are_documented() {
        let counters = Counters::default();
        counters.count("upgrade", "success", Duration::from_millis(300));
        let mut registry = Registry::with_prefix("fipd");
        counters.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(
            text.contains("fipd_helm_operations_total{operation=\"upgrade\",result=\"success\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("fipd_helm_operation_duration_seconds_bucket"),
            "{text}"
        );
    }
}
