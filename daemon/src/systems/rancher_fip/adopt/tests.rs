//! What the report says of a site.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::KeyBytes;
use fipd_crds::{
    floating_ip::{FloatingIP, FloatingIPPool, FloatingIPProjectQuota},
    labels::{API_SERVER_LEASE, MANAGER_LEASE},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    AdoptAction, SiteReport,
    api_service::{ApiService, given},
    inventory::{Duties, LeaseSeen, Placed, ProjectCharge, SiteInventory, Webhook},
    key::WrongKey,
    leftovers::{CLUSTER_MANAGER, WEBHOOK},
    obstacle, report,
};
use crate::{
    adopt::{
        ChangeBy, ChangeState, FindingKind, OriginalWorkload, TakeoverChange, leases::LeaseHolder,
    },
    controller::store::Key,
    systems::rancher_fip::{
        api_service::plan::{ServiceTarget, want},
        clusters::RancherCluster,
        floating_ip::observe::view,
        settings::RancherFipSettings,
    },
};

mod api_service;
mod takeover;

const GROUP: &str = "rancher.k8s.binbash.org";

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// Cluster c-1 ("prod") with project p-1, pool net of ten addresses, a quota of two of them.
fn site() -> SiteInventory {
    let mut cluster = RancherCluster::default();
    cluster.managed.display_name = "prod".into();
    let mut found = SiteInventory {
        clusters: BTreeMap::from([("c-1".into(), cluster)]),
        projects: [Key::new("c-1", "p-1")].into(),
        deployments: Some(Ok(Vec::new())),
        duties: Duties {
            settings: RancherFipSettings::default(),
            api_url: Some("https://fipd.example.net/v1".into()),
            closed: None,
        },
        ..SiteInventory::default()
    };
    pool(&mut found, "net", "10.0.0.10", "10.0.0.19");
    quota(&mut found, "p-1", json!({ "net": 2 }));
    found
}

fn pool(found: &mut SiteInventory, name: &str, start: &str, end: &str) {
    let pool: FloatingIPPool = object(json!({
        "metadata": { "name": name },
        "spec": {
            "ipConfig": { "subnet": "10.0.0.0/24", "pool": { "start": start, "end": end } },
            "targetCluster": "prod", "targetNetwork": name,
        },
    }));
    found.pools.insert(name.to_owned(), pool);
}

fn quota(found: &mut SiteInventory, project: &str, limits: Value) {
    let pools = limits.as_object().expect("limits").keys();
    let fips: BTreeMap<&String, Value> = pools.map(|pool| (pool, json!({}))).collect();
    let quota: FloatingIPProjectQuota = object(json!({
        "metadata": { "name": project }, "spec": { "floatingIPQuota": limits },
        "status": { "fips": fips },
    }));
    found.quotas.insert(project.to_owned(), quota);
}

/// What the status of the project's quota says.
fn says(found: &mut SiteInventory, project: &str, fips: Value) {
    let quota = found.quotas.get_mut(project).expect("a quota");
    quota.status = Some(object(json!({ "fips": fips })));
}

fn fip(found: &mut SiteInventory, name: &str, address: &str, labels: Value) {
    let mut all = json!({ format!("{GROUP}/project-name"): "p-1" });
    let given = labels.as_object().expect("labels").clone();
    let all = all.as_object_mut().expect("labels");
    all.extend(
        given
            .into_iter()
            .map(|(key, value)| (format!("{GROUP}/{key}"), value)),
    );
    let fip: FloatingIP = object(json!({
        "metadata": { "name": name, "namespace": "c-1", "labels": all },
        "spec": { "floatingIPPool": "net" }, "status": { "ipAddr": address },
    }));
    found.fips.insert(Key::new("c-1", name), view(fip));
}

/// What is said of one kind that is not fine.
fn wrongs(report: &SiteReport, kind: FindingKind) -> Vec<String> {
    let all = report.findings.iter();
    let wrong = all.filter(|one| one.kind == kind && !one.fine);
    wrong
        .map(|one| format!("{}: {}", one.name, one.says))
        .collect()
}

