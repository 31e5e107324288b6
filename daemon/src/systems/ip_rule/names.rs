//! Names, hashes and places of the objects of the system.

use std::net::IpAddr;

use crate::controller::kind::Kind;
use data_encoding::HEXLOWER;
use fipd_crds::ip_rule::{CONFIG_PREFIX, IPRuleConfigSpec, PRESENT};
use sha2::{Digest as _, Sha256};

const API: &str = "apis/api.operator.brtrm.dev/v1alpha1";

pub const RULE: Kind = Kind::cluster(API, "iprules", "IPRule");
pub const CONFIG: Kind = Kind::cluster(API, "ipruleconfigs", "IPRuleConfig");
pub const AGENT: Kind = Kind::namespaced(API, "agents", "Agent");

/// The image of the original's agent, whatever registry it is kept in: it tags no rule.
const ORIGINAL_IMAGE: &str = "iprule-agent";

/// Whether an image is that of the original's agent and not fipd's.
pub fn is_original(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split([':', '@']).next() == Some(ORIGINAL_IMAGE)
}

/// The longest name part of an annotation.
const PART: usize = 63;
/// Hex digits that tell long names of nodes apart.
const TOLD_APART: usize = 8;

/// The name of the IPRuleConfig of a source. Of IPv4 the original's: `iprc-10-96-23-17`. Of IPv6 all eight groups with four
/// lower-case digits each, `iprc-fd00-0096-0000-0000-0000-0000-0000-0001`: eight parts instead of four, so that no two addresses
/// have one name, and 44 characters, so that it fits a label.
pub fn config_name(source: IpAddr) -> String {
    let parts: Vec<String> = match source {
        IpAddr::V4(source) => source.octets().iter().map(ToString::to_string).collect(),
        IpAddr::V6(source) => {
            let groups = source.segments();
            groups.iter().map(|group| format!("{group:04x}")).collect()
        }
    };
    format!("{CONFIG_PREFIX}{}", parts.join("-"))
}

/// What the annotation says of an IPRuleConfig that is present: the original's text, and fipd's fields behind it where they
/// say something.
pub fn spec_hash(spec: &IPRuleConfigSpec) -> String {
    let mut text = format!(
        "table={}|priority={}|serviceIP={}|state={PRESENT}",
        spec.table, spec.priority, spec.service_ip
    );
    if spec.fail_closed {
        text.push_str("|failClosed=true");
    }
    for (key, value) in [("mode", &spec.mode), ("vrf", &spec.vrf)] {
        if !value.is_empty() {
            text.push_str(&format!("|{key}={value}"));
        }
    }
    HEXLOWER.encode(&Sha256::digest(text))
}

/// The annotation of a node. The name of a node may be four times as long as the part of an annotation: of a longer one the
/// first 54 characters, `-` and eight hex digits of the SHA-256 of all of it stand for it.
pub fn of_node(prefix: &str, node: &str) -> String {
    if node.len() <= PART {
        return format!("{prefix}{node}");
    }
    let mut digest = HEXLOWER.encode(&Sha256::digest(node));
    digest.truncate(TOLD_APART);
    let start: String = node.chars().take(PART - TOLD_APART - 1).collect();
    format!("{prefix}{start}-{digest}")
}

#[cfg(test)]
mod tests {
    use fipd_crds::{ip_rule::CLEANUP_PREFIX, names::is_object_name};

    use super::*;

    fn name(source: &str) -> String {
        config_name(source.parse().unwrap())
    }

    #[test]
    fn defect_6_every_source_has_a_legal_name_of_its_own() {
        assert_eq!(name("10.96.23.17"), "iprc-10-96-23-17");
        assert_eq!(
            name("fd00:96::1"),
            "iprc-fd00-0096-0000-0000-0000-0000-0000-0001"
        );
        let all = [
            "10.0.0.1",
            "::ffff:10.0.0.1",
            "::",
            "::1",
            "1::",
            "0.0.0.1",
            "fd00::12:3",
            "fd00::1:23",
        ];
        let names: std::collections::BTreeSet<String> = all.iter().map(|one| name(one)).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.iter().all(|name| is_object_name(name)), "{names:?}");
    }

    #[test]
    fn the_hash_is_the_originals_until_fipds_fields_say_something() {
        let mut spec = IPRuleConfigSpec {
            service_ip: "10.96.23.17".into(),
            table: 100,
            priority: 1000,
            state: PRESENT.into(),
            ..IPRuleConfigSpec::default()
        };
        let original = HEXLOWER.encode(&Sha256::digest(
            "table=100|priority=1000|serviceIP=10.96.23.17|state=present",
        ));
        assert_eq!(spec_hash(&spec), original);
        spec.vrf = "red".into();
        assert_ne!(spec_hash(&spec), original);
    }

    #[test]
    fn defect_9_a_long_name_of_a_node_fits_an_annotation_and_stays_its_own() {
        assert_eq!(
            of_node(CLEANUP_PREFIX, "n1"),
            "cleanup.iprule.agent.brtrm.dev/n1"
        );
        let one = format!("{}.a.example.net", "n".repeat(60));
        let other = format!("{}.b.example.net", "n".repeat(60));
        let part = |node: &str| of_node("", node);
        assert_eq!(part(&one).len(), 63);
        assert_ne!(part(&one), part(&other));
        assert_eq!(part(&"n".repeat(63)), "n".repeat(63));
    }
}
