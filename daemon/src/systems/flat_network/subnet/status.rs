//! The status of a subnet, by what the ledger knows of its pool.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::Family;
use fipd_crds::flat_network::{FlatNetworkSubnetSpec, FlatNetworkSubnetStatus, FlatRange};
use k8s_openapi::jiff;

use super::{SubnetView, failure};
use crate::{
    controller::{
        conditions::{INVALID, REFUSED, note_condition},
        pool_source::{OBSTRUCTED, OUT_OF_RANGE, PoolReport, PoolState},
    },
    systems::flat_network::names::{ACTIVE, FAILED},
};

/// The most addresses that the status lists.
pub(super) const LISTED: usize = 10_000;
/// The most MACs that it lists.
const MACS: usize = 10_000;
/// Other pools may give the same addresses.
pub(super) const OVERLAP: &str = "Overlap";
/// The status lists not all.
const TRUNCATED: &str = "Truncated";

/// The status to write. What a subnet without pool showed last stays, as its addresses do.
pub(super) fn desired(
    subnet: &SubnetView,
    report: &PoolReport,
    macs: &[String],
    now: jiff::Timestamp,
) -> FlatNetworkSubnetStatus {
    let generation = subnet.meta.generation;
    let mut status = subnet.status.clone();
    let failed = failure(&report.ready);
    // The network is only waited for: the original's subnet is Active meanwhile.
    let waits = report
        .state
        .as_ref()
        .is_some_and(|state| !state.waiting.is_empty());
    let (phase, message) = match failed {
        Some(why) if !waits => (FAILED, why),
        Some(_) | None => (ACTIVE, ""),
    };
    phase.clone_into(&mut status.phase);
    message.clone_into(&mut status.failure_message);
    if let Some(state) = &report.state {
        let gateway = state.pool.spec.gateway;
        status.gateway = gateway.map_or_else(String::new, |gateway| gateway.to_string());
        let listed = state.entries.iter().take(LISTED);
        let (in_use, kept): (Vec<_>, Vec<_>) =
            listed.partition(|(_, workload)| workload.is_empty());
        let all_kept = state.texts.unwrap_or(kept.len());
        let used = count(state).saturating_sub(all_kept as u128);
        status.used_ip_count = i64::try_from(used).unwrap_or(i64::MAX);
        let in_use = in_use.into_iter().map(|(address, _)| *address);
        status.used_ip = joined(in_use.chain(gateway).collect());
        status.reserved_ip = by_workload(kept);
    }
    // What was refused changes nothing of what is in force.
    let refused = [INVALID, REFUSED, OBSTRUCTED].contains(&report.ready.reason);
    if let Some(read) = subnet.read()
        && report.state.is_some()
        && !refused
        && !subnet.meta.is_terminating()
    {
        status.accepted = Some(FlatNetworkSubnetSpec {
            cidr: read.cidr.to_string(),
            ..subnet.spec.clone()
        });
    }
    status.used_mac = macs.iter().take(MACS).cloned().collect();
    report.set_conditions(&mut status.conditions, generation, now);
    let state = report.state.as_ref();
    let cut = state
        .filter(|state| state.entries.len() > LISTED)
        .map(|state| {
            format!(
                "status.usedIP lists {LISTED} of {} addresses; fipd has them all",
                count(state)
            )
        });
    let outside = state.and_then(PoolState::out_of_range);
    let overlap = state.and_then(|state| state.overlap.clone());
    for (kind, text) in [
        ((OUT_OF_RANGE, "LeasesKept"), outside),
        ((OVERLAP, "SameAddresses"), overlap),
        ((TRUNCATED, "TooMany"), cut),
    ] {
        note_condition(&mut status.conditions, kind, text, generation, now);
    }
    status
}

/// The addresses that are kept for each workload.
fn by_workload(kept: Vec<&(IpAddr, String)>) -> BTreeMap<String, Vec<FlatRange>> {
    let mut all: BTreeMap<&String, Vec<IpAddr>> = BTreeMap::new();
    for (address, workload) in kept {
        all.entry(workload).or_default().push(*address);
    }
    let ranges = all.into_iter();
    ranges
        .map(|(workload, addresses)| (workload.clone(), joined(addresses)))
        .collect()
}

/// Addresses in use or kept, and the gateway.
fn count(state: &PoolState) -> u128 {
    let gateway = u128::from(state.pool.spec.gateway.is_some());
    state.usage.attributed.saturating_add(gateway)
}

/// Addresses as ranges: IPv4 first, ascending, joined where they touch.
fn joined(mut addresses: Vec<IpAddr>) -> Vec<FlatRange> {
    addresses.sort_unstable();
    addresses.dedup();
    let mut ranges: Vec<(IpAddr, IpAddr)> = Vec::new();
    for address in addresses {
        match ranges.last_mut() {
            Some((_, to)) if follows(*to, address) => *to = address,
            _ => ranges.push((address, address)),
        }
    }
    let ranges = ranges.into_iter().map(|(from, to)| FlatRange {
        from: from.to_string(),
        to: to.to_string(),
        end: String::new(),
    });
    ranges.collect()
}

