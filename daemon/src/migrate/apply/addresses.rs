//! Addresses that pods on macvlan have. fipd gives none of them to others: the new subnets exclude them until those pods are gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_core::{AddressSpec, Span};
use fipd_crds::{
    flat_network::{FlatNetworkSubnet, names::MIGRATED_ADDRESSES},
    macvlan::MacvlanIP,
};
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::{
    controller::{client::CallError, kind::POD, owned::identify, store::Key},
    migrate::{
        MigrateError,
        kinds::{FLAT_NETWORK_SUBNET, MACVLAN_IP},
        metadata,
        report::{MigratedObject, ObjectOutcome},
        session::MigrationSession,
        workload::{self, WorkloadKind},
    },
    validation::flat_network::{spans, subnet::ENTRIES},
};

/// Label of the pods of Deployments: ReplicaSets of their own or of other controllers have none of it.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Addresses of pods on macvlan by the names of their subnets, without those that the pods name and that the same run has their
/// workloads reserve: a subnet that excluded these would refuse them to the next pods of the workload.
#[derive(Debug, Default)]
pub struct MacvlanAddresses(BTreeMap<String, BTreeSet<IpAddr>>);

impl MacvlanAddresses {
    /// Those of the cluster now. `kinds` are the workloads that the run migrates.
    pub async fn read(
        session: &MigrationSession,
        kinds: &[WorkloadKind],
    ) -> Result<Self, CallError> {
        let all = session.list(MACVLAN_IP, address).await?;
        if all.is_empty() {
            return Ok(Self::default());
        }
        // Listed after the addresses, so that the pod of each is among them.
        let pods = session.remote.list_meta(&POD.all(), "").await?;
        let pods = pods.iter().filter_map(|pod| excluded_pod(pod, kinds));
        let pods: BTreeSet<Key> = pods.collect();
        let mut by_subnet: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        for (pod, subnet, address) in all {
            if pods.contains(&pod) {
                by_subnet.entry(subnet).or_default().insert(address);
            }
        }
        Ok(Self(by_subnet))
    }

    /// Excludes those of a subnet that is to be made. What to say of it: where they are too many for a subnet, others are
    /// excluded with them.
    pub fn exclude_from(&self, subnet: &mut FlatNetworkSubnet) -> Option<String> {
        let name = subnet.metadata.name.as_deref().unwrap_or_default();
        let (Some(taken), Ok(net)) = (self.0.get(name), subnet.spec.cidr.parse::<IpNet>()) else {
            return None;
        };
        let inside = taken.iter().filter(|address| net.contains(*address));
        let runs = runs(inside.copied());
        if runs.is_empty() {
            return None;
        }
        let most = ENTRIES.saturating_sub(subnet.spec.exclusions.len());
        let joined = joined(&runs, most);
        let note = (joined.len() < runs.len()).then(|| {
            format!(
                "pods on macvlan have {} separate runs of addresses of it, and a subnet has at most {ENTRIES} exclusions: addresses between them are excluded as well, also for workloads that name them, until enough of these pods are gone and it is run again",
                runs.len()
            )
        });
        let entries: Vec<String> = joined.iter().map(spans::text).collect();
        let annotations = subnet.metadata.annotations.get_or_insert_default();
        annotations.insert(MIGRATED_ADDRESSES.to_owned(), entries.join(","));
        subnet.spec.exclusions.extend(entries);
        note
    }

    /// Takes away those of a subnet whose pods are gone.
    pub async fn lift(
        &self,
        session: &mut MigrationSession,
        subnet: &Value,
    ) -> Result<(), MigrateError> {
        let Some((key, _)) = identify(subnet) else {
            return Ok(());
        };
        let none = BTreeSet::new();
        let taken = self.0.get(&*key.name).unwrap_or(&none);
        let Some(lifted) = LiftedExclusions::of(subnet, taken) else {
            return Ok(());
        };
        let change = format!(
            "spec.exclusions {:?} becomes {:?}: pods on macvlan have no other addresses any more",
            lifted.before, lifted.after
        );
        let (kind, outcome) = (FLAT_NETWORK_SUBNET, ObjectOutcome::Migrated);
        let planned = MigratedObject::new(kind, &key, outcome, vec![change]);
        if session.approved(&planned).await? {
            let made = session.patch((kind, &key), subnet, lifted.patch()).await;
            session.changed(planned, made);
        }
        Ok(())
    }
}

