//! Defects of the original migrator.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::site::Report;
use super::*;

/// Everything that a subnet can have, also what no version of macvlan has.
const RICH: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanSubnet
metadata:
  name: rich
  namespace: kube-system
  labels: {team: net}
  annotations: {"on": "yes", long: "a text of more than eighty characters, which writers of YAML like to fold into several lines"}
spec:
  master: eth0
  vlan: 10
  cidr: 192.168.1.0/24
  mode: ""
  gateway: 192.168.1.1
  ranges: [{rangeStart: 192.168.1.10, rangeEnd: 192.168.1.20}]
  routes: [{dst: 10.0.0.0/8, gw: 192.168.1.2, iface: eth1}]
  podDefaultGateway: {enable: true, serviceCidr: 10.43.0.0/16}
  ipDelayReuse: 30
  more: {deep: [1, "1", "0x1f", "1:30", 1.5, true], empty: {}}
---
apiVersion: v1
kind: Service
metadata:
  name: web-macvlan
  namespace: shop
  annotations: {k8s.v1.cni.cncf.io/networks: static-macvlan-cni-attach}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
"#;

const RICH_SUBNET: &str =
    "/apis/macvlan.cluster.cattle.io/v1/namespaces/kube-system/macvlansubnets/rich";
const COMPANION: &str = "/api/v1/namespaces/shop/services/web-macvlan";

/// The original decodes subnets as addresses, and so saves their CIDR alone.
#[tokio::test]
async fn g1_23_a_backup_has_subnets_as_they_are_and_restores_them_into_an_empty_cluster() {
    let from = Bed::with("from", RICH).await;
    let file = from.file("backup.yaml");
    let shown = file.display();
    let saved = from.run(&format!("backup -o {shown}")).await;
    let table = saved.success().unwrap();
    assert!(table.contains("kube-system/rich"), "{table}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let refused = from.run(&format!("backup -o {shown}")).await;
    assert_eq!(refused.code, 2, "it may be the only one: {refused:?}");
    let replaced = from.run(&format!("backup --yes -o {shown}")).await;
    replaced.success().unwrap();

    let to = Bed::empty("to").await;
    let line = format!("restore --yes --interval 0 -f {shown}");
    let failed = to.run(&format!("{line} -o json")).await;
    assert_eq!(failed.code, 1, "the Service has no namespace: {failed:?}");
    let report = Report(serde_json::from_str(&failed.stdout).unwrap());
    assert_eq!(report.outcomes(), ["failed", "restored"]);
    assert_eq!(report.outcome("Service", "shop/web-macvlan"), "failed");
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    to.plane.apply(&namespace.to_string()).await.unwrap();
    let report = to.report(&line).await;
    assert_eq!(report.outcomes(), ["restored", "skipped"]);
    let kept = |object: &Value| {
        let metadata = &object["metadata"];
        [
            &object["spec"],
            &metadata["labels"],
            &metadata["annotations"],
        ]
        .map(Value::clone)
    };
    let (before, after) = (from.get(RICH_SUBNET).await, to.get(RICH_SUBNET).await);
    assert_eq!(kept(&before), kept(&after));
    let after = to.get(COMPANION).await;
    assert_eq!(after["spec"]["clusterIP"], "None");
    assert_eq!(
        after["spec"]["ports"],
        from.get(COMPANION).await["spec"]["ports"]
    );
    let again = to.report(&line).await;
    assert_eq!(again.outcomes(), ["skipped"]);
}

#[tokio::test]
async fn parts_of_a_backup_can_be_left_out() {
    let bed = Bed::with("parts", RICH).await;
    for (name, flags, has, has_not) in [
        (
            "v1",
            "--v2=false --v1-service=false",
            "kind: MacvlanSubnet",
            "kind: Service",
        ),
        (
            "v2",
            "--v1=false --v1-service=false",
            "flatnetworkips",
            "kind: MacvlanSubnet",
        ),
        (
            "service",
            "--v1=false --v2=false",
            "kind: Service",
            "CustomResourceDefinition",
        ),
    ] {
        let file = bed.file(name);
        let command = format!("backup {flags} -o {}", file.display());
        let saved = bed.run(&command);
        saved.await.success().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            text.contains(has) && !text.contains(has_not),
            "{name}: {text}"
        );
        assert!(!text.contains("resourceVersion"), "{name}: {text}");
    }
}

