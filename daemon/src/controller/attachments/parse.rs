//! What a NetworkAttachmentDefinition says. Everything in it may be missing or wrong.

use std::net::IpAddr;

use fipd_core::Text;
use fipd_crds::network_attachment::NetworkAttachmentDefinition;
use serde_json::Value;

/// Harvester's name of the physical network.
const CLUSTER_NETWORK: &str = "network.harvesterhci.io/clusternetwork";
/// The VLAN, for those whose configuration does not have it.
const VLAN_ID: &str = "network.harvesterhci.io/vlan-id";
/// Harvester's annotation of what it knows of the subnet, as JSON.
const ROUTE: &str = "network.harvesterhci.io/route";
/// The longest configuration that is read, in bytes.
const LONGEST: usize = 64 << 10;
const VLANS: std::ops::RangeInclusive<u64> = 1..=4094;

/// The link that a network is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// `None`: untagged.
    pub vlan: Option<u16>,
    pub physical: Option<Text>,
    /// Configured in Harvester, or detected by it.
    pub gateway: Option<IpAddr>,
}

impl Attachment {
    /// Whether both are the same network, whatever is known of its gateway.
    pub(super) fn is_link_of(&self, other: &Self) -> bool {
        (self.vlan, &self.physical) == (other.vlan, &other.physical)
    }
}

/// Why it is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachmentFault {
    #[error("it does not exist")]
    Absent,
    #[error("the cluster serves none")]
    Unserved,
    #[error("{0}")]
    Malformed(String),
    #[error("its spec.config has {0} bytes, more than the {LONGEST} that are read")]
    TooLarge(usize),
    #[error(
        "there are several of this name, in the namespaces {0}, with different VLANs or physical networks"
    )]
    Several(String),
    #[error("Rancher has no Harvester cluster of this name any more")]
    ClusterGone,
    #[error("fipd may not read them (packaging/rbac has a role for Harvester clusters): {0}")]
    Forbidden(String),
    #[error("it cannot be read: {0}")]
    Unreachable(String),
}

impl AttachmentFault {
    /// Reason of a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Absent => "NotFound",
            Self::Unserved => "NotServed",
            Self::Malformed(_) => "Malformed",
            Self::TooLarge(_) => "TooLarge",
            Self::Several(_) => "Ambiguous",
            Self::ClusterGone => "ClusterNotFound",
            Self::Forbidden(_) => "Forbidden",
            Self::Unreachable(_) => "Unreachable",
        }
    }
}

/// Reads one.
pub fn parse(definition: &NetworkAttachmentDefinition) -> Result<Attachment, AttachmentFault> {
    let malformed = |what: &str| AttachmentFault::Malformed(what.to_owned());
    let labels = definition.metadata.labels.as_ref();
    let label = |name: &str| labels?.get(name).filter(|value| !value.is_empty());
    let config = &*definition.spec.config;
    if config.len() > LONGEST {
        return Err(AttachmentFault::TooLarge(config.len()));
    }
    let config: Value =
        serde_json::from_str(config).map_err(|_| malformed("its spec.config is not JSON"))?;
    if !config.is_object() {
        return Err(malformed("its spec.config is not a JSON object"));
    }
    let plugins = config["plugins"].as_array().into_iter().flatten();
    let mut vlans = std::iter::once(&config)
        .chain(plugins)
        .filter_map(|plugin| plugin.get("vlan").filter(|vlan| !vlan.is_null()));
    let vlan = match (vlans.next(), label(VLAN_ID)) {
        (Some(vlan), _) => vlan.as_u64(),
        (None, Some(label)) => label.parse().ok(),
        (None, None) => Some(0),
    };
    let vlan = match vlan {
        Some(0) => None,
        Some(vlan) if VLANS.contains(&vlan) => u16::try_from(vlan).ok(),
        Some(_) | None => return Err(malformed("its VLAN is not a number from 0 to 4094")),
    };
    let physical = label(CLUSTER_NETWORK).map(|name| Text::from(&**name));
    let gateway = gateway(definition);
    Ok(Attachment {
        vlan,
        physical,
        gateway,
    })
}