/// Pod, subnet and address of a MacvlanIP.
fn address(object: Value) -> Option<(Key, String, IpAddr)> {
    let (key, _) = identify(&object)?;
    let ip: MacvlanIP = serde_json::from_value(object).ok()?;
    let text = ip.spec.cidr.split('/').next()?;
    Some((key, ip.spec.subnet, text.parse().ok()?))
}

/// A pod whose address the subnet excludes: each on macvlan, unless it names the address and its workload reserves it in this run.
fn excluded_pod(pod: &Value, kinds: &[WorkloadKind]) -> Option<Key> {
    let annotations = metadata::texts(&pod["metadata"], "annotations");
    let is_migrated = || workload_kind(pod).is_some_and(|kind| kinds.contains(&kind));
    let is_reserved = metadata::names_addresses(&annotations) && is_migrated();
    let is_excluded = metadata::is_on_macvlan(&annotations) && !is_reserved;
    let (key, _) = identify(pod).filter(|_| is_excluded)?;
    Some(key)
}

/// The kind of the workload of a pod, where its template can be changed. `None` also for Jobs, which are fixed once they run, and
/// for controllers of other groups with kinds of the same name.
fn workload_kind(pod: &Value) -> Option<WorkloadKind> {
    let owner = workload::controller(pod)?;
    let group = owner["apiVersion"].as_str()?.split('/').next()?;
    match (group, owner["kind"].as_str()?) {
        ("apps", "ReplicaSet") => {
            let labels = metadata::texts(&pod["metadata"], "labels");
            labels
                .contains_key(TEMPLATE_HASH)
                .then_some(WorkloadKind::Deployment)
        }
        ("apps", "StatefulSet") => Some(WorkloadKind::StatefulSet),
        ("apps", "DaemonSet") => Some(WorkloadKind::DaemonSet),
        _ => None,
    }
}

/// Addresses sorted, and joined where they touch.
fn runs(addresses: impl Iterator<Item = IpAddr>) -> Vec<Span> {
    let all: Vec<Span> = addresses.map(Span::single).collect();
    spans::merged(&all)
}

/// Sorted runs, joined over the smallest gaps between them until they are so few. Families stay apart.
fn joined(runs: &[Span], most: usize) -> Vec<Span> {
    let pairs = runs.iter().zip(runs.iter().skip(1)).enumerate();
    let mut gaps: Vec<(u128, usize)> = pairs
        .filter(|(_, (before, after))| before.family == after.family)
        .map(|(index, (before, after))| (after.first - before.last, index + 1))
        .collect();
    gaps.sort_unstable();
    let excess = runs.len().saturating_sub(most);
    let closed: BTreeSet<usize> = gaps.iter().take(excess).map(|(_, index)| *index).collect();
    let mut joined: Vec<Span> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        match joined.last_mut() {
            Some(last) if closed.contains(&index) => last.last = run.last,
            Some(_) | None => joined.push(*run),
        }
    }
    joined
}

/// The exclusions of a subnet without those that a migration added and that nobody needs any more.
#[derive(Debug, PartialEq)]
struct LiftedExclusions {
    before: Vec<String>,
    after: Vec<String>,
    /// Of these, those of the migration.
    added: Vec<String>,
}