const ODD: &str = r#"
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanSubnet
metadata: {name: broken, namespace: kube-system}
spec: {master: eth0, vlan: 20, cidr: 10.2.0.0/24, ranges: [{rangeStart: ten, rangeEnd: 10.2.0.9}]}
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanSubnet
metadata: {name: partly, namespace: kube-system}
spec: {master: eth0, vlan: 30, cidr: 10.3.0.0/24, gateway: gw, routes: [{dst: 10.9.0.0/16, gw: 10.3.0.1}]}
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanSubnet
metadata: {name: elsewhere, namespace: shop}
spec: {master: eth0, cidr: 10.4.0.0/24}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: stranded, namespace: shop}
spec:
  selector: {matchLabels: {app: stranded}}
  template:
    metadata:
      labels: {app: stranded}
      annotations: {macvlan.pandaria.cattle.io/ip: auto, macvlan.pandaria.cattle.io/subnet: broken}
    spec: {containers: [{name: a, image: a}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: spaced, namespace: shop}
spec:
  selector: {matchLabels: {app: spaced}}
  template:
    metadata:
      labels: {app: spaced}
      annotations:
        macvlan.pandaria.cattle.io/ip: auto
        macvlan.pandaria.cattle.io/subnet: lab
        k8s.v1.cni.cncf.io/networks: |-
          [ { "interface": "eth1", "name": "static-macvlan-cni-attach" }, { "name": "storage" } ]
    spec: {containers: [{name: a, image: a}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: both, namespace: shop}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    metadata:
      annotations: {macvlan.pandaria.cattle.io/ip: auto, macvlan.pandaria.cattle.io/subnet: lab}
    spec:
      template:
        metadata:
          annotations: {macvlan.pandaria.cattle.io/ip: auto, macvlan.pandaria.cattle.io/subnet: lab}
        spec: {restartPolicy: Never, containers: [{name: a, image: a}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: paused, namespace: shop}
spec:
  suspend: true
  template:
    metadata:
      annotations: {macvlan.pandaria.cattle.io/ip: auto, macvlan.pandaria.cattle.io/subnet: lab}
    spec: {restartPolicy: Never, containers: [{name: a, image: a}]}
"#;

/// The original ends at the first Job, before the Services.
#[tokio::test]
async fn g1_23_jobs_and_objects_that_make_no_sense_stop_nothing() {
    let bed = Bed::with("odd", &format!("{SITE}---{ODD}")).await;
    let ended = bed.run("migrate --yes --interval 0 -o json").await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let report = Report(serde_json::from_str(&ended.stdout).unwrap());
    for (kind, name, outcome, says) in [
        (
            "MacvlanSubnet",
            "kube-system/broken",
            "failed",
            "spec.ranges[0].rangeStart",
        ),
        (
            "MacvlanSubnet",
            "kube-system/partly",
            "migrated",
            "spec.gateway",
        ),
        (
            "MacvlanSubnet",
            "kube-system/partly",
            "migrated",
            "spec.routes[0]",
        ),
        ("MacvlanSubnet", "shop/elsewhere", "skipped", "kube-system"),
        (
            "Deployment",
            "shop/stranded",
            "failed",
            "cattle-flat-network/broken",
        ),
        ("Deployment", "shop/spaced", "migrated", "storage"),
        (
            "CronJob",
            "shop/both",
            "migrated",
            "spec.jobTemplate.metadata",
        ),
        ("Job", "shop/once", "skipped", "make it again"),
        (
            "Job",
            "shop/paused",
            "migrated",
            "flatnetwork.pandaria.io/ip",
        ),
        (
            "Service",
            "shop/web-macvlan",
            "migrated",
            "web-flat-network",
        ),
    ] {
        assert_eq!(report.outcome(kind, name), outcome, "{kind} {name}");
        let said = report.object(kind, name).to_string();
        assert!(said.contains(says), "{kind} {name}: {said}");
    }
    let both = bed.workload("cronjobs/both").await;
    let flat = json!({
        "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "lab",
    });
    let jobs = &both["spec"]["jobTemplate"];
    assert_eq!(jobs["metadata"]["annotations"], flat);
    assert_eq!(jobs["spec"]["template"]["metadata"]["annotations"], flat);
    let paused = bed.workload("jobs/paused").await;
    assert_eq!(paused["spec"]["template"]["metadata"]["annotations"], flat);
    let partly = bed.subnet("partly").await;
    assert_eq!(partly["spec"]["routes"], Value::Null);
    assert_eq!(partly["spec"]["gateway"], "");
}

#[tokio::test]
async fn g1_23_any_json_of_the_networks_is_converted() {
    let bed = Bed::with("spaced", &format!("{SITE}---{ODD}")).await;
    let ended = bed.run("migrate --yes --interval 0 --workload deployment --migrate-service=false");
    assert_eq!(ended.await.code, 1, "one Deployment is stranded");
    let spaced = bed.workload("deployments/spaced").await;
    let annotations = &spaced["spec"]["template"]["metadata"]["annotations"];
    let networks = annotations["k8s.v1.cni.cncf.io/networks"].as_str().unwrap();
    let networks: Value = serde_json::from_str(networks).unwrap();
    assert_eq!(
        networks,
        json!([{ "interface": "eth1", "name": "rancher-flat-network" }, { "name": "storage" }])
    );
    let other = bed.workload("statefulsets/db").await;
    assert!(other.to_string().contains("macvlan.pandaria.cattle.io/ip"));
    let companion = "/api/v1/namespaces/shop/services/web-flat-network";
    assert!(bed.find(companion).await.is_none());
}
