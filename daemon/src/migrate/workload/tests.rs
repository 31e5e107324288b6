use super::*;

const KINDS: [WorkloadKind; 5] = [
    WorkloadKind::Deployment,
    WorkloadKind::DaemonSet,
    WorkloadKind::StatefulSet,
    WorkloadKind::CronJob,
    WorkloadKind::Job,
];

fn old() -> Value {
    json!({
        "macvlan.pandaria.cattle.io/ip": "auto", "macvlan.pandaria.cattle.io/subnet": "lab",
        "k8s.v1.cni.cncf.io/networks": r#"[{"name":"static-macvlan-cni-attach","interface":"eth1"}]"#,
    })
}

fn new() -> Value {
    json!({
        "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "lab",
        "macvlan.pandaria.cattle.io/ip": null, "macvlan.pandaria.cattle.io/subnet": null,
        "k8s.v1.cni.cncf.io/networks": r#"[{"name":"rancher-flat-network","interface":"eth1"}]"#,
    })
}

/// A workload whose pods have these annotations; a Job that has not begun.
fn workload(kind: WorkloadKind, annotations: &Value) -> Value {
    let template =
        json!({ "metadata": { "annotations": annotations, "labels": { "app": "web" } } });
    match kind {
        WorkloadKind::CronJob => json!({
            "metadata": { "name": "web" }, "spec": { "jobTemplate": { "spec": { "template": template } } },
        }),
        WorkloadKind::Job => json!({
            "metadata": { "name": "web" }, "spec": { "suspend": true, "template": template },
        }),
        WorkloadKind::Deployment | WorkloadKind::DaemonSet | WorkloadKind::StatefulSet => json!({
            "metadata": { "name": "web" },
            "spec": { "template": template, "selector": { "matchLabels": { "app": "web" } } },
        }),
    }
}

fn change(kind: WorkloadKind, workload: &Value) -> WorkloadChange {
    match plan(kind, workload) {
        WorkloadPlan::Change(change) => change,
        other @ (WorkloadPlan::NotFlat | WorkloadPlan::Skip { .. }) => {
            panic!("{kind:?}: {other:?}")
        }
    }
}

fn skipped(kind: WorkloadKind, workload: &Value) -> String {
    match plan(kind, workload) {
        WorkloadPlan::Skip { why, .. } => why,
        other @ (WorkloadPlan::NotFlat | WorkloadPlan::Change(_)) => panic!("{kind:?}: {other:?}"),
    }
}

#[test]
fn one_that_names_addresses_says_that_its_old_pods_must_go_first() {
    for kind in KINDS {
        let mut annotations = old();
        assert!(!change(kind, &workload(kind, &annotations)).names_addresses);
        annotations["macvlan.pandaria.cattle.io/ip"] = json!("10.0.0.5-10.0.0.6");
        let change = change(kind, &workload(kind, &annotations));
        assert!(change.names_addresses, "{kind:?}");
        assert!(change.notes[0].contains("scale it to 0"), "{kind:?}");
    }
}

#[test]
fn the_template_of_each_kind_is_patched() {
    for kind in KINDS {
        let change = change(kind, &workload(kind, &old()));
        let template = match kind {
            WorkloadKind::CronJob => &change.patch["spec"]["jobTemplate"]["spec"]["template"],
            WorkloadKind::Deployment
            | WorkloadKind::DaemonSet
            | WorkloadKind::StatefulSet
            | WorkloadKind::Job => &change.patch["spec"]["template"],
        };
        assert_eq!(
            template["metadata"],
            json!({ "annotations": new() }),
            "{kind:?}"
        );
        assert_eq!(change.subnets, BTreeSet::from(["lab".to_owned()]));
        assert_eq!(change.lines.len(), 3, "{:?}", change.lines);
        assert_eq!(change.notes, Vec::<String>::new());
    }
}

#[test]
fn g1_23_a_cron_job_is_migrated_by_its_pods_and_by_its_jobs() {
    let mut both = workload(WorkloadKind::CronJob, &old());
    both["spec"]["jobTemplate"]["metadata"] = json!({ "annotations": old() });
    let patch = change(WorkloadKind::CronJob, &both).patch;
    let jobs = &patch["spec"]["jobTemplate"];
    assert_eq!(jobs["metadata"]["annotations"], new());
    assert_eq!(jobs["spec"]["template"]["metadata"]["annotations"], new());
    let mut by_jobs = workload(WorkloadKind::CronJob, &json!({ "note": "x" }));
    by_jobs["spec"]["jobTemplate"]["metadata"] = json!({ "annotations": old() });
    let patch = change(WorkloadKind::CronJob, &by_jobs).patch;
    let jobs = &patch["spec"]["jobTemplate"];
    assert_eq!(jobs["metadata"]["annotations"], new());
    assert_eq!(jobs["spec"], Value::Null);
}