fn asked(report: &SiteReport) -> Vec<&AdoptAction> {
    let changes = report.changes.iter();
    changes
        .filter_map(|change| change.action.as_ref())
        .collect()
}

#[test]
fn a_site_in_order_has_nothing_to_be_done() {
    let mut found = site();
    fip(
        &mut found,
        "a",
        "10.0.0.10",
        json!({ "cluster-name": "c-1", "service-0-name": "web", "service-0-namespace": "ns" }),
    );
    fip(&mut found, "b", "10.0.0.11", json!({}));
    says(&mut found, "p-1", json!({ "net": { "used": 2 } }));
    let report = report(&found);
    assert!(
        report.findings.iter().all(|one| one.fine),
        "{:#?}",
        report.findings
    );
    assert_eq!((report.changes, report.blockers), (vec![], vec![]));
    let expected = [
        ("FloatingIPs", 2),
        ("assigned", 1),
        ("pools", 1),
        ("quotas", 1),
        ("unassigned", 1),
        ("usable pools", 1),
    ];
    assert_eq!(report.counts, BTreeMap::from(expected));
    let says: Vec<&str> = report.findings.iter().map(|one| &*one.says).collect();
    assert_eq!(says, ["10 addresses, 2 held", "2 of 2 in net"]);
}

#[test]
fn pools_say_why_they_cannot_be_used_what_they_overlap_with_and_what_is_stale() {
    let mut found = site();
    pool(&mut found, "over", "10.0.0.15", "10.0.0.254");
    pool(&mut found, "bad", "10.0.0.9", "10.0.0.1");
    let mut stale = found.pools["net"].clone();
    stale.spec.target_cluster = "gone".into();
    stale.status = Some(object(
        json!({ "allocated": { "10.0.0.12": "p-1 [x]", "10.0.0.13": "excluded" } }),
    ));
    found.pools.insert("net".into(), stale);
    let report = report(&found);
    let said = wrongs(&report, FindingKind::Pool);
    assert!(
        said[0].contains("bad: cannot be used: spec.ipConfig.pool.start"),
        "{said:?}"
    );
    assert_eq!(
        said[1..],
        [
            "net: 10 addresses, 0 held; overlaps with over; its targetCluster \"gone\" is no cluster of Rancher; its status \
             counts 10.0.0.12, which nobody has",
            "over: 240 addresses, 0 held; overlaps with net",
        ]
    );
    assert!(
        report
            .changes
            .iter()
            .any(|one| one.by == ChangeBy::Itself && one.name == "FloatingIPPool net")
    );
}

#[test]
fn pools_are_judged_where_the_pool_controller_has_them() {
    let mut found = site();
    pool(&mut found, "over", "10.0.0.15", "10.0.0.24");
    let placed = |network: &str| Placed {
        network: network.into(),
        ..Placed::default()
    };
    found.book.pools.insert("net".into(), placed("lab"));
    for (name, pool) in [("a", "net"), ("b", "over")] {
        fip(&mut found, name, "10.0.0.15", json!({}));
        let key = Key::new("c-1", name);
        found.fips.get_mut(&key).expect("it is there").pool = pool.into();
    }
    let seen = report(&found);
    assert_eq!(wrongs(&seen, FindingKind::Pool), Vec::<String>::new());
    assert_eq!(wrongs(&seen, FindingKind::Conflict), Vec::<String>::new());
    assert_eq!(seen.findings[0].says, "10 addresses, 1 held, network lab");
    let over = Placed {
        ignored_annotation: Some("fipd.io/network: no name".into()),
        doubt: Some("5 addresses are not given".into()),
        overlap: Some("fipd/own".into()),
        ..placed("lab")
    };
    found.book.pools.insert("over".into(), over);
    let seen = report(&found);
    assert_eq!(
        wrongs(&seen, FindingKind::Pool),
        [
            "net: 10 addresses, 1 held, network lab; overlaps with over",
            "over: 10 addresses, 0 held, network lab; overlaps with net; gives addresses of fipd/own as well; 5 addresses are \
             not given; fipd.io/network: no name",
        ]
    );
    assert_eq!(wrongs(&seen, FindingKind::Conflict).len(), 1);
}

