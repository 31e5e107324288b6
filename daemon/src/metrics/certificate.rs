//! When the certificate of the TLS listener ends.

use std::sync::{LazyLock, atomic::AtomicU64};

use fipd_core::Timestamp;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

/// Of the whole process, as the listener is.
static ENDS: LazyLock<Gauge<f64, AtomicU64>> = LazyLock::new(|| {
    let ends = Gauge::default();
    ends.set(f64::INFINITY);
    ends
});

/// Adds the series to what is read.
pub(super) fn register(registry: &mut Registry) {
    registry.register(
        "certificate_end_timestamp_seconds",
        "When the certificate that is served ends, in seconds since 1970; +Inf where it does not say",
        ENDS.clone(),
    );
}

/// Notes the one that is served from now on.
pub fn note(ends: Option<Timestamp>) {
    ENDS.set(ends.map_or(f64::INFINITY, |ends| ends.0 as f64 / 1e3));
}