#[test]
fn labels_of_macvlan_go_from_workload_and_template() {
    let mut web = workload(WorkloadKind::Deployment, &old());
    web["metadata"]["labels"] = json!({ "macvlan.panda.io/macvlanIpType": "auto", "team": "net" });
    web["spec"]["template"]["metadata"]["labels"] =
        json!({ "macvlan.pandaria.cattle.io/subnet": "lab", "macvlan.panda.io/x": "y" });
    web["spec"]["selector"]["matchLabels"] = json!({ "macvlan.panda.io/x": "y" });
    let change = change(WorkloadKind::Deployment, &web);
    assert_eq!(
        change.patch["metadata"]["labels"],
        json!({ "macvlan.panda.io/macvlanIpType": null })
    );
    assert_eq!(
        change.patch["spec"]["template"]["metadata"]["labels"],
        json!({ "macvlan.pandaria.cattle.io/subnet": null })
    );
    assert!(
        change.notes[0].contains("macvlan.panda.io/x"),
        "{:?}",
        change.notes
    );
}

#[test]
fn workloads_of_neither_network_are_not_named() {
    for kind in KINDS {
        for annotations in [json!({}), Value::Null, json!({ "app": "web" })] {
            let plan = plan(kind, &workload(kind, &annotations));
            assert_eq!(plan, WorkloadPlan::NotFlat, "{kind:?} {annotations}");
        }
        assert_eq!(plan(kind, &Value::Null), WorkloadPlan::NotFlat);
    }
}

#[test]
fn half_of_the_annotations_is_named_and_left() {
    let half = json!({ "macvlan.pandaria.cattle.io/ip": "auto" });
    let why = skipped(
        WorkloadKind::Deployment,
        &workload(WorkloadKind::Deployment, &half),
    );
    assert!(why.contains("macvlan.pandaria.cattle.io/subnet"), "{why}");
}

#[test]
fn what_is_migrated_is_skipped() {
    for kind in KINDS {
        let done = json!({
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "lab",
            "k8s.v1.cni.cncf.io/networks": r#"[{"name":"rancher-flat-network","interface":"eth1"}]"#,
        });
        let why = skipped(kind, &workload(kind, &done));
        assert!(why.contains("already"), "{kind:?}: {why}");
    }
}

/// The original leaves any spelling of the networks but its own.
#[test]
fn g1_23_networks_that_the_original_left_are_converted() {
    let left = json!({
        "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "lab",
        "v1.multus-cni.io/default-network": r#"[{"interface": "eth0", "name": "static-macvlan-cni-attach"}]"#,
    });
    let change = change(
        WorkloadKind::StatefulSet,
        &workload(WorkloadKind::StatefulSet, &left),
    );
    assert_eq!(
        change.patch["spec"]["template"]["metadata"]["annotations"],
        json!({ "v1.multus-cni.io/default-network": r#"[{"interface": "eth0", "name": "rancher-flat-network"}]"# })
    );
}

#[test]
fn g1_23_a_job_whose_template_is_fixed_is_named_with_what_to_do() {
    let mut job = workload(WorkloadKind::Job, &old());
    job["spec"]["suspend"] = json!(false);
    let running = skipped(WorkloadKind::Job, &job);
    assert!(
        running.contains("is running") && running.contains("make it again"),
        "{running}"
    );
    for kind in ["Complete", "Failed"] {
        job["status"] = json!({ "conditions": [{ "type": kind, "status": "True" }] });
        let ended = skipped(WorkloadKind::Job, &job);
        assert!(
            ended.contains("finished") && ended.contains("delete it"),
            "{ended}"
        );
    }
    job["metadata"]["ownerReferences"] =
        json!([{ "kind": "CronJob", "name": "nightly", "controller": true }]);
    let owned = skipped(WorkloadKind::Job, &job);
    assert!(owned.contains("CronJob nightly"), "{owned}");
    let mut paused = workload(WorkloadKind::Job, &old());
    paused["status"] = json!({ "startTime": "2026-01-02T03:04:05Z" });
    assert!(skipped(WorkloadKind::Job, &paused).contains("is running"));
}

#[test]
fn what_is_being_deleted_is_left() {
    let mut web = workload(WorkloadKind::DaemonSet, &old());
    web["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    assert!(skipped(WorkloadKind::DaemonSet, &web).contains("deleted"));
}

#[test]
fn the_owner_of_a_workload_is_named() {
    let mut web = workload(WorkloadKind::Deployment, &old());
    web["metadata"]["ownerReferences"] =
        json!([{ "kind": "App", "name": "shop", "controller": true }]);
    let change = change(WorkloadKind::Deployment, &web);
    assert!(change.notes[0].contains("App shop"), "{:?}", change.notes);
}

#[test]
fn a_selector_names_labels_in_either_of_its_forms() {
    let selector = json!({
        "matchLabels": { "app": "web" },
        "matchExpressions": [{ "key": "macvlan.panda.io/macvlanIpType", "operator": "Exists" }, {}],
    });
    let named = selected(&selector);
    let named: Vec<&str> = named.keys().map(String::as_str).collect();
    assert_eq!(named, ["app", "macvlan.panda.io/macvlanIpType"]);
    assert!(selected(&Value::Null).is_empty());
}
