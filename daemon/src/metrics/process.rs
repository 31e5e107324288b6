//! Series of the whole process: its certificate, its log and its configuration.

use std::sync::{LazyLock, atomic::AtomicU64};

use fipd_core::Timestamp;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

use crate::{logging::DROPPED, reload::ReloadStatus};

/// Of the whole process, as the listener is.
static ENDS: LazyLock<Gauge<f64, AtomicU64>> = LazyLock::new(|| {
    let ends = Gauge::default();
    ends.set(f64::INFINITY);
    ends
});

/// Adds those of the certificate and of the log to what is read.
pub(super) fn register_server(registry: &mut Registry) {
    registry.register(
        "certificate_end_timestamp_seconds",
        "When the certificate that is served ends, in seconds since 1970; +Inf where it does not say",
        ENDS.clone(),
    );
    registry.register(
        "log_dropped",
        "Log records dropped because the log was not read as fast as it was written",
        DROPPED.clone(),
    );
}

/// Notes the certificate that is served from now on.
pub fn note_certificate(ends: Option<Timestamp>) {
    ENDS.set(ends.map_or(f64::INFINITY, |ends| ends.0 as f64 / 1e3));
}

/// Of the whole process, as its configuration is.
static FAILED: LazyLock<Gauge> = LazyLock::new(Gauge::default);
static NEEDS_RESTART: LazyLock<Gauge> = LazyLock::new(Gauge::default);

/// Adds the series to what is read.
pub(super) fn register_config(registry: &mut Registry) {
    registry.register(
        "config_reload_failed",
        "1 while the configuration file was changed and has errors: the one before is in force",
        FAILED.clone(),
    );
    registry.register(
        "config_needs_restart",
        "Parts of the configuration that count from the next start only",
        NEEDS_RESTART.clone(),
    );
}

/// Notes how it stands.
pub fn note_config(standing: &ReloadStatus) {
    FAILED.set(standing.failed.is_some().into());
    let parts = standing.needs_restart.len();
    NEEDS_RESTART.set(i64::try_from(parts).unwrap_or(i64::MAX));
}