#[test]
fn quotas_are_compared_with_what_the_quota_controller_will_write() {
    let mut found = site();
    pool(&mut found, "small", "10.0.0.12", "10.0.0.13");
    // One address twice, one of the smaller pool, and one whose object is being deleted.
    for (name, address) in [
        ("a", "10.0.0.10"),
        ("b", "10.0.0.10"),
        ("c", "10.0.0.12"),
        ("d", "10.0.0.11"),
    ] {
        fip(&mut found, name, address, json!({}));
    }
    let key = Key::new("c-1", "d");
    let fip = found.fips.get_mut(&key).expect("it is there");
    fip.meta.deleted = Some(fipd_core::Timestamp(1));
    says(
        &mut found,
        "p-1",
        json!({ "net": { "used": 1 }, "small": { "used": 1 } }),
    );
    let written = |report: &SiteReport| {
        let mut changes = report.changes.iter();
        changes.any(|one| one.name == "FloatingIPProjectQuota p-1")
    };
    let seen = report(&found);
    assert_eq!(wrongs(&seen, FindingKind::Quota), Vec::<String>::new());
    assert!(!written(&seen));

    // The address book has one of them, and one of a Service that no FloatingIP shows.
    found.book.taken.insert(Key::new("c-1", "c"));
    let charge = ProjectCharge {
        used: 2,
        limit: None,
    };
    let small = Placed {
        charged: [("p-1".to_owned(), charge)].into(),
        ..Placed::default()
    };
    found.book.pools.insert("small".into(), small);
    let seen = report(&found);
    assert_eq!(
        wrongs(&seen, FindingKind::Quota),
        ["p-1: 1 of 2 in net; its status says 1 of small, 2 are there"]
    );
    assert!(written(&seen));
    says(
        &mut found,
        "p-1",
        json!({ "net": { "used": 1 }, "small": { "used": 2 }, "gone": {} }),
    );
    let seen = report(&found);
    assert_eq!(wrongs(&seen, FindingKind::Quota), Vec::<String>::new());
    assert!(written(&seen), "a pool that it has nothing to do with goes");
}

#[test]
fn a_quota_that_is_being_deleted_takes_what_its_project_has_along() {
    let mut found = site();
    fip(&mut found, "a", "10.0.0.10", json!({}));
    let ending = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["rancher.k8s.binbash.org/floatingipprojectquota-cleanup"],
    });
    let quota = found.quotas.get_mut("p-1").expect("a quota");
    quota.metadata = object(ending);
    let seen = report(&found);
    assert_eq!(
        wrongs(&seen, FindingKind::Quota),
        ["p-1: is being deleted, and the project has 1 addresses"]
    );
    let mut changes = seen.changes.iter();
    let change = changes.find(|one| one.name == "FloatingIPProjectQuota p-1");
    let does = &change.expect("a change").does;
    assert!(does.contains("deletes its FloatingIPs"), "{does}");
}

#[test]
fn quotas_say_which_names_lead_to_no_pool_or_twice_to_one() {
    let mut found = site();
    let other = found.pools["net"].clone();
    found.pools.insert("alias".into(), other);
    pool(&mut found, "bad", "10.0.0.9", "10.0.0.1");
    quota(
        &mut found,
        "p-1",
        json!({ "prod--net": 1, "bad": 1, "none": 1 }),
    );
    let said = wrongs(&report(&found), FindingKind::Quota);
    assert_eq!(
        said,
        ["p-1: pool bad cannot be used; there is no pool none; several pools are called prod--net"]
    );
    found.pools.remove("alias");
    quota(&mut found, "p-1", json!({ "prod--net": 1, "net": 2 }));
    let said = wrongs(&report(&found), FindingKind::Quota);
    assert!(
        said[0].contains("it is the same pool as \"net\""),
        "{said:?}"
    );
}