impl LiftedExclusions {
    /// `None`: nothing changes.
    fn of(subnet: &Value, taken: &BTreeSet<IpAddr>) -> Option<Self> {
        let annotations = metadata::texts(&subnet["metadata"], "annotations");
        let noted = annotations.get(MIGRATED_ADDRESSES)?;
        let noted: BTreeSet<&str> = noted.split(',').collect();
        let before = subnet["spec"]["exclusions"].as_array();
        let before = before.into_iter().flatten().filter_map(Value::as_str);
        let before: Vec<String> = before.map(str::to_owned).collect();
        // One that somebody took away by hand stays away.
        let (added, others): (Vec<String>, Vec<String>) = before
            .iter()
            .cloned()
            .partition(|entry| noted.contains(entry.as_str()));
        let spans = added
            .iter()
            .filter_map(|entry| entry.parse::<AddressSpec>().ok());
        let spans: Vec<Span> = spans.map(|entry| entry.span()).collect();
        let needed = |address: &&IpAddr| spans.iter().any(|span| span.contains(**address));
        let still = runs(taken.iter().filter(needed).copied());
        let still: Vec<String> = still.iter().map(spans::text).collect();
        // Those of a migration may be joined. To join what is left of them anew could exclude what fipd gave since.
        let is_too_long = others.len() + still.len() > ENTRIES;
        if is_too_long || still == added && !added.is_empty() {
            return None;
        }
        Some(Self {
            after: others.into_iter().chain(still.iter().cloned()).collect(),
            before,
            added: still,
        })
    }

