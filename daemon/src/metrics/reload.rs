//! Whether the configuration in force is that of the file.

use std::sync::LazyLock;

use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

use crate::reload::ReloadStatus;

/// Of the whole process, as its configuration is.
static FAILED: LazyLock<Gauge> = LazyLock::new(Gauge::default);
static NEEDS_RESTART: LazyLock<Gauge> = LazyLock::new(Gauge::default);

/// Adds the series to what is read.
pub(super) fn register(registry: &mut Registry) {
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
pub fn note(standing: &ReloadStatus) {
    FAILED.set(standing.failed.is_some().into());
    let parts = standing.needs_restart.len();
    NEEDS_RESTART.set(i64::try_from(parts).unwrap_or(i64::MAX));
}
