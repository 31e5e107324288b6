//! What to do for a pod. Pure.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use fipd_crds::flat_network::{FlatNetworkIP, FlatNetworkIPSpec};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff,
};
use serde_json::{Value, json};

use super::observe::PodView;
use crate::{
    controller::{confirm_absence::RECHECK_AFTER, kind::POD, store::Key},
    systems::flat_network::{
        ip::{FlatIpView, to_the_second},
        names::{
            ACTIVE, CHOSEN_MAC, FLAT_MODE, FURTHER_INTERFACES, INTERFACE, IP_REMOVE, IP_TYPE,
            IPV6TO4, KEEP_SECONDS, KEPT_SINCE, PENDING, PROJECT, SELECTED_IP, SELECTED_MAC, SUBNET,
            SUBNET_OF_IP, WORKLOAD, WORKLOAD_SELECTOR,
        },
    },
    validation::flat_network::{annotations::PodAddresses, labels, workload::WorkloadRef},
};

const STATEFUL_SET: &str = "StatefulSet";

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum PodPlan {
    Nothing,
    /// Its address is asked for.
    Create(Box<FlatNetworkIP>),
    /// Its address is to be so, by this merge patch.
    Correct(Value),
    /// An address that was kept is this pod's; by this merge patch.
    TakeOver(Value),
    /// The address is given back. `Absent`: once nobody finds the pod.
    Release(Why),
    /// Nobody uses the address, and it waits for the next pod of its name from now on.
    Keep,
    Look(Duration),
    /// The labels of the pod are to be so, by this merge patch.
    Label(Value),
    /// The pod does not get to use its address: its node is to try again.
    Restart,
}

/// Why an address is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is no such pod.
    Absent,
    /// Its pod is being deleted or has ended, or was an earlier one of the name.
    Over,
    /// Nobody came in the time that it was kept.
    KeptLongEnough,
}

/// What else is known.
#[derive(Clone, Debug, Default)]
pub struct PodFacts {
    /// `macvlan` or `ipvlan`; `None`: there is no such subnet.
    pub flat_mode: Option<String>,
    /// How many seconds the subnet keeps addresses of StatefulSets.
    pub sticky: Option<u32>,
    pub has_6to4: bool,
    /// The project of Rancher.
    pub project: Option<String>,
    /// What the pod is of: the last of its owners.
    pub workload: Option<WorkloadRef>,
    /// The MAC of those that the pod names.
    pub mac: Option<String>,
    pub pending_limit: Option<Duration>,
}

/// What time it is.
#[derive(Clone, Copy, Debug)]
pub struct PodClock {
    /// By the host's clock, as by those of others.
    pub wall: jiff::Timestamp,
    /// In the address book, where no jump of a clock shortens what is kept.
    pub book: jiff::Timestamp,
}

/// Plans one pod.
pub fn plan(
    key: &Key,
    pod: Option<&PodView>,
    ip: Option<&FlatIpView>,
    facts: &PodFacts,
    now: PodClock,
) -> PodPlan {
    let there = ip.filter(|ip| !ip.meta.is_terminating());
    match (pod, there) {
        (None, None) => PodPlan::Nothing,
        (None, Some(ip)) => without_pod(ip, now.book),
        // An evicted ordinal has a successor as a deleted one has.
        (Some(pod), Some(_)) if pod.is_over() && !is_kept(pod, there, facts) => {
            PodPlan::Release(Why::Over)
        }
        (Some(pod), _) if pod.is_over() => PodPlan::Nothing,
        (Some(pod), there) => match &pod.wants {
            Err(_) => match there.filter(|ip| !is_of(ip, pod)) {
                // What an earlier pod left waits for its time, and no longer.
                Some(ip) if keeps(ip).is_some() => without_pod(ip, now.book),
                Some(_) => PodPlan::Release(Why::Over),
                None => PodPlan::Nothing,
            },
            // One that goes is waited for.
            Ok(_) if ip.is_some() && there.is_none() => PodPlan::Nothing,
            Ok(wants) => serve(key, (pod, wants), there, facts, now.wall),
        },
    }
}