/// As many lines as there are objects, and none that names all others.
#[test]
fn a_report_of_thousands_of_equal_pools_is_of_short_lines() {
    const POOLS: usize = 5_000;
    let mut found = site();
    let limits: BTreeMap<String, u32> = (0..POOLS).map(|n| (format!("none-{n}"), 1)).collect();
    quota(&mut found, "p-1", json!(limits));
    let equal = found.pools["net"].clone();
    for n in 0..POOLS {
        found.pools.insert(format!("pool-{n:04}"), equal.clone());
        fip(
            &mut found,
            &format!("fip-{n:04}"),
            "10.0.0.10",
            json!({ "cluster-name": "c-9", "service-0-name": "s" }),
        );
        let home = format!("c-{n}");
        found.projects.insert(Key::new(&home, &format!("p-{n}")));
    }
    let seen = report(&found);
    let of = |kind: FindingKind| seen.findings.iter().filter(move |one| one.kind == kind);
    assert_eq!(of(FindingKind::Pool).count(), POOLS + 1);
    let first = of(FindingKind::Pool).next().map(|one| &*one.says);
    let expected = "10 addresses, 1 held; overlaps with pool-0000, pool-0001, pool-0002, pool-0003, pool-0004 and 4995 more";
    assert_eq!(first, Some(expected));
    assert_eq!(
        (
            of(FindingKind::Conflict).count(),
            of(FindingKind::Quota).count()
        ),
        (1, 1)
    );
    let longest = seen.findings.iter().map(|one| one.says.len()).max();
    assert!(
        longest.is_some_and(|longest| longest < 1_000),
        "{longest:?}"
    );
    let changes = seen.changes.iter();
    assert!(changes.map(|one| one.name.len() + one.does.len()).max() < Some(1_000));
}

#[test]
fn quotas_say_what_is_over_unknown_or_drifted() {
    let mut found = site();
    quota(&mut found, "p-1", json!({ "prod--net": 1, "other": 5 }));
    for (name, address) in [("a", "10.0.0.10"), ("b", "10.0.0.11")] {
        fip(&mut found, name, address, json!({}));
    }
    says(&mut found, "p-1", json!({ "prod--net": { "used": 7 } }));
    let said = wrongs(&report(&found), FindingKind::Quota);
    assert_eq!(
        said,
        [
            "p-1: 2 of 1 in prod--net; more than allowed of prod--net; they are kept; there is no pool other; its status says 7 \
          of prod--net, 2 are there"
        ]
    );
}

#[test]
fn addresses_that_are_wrong_or_claimed_twice_are_named() {
    let mut found = site();
    fip(&mut found, "a", "10.0.0.10", json!({}));
    fip(&mut found, "b", "10.0.0.10", json!({}));
    fip(&mut found, "c", "10.0.0.99", json!({}));
    fip(&mut found, "d", "", json!({}));
    if let Some(fip) = found.fips.get_mut(&Key::new("c-1", "d")) {
        fip.status.state = "Error".into();
        fip.pool = "gone".into();
    }
    found
        .book
        .held_by_others
        .insert(Key::new("c-1", "c"), "fipd/vm/lab/x".into());
    let report = report(&found);
    assert_eq!(
        wrongs(&report, FindingKind::Address),
        [
            "c-1/c: 10.0.0.99 is none that pool net gives; it is kept",
            "c-1/d: in state Error: it does not say why; there is no pool \"gone\"",
        ]
    );
    assert_eq!(
        wrongs(&report, FindingKind::Conflict),
        [
            "c-1/c: 10.0.0.99 is held by fipd/vm/lab/x; it waits for it",
            "10.0.0.10: several FloatingIPs show it: c-1/a, c-1/b",
        ]
    );
    assert_eq!(report.counts["in state Error"], 1);
}

