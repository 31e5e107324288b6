//! The plugin's binary in network namespaces of the kernel, against a stand-in for the daemon. Needs root.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

mod add;
mod check_and_del;
mod kernel;
mod probe;
mod site;
mod stand_in;

use fipd_cni::attachment::{
    Attachment, ContainerAddress, ContainerLink, Extras, LinkKind, MacvlanMode,
};
use serde_json::Value;

const MAC: &str = "02:00:00:00:00:0a";

fn address(address: &str, gateway: Option<&str>) -> ContainerAddress {
    ContainerAddress {
        address: address.parse().unwrap(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
    }
}

/// A macvlan on `up0` with `10.9.0.5`.
fn attachment() -> Attachment {
    Attachment {
        link: ContainerLink {
            kind: LinkKind::Macvlan(MacvlanMode::Bridge),
            parent: "up0".into(),
            mtu: None,
            mac: Some(MAC.into()),
        },
        addresses: vec![address("10.9.0.5/24", Some("10.9.0.1"))],
        routes: Vec::new(),
        extras: Extras::default(),
        probe: false,
        confirm: true,
        dns: Value::Null,
    }
}
