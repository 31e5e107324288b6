//! How often objects were looked at, what came of it, and how long it took.

use std::{future::Future, pin::Pin, sync::LazyLock};

use fipd_core::System;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use tokio::time::Instant;

use super::queue::Next;

/// Of the whole process: controllers come and go with their clusters, counts do not.
static KEPT: LazyLock<ReconcileCounts> = LazyLock::new(ReconcileCounts::default);

struct ReconcileCounts {
    total: Family<Labels, Counter>,
    seconds: Family<Controller, Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    #[prometheus(flatten)]
    of: Controller,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    system: String,
    controller: &'static str,
}

impl Default for ReconcileCounts {
    fn default() -> Self {
        let buckets = || Histogram::new([0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0]);
        Self {
            total: Family::default(),
            seconds: Family::new_with_constructor(buckets as fn() -> Histogram),
        }
    }
}

/// Adds the series to what is read.
pub fn register(registry: &mut Registry) {
    registry.register(
        "reconcile",
        "Objects that a controller looked at, by what came of it",
        KEPT.total.clone(),
    );
    registry.register_with_unit(
        "reconcile_duration",
        "How long a look at an object took",
        Unit::Seconds,
        KEPT.seconds.clone(),
    );
}

/// `work` with every run counted for this controller.
pub fn counted<K, F, W>(
    system: &System,
    controller: &'static str,
    work: W,
) -> impl Fn(K) -> Pin<Box<dyn Future<Output = Next> + Send>> + use<K, F, W>
where
    W: Fn(K) -> F,
    F: Future<Output = Next> + Send + 'static,
{
    let system = system.to_string();
    move |key| {
        let (system, run) = (system.clone(), work(key));
        Box::pin(async move {
            let begun = Instant::now();
            let next = run.await;
            note(system, controller, next, begun);
            next
        })
    }
}

fn note(system: String, controller: &'static str, next: Next, begun: Instant) {
    let result = match next {
        Next::Done => "success",
        Next::After(_) => "later",
        Next::Retry => "error",
    };
    let took = begun.elapsed().as_secs_f64();
    let of = Controller { system, controller };
    KEPT.seconds.get_or_create(&of).observe(took);
    KEPT.total.get_or_create(&Labels { of, result }).inc();
}