#[test]
fn defect_18_what_belongs_to_nobody_is_named_and_ghost_labels_go() {
    let mut found = site();
    fip(
        &mut found,
        "ghost",
        "10.0.0.10",
        json!({ "service-3-name": "web", "service-3-namespace": "ns" }),
    );
    fip(
        &mut found,
        "gone",
        "10.0.0.11",
        json!({ "cluster-name": "c-9" }),
    );
    fip(&mut found, "moved", "10.0.0.12", json!({}));
    let moved = found
        .fips
        .remove(&Key::new("c-1", "moved"))
        .expect("it is there");
    found.fips.insert(Key::new("c-2", "moved"), moved);
    fip(
        &mut found,
        "alone",
        "10.0.0.13",
        json!({ "project-name": "p-9" }),
    );
    found.secrets = Some(Ok(["p-1", "p-9"]
        .map(|id| Key::new("c-1", &format!("rancher-fip-config-{id}")))
        .into()));
    found.duties.settings.cluster_manager.enabled = true;
    quota(&mut found, "p-1", json!({ "net": 9 }));
    let report = report(&found);
    let mut said = wrongs(&report, FindingKind::Orphan);
    said.sort();
    assert_eq!(
        said,
        [
            "c-1/alone: its project p-9 is gone; it is kept until somebody deletes it",
            "c-1/ghost: no cluster has it, but its labels name Services: ns/web",
            "c-2/moved: its project p-1 is in namespace c-1",
            "c-9: cluster c-9 is gone; used by c-1/gone",
        ]
    );
    assert_eq!(
        wrongs(&report, FindingKind::Secret),
        ["c-1/rancher-fip-config-p-9: project p-9 has no quota"]
    );
    assert_eq!(
        asked(&report),
        [&AdoptAction::RemoveGhosts(vec![Key::new("c-1", "ghost")])]
    );
    // As the sweep of Secrets sees it: a quota that does not fit its schema is one, and other namespaces are left alone.
    let deleted = |found: &SiteInventory| {
        let changes = super::report(found).changes.into_iter();
        let secrets = changes.filter(|one| one.name.starts_with("Secret "));
        secrets.map(|one| one.name).collect::<Vec<_>>()
    };
    let theirs = Key::new("team", "rancher-fip-config-p-9");
    if let Some(Ok(keys)) = &mut found.secrets {
        keys.insert(theirs);
    }
    assert_eq!(deleted(&found), ["Secret c-1/rancher-fip-config-p-9"]);
    let malformed = ("FloatingIPProjectQuota".to_owned(), Key::new("", "p-9"));
    found.malformed.insert(malformed, "no".into());
    assert_eq!(deleted(&found), Vec::<String>::new());
    found.clusters.clear();
    let said = wrongs(&super::report(&found), FindingKind::Orphan);
    assert!(
        !said.iter().any(|one| one.starts_with("c-9")),
        "an empty list says nothing: {said:?}"
    );
}

fn lease(name: &str, rival: bool, holder: LeaseHolder) -> LeaseSeen {
    let name = format!("rancher-fip-manager/{name}");
    LeaseSeen {
        name,
        rival,
        holder,
    }
}

#[test]
fn an_original_that_runs_is_in_the_way_and_a_dead_one_until_fipd_has_its_lease() {
    let held = |alive| LeaseHolder::Other {
        by: "x".into(),
        renewed: Some("2026-01-01T00:00:00Z".into()),
        alive,
    };
    let mut found = site();
    let mut blockers = |state: LeaseHolder, rival| {
        found.leases = vec![lease(MANAGER_LEASE, rival, state)];
        report(&found).blockers
    };
    let one = blockers(held(true), true);
    assert!(
        one.len() == 1 && one[0].contains("stop that program first"),
        "{one:?}"
    );
    for state in [held(false), LeaseHolder::Missing, LeaseHolder::Nobody] {
        let one = blockers(state, true);
        assert!(
            one.len() == 1 && one[0].contains("does not hold Lease"),
            "{one:?}"
        );
    }
    assert_eq!(
        blockers(LeaseHolder::Ours { since: None }, true),
        Vec::<String>::new()
    );
    assert_eq!(
        blockers(held(true), false),
        Vec::<String>::new(),
        "it does what fipd does not"
    );
    found.duties.settings.leader_elect = false;
    found.leases = vec![lease(API_SERVER_LEASE, true, LeaseHolder::Nobody)];
    assert_eq!(report(&found).blockers, Vec::<String>::new());
    let unknown = LeaseHolder::Unknown("forbidden".into());
    found.leases = vec![lease(API_SERVER_LEASE, true, unknown)];
    assert_eq!(report(&found).blockers.len(), 1, "it may run");
}