/// An address without a pod in sight.
fn without_pod(ip: &FlatIpView, now: jiff::Timestamp) -> PodPlan {
    match (keeps(ip), ip.kept_since) {
        (None, _) => PodPlan::Release(Why::Absent),
        (Some(_), None) => PodPlan::Keep,
        (Some(seconds), Some(since)) => {
            let kept = now.duration_since(since).as_secs();
            match u64::try_from(i64::from(seconds).saturating_sub(kept)) {
                Ok(rest) if rest > 0 => PodPlan::Look(Duration::from_secs(rest)),
                Ok(_) | Err(_) => PodPlan::Release(Why::KeptLongEnough),
            }
        }
    }
}

fn serve(
    key: &Key,
    (pod, wants): (&PodView, &PodAddresses),
    there: Option<&FlatIpView>,
    facts: &PodFacts,
    now: jiff::Timestamp,
) -> PodPlan {
    let wanted = object(key, (pod, wants), facts);
    let Some(ip) = there else {
        return PodPlan::Create(Box::new(wanted));
    };
    if !is_of(ip, pod) && !ip.spec.pod_id.is_empty() {
        let waits = keeps(ip).is_some();
        let address: Option<IpAddr> = ip.status.addr.parse().ok();
        let uses = uses(pod, ip);
        let same = ip.spec.subnet == wants.subnet;
        let wanted_too = wants.addresses.is_empty()
            || address.is_none_or(|address| wants.addresses.contains(&address));
        return match waits && is_stateful(&owners(&wanted.metadata)) && same && wanted_too {
            // Its node gave it the address while fipd was away.
            _ if uses => PodPlan::Correct(difference(ip, &wanted)),
            true => PodPlan::TakeOver(difference(ip, &wanted)),
            false => PodPlan::Release(Why::Over),
        };
    }
    let patch = difference(ip, &wanted);
    if patch != json!({}) {
        return PodPlan::Correct(patch);
    }
    // The labels have room for one address, and its node is judged by that.
    if !pod.interface.is_first() {
        return PodPlan::Nothing;
    }
    // One that has no node yet cannot use it.
    if pod.node.is_some() && is_late(pod, ip, facts, now) {
        return PodPlan::Restart;
    }
    let labels = pod_labels(pod, ip, facts);
    match labels {
        Some(labels) => PodPlan::Label(json!({ "metadata": { "labels": labels } })),
        None => match (&*ip.status.phase, facts.pending_limit) {
            (PENDING, Some(limit)) => PodPlan::Look(limit),
            _ => PodPlan::Nothing,
        },
    }
}

/// Whether it is the address of this pod.
pub fn is_of(ip: &FlatIpView, pod: &PodView) -> bool {
    *ip.spec.pod_id == *pod.meta.uid
}

fn is_stateful(owners: &[OwnerReference]) -> bool {
    owners.iter().any(|owner| owner.kind == STATEFUL_SET)
}

fn owners(meta: &ObjectMeta) -> Vec<OwnerReference> {
    meta.owner_references.clone().unwrap_or_default()
}

/// How many seconds the address waits for the next pod of the name; `None`: it does not.
fn kept(pod: &PodView, facts: &PodFacts) -> Option<u32> {
    let owner = pod.controller.as_ref()?;
    let seconds = pod.keeps.or(facts.sticky).filter(|seconds| *seconds > 0);
    seconds.filter(|_| owner.kind == STATEFUL_SET)
}

/// The same, as its address says it.
pub fn keeps(ip: &FlatIpView) -> Option<u32> {
    let seconds = ip.keeps.filter(|seconds| *seconds > 0);
    seconds.filter(|_| is_stateful(&ip.owners))
}

/// Whether the address waits for the next pod of the name. Where nobody knows what the pod asks for, its address says so.
fn is_kept(pod: &PodView, there: Option<&FlatIpView>, facts: &PodFacts) -> bool {
    match &pod.wants {
        Ok(_) => kept(pod, facts).is_some(),
        Err(_) => there.and_then(keeps).is_some(),
    }
}