    fn patch(&self) -> Value {
        let filled = |texts: &[String], value: Value| match texts.is_empty() {
            true => Value::Null,
            false => value,
        };
        let noted = filled(&self.added, json!(self.added.join(",")));
        json!({
            "metadata": { "annotations": { MIGRATED_ADDRESSES: noted } },
            "spec": { "exclusions": filled(&self.after, json!(self.after)) },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{
        controller::client::testing::canned,
        migrate::session::{Consent, MigrationOptions},
    };

    fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn subnet(exclusions: &[&str], noted: &str) -> Value {
        json!({
            "metadata": { "name": "lab", "uid": "u", "annotations": { MIGRATED_ADDRESSES: noted } },
            "spec": { "cidr": "10.0.0.0/24", "exclusions": exclusions },
        })
    }

    #[test]
    fn a_new_subnet_excludes_the_addresses_of_pods_on_macvlan_in_it() {
        let taken = addresses(&["10.0.0.7", "10.0.0.6", "10.0.0.9", "10.0.1.1", "fd00::1"]);
        let all = MacvlanAddresses([("lab".to_owned(), taken)].into());
        let mut new = FlatNetworkSubnet::new("lab", Default::default());
        new.spec.cidr = "10.0.0.0/24".to_owned();
        new.spec.exclusions = vec!["10.0.0.200".to_owned()];
        let mut other = FlatNetworkSubnet::new("other", new.spec.clone());
        assert_eq!(all.exclude_from(&mut new), None);
        let expected = ["10.0.0.200", "10.0.0.6-10.0.0.7", "10.0.0.9"];
        assert_eq!(new.spec.exclusions, expected);
        let annotations = new.metadata.annotations.unwrap();
        let noted = &annotations["fipd.io/migrated-addresses"];
        assert_eq!(noted, "10.0.0.6-10.0.0.7,10.0.0.9");
        let before = other.metadata.clone();
        assert_eq!(all.exclude_from(&mut other), None);
        assert_eq!(other.spec.exclusions, ["10.0.0.200"]);
        assert_eq!(other.metadata, before);
    }

    #[test]
    fn runs_are_joined_over_the_smallest_gaps_of_one_family() {
        let texts = ["10.0.0.1", "10.0.0.9", "10.0.0.11", "10.0.0.15", "fd00::1"];
        let runs = runs(addresses(&texts).into_iter());
        let joined = |most: usize| -> Vec<String> {
            let joined = joined(&runs, most);
            joined.iter().map(spans::text).collect()
        };
        assert_eq!(joined(5), texts);
        let four = ["10.0.0.1", "10.0.0.9-10.0.0.11", "10.0.0.15", "fd00::1"];
        assert_eq!(joined(4), four);
        assert_eq!(joined(3), ["10.0.0.1", "10.0.0.9-10.0.0.15", "fd00::1"]);
        assert_eq!(joined(0), ["10.0.0.1-10.0.0.15", "fd00::1"]);
    }

    /// Every other address, from 10.0.0.0 on.
    fn scattered(count: u32) -> BTreeSet<IpAddr> {
        let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
        let numbers = (0..count).map(|index| first + 2 * index);
        numbers
            .map(|number| IpAddr::from(Ipv4Addr::from(number)))
            .collect()
    }

    #[test]
    fn more_addresses_than_a_subnet_excludes_are_joined_and_lifted_once_they_fit() {
        let all = MacvlanAddresses([("lab".to_owned(), scattered(1_500))].into());
        let mut new = FlatNetworkSubnet::new("lab", Default::default());
        new.spec.cidr = "10.0.0.0/16".to_owned();
        new.spec.exclusions = vec!["10.0.200.0".to_owned()];
        let note = all.exclude_from(&mut new).unwrap();
        assert!(note.contains("1500") && note.contains("1000"), "{note}");
        assert_eq!(new.spec.exclusions.len(), ENTRIES);
        // The lowest gaps of one size are the first to be closed.
        assert_eq!(new.spec.exclusions[1], "10.0.0.0-10.0.3.234");
        let object = json!({ "metadata": new.metadata, "spec": new.spec });
        for count in [1_500, 1_000] {
            assert_eq!(LiftedExclusions::of(&object, &scattered(count)), None);
        }
        let lifted = LiftedExclusions::of(&object, &scattered(999)).unwrap();
        assert_eq!(lifted.after.len(), ENTRIES);
        assert_eq!(lifted.after[1], "10.0.0.0");
    }

    #[test]
    fn only_exclusions_of_the_migration_go_with_their_pods() {
        let noted = "10.0.0.6-10.0.0.7,10.0.0.9";
        let all = ["10.0.0.200", "10.0.0.6-10.0.0.7", "10.0.0.9"];
        let others: &[&str] = &["10.0.0.200"];
        let cases: [[&[&str]; 4]; 4] = [
            [
                &all,
                &["10.0.0.7"],
                &["10.0.0.200", "10.0.0.7"],
                &["10.0.0.7"],
            ],
            // What pods got since is not added: fipd may have given it.
            [
                &all,
                &["10.0.0.9", "10.0.0.8"],
                &["10.0.0.200", "10.0.0.9"],
                &["10.0.0.9"],
            ],
            [&all, &[], others, &[]],
            // Somebody took them away by hand.
            [others, &["10.0.0.9"], others, &[]],
        ];
        for [exclusions, taken, after, added] in cases {
            let lifted = LiftedExclusions::of(&subnet(exclusions, noted), &addresses(taken));
            let lifted = lifted.unwrap();
            assert_eq!(lifted.after, after, "{taken:?}");
            assert_eq!(lifted.added, added, "{taken:?}");
        }
        let same = addresses(&["10.0.0.6", "10.0.0.7", "10.0.0.9"]);
        assert_eq!(LiftedExclusions::of(&subnet(&all, noted), &same), None);
        let by_hand = json!({ "spec": { "exclusions": all } });
        assert_eq!(LiftedExclusions::of(&by_hand, &BTreeSet::new()), None);
        let gone = LiftedExclusions::of(&subnet(&["10.0.0.9"], "10.0.0.9"), &BTreeSet::new());
        let patch = gone.unwrap().patch();
        assert_eq!(patch["spec"], json!({ "exclusions": null }));
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(*annotations, json!({ "fipd.io/migrated-addresses": null }));
    }

    #[tokio::test]
    async fn what_a_workload_of_the_run_names_or_no_pod_has_is_not_excluded() {
        let ips = r#"{"items":[
            {"metadata":{"namespace":"shop","name":"web","uid":"1"},"spec":{"subnet":"lab","cidr":"10.0.0.5/24"}},
            {"metadata":{"namespace":"shop","name":"db-0","uid":"2"},"spec":{"subnet":"lab","cidr":"10.0.0.6/24"}},
            {"metadata":{"namespace":"shop","name":"gone","uid":"3"},"spec":{"subnet":"lab","cidr":"10.0.0.7/24"}},
            {"metadata":{"namespace":"shop","name":"odd","uid":"4"},"spec":{"subnet":"lab","cidr":"x"}},
            {"metadata":{"namespace":"shop","name":"bare","uid":"5"},"spec":{"subnet":"lab","cidr":"10.0.0.8/24"}},
            {"metadata":{"namespace":"shop","name":"once-x","uid":"6"},"spec":{"subnet":"lab","cidr":"10.0.0.9/24"}}]}"#;
        let pods = r#"{"items":[
            {"metadata":{"namespace":"shop","name":"web","uid":"w","annotations":{
                "macvlan.pandaria.cattle.io/ip":"auto","macvlan.pandaria.cattle.io/subnet":"lab"}}},
            {"metadata":{"namespace":"shop","name":"db-0","uid":"d","annotations":{
                "macvlan.pandaria.cattle.io/ip":"10.0.0.6","macvlan.pandaria.cattle.io/subnet":"lab"},
                "ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","controller":true}]}},
            {"metadata":{"namespace":"shop","name":"bare","uid":"b","annotations":{
                "macvlan.pandaria.cattle.io/ip":"10.0.0.8","macvlan.pandaria.cattle.io/subnet":"lab"}}},
            {"metadata":{"namespace":"shop","name":"once-x","uid":"o","annotations":{
                "macvlan.pandaria.cattle.io/ip":"10.0.0.9","macvlan.pandaria.cattle.io/subnet":"lab"},
                "ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"once","controller":true}]}}]}"#;
        let kept = ["10.0.0.5", "10.0.0.8", "10.0.0.9"];
        let with_db = ["10.0.0.5", "10.0.0.6", "10.0.0.8", "10.0.0.9"];
        let cases: [(&[WorkloadKind], &[&str]); 2] = [
            (&[WorkloadKind::StatefulSet, WorkloadKind::Job], &kept),
            (&[WorkloadKind::Deployment], &with_db),
        ];
        for (kinds, expected) in cases {
            let (remote, _) = canned(&[("GET", 200, ips), ("GET", 200, pods)]);
            let options = MigrationOptions::at_once(Consent::Given);
            let session = MigrationSession::new("migrate", remote, options);
            let read = MacvlanAddresses::read(&session, kinds).await.unwrap();
            assert_eq!(read.0["lab"], addresses(expected), "{kinds:?}");
            assert_eq!(read.0.len(), 1);
        }
    }

    #[test]
    fn a_workload_of_a_pod_is_known_by_group_and_kind_of_its_controller() {
        let owned = |api_version: &str, kind: &str, controller: bool| {
            let owner =
                json!({ "apiVersion": api_version, "kind": kind, "controller": controller });
            workload_kind(&json!({ "metadata": {
                "labels": { "pod-template-hash": "5f7" }, "ownerReferences": [owner],
            } }))
        };
        for (kind, workload) in [
            ("ReplicaSet", Some(WorkloadKind::Deployment)),
            ("StatefulSet", Some(WorkloadKind::StatefulSet)),
            ("DaemonSet", Some(WorkloadKind::DaemonSet)),
            ("Deployment", None),
        ] {
            assert_eq!(owned("apps/v1", kind, true), workload, "{kind}");
            assert_eq!(owned("apps/v1", kind, false), None, "{kind}");
            assert_eq!(owned("apps.kruise.io/v1beta1", kind, true), None, "{kind}");
        }
        assert_eq!(owned("batch/v1", "Job", true), None);
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true });
        let bare = json!({ "metadata": { "ownerReferences": [owner] } });
        assert_eq!(workload_kind(&bare), None, "a ReplicaSet of its own");
    }
}
