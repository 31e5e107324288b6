//! What the log of the process has lost.

use prometheus_client::registry::Registry;

use crate::logging::DROPPED;

/// Adds the series to what is read.
pub(super) fn register(registry: &mut Registry) {
    registry.register(
        "log_dropped",
        "Log records dropped because the log was not read as fast as it was written",
        DROPPED.clone(),
    );
}
