//! What about this host would break rules, or make them of no use.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use fipd_core::{
    Family, Text,
    host::{Desired, RuleAction},
};

use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAttribute, RouteMessage},
};

use super::{listing, message, socket::NetlinkError};
use crate::rules::Warning;

/// `l3mdev` rules are there as soon as there is a VRF.
const PRIORITY_OF_VRFS: u32 = 1000;
const PRIORITY_OF_MAIN: u32 = 32_766;
/// Some 10 us for every packet.
const MANY: usize = 1_000;
/// Tables that are looked into.
const TABLES: usize = 64;

/// `vrfs`: there are some; `gone`: those that went, by their tables.
pub(super) async fn warnings(
    desired: &Desired,
    vrfs: bool,
    gone: &BTreeMap<u32, Text>,
) -> Vec<Warning> {
    let mut warnings = of_rules(desired, vrfs);
    warnings.extend(of_vrfs(desired, gone));
    if !desired.rules.is_empty() {
        let files = tokio::task::spawn_blocking(|| networkd(Path::new("/"))).await;
        warnings.extend(files.ok().flatten());
        warnings.extend(empty_tables(desired).await);
    }
    warnings
}

fn of_rules(desired: &Desired, vrfs: bool) -> Vec<Warning> {
    let priorities: BTreeSet<u32> = desired.rules.iter().map(|rule| rule.priority).collect();
    let mut warnings = Vec::new();
    if vrfs && priorities.contains(&PRIORITY_OF_VRFS) {
        warnings.push(Warning::new("priority-of-vrf", format!(
                "there are rules of priority {PRIORITY_OF_VRFS}, which is that of the kernel's own rule for VRFs, and this \
                 host has one: which is looked at first depends on which came first. Choose another priority"
            )));
    }
    if let Some(late) = priorities.range(PRIORITY_OF_MAIN..).next() {
        warnings.push(Warning::new("priority-behind-main", format!(
                "there are rules of priority {late}, behind the table main at {PRIORITY_OF_MAIN}: they count only where \
                 main has no route. Choose a lower priority"
            )));
    }
    let flat = desired.rules.iter().filter(|rule| rule.mark.is_none());
    let flat = flat.count();
    if flat > MANY {
        warnings.push(Warning::new(
            "many-flat-rules",
            format!(
                "{flat} flat rules cost every packet of this host about {} us; indexed sets do not",
                flat / 100
            ),
        ));
    }
    warnings
}

fn of_vrfs(desired: &Desired, gone: &BTreeMap<u32, Text>) -> Vec<Warning> {
    let gone = gone
        .iter()
        .filter(|(table, _)| asks(desired, **table))
        .map(|(table, vrf)| Warning::new("vrf-gone", format!(
                "the VRF {vrf} is gone, and rules still ask its table {table}: they stay, so that nothing changes where it \
                 comes back. Make it anew, or take it out of the IPRule"
            )));
    gone.collect()
}

/// Whether a rule asks this table.
pub(super) fn asks(desired: &Desired, table: u32) -> bool {
    let action = RuleAction::Table(table);
    desired.rules.iter().any(|rule| rule.action == action)
}

async fn empty_tables(desired: &Desired) -> Vec<Warning> {
    let tables = desired.rules.iter();
    let tables = tables.filter_map(|rule| Some((rule.action.table()?, rule.family)));
    let tables: BTreeSet<(u32, Family)> = tables.collect();
    let mut warnings = Vec::new();
    for (table, family) in tables.into_iter().take(TABLES) {
        // What cannot be read is not empty.
        if has_routes(family, table).await.unwrap_or(true) {
            continue;
        }
        warnings.push(Warning::new("table-empty", format!(
                "table {table} has no route of {family}: packets of its sources go on to the rules that follow, or nowhere \
                 where the set fails closed. Add the route"
            )));
    }
    warnings
}

/// Ends with the first route: the rest of a table of a million is not read.
async fn has_routes(family: Family, table: u32) -> Result<bool, NetlinkError> {
    let mut like = RouteMessage::default();
    like.header.address_family = message::family_number(family);
    like.attributes.push(RouteAttribute::Table(table));
    let mut found = false;
    let read = |message| {
        if !matches!(message, RouteNetlinkMessage::NewRoute(_)) {
            return ControlFlow::Continue(());
        }
        found = true;
        ControlFlow::Break(())
    };
    match listing::list(RouteNetlinkMessage::GetRoute(like), read).await {
        // No such table.
        Err(NetlinkError::List(error)) if error.raw_os_error() == Some(nix::libc::ENOENT) => {
            Ok(false)
        }
        listed => listed.map(|_| found),
    }
}

