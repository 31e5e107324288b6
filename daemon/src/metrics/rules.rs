//! Policy-routing rules of the host: what the engine did, and how things stand at the moment it is asked for.
//!
//! Under `iprule_agent_` are the series of the original agent, so that its dashboards go on.

use std::{
    fmt,
    sync::{Arc, LazyLock, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use super::series::{Labels, Series, live};
use crate::rules::{EngineState, RuleBoard, engine_state, rows::Rows};

/// Of the whole process: there is one engine.
static KEPT: LazyLock<EngineCounts> = LazyLock::new(|| EngineCounts {
    added: Counter::default(),
    adding: Counter::default(),
    deleted: Counter::default(),
    errors: Counter::default(),
    processed: Counter::default(),
    // As the original has them.
    seconds: Histogram::new(exponential_buckets(0.005, 2.0, 12)),
});

struct EngineCounts {
    added: Counter,
    adding: Counter<f64, AtomicU64>,
    deleted: Counter,
    errors: Counter,
    processed: Counter,
    seconds: Histogram,
}

/// Notes a pass of the engine over this many sources.
pub fn passed(sources: usize, took: Duration) {
    KEPT.processed.inc_by(sources as u64);
    KEPT.seconds.observe(took.as_secs_f64());
}

/// How many seconds additions took so far, from the first message to the last answer.
pub fn adding() -> f64 {
    KEPT.adding.get()
}

/// Notes additions, of which the kernel refused some.
pub fn added(all: usize, refused: usize, took: Duration) {
    KEPT.adding.inc_by(took.as_secs_f64());
    KEPT.added.inc_by(all.saturating_sub(refused) as u64);
    KEPT.errors.inc_by(refused as u64);
}

/// Notes deletions that the kernel made, and those that it refused.
pub fn deleted(gone: usize, refused: usize) {
    KEPT.deleted.inc_by(gone as u64);
    KEPT.errors.inc_by(refused as u64);
}

/// Adds fipd's own series; the registry has its prefix.
pub(super) fn register(registry: &mut Registry, board: RuleBoard) {
    registry.register_with_unit(
        "rules_convergence_duration",
        "How long a pass of the engine took, from looking at the rules to the last change",
        Unit::Seconds,
        KEPT.seconds.clone(),
    );
    registry.register_with_unit(
        "rules_adding",
        "How long the kernel took to add rules",
        Unit::Seconds,
        KEPT.adding.clone(),
    );
    registry.register_collector(live(move |encoder| engine(&board, encoder)));
}

/// Adds the original's series.
pub fn register_original(registry: &mut Registry, board: RuleBoard) {
    let agent = registry.sub_registry_with_prefix("iprule_agent");
    let kept = &*KEPT;
    for (name, help, counter) in [
        ("rules_added", "Rules added to the kernel", &kept.added),
        (
            "rules_deleted",
            "Rules deleted from the kernel",
            &kept.deleted,
        ),
        ("rule_errors", "Changes of rules that failed", &kept.errors),
        (
            "ipruleconfigs_processed",
            "Sources that passes looked at",
            &kept.processed,
        ),
    ] {
        agent.register(name, help, counter.clone());
    }
    agent.register_with_unit(
        "reconcile_duration",
        "How long a pass took",
        Unit::Seconds,
        kept.seconds.clone(),
    );
    agent.register_collector(live(move |encoder| original(&board, encoder)));
}

/// How things stand, in the original's gauges.
fn original(board: &RuleBoard, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let rows = Rows::of(board.view());
    let desired = rows.view().desired.rules.len();
    for (name, help, number) in [
        ("desired_rules", "Rules that are to be", desired),
        (
            "present_rules",
            "Rules of those that are in the kernel",
            desired - rows.missing(),
        ),
        (
            "absent_rules",
            "Rules of fipd that are not to be and are in the kernel",
            rows.strays(),
        ),
    ] {
        Series::single(name, help, number as f64).encode(encoder)?;
    }
    Ok(())
}

/// How things stand, in fipd's own gauges.
fn engine(board: &RuleBoard, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let view = board.view();
    let states = [
        EngineState::Off,
        EngineState::Starting(String::new()),
        EngineState::Active,
        EngineState::Paused,
        EngineState::Degraded(String::new()),
    ];
    let (now, _) = engine_state(&view.state);
    let states = states.iter().map(|state| {
        let (word, _) = engine_state(state);
        let labels: Labels<'_> = vec![("state", word.to_owned())];
        (labels, if word == now { 1.0 } else { 0.0 })
    });
    let states = Series::new(
        "rules_engine_state",
        "How the engine of policy-routing rules is doing: 1 at its state",
        states.collect(),
    );
    states.encode(encoder)?;
    if view.state == EngineState::Off {
        return Ok(());
    }
    let drift = view.drift;
    let rows = Rows::of(Arc::clone(&view));
    let desired = view.desired.rules.len();
    for (name, help, number) in [
        (
            "rules_desired",
            "Policy-routing rules that are to be",
            desired,
        ),
        (
            "rules_applied",
            "Policy-routing rules of those that are in the kernel",
            desired - rows.missing(),
        ),
        (
            "rules_indexed_sources",
            "Sources that the packet filter marks",
            view.desired.index.len(),
        ),
        (
            "rules_foreign",
            "Policy-routing rules of other programs",
            rows.foreign_count(),
        ),
    ] {
        Series::single(name, help, number as f64).encode(encoder)?;
    }
    let mut metric = encoder.encode_descriptor(
        "rules_drift",
        "What had to be repaired, by cause",
        None,
        MetricType::Counter,
    )?;
    for (cause, count) in [
        ("removed", drift.removed),
        ("added", drift.added),
        ("index", drift.index),
        ("overrun", drift.overruns),
    ] {
        let labels = [("cause", cause)];
        ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::rules::rows::tests::view;

    fn text(register: fn(&mut Registry, RuleBoard), board: &RuleBoard) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        register(&mut registry, board.clone());
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn an_engine_that_is_off_has_a_state_and_no_figures() {
        let text = text(register, &RuleBoard::default());
        assert!(
            text.contains("rules_engine_state{state=\"off\"} 1"),
            "{text}"
        );
        assert!(!text.contains("rules_desired"), "{text}");
    }

    #[test]
    fn rules_are_counted_by_what_they_are() {
        let board = RuleBoard::default();
        board.show(view());
        passed(4, Duration::from_millis(7));
        added(3, 1, Duration::ZERO);
        deleted(1, 0);
        let own = text(register, &board);
        for line in [
            "rules_engine_state{state=\"active\"} 1",
            "rules_engine_state{state=\"off\"} 0",
            "rules_indexed_sources 2",
            "rules_foreign 1",
            "rules_drift_total{cause=\"removed\"} 3",
            "rules_convergence_duration_seconds_bucket{le=\"0.01\"}",
        ] {
            assert!(own.contains(line), "no {line} in {own}");
        }
        let original = text(register_original, &board);
        for name in [
            "iprule_agent_rules_added_total",
            "iprule_agent_rules_deleted_total",
            "iprule_agent_rule_errors_total",
            "iprule_agent_ipruleconfigs_processed_total",
            "iprule_agent_desired_rules",
            "iprule_agent_present_rules",
            "iprule_agent_absent_rules 1",
            "iprule_agent_reconcile_duration_seconds_bucket{le=\"10.24\"}",
        ] {
            assert!(original.contains(name), "no {name} in {original}");
        }
    }
}
