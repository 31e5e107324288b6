//! What an IPRule may say.

use std::{collections::BTreeMap, time::Duration};

use fipd_core::host::{LimitError, Mode, SourceMode, Target, Way, check_priority, check_table};
use fipd_crds::ip_rule::{AGENT_NAMES, IPRuleSpec};
use ipnet::IpNet;

use crate::clock;
use crate::validation::Wrong;

/// The longest name of a device.
const DEVICE: usize = 15;
const MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// An IPRule as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Valid {
    pub prefixes: Vec<IpNet>,
    pub source: SourceMode,
    pub way: Way,
    pub interval: Option<Duration>,
    pub nodes: Selector,
}

/// Nodes by a label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Option<(String, Option<String>)>);

impl Selector {
    /// # Errors
    /// Why it is none.
    pub fn read(text: &str) -> Result<Self, Wrong> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self(None));
        }
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (text, None),
        };
        let plain = |part: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
            part.chars().all(allowed)
        };
        let fits = !key.is_empty() && key.len() <= 317 && plain(key);
        match fits && value.is_none_or(|value| value.len() <= 63 && plain(value)) {
            true => Ok(Self(Some((key.to_owned(), value.map(str::to_owned))))),
            false => Err(Wrong::new(
                "spec.nodeSelectorLabel",
                text,
                "allowed is KEY or KEY=VALUE of a node's label, or nothing for all nodes",
            )),
        }
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let Some((key, value)) = &self.0 else {
            return true;
        };
        let found = labels.get(key);
        found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
    }
}

/// Reads all of it.
///
/// # Errors
/// Every field that is not as it must be.
pub fn read(spec: &IPRuleSpec) -> Result<Valid, Vec<Wrong>> {
    let mut wrong = Vec::new();
    let prefixes = prefixes(spec, &mut wrong);
    let target = noted(target(spec), &mut wrong);
    let priority = noted(priority(spec), &mut wrong);
    let source = noted(source_mode(&spec.source), &mut wrong);
    let mode = noted(mode(&spec.mode), &mut wrong);
    let interval = noted(interval(&spec.reconcile_interval), &mut wrong);
    let nodes = noted(Selector::read(&spec.node_selector_label), &mut wrong);
    let valid = || {
        Some(Valid {
            prefixes,
            source: source?,
            way: Way {
                target: target?,
                priority: priority?,
                fail_closed: spec.fail_closed,
                mode: mode?,
            },
            interval: interval?,
            nodes: nodes?,
        })
    };
    valid().filter(|_| wrong.is_empty()).ok_or(wrong)
}

fn noted<T>(read: Result<T, Wrong>, wrong: &mut Vec<Wrong>) -> Option<T> {
    read.map_err(|one| wrong.push(one)).ok()
}

fn limit(field: &str, error: &LimitError, more: &str) -> Wrong {
    let allowed = format!("allowed is {}{more}", error.allowed);
    Wrong::new(field, &error.value, allowed)
}

fn priority(spec: &IPRuleSpec) -> Result<Option<u32>, Wrong> {
    let priority = check_priority(spec.priority, spec.fail_closed);
    priority.map_err(|error| limit("spec.priority", &error, ""))
}

/// What should be thought over although it is allowed.
pub fn warnings(spec: &IPRuleSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    if !spec.cidr.is_empty() && !spec.cidrs.is_empty() {
        warnings.push(
            "spec.cidr and spec.cidrs are both there: both count; cidr alone is deprecated"
                .to_owned(),
        );
    }
    if spec.priority == 1000 {
        warnings.push(
            "spec.priority: 1000 is where the kernel puts the rule of VRFs; on nodes with VRFs the order of the two depends on \
             which was first"
                .to_owned(),
        );
    }
    if spec.priority > 32_767 {
        let text = "spec.priority: it is behind the rules of the tables main and default, so that it only counts where these have no route";
        warnings.push(text.to_owned());
    }
    warnings
}