#[test]
fn the_webhook_of_the_original_goes_unless_the_original_answers_it() {
    let mut found = site();
    let webhook = Webhook {
        uid: "u".into(),
        version: "7".into(),
        original: true,
        fails: true,
    };
    let remove = AdoptAction::RemoveWebhook {
        uid: "u".into(),
        version: "7".into(),
    };
    found.webhook = Some(Ok(webhook.clone()));
    let seen = report(&found);
    assert_eq!(asked(&seen), [&remove]);
    assert!(
        seen.changes
            .iter()
            .all(|one| one.state == ChangeState::Planned)
    );
    found.deployments = Some(Ok(vec![deployment(WEBHOOK, 1)]));
    let seen = report(&found);
    assert_eq!(asked(&seen), Vec::<&AdoptAction>::new());
    assert_eq!(
        seen.blockers,
        [
            "Deployment rancher-fip-manager/rancher-fip-manager-webhook is to have 1 replicas: `kubectl -n rancher-fip-manager \
             scale deployment rancher-fip-manager-webhook --replicas=0` first"
        ]
    );
    found.deployments = Some(Ok(vec![
        deployment(WEBHOOK, 0),
        deployment(CLUSTER_MANAGER, 1),
    ]));
    let seen = report(&found);
    assert_eq!(asked(&seen), [&remove]);
    assert_eq!(
        seen.blockers,
        Vec::<String>::new(),
        "fipd does not do its work"
    );
    for unknown in [Some(Err("forbidden".to_owned())), None] {
        found.deployments = unknown;
        let seen = report(&found);
        assert_eq!(asked(&seen), Vec::<&AdoptAction>::new());
        let why = failures(&seen);
        assert!(
            why.len() == 1 && why[0].contains("fipd-rancher-fip-adopt-app"),
            "{why:?}"
        );
    }
    found.deployments = Some(Ok(Vec::new()));
    found.webhook = Some(Ok(Webhook {
        original: false,
        ..webhook
    }));
    assert_eq!(asked(&report(&found)), Vec::<&AdoptAction>::new());
    found.webhook = Some(Err("forbidden".into()));
    let seen = report(&found);
    assert_eq!((seen.unseen.len(), failures(&seen).len()), (1, 1));
    assert!(failures(&seen)[0].contains("ClusterRole fipd-rancher-fip-adopt to"));
}

fn deployment(name: &str, replicas: i32) -> OriginalWorkload {
    OriginalWorkload {
        kind: "Deployment",
        namespace: "rancher-fip-manager".into(),
        name: name.into(),
        replicas,
    }
}

/// Why changes were not made.
fn failures(report: &SiteReport) -> Vec<&str> {
    fn why(one: &TakeoverChange<AdoptAction>) -> Option<&str> {
        match &one.state {
            ChangeState::Failed(why) => Some(why),
            ChangeState::Planned | ChangeState::Done | ChangeState::Needless(_) => None,
        }
    }
    report.changes.iter().filter_map(why).collect()
}