fn follows(before: IpAddr, address: IpAddr) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(four) => u128::from(u32::from(four)),
        IpAddr::V6(six) => u128::from(six),
    };
    Family::of(before) == Family::of(address)
        && number(before).checked_add(1) == Some(number(address))
}

#[cfg(test)]
mod tests {
    use fipd_core::{PoolUsage, testing};
    use fipd_crds::flat_network::FlatNetworkSubnet;
    use serde_json::json;

    use super::*;
    use crate::controller::conditions::ConditionUpdate;

    fn ranges(addresses: &[&str]) -> Vec<String> {
        let addresses = addresses
            .iter()
            .map(|text| text.parse().expect("an address"));
        let ranges = joined(addresses.collect()).into_iter();
        ranges
            .map(|range| format!("{}-{}", range.from, range.to))
            .collect()
    }

    /// What the status says of a pool with these entries, of whose addresses other pools have some, and `texts`.
    fn shown(entries: &[(u32, &str)], attributed: u128, texts: Option<usize>) -> i64 {
        let object = json!({
            "metadata": { "name": "lab" },
            "spec": { "flatMode": "macvlan", "master": "eth0", "vlan": 10, "cidr": "10.0.0.0/16" },
        });
        let object: FlatNetworkSubnet = serde_json::from_value(object).expect("a subnet");
        let entry = |(number, text): &(u32, &str)| {
            let address = std::net::Ipv4Addr::from_bits(0x0A00_0001 + number);
            (IpAddr::V4(address), (*text).to_owned())
        };
        let state = PoolState {
            pool: testing::pool(testing::pool_spec("lab", &["10.0.0.0/16"])).into(),
            usage: PoolUsage {
                used: attributed + 7,
                attributed,
                ..PoolUsage::default()
            },
            network: "vlan-10".to_owned(),
            waiting: Vec::new(),
            doubt: None,
            overlap: None,
            shared: None,
            unread: None,
            entries: entries.iter().map(entry).collect(),
            texts,
        };
        let report = PoolReport {
            ready: ConditionUpdate::ready(true, "Mirrored", "the pool gives addresses"),
            state: Some(state),
        };
        let now = jiff::Timestamp::default();
        desired(&SubnetView::of(object), &report, &[], now).used_ip_count
    }

    #[test]
    fn what_is_kept_is_not_in_use_wherever_the_list_is_cut() {
        let web = "Deployment/ns/web";
        assert_eq!(shown(&[(1, ""), (2, web), (3, "")], 3, None), 2);
        let many: Vec<(u32, &str)> = (0..=10_000).map(|number| (number, "")).collect();
        assert_eq!(shown(&many, 10_010, Some(3)), 10_007);
    }

    /// Defect g1-8: what is kept is shown by workload.
    #[test]
    fn g1_8_kept_addresses_are_shown_by_workload() {
        let entry =
            |last: u8, workload: &str| (IpAddr::from([10, 0, 0, last]), workload.to_owned());
        let (web, db) = ("Deployment/ns/web", "StatefulSet/ns/db");
        let kept = [entry(5, web), entry(6, web), entry(7, db), entry(9, web)];
        let shown = by_workload(kept.iter().collect());
        let ranges = |workload: &str| -> Vec<String> {
            let ranges = shown[workload].iter();
            ranges
                .map(|range| format!("{}-{}", range.from, range.to))
                .collect()
        };
        assert_eq!(shown.len(), 2);
        assert_eq!(ranges(web), ["10.0.0.5-10.0.0.6", "10.0.0.9-10.0.0.9"]);
        assert_eq!(ranges(db), ["10.0.0.7-10.0.0.7"]);
    }

    /// Rows 18 to 21 of the contract.
    #[test]
    fn used_addresses_are_joined_where_they_touch() {
        let of = |last: &[u8]| -> Vec<String> {
            let texts: Vec<String> = last.iter().map(|last| format!("10.0.0.{last}")).collect();
            ranges(&texts.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(of(&[12, 13, 11]), ["10.0.0.11-10.0.0.13"]);
        assert_eq!(
            of(&[12, 13, 11, 20, 1, 2, 0]),
            [
                "10.0.0.0-10.0.0.2",
                "10.0.0.11-10.0.0.13",
                "10.0.0.20-10.0.0.20"
            ]
        );
        assert_eq!(of(&[98, 99, 100, 101, 100]), ["10.0.0.98-10.0.0.101"]);
        assert_eq!(
            ranges(&["fd00::2", "10.0.0.255", "fd00::1", "10.0.1.0"]),
            ["10.0.0.255-10.0.1.0", "fd00::1-fd00::2"]
        );
        assert_eq!(
            ranges(&["255.255.255.255", "::"]),
            ["255.255.255.255-255.255.255.255", "::-::"]
        );
        assert!(ranges(&[]).is_empty());
    }
}