fn prefixes(spec: &IPRuleSpec, wrong: &mut Vec<Wrong>) -> Vec<IpNet> {
    let allowed = "allowed is a range such as 203.0.113.0/24 or 2001:db8::/64";
    let mut prefixes = Vec::new();
    let mut take = |field: String, text: &str| match text.parse::<IpNet>() {
        Ok(prefix) => prefixes.push(prefix.trunc()),
        Err(_) => wrong.push(Wrong::new(field, text, allowed)),
    };
    if !spec.cidr.is_empty() {
        take("spec.cidr".to_owned(), &spec.cidr);
    }
    for (index, text) in spec.cidrs.iter().enumerate() {
        take(format!("spec.cidrs[{index}]"), text);
    }
    if spec.cidr.is_empty() && spec.cidrs.is_empty() {
        take("spec.cidr".to_owned(), "");
    }
    prefixes
}

fn target(spec: &IPRuleSpec) -> Result<Target, Wrong> {
    if spec.vrf.is_empty() {
        let table = check_table(spec.table).map(Target::Table);
        return table.map_err(|error| limit("spec.table", &error, ", or 0 with vrf"));
    }
    if spec.table != 0 {
        let allowed = "with vrf it is that of the VRF: leave it out";
        return Err(Wrong::new("spec.table", &spec.table.to_string(), allowed));
    }
    let plain = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
    match spec.vrf.len() <= DEVICE && spec.vrf.chars().all(plain) {
        true => Ok(Target::Vrf(spec.vrf.as_str().into())),
        false => Err(Wrong::new(
            "spec.vrf",
            &spec.vrf,
            "allowed is the name of a device, of 15 characters at most",
        )),
    }
}

fn source_mode(text: &str) -> Result<SourceMode, Wrong> {
    match text {
        "" | "clusterIP" => Ok(SourceMode::ClusterIp),
        "vip" => Ok(SourceMode::Vip),
        "endpoints" => Ok(SourceMode::Endpoints),
        _ => Err(Wrong::new(
            "spec.source",
            text,
            "allowed is clusterIP, vip or endpoints",
        )),
    }
}

/// Whether an Agent may have this name.
pub fn is_agent_name(name: &str) -> bool {
    AGENT_NAMES.contains(&name)
}

/// How a rule is brought into the kernel.
///
/// # Errors
/// It is not one of the three words.
pub fn mode(text: &str) -> Result<Mode, Wrong> {
    match text {
        "" | "auto" => Ok(Mode::Auto),
        "flat" => Ok(Mode::Flat),
        "indexed" => Ok(Mode::Indexed),
        _ => Err(Wrong::new(
            "spec.mode",
            text,
            "allowed is auto, flat or indexed",
        )),
    }
}

