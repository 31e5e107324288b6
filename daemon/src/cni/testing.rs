//! Samples for tests.

use super::record::AttachmentKey;

/// An attachment of a network.
pub fn key(container: &str) -> AttachmentKey {
    AttachmentKey {
        network: "lan".into(),
        container_id: container.into(),
        ifname: "eth0".into(),
    }
}
