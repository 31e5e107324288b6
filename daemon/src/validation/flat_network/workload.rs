//! Whether the pods of a workload may have what they ask for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use super::{
    super::Wrong,
    annotations::{AskedFields, PodAddresses},
    mac::MacAddress,
    subnet::FlatSubnet,
};

/// A workload, or a pod that is of none. Displayed as the keys of `status.reservedIP`: `Kind/namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadRef {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

/// What a workload asks for, and what others have of that. Nothing of the workload's own pods is in here.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadFacts<'a> {
    pub asked: &'a PodAddresses,
    pub fields: &'a AskedFields,
    pub subnet: &'a FlatSubnet,
    /// How many pods there are to be at once; `None`: nobody says.
    pub pods: Option<u64>,
    /// Addresses that are kept for other workloads, and for which.
    pub reserved: &'a BTreeMap<IpAddr, String>,
    /// Addresses in use, and by whom.
    pub used: &'a BTreeMap<IpAddr, String>,
    /// MACs in use, and by whom.
    pub used_macs: &'a BTreeMap<MacAddress, String>,
}

impl fmt::Display for WorkloadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

impl WorkloadRef {
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Whether the pod is an ordinal of this StatefulSet, by its name.
    pub fn has_ordinal(&self, namespace: &str, pod: &str) -> bool {
        let ordinal = pod.rsplit_once('-').filter(|(name, _)| *name == self.name);
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        self.kind == "StatefulSet"
            && self.namespace == namespace
            && ordinal.is_some_and(|(_, number)| digits(number))
    }
}

/// Rule W1: no such subnet is known.
pub fn no_subnet(fields: &AskedFields, asked: &PodAddresses) -> Wrong {
    let allowed = "there is no FlatNetworkSubnet of this name that gives addresses; create it first, see its condition Ready, or name another";
    Wrong::new(&fields.subnet, &asked.subnet, allowed)
}

/// Rules W3 to W6, W8 and W9, and that addresses are in the ranges: what does not depend on others.
///
/// # Errors
/// The first address or MAC that breaks one.
pub fn check_asked(
    asked: &PodAddresses,
    fields: &AskedFields,
    subnet: &FlatSubnet,
) -> Result<(), Wrong> {
    check_lists(asked, fields)?;
    for address in &asked.addresses {
        if let Some(why) = subnet.why_not(*address) {
            let name = &asked.subnet;
            let allowed = format!(
                "no pod gets it from subnet {name:?}: {why}; write another address, or auto"
            );
            return Err(Wrong::new(&fields.ip, &address.to_string(), allowed));
        }
    }
    Ok(())
}

/// Of these what does not depend on the subnet: each address and MAC is there once, and there are as many of the one as of the
/// other.
///
/// # Errors
/// The first address or MAC that breaks one.
pub fn check_lists(asked: &PodAddresses, fields: &AskedFields) -> Result<(), Wrong> {
    let mut addresses = BTreeSet::new();
    if let Some(twice) = asked.addresses.iter().find(|one| !addresses.insert(**one)) {
        let allowed = "it is there twice; write each address once";
        return Err(Wrong::new(&fields.ip, &twice.to_string(), allowed));
    }
    let mut macs = BTreeSet::new();
    if let Some(twice) = asked.macs.iter().find(|mac| !macs.insert(*mac)) {
        let allowed = "it is there twice; write each MAC once";
        return Err(Wrong::new(&fields.mac, &twice.to_string(), allowed));
    }
    let (ips, macs) = (asked.addresses.len(), asked.macs.len());
    if ips > 0 && macs > 0 && ips != macs {
        let allowed = format!(
            "there are {macs} MACs and {ips} addresses ({}); write as many of the one as of the other, or auto for one of them",
            fields.ip
        );
        return Err(Wrong::new(&fields.mac, &macs.to_string(), allowed));
    }
    Ok(())
}

/// Rules W10 to W12.
///
/// # Errors
/// The first address or MAC that somebody else has.
pub fn check_free(facts: &WorkloadFacts<'_>) -> Result<(), Wrong> {
    let fields = facts.fields;
    for address in &facts.asked.addresses {
        let taken = |what: &str, by: &str| {
            let allowed = format!("it is {what} {by}; write a free address, or auto");
            Wrong::new(&fields.ip, &address.to_string(), allowed)
        };
        if let Some(by) = facts.reserved.get(address) {
            return Err(taken("reserved by", by));
        }
        if let Some(by) = facts.used.get(address) {
            return Err(taken("in use by", by));
        }
    }
    for mac in &facts.asked.macs {
        if let Some(by) = facts.used_macs.get(mac) {
            let allowed = format!("it is in use by {by}; write a free MAC, or auto");
            return Err(Wrong::new(&fields.mac, &mac.to_string(), allowed));
        }
    }
    Ok(())
}

/// What is to be said of a workload that is accepted.
pub fn remarks(facts: &WorkloadFacts<'_>) -> Vec<String> {
    let count = facts.asked.addresses.len();
    let pods = facts.pods.filter(|_| facts.asked.is_specific());
    let few = pods.filter(|pods| u64::try_from(count).unwrap_or(u64::MAX) < *pods);
    let few = few.map(|pods| {
        format!(
            "{}: {count} addresses are named for {pods} pods; those beyond wait until one is free",
            facts.fields.ip
        )
    });
    let none = facts.subnet.remark();
    let none = none.map(|text| format!("subnet {:?}: {text}", facts.asked.subnet));
    few.into_iter().chain(none).collect()
}
