//! CNI plugins of this host: what they asked and what became of it.

use std::{sync::LazyLock, time::Duration};

use fipd_cni::{Code, Verb};
use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use super::series::Labels;

/// Of the whole process: there is one socket.
static KEPT: LazyLock<CniCounts> = LazyLock::new(|| CniCounts {
    seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_5, 2.0, 17))),
    errors: Family::default(),
    replayed: Counter::default(),
    attachments: Gauge::default(),
    kept: Gauge::default(),
});

struct CniCounts {
    seconds: Family<Labels<'static>, Histogram>,
    errors: Family<Labels<'static>, Counter>,
    replayed: Counter,
    attachments: Gauge,
    kept: Gauge,
}

/// Notes how long a question took that was answered.
pub fn answered(verb: Verb, took: Duration) {
    let labels = vec![("verb", verb.to_string())];
    let seconds = KEPT.seconds.get_or_create(&labels);
    seconds.observe(took.as_secs_f64());
}

/// Notes a question that was refused with this code.
pub fn refused(verb: Verb, code: u32) {
    KEPT.errors.get_or_create(&error_labels(verb, code)).inc();
}

fn error_labels(verb: Verb, code: u32) -> Labels<'static> {
    vec![("verb", verb.to_string()), ("code", code.to_string())]
}

/// Notes a deletion out of the spool.
pub fn replayed() {
    KEPT.replayed.inc();
}

/// Shows how much the host keeps.
pub fn show_host(attachments: usize, kept: usize) {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    KEPT.attachments.set(number(attachments));
    KEPT.kept.set(number(kept));
}

/// Adds the series; the registry has its prefix.
pub(super) fn register(registry: &mut Registry) {
    let kept = &*KEPT;
    // From 0 on, so that the first ones are an increase: the usual refusals.
    for verb in [Verb::Add, Verb::Del] {
        for code in [Code::IoFailure, Code::InvalidConfig, Code::TryAgain] {
            let labels = error_labels(verb, code as u32);
            drop(kept.errors.get_or_create(&labels));
        }
    }
    registry.register_with_unit(
        "cni_request_duration",
        "How long questions of CNI plugins took; an ADD asks once, and again when the interface is to be reported",
        Unit::Seconds,
        kept.seconds.clone(),
    );
    registry.register(
        "cni_errors",
        "Questions of CNI plugins that were refused, by verb and code",
        kept.errors.clone(),
    );
    registry.register(
        "cni_replayed_deletions",
        "Deletions that plugins left in the spool and fipd did later",
        kept.replayed.clone(),
    );
    registry.register(
        "cni_attachments",
        "Attachments in the journal of this host",
        kept.attachments.clone(),
    );
    registry.register(
        "cni_kept_objects",
        "VLANs, promiscuous interfaces and routes of this host that attachments use",
        kept.kept.clone(),
    );
}