/// Whether the pod says that it uses the address of the object.
fn uses(pod: &PodView, ip: &FlatIpView) -> bool {
    let address: Option<IpAddr> = ip.status.addr.parse().ok();
    address.is_some_and(|address| pod.uses.contains(&address))
}

/// Whether the pod has had its address and its node for too long without using it.
fn is_late(pod: &PodView, ip: &FlatIpView, facts: &PodFacts, now: jiff::Timestamp) -> bool {
    // Nobody calls its plugin again: the object was made anew.
    if uses(pod, ip) {
        return false;
    }
    let Some(limit) = facts.pending_limit.filter(|_| ip.status.phase == PENDING) else {
        return false;
    };
    let since: Option<jiff::Timestamp> = ip.status.allocated_time_stamp.parse().ok();
    let since = since.map(|since| since.max(pod.scheduled.unwrap_or(since)));
    let waited = since.map(|since| now.duration_since(since));
    waited.is_some_and(|waited| Duration::try_from(waited).is_ok_and(|waited| waited >= limit))
}

/// The address that the pod is to have.
fn object(key: &Key, (pod, wants): (&PodView, &PodAddresses), facts: &PodFacts) -> FlatNetworkIP {
    let own = || OwnerReference {
        api_version: "v1".to_owned(),
        kind: POD.kind.to_owned(),
        name: pod.pod.to_string(),
        uid: pod.meta.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let stateful = pod
        .controller
        .clone()
        .filter(|owner| owner.kind == STATEFUL_SET);
    let owner = stateful.map_or_else(own, |owner| OwnerReference {
        block_owner_deletion: None,
        ..owner
    });
    let labels = [
        (SUBNET_OF_IP, Some(labels::name(&wants.subnet))),
        (IP_TYPE, Some(ip_type(wants).to_owned())),
        (PROJECT, facts.project.clone()),
        (WORKLOAD_SELECTOR, selector(pod, facts)),
    ];
    let interface = (!pod.interface.is_first()).then(|| pod.interface.name.clone());
    let annotations = [
        (CHOSEN_MAC, facts.mac.clone()),
        (
            KEEP_SECONDS,
            kept(pod, facts).map(|seconds| seconds.to_string()),
        ),
        (IPV6TO4, facts.has_6to4.then(|| "true".to_owned())),
        (INTERFACE, interface),
        (FURTHER_INTERFACES, pod.further.clone()),
        (WORKLOAD, facts.workload.as_ref().map(workload_text)),
    ];
    FlatNetworkIP {
        metadata: ObjectMeta {
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            labels: Some(given(labels)),
            annotations: Some(given(annotations)),
            finalizers: Some(vec![IP_REMOVE.to_owned()]),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: FlatNetworkIPSpec {
            subnet: wants.subnet.clone(),
            addrs: wants.addresses.iter().map(ToString::to_string).collect(),
            macs: wants.macs.iter().map(ToString::to_string).collect(),
            pod_id: pod.meta.uid.to_string(),
        },
        status: None,
    }
}

fn given<const N: usize>(pairs: [(&str, Option<String>); N]) -> BTreeMap<String, String> {
    let pairs = pairs.into_iter();
    pairs
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

fn ip_type(wants: &PodAddresses) -> &'static str {
    match wants.is_specific() {
        true => "specific",
        false => "auto",
    }
}

/// The workload as Rancher names it, which labels the pods of all but Jobs itself.
fn selector(pod: &PodView, facts: &PodFacts) -> Option<String> {
    let says = pod.labels.get(WORKLOAD_SELECTOR).cloned();
    let of_job = |of: &WorkloadRef| {
        let kind = match &*of.kind {
            "CronJob" => "cronjob",
            "Job" => "job",
            _ => return None,
        };
        let name = format!("{kind}-{}-{}", of.namespace, of.name);
        Some(labels::name(&name))
    };
    says.or_else(|| facts.workload.as_ref().and_then(of_job))
}

/// As the annotation says it: the namespace is that of the address.
fn workload_text(workload: &WorkloadRef) -> String {
    format!("{}/{}", workload.kind, workload.name)
}

/// What of an address is not as it is to be, as a merge patch; labels, annotations and owners of others stay.
fn difference(ip: &FlatIpView, wanted: &FlatNetworkIP) -> Value {
    let mut patch = json!({});
    let spec = serde_json::to_value(&wanted.spec).unwrap_or_default();
    if ip.spec != wanted.spec {
        patch["spec"] = spec;
        // A list that is left out would stay.
        for (field, empty) in [
            ("addrs", wanted.spec.addrs.is_empty()),
            ("macs", wanted.spec.macs.is_empty()),
        ] {
            if empty {
                patch["spec"][field] = Value::Null;
            }
        }
    }
    let labels = wanted.metadata.labels.iter().flatten();
    let missing: BTreeMap<_, _> = labels
        .filter(|(key, value)| ip.labels.get(*key) != Some(value))
        .collect();
    if !missing.is_empty() {
        patch["metadata"]["labels"] = json!(missing);
    }
    let owners = owners(&wanted.metadata);
    let owned = owners
        .iter()
        .all(|owner| ip.owners.iter().any(|one| one.uid == owner.uid));
    if !owned {
        patch["metadata"]["ownerReferences"] = json!(owners);
    }
    let annotations = wanted.metadata.annotations.as_ref();
    let said = |key: &str| annotations.and_then(|all| all.get(key));
    let has = [
        (KEEP_SECONDS, ip.keeps.map(|seconds| seconds.to_string())),
        (CHOSEN_MAC, ip.mac.clone()),
        (IPV6TO4, ip.ipv6to4.clone()),
        (INTERFACE, ip.interface.clone()),
        (FURTHER_INTERFACES, ip.further.clone()),
        (WORKLOAD, ip.workload.as_ref().map(workload_text)),
    ];
    for (key, has) in has {
        if has.as_ref() != said(key) {
            patch["metadata"]["annotations"][key] = json!(said(key));
        }
    }
    if ip.kept_since.is_some() {
        patch["metadata"]["annotations"][KEPT_SINCE] = Value::Null;
    }
    patch
}

/// What of the labels of a pod that has its address is not as it is to be; `None`: nothing.
fn pod_labels(
    pod: &PodView,
    ip: &FlatIpView,
    facts: &PodFacts,
) -> Option<BTreeMap<&'static str, String>> {
    let wants = pod.wants.as_ref().ok()?;
    let has = ip.status.phase == ACTIVE && !ip.status.addr.is_empty();
    let flat_mode = facts.flat_mode.clone().filter(|_| has)?;
    let mac = (!wants.macs.is_empty()).then(|| ip.status.mac.replace(':', ""));
    let wanted = [
        (SUBNET, Some(labels::name(&wants.subnet))),
        (
            SELECTED_IP,
            ip.status.addr.parse().ok().map(labels::address),
        ),
        (SELECTED_MAC, mac),
        (IP_TYPE, Some(ip_type(wants).to_owned())),
        (FLAT_MODE, Some(flat_mode)),
    ];
    let wanted = wanted
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    let missing: BTreeMap<_, _> = wanted
        .filter(|(key, value)| pod.labels.get(key) != Some(value))
        .collect();
    (!missing.is_empty()).then_some(missing)
}

/// The MAC that an address has, or the first of those that are named which nobody has; `None` where all are taken.
pub fn choose_mac(
    wanted: &[String],
    has: Option<&str>,
    taken: impl Fn(&str) -> bool,
) -> Option<String> {
    if let Some(has) = has.filter(|has| wanted.iter().any(|mac| mac == has)) {
        return Some(has.to_owned());
    }
    wanted.iter().find(|mac| !taken(mac)).cloned()
}

/// The status of an address that is another pod's from now on, which is yet to use it.
pub fn pending(now: jiff::Timestamp) -> Value {
    json!({ "status": { "phase": PENDING, "allocatedTimeStamp": to_the_second(now) } })
}

/// That nobody uses the address since the first of the two looks that have not found its pod; `now`: by the address book.
pub fn kept_from(now: jiff::Timestamp) -> Value {
    let since = now.checked_sub(RECHECK_AFTER).unwrap_or(now);
    json!({ "metadata": { "annotations": { KEPT_SINCE: since.to_string() } } })
}

#[cfg(test)]
mod tests;