/// systemd-networkd removes the rules of others when it starts or is reloaded, unless it is told not to.
fn networkd(root: &Path) -> Option<Warning> {
    let runs = root.join("run/systemd/netif/state").exists();
    if !runs || spares_rules(root) {
        return None;
    }
    Some(Warning::new(
        "networkd-removes-rules",
        "systemd-networkd runs here and removes the rules of others whenever it starts or reloads; fipd puts its own \
               back at once, but packets go astray meanwhile. Set ManageForeignRoutingPolicyRules=no under [Network] in \
               /etc/systemd/networkd.conf",
    ))
}

fn spares_rules(root: &Path) -> bool {
    // A file in /etc hides one of its name in /run, and that one in /usr; of all of them the last name counts.
    let folders = ["usr/lib", "usr/local/lib", "run", "etc"];
    let mut files: Vec<(std::ffi::OsString, PathBuf)> = Vec::new();
    for folder in folders {
        let folder = root.join(folder).join("systemd/networkd.conf.d");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let entries =
            entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "conf"));
        for entry in entries {
            files.retain(|(name, _)| *name != entry.file_name());
            files.push((entry.file_name(), entry.path()));
        }
    }
    files.sort();
    let main = folders
        .iter()
        .rev()
        .map(|folder| root.join(folder).join("systemd/networkd.conf"));
    let main = main.into_iter().find(|file| file.exists());
    let all = main
        .into_iter()
        .chain(files.into_iter().map(|(_, path)| path));
    let mut said = all.filter_map(|file| said(&fs::read_to_string(file).ok()?));
    said.next_back() == Some(false)
}

/// What the last line of one file says about it.
fn said(text: &str) -> Option<bool> {
    let lines = text.lines().filter_map(|line| line.trim().split_once('='));
    let mut values = lines.filter(|(key, _)| key.trim() == "ManageForeignRoutingPolicyRules");
    let value = values.next_back()?.1.trim().to_ascii_lowercase();
    Some(!matches!(
        value.as_str(),
        "no" | "false" | "off" | "0" | "n" | "f"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fipd_core::host::Rule;

    fn desired(count: u32, priority: u32) -> Desired {
        let rule = |number: u32| Rule {
            priority,
            family: Family::V4,
            source: Some(std::net::IpAddr::from(number.to_be_bytes()).into()),
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(100),
            protocol: 200,
        };
        Desired {
            rules: (0..count).map(rule).collect(),
            ..Desired::default()
        }
    }

    fn codes(desired: &Desired, vrfs: bool) -> Vec<&'static str> {
        let warnings = of_rules(desired, vrfs);
        warnings.iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn conformance_28_and_32_priorities_and_numbers_are_warned_of() {
        assert!(codes(&desired(1000, 10_000), true).is_empty());
        assert_eq!(codes(&desired(1, 1000), true), ["priority-of-vrf"]);
        assert!(codes(&desired(1, 1000), false).is_empty());
        assert_eq!(codes(&desired(1, 32_766), false), ["priority-behind-main"]);
        assert!(codes(&desired(1, 32_765), false).is_empty());
        assert_eq!(codes(&desired(1001, 10_000), false), ["many-flat-rules"]);
    }

    #[tokio::test]
    async fn a_table_that_is_not_there_has_no_routes_and_that_of_the_loopback_has() {
        let routes = async |table| has_routes(Family::V4, table).await.unwrap();
        assert!(!routes(4_000_000_000).await);
        assert!(routes(255).await, "local");
    }

    #[test]
    fn a_vrf_that_went_is_told_while_rules_ask_its_table() {
        let gone = BTreeMap::from([(100, "red".into()), (200, "blue".into())]);
        let warnings = of_vrfs(&desired(2, 10_000), &gone);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].text.contains("VRF red"), "{warnings:?}");
        assert!(of_vrfs(&Desired::default(), &gone).is_empty());
    }

    #[test]
    fn networkd_is_warned_of_unless_it_spares_rules() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(networkd(root), None, "it does not run");
        write("run/systemd/netif/state", "");
        assert!(networkd(root).is_some());
        write(
            "etc/systemd/networkd.conf",
            "[Network]\nManageForeignRoutingPolicyRules = no\n",
        );
        assert_eq!(networkd(root), None);
        let late = "[Network]\nManageForeignRoutingPolicyRules=yes\n";
        write("usr/lib/systemd/networkd.conf.d/50-x.conf", late);
        assert!(networkd(root).is_some(), "what is in a folder counts more");
        write("etc/systemd/networkd.conf.d/50-x.conf", "# nothing\n");
        assert_eq!(networkd(root), None, "that of /etc hides that of /usr");
    }
}