/// Nothing depends on its being right: where it cannot be read it is not known.
fn gateway(definition: &NetworkAttachmentDefinition) -> Option<IpAddr> {
    let annotations = definition.metadata.annotations.as_ref()?;
    let text = annotations
        .get(ROUTE)
        .filter(|text| text.len() <= LONGEST)?;
    let route: Value = serde_json::from_str(text).ok()?;
    route["gateway"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(labels: Value, config: &str) -> Result<Attachment, AttachmentFault> {
        let object = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "labels": labels }, "spec": { "config": config },
        });
        parse(&serde_json::from_value(object).expect("a definition"))
    }

    fn link(vlan: Option<u16>, physical: Option<&str>) -> Result<Attachment, AttachmentFault> {
        let physical = physical.map(Text::from);
        Ok(Attachment {
            vlan,
            physical,
            gateway: None,
        })
    }

    #[test]
    fn networks_of_harvester_are_read() {
        let labels = json!({
            "network.harvesterhci.io/clusternetwork": "mgmt", "network.harvesterhci.io/ready": "true",
            "network.harvesterhci.io/type": "L2VlanNetwork", "network.harvesterhci.io/vlan-id": "178",
        });
        let bridge = r#"{"cniVersion":"0.3.1","name":"vlan178","type":"bridge","bridge":"mgmt-br","promiscMode":true,"vlan":178,"ipam":{}}"#;
        assert_eq!(read(labels.clone(), bridge), link(Some(178), Some("mgmt")));
        let untagged = r#"{"cniVersion":"0.3.1","type":"bridge","bridge":"data-br","ipam":{}}"#;
        let data = json!({ "network.harvesterhci.io/clusternetwork": "data" });
        assert_eq!(read(data.clone(), untagged), link(None, Some("data")));
        assert_eq!(read(data, r#"{"vlan":0}"#), link(None, Some("data")));
        assert_eq!(read(labels, "{}"), link(Some(178), Some("mgmt")));
        let list =
            r#"{"cniVersion":"1.0.0","plugins":[{"type":"tuning"},{"type":"bridge","vlan":7}]}"#;
        assert_eq!(read(json!({}), list), link(Some(7), None));
    }

    #[test]
    fn the_gateway_is_known_where_harvester_knows_it() {
        let gateway = |route: &str| {
            let object = json!({
                "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
                "metadata": { "annotations": { ROUTE: route } }, "spec": { "config": "{}" },
            });
            let definition = serde_json::from_value(object).expect("a definition");
            parse(&definition).expect("a network").gateway
        };
        let auto = r#"{"mode":"auto","serverIPAddr":"","cidr":"10.10.0.0/24","gateway":"10.10.0.1","connectivity":"true"}"#;
        assert_eq!(gateway(auto), Some([10, 10, 0, 1].into()));
        for none in [r#"{"gateway":""}"#, r#"{"gateway":7}"#, "[]", "{", ""] {
            assert_eq!(gateway(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_wrong_is_reported_and_nothing_is_guessed() {
        let reason = |config: &str| read(json!({}), config).map_err(|fault| fault.reason());
        let deep = "[".repeat(LONGEST);
        for config in [
            "",
            "{",
            "[]",
            "7",
            "null",
            &deep,
            r#"{"vlan":"178"}"#,
            r#"{"vlan":4095}"#,
            r#"{"vlan":-1}"#,
            r#"{"vlan":1.5}"#,
            r#"{"vlan":99999999999999999999999999}"#,
            r#"{"vlan":{"vlan":7}}"#,
            r#"{"plugins":[{"vlan":[7]}]}"#,
        ] {
            assert_eq!(reason(config), Err("Malformed"), "{config}");
        }
        let label = json!({ "network.harvesterhci.io/vlan-id": "x" });
        assert!(read(label, "{}").is_err());
        let huge = format!(r#"{{"vlan":7,"x":"{}"}}"#, "x".repeat(LONGEST));
        assert_eq!(reason(&huge), Err("TooLarge"));
    }
}