fn interval(text: &str) -> Result<Option<Duration>, Wrong> {
    if text.is_empty() {
        return Ok(None);
    }
    let interval = clock::duration(text).ok().filter(|one| *one <= MOST);
    let allowed = "allowed is a number and s, m or h, such as 30s, of a day at most";
    interval
        .map(Some)
        .ok_or_else(|| Wrong::new("spec.reconcileInterval", text, allowed))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(edit: Value) -> IPRuleSpec {
        let mut all = json!({ "cidr": "203.0.113.7/24", "table": 100, "priority": 1000 });
        for (key, value) in edit.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn refused(edit: Value) -> Vec<String> {
        let wrong = read(&spec(edit)).unwrap_err();
        wrong.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn conformance_9_cidr_and_cidrs_are_one_list_and_that_is_warned_of() {
        let both = spec(json!({ "cidrs": ["2001:db8::1/64"] }));
        let valid = read(&both).unwrap();
        let prefixes: Vec<String> = valid.prefixes.iter().map(ToString::to_string).collect();
        assert_eq!(prefixes, ["203.0.113.0/24", "2001:db8::/64"]);
        assert!(warnings(&both)[0].contains("both count"));
        let one = spec(json!({ "cidr": "", "cidrs": ["203.0.113.0/24"], "priority": 0 }));
        assert_eq!(read(&one).unwrap().way.priority, None);
        assert!(warnings(&one).is_empty());
    }

    #[test]
    fn conformance_10_and_defect_13_a_range_that_is_none_is_refused_by_its_field() {
        let text = refused(json!({ "cidr": "foo" }));
        assert!(
            text[0].starts_with("spec.cidr: \"foo\" is not allowed: allowed is a range"),
            "{text:?}"
        );
        let text = refused(json!({ "cidrs": ["10.0.0.0/8", "10.0.0.0/40"] }));
        assert!(
            text[0].starts_with("spec.cidrs[1]: \"10.0.0.0/40\""),
            "{text:?}"
        );
        assert!(refused(json!({ "cidr": "" }))[0].starts_with("spec.cidr"));
        let two = refused(json!({ "cidr": "foo", "table": 0 }));
        assert_eq!(two.len(), 2, "all that is wrong is told at once: {two:?}");
    }

    #[test]
    fn conformance_11_tables_and_priorities_out_of_range_are_refused() {
        for table in [0_i64, -1, 1 << 32] {
            let text = refused(json!({ "table": table }));
            assert!(
                text[0].starts_with("spec.table: ") && text[0].contains("1 to 4294967295"),
                "{text:?}"
            );
        }
        let last = read(&spec(json!({ "table": u32::MAX }))).unwrap();
        assert_eq!(last.way.target, Target::Table(u32::MAX));
        for priority in [-1_i64, 32_766, 32_767, 1 << 32] {
            assert!(refused(json!({ "priority": priority }))[0].starts_with("spec.priority"));
        }
    }

    #[test]
    fn conformance_12_a_label_of_nodes_may_be_there_or_not() {
        let labels = BTreeMap::from([("lb".to_owned(), "true".to_owned())]);
        for (text, matches) in [
            ("", true),
            ("lb", true),
            ("lb=true", true),
            ("lb=no", false),
            ("other", false),
        ] {
            let valid = read(&spec(json!({ "nodeSelectorLabel": text }))).unwrap();
            assert_eq!(valid.nodes.matches(&labels), matches, "{text}");
        }
        for text in ["a in (b)", "=x", "a,b"] {
            assert!(
                refused(json!({ "nodeSelectorLabel": text }))[0]
                    .starts_with("spec.nodeSelectorLabel")
            );
        }
    }

    #[test]
    fn a_vrf_stands_for_its_table() {
        let valid = read(&spec(json!({ "table": 0, "vrf": "red" }))).unwrap();
        assert_eq!(valid.way.target, Target::Vrf("red".into()));
        assert!(refused(json!({ "vrf": "red" }))[0].starts_with("spec.table"));
        for vrf in ["a/b", "sixteen-letters-", "a b"] {
            assert!(
                refused(json!({ "table": 0, "vrf": vrf }))[0].starts_with("spec.vrf"),
                "{vrf}"
            );
        }
    }

    #[test]
    fn words_and_times_are_the_known_ones() {
        let all = json!({ "source": "vip", "mode": "indexed", "reconcileInterval": "30s", "failClosed": true });
        let valid = read(&spec(all)).unwrap();
        assert_eq!(
            (valid.source, valid.way.mode, valid.way.fail_closed),
            (SourceMode::Vip, Mode::Indexed, true)
        );
        assert_eq!(valid.interval, Some(Duration::from_secs(30)));
        for (field, value) in [
            ("source", "pods"),
            ("mode", "fast"),
            ("reconcileInterval", "2d"),
            ("reconcileInterval", "0s"),
        ] {
            assert!(
                refused(json!({ field: value }))[0].starts_with(&format!("spec.{field}")),
                "{field}"
            );
        }
    }
}
