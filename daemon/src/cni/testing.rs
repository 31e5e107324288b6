//! Samples for tests.

use fipd_cni::Ask;
use serde_json::json;

use super::record::AttachmentKey;

/// An attachment of a network.
pub fn key(container: &str) -> AttachmentKey {
    AttachmentKey {
        network: "lan".into(),
        container_id: container.into(),
        ifname: "eth0".into(),
    }
}

/// The question to delete it.
pub fn deletion(container: &str) -> Ask {
    let config = json!({ "cniVersion": "1.1.0", "name": "lan", "type": "fipd-cni" });
    let asked =
        json!({ "command": "DEL", "containerId": container, "ifname": "eth0", "config": config });
    serde_json::from_str(&asked.to_string()).unwrap()
}
