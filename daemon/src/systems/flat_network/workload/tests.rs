use super::*;

fn annotated(ip: &str, subnet: &str) -> PodTemplateSpec {
    let annotations = json!({
        "flatnetwork.pandaria.io/ip": ip, "flatnetwork.pandaria.io/subnet": subnet,
    });
    serde_json::from_value(json!({ "metadata": { "annotations": annotations } })).unwrap()
}

fn web(labels: Value, template: Option<PodTemplateSpec>) -> Option<WorkloadView> {
    let meta = json!({ "name": "web", "uid": "d", "resourceVersion": "7", "labels": labels });
    let meta = serde_json::from_value(meta).unwrap();
    view(WorkloadParts::lasting(meta, template))
}

fn planned(workload: &WorkloadView, mode: Option<&str>) -> Option<(Patch, Value)> {
    plan(
        DEPLOYMENT,
        &Key::new("shop", "web"),
        workload,
        mode.map(str::to_owned),
    )
}

#[test]
fn only_workloads_of_flat_pods_and_labelled_ones_are_kept() {
    assert_eq!(web(json!({ "app": "web" }), None), None);
    let labelled = web(json!({ "app": "web", SUBNET: "blue" }), None).unwrap();
    assert_eq!(labelled.labels.len(), 1);
    let flat = web(json!({}), Some(annotated("auto", "blue"))).unwrap();
    assert!(flat.ask.is_some() && flat.meta.version.is_empty());
    assert_eq!(web(json!({}), Some(annotated("", "blue"))), None);
}

#[test]
fn labels_are_applied_and_nothing_else() {
    let flat = web(json!({ "app": "web" }), Some(annotated("auto", "blue"))).unwrap();
    let (patch, body) = planned(&flat, Some("macvlan")).unwrap();
    assert_eq!(patch, Patch::Apply);
    let labels = json!({ IP_TYPE: "auto", SUBNET: "blue", FLAT_MODE: "macvlan" });
    assert_eq!(
        body,
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
            "namespace": "shop", "name": "web", "uid": "d", "labels": labels,
        } })
    );
    let done = web(labels.clone(), Some(annotated("auto", "blue"))).unwrap();
    assert_eq!(planned(&done, Some("macvlan")), None);
    assert_eq!(planned(&done, None), None, "the subnet may come back");
    let specific = web(labels, Some(annotated("10.1.1.5-10.1.1.6", "blue"))).unwrap();
    let (_, body) = planned(&specific, Some("ipvlan")).unwrap();
    let labels = &body["metadata"]["labels"];
    assert_eq!(
        (&labels[IP_TYPE], &labels[FLAT_MODE]),
        (&json!("specific"), &json!("ipvlan"))
    );
}

/// Defect g1-17.
#[test]
fn labels_are_always_valid() {
    let long = format!("{0}.{0}", "s".repeat(60));
    let flat = web(json!({}), Some(annotated("fd00::", &long))).unwrap();
    let (_, body) = planned(&flat, Some("macvlan")).unwrap();
    let subnet = body["metadata"]["labels"][SUBNET].as_str().unwrap();
    assert!(subnet.len() <= 63, "{subnet}");
}

#[test]
fn labels_go_with_the_annotations() {
    let labels = json!({ "app": "web", IP_TYPE: "auto", SUBNET: "blue" });
    for template in [None, Some(annotated("10.1.1.5-nonsense", "blue"))] {
        let left = web(labels.clone(), template).unwrap();
        let body = json!({ "metadata": { "uid": "d", "labels": { IP_TYPE: null, SUBNET: null } } });
        assert_eq!(planned(&left, Some("macvlan")), Some((Patch::Merge, body)));
    }
}

fn addresses(workload: Option<&WorkloadView>) -> Vec<String> {
    let named = workload.and_then(WorkloadView::named);
    let addresses = named.into_iter().flat_map(|named| &named.addresses);
    addresses.map(ToString::to_string).collect()
}

/// Addresses are kept for who makes the pods.
#[test]
fn addresses_are_kept_for_a_workload_that_names_them() {
    let named = |ip: &str| web(json!({}), Some(annotated(ip, "blue")));
    assert_eq!(
        addresses(named("10.1.1.5-10.1.1.6").as_ref()),
        ["10.1.1.5", "10.1.1.6"]
    );
    assert!(addresses(named("auto").as_ref()).is_empty());
    let mut ends = named("10.1.1.5").unwrap();
    ends.meta.deleted = Some(fipd_core::Timestamp(1));
    assert!(addresses(Some(&ends)).is_empty());
}

/// Defect g1-13: the pods of a CronJob have the template of its Jobs, which itself reserve nothing.
#[test]
fn g1_13_a_cron_job_has_the_addresses_of_the_template_of_its_jobs() {
    let annotations = json!({
        "flatnetwork.pandaria.io/ip": "10.1.1.5", "flatnetwork.pandaria.io/subnet": "blue",
    });
    let jobs = json!({ "template": { "metadata": { "annotations": annotations } } });
    let template = json!({ "metadata": { "annotations": { "a": "b" } }, "spec": jobs });
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "c", "uid": "u" },
        "spec": { "schedule": "* * * * *", "jobTemplate": template },
    });
    assert_eq!(
        addresses(read::<CronJob>(cron).unwrap().as_ref()),
        ["10.1.1.5"]
    );
    let job = |owners: Value, conditions: Value| {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": "j", "uid": "u", "ownerReferences": owners },
            "spec": jobs, "status": { "conditions": conditions },
        });
        addresses(read::<Job>(job).unwrap().as_ref())
    };
    let owner = json!([{
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": true,
    }]);
    assert_eq!(job(json!([]), json!([])), ["10.1.1.5"]);
    assert!(job(owner, json!([])).is_empty());
    let over = json!([{ "type": "Complete", "status": "True" }]);
    assert!(job(json!([]), over).is_empty());
}