#[test]
fn ghosts_wait_for_the_webhook_that_may_refuse_their_removal() {
    let mut found = site();
    found.webhook = Some(Err("forbidden".into()));
    let seen = report(&found);
    let ghosts = AdoptAction::RemoveGhosts(Vec::new());
    let why = obstacle(&seen.changes, &ghosts).expect("it is not known to be gone");
    assert!(
        why.contains("rancher-fip-manager-validator is there"),
        "{why}"
    );
    let key = AdoptAction::TakeKey(KeyBytes(vec![1].into()));
    assert_eq!(obstacle(&seen.changes, &key), None);
    let mut gone = seen.changes;
    gone[0].state = ChangeState::Done;
    assert_eq!(obstacle(&gone, &ghosts), None);
}

#[test]
fn guests_that_are_sent_to_the_original_are_named_with_what_to_write() {
    let mut found = site();
    let mut seen = |over: Option<&str>, url: &str, want: Option<ServiceTarget>| {
        let map = BTreeMap::from([("RancherFipApiServerURL".to_owned(), url.to_owned())]);
        found.guest_url = given(over, &map).map(Ok);
        let want = want.map(Ok);
        found.service = Some(Ok(ApiService { found: None, want }));
        report(&found)
    };
    let old = "https://rancher-fip-api.example.com/v1";
    let report = seen(None, old, None);
    let said = wrongs(&report, FindingKind::Leftover);
    assert!(
        said.len() == 1
            && said[0].starts_with(&format!(
                "ConfigMap rancher-fip-manager/rancher-fip-config: RancherFipApiServerURL is {old}: "
            )),
        "{said:?}"
    );
    let does: Vec<&str> = report.changes.iter().map(|one| &*one.does).collect();
    assert!(
        does.len() == 1
            && does[0].starts_with("set RancherFipApiServerURL to https://fipd.example.net/v1"),
        "{does:?}"
    );
    let own = seen(Some(old), "https://fipd.example.net", None);
    assert!(wrongs(&own, FindingKind::Leftover)[0].contains("cluster-manager]: api-server-url is"));
    for fine in ["https://FIPD.example.net:443/v1\n", " "] {
        let report = seen(None, fine, None);
        assert_eq!(
            wrongs(&report, FindingKind::Leftover),
            Vec::<String>::new(),
            "{fine}"
        );
    }
    let addresses = BTreeSet::from(["192.0.2.7".parse().expect("an address")]);
    let want = want("fipd", addresses, 9443, Some(9080)).expect("it is reachable");
    for (url, fine) in [
        (
            "https://rancher-fip-api-server.rancher-fip-manager.svc:8443/v1",
            true,
        ),
        (
            "http://rancher-fip-api-server.rancher-fip-manager:8080/v1",
            true,
        ),
        (
            "http://rancher-fip-api-server.rancher-fip-manager:8443/v1",
            false,
        ),
        ("https://rancher-fip-api-server.other.svc:8443/v1", false),
        ("no URL", false),
    ] {
        let report = seen(None, url, Some(want.clone()));
        assert_eq!(
            wrongs(&report, FindingKind::Leftover).is_empty(),
            fine,
            "{url}"
        );
    }
}

#[test]
fn a_key_is_taken_over_once_and_while_its_tokens_count_and_a_bad_one_is_only_said() {
    let mut found = site();
    let bytes = KeyBytes(vec![1, 2, 3].into());
    found.key = Some(Ok(Ok(bytes.clone())));
    let seen = report(&found);
    assert_eq!(asked(&seen), [&AdoptAction::TakeKey(bytes.clone())]);
    assert!(
        !format!("{seen:?}").contains("[1, 2, 3]"),
        "it is never shown"
    );
    found.tokens_over = true;
    assert_eq!(asked(&report(&found)), Vec::<&AdoptAction>::new());
    found.tokens_over = false;
    found.known_keys.push(bytes);
    assert_eq!(asked(&report(&found)), Vec::<&AdoptAction>::new());
    found.key = Some(Ok(Err(WrongKey::Empty)));
    let said = wrongs(&report(&found), FindingKind::Leftover);
    assert!(
        said.len() == 1 && said[0].contains("jwt-private-key: it is empty"),
        "{said:?}"
    );
}
