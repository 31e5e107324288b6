//! The rows of the conformance table.

use serde_json::{Value, json};

use super::site::Report;
use super::*;

const MIGRATE: &str = "migrate --yes --interval 0";

#[tokio::test]
async fn rows_115_116_117_120_122_a_site_is_looked_at_and_then_migrated_once() {
    let bed = Bed::with("rows", SITE).await;
    row_122_a_dry_run_prints_every_change_and_writes_nothing(&bed).await;
    let report = bed.report(MIGRATE).await;
    assert_eq!(report.outcomes(), ["migrated", "skipped"]);
    row_115_subnets(&bed).await;
    row_117_workloads(&bed, &report).await;
    row_120_services(&bed).await;
    ingresses(&bed).await;
    let before = bed.versions().await;
    let again = bed.report(MIGRATE).await;
    assert_eq!(again.outcomes(), ["skipped"], "row 116");
    assert_eq!(bed.versions().await, before, "row 116");
    let named = |report: &Report| report.0["objects"].as_array().unwrap().len();
    // The namespace is no object of the site.
    assert_eq!(named(&again), named(&report) - 1, "row 116");
}

async fn row_122_a_dry_run_prints_every_change_and_writes_nothing(bed: &Bed) {
    let before = bed.versions().await;
    let report = bed.report("migrate --dry-run").await;
    assert_eq!(report.outcomes(), ["skipped", "would-change"]);
    for (kind, name, says) in [
        ("Namespace", "cattle-flat-network", "make the namespace"),
        (
            "MacvlanSubnet",
            "kube-system/lab",
            "\"quarantineSeconds\":30",
        ),
        (
            "Deployment",
            "shop/web",
            "becomes flatnetwork.pandaria.io/ip: \"auto\"",
        ),
        ("Deployment", "shop/web", "rancher-flat-network"),
        (
            "Deployment",
            "shop/web",
            "label macvlan.panda.io/macvlanIpType is removed",
        ),
        (
            "DaemonSet",
            "shop/agent",
            "ipDelayReuseTimestamp: \"1700000000\" is removed",
        ),
        (
            "StatefulSet",
            "shop/db",
            "aa:bb:cc:dd:ee:01-aa:bb:cc:dd:ee:02",
        ),
        (
            "CronJob",
            "shop/nightly",
            "spec.jobTemplate.spec.template.metadata",
        ),
        (
            "Service",
            "shop/web-macvlan",
            "make Service shop/web-flat-network",
        ),
        (
            "Ingress",
            "shop/front",
            "becomes flatnetwork.pandaria.io/ingress",
        ),
    ] {
        assert_eq!(report.outcome(kind, name), "would-change", "{kind} {name}");
        let changes = report.object(kind, name)["changes"].to_string();
        let says = Value::from(says).to_string();
        assert!(
            changes.contains(says.trim_matches('"')),
            "{kind} {name}: {changes}"
        );
    }
    let cleaned = bed.report("clean --dry-run").await;
    assert_eq!(cleaned.outcomes(), ["would-change"]);
    let file = bed.file("site.yaml").display().to_string();
    let saved = bed.run(&format!("backup --output {file}")).await;
    saved.success().unwrap();
    let restored = bed.report(&format!("restore --dry-run -f {file}")).await;
    assert_eq!(restored.outcomes(), ["skipped"]);
    let table = bed.run("migrate --dry-run").await.success().unwrap();
    assert!(
        table.contains("would-change") && table.contains("dry run"),
        "{table}"
    );
    assert_eq!(bed.versions().await, before, "row 122");
}

async fn row_115_subnets(bed: &Bed) {
    let lab = bed.subnet("lab").await;
    let expected = json!({
        "flatMode": "macvlan", "ipvlanFlag": "", "master": "eth0", "vlan": 10, "cidr": "192.168.1.0/24",
        "mode": "bridge", "gateway": "192.168.1.1",
        "ranges": [{ "from": "192.168.1.10", "to": "192.168.1.20" }],
        "routes": [{ "dev": "eth1", "dst": "10.0.0.0/8", "via": "192.168.1.2" }],
        "routeSettings": { "flatNetworkDefaultGateway": true, "addServiceCIDR": true },
        "quarantineSeconds": 30,
    });
    assert_eq!(lab["spec"], expected, "row 115");
    assert_eq!(lab["metadata"]["labels"], json!({ "team": "net" }));
    assert_eq!(lab["metadata"]["annotations"], json!({ "note": "rack 7" }));
    let store = bed.subnet("store").await;
    assert_eq!(store["spec"]["cidr"], "192.168.2.0/24");
    assert_eq!(store["spec"]["gateway"], "");
}

async fn row_117_workloads(bed: &Bed, report: &Report) {
    let web = bed.workload("deployments/web").await;
    assert_eq!(
        web["spec"]["template"]["metadata"]["annotations"],
        json!({
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "lab",
            "flatnetwork.pandaria.io/ingress": "true",
            "k8s.v1.cni.cncf.io/networks": r#"[{"name":"rancher-flat-network","interface":"eth1"}]"#,
        }),
        "row 117"
    );
    assert_eq!(
        web["metadata"]["labels"],
        json!({ "team": "shop" }),
        "row 117"
    );
    let agent = bed.workload("daemonsets/agent").await;
    assert_eq!(
        agent["spec"]["template"]["metadata"]["annotations"],
        json!({
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "store",
            "flatnetwork.pandaria.io/flatNetworkService": "disabled",
        })
    );
    let db = bed.workload("statefulsets/db").await;
    assert_eq!(
        db["spec"]["template"]["metadata"]["annotations"],
        json!({
            "flatnetwork.pandaria.io/ip": "192.168.2.10-192.168.2.11",
            "flatnetwork.pandaria.io/mac": "aa:bb:cc:dd:ee:01-aa:bb:cc:dd:ee:02",
            "flatnetwork.pandaria.io/subnet": "store",
            "v1.multus-cni.io/default-network": r#"[{"name":"rancher-flat-network","interface":"eth0"}]"#,
        })
    );
    for (kind, name, outcome) in [
        ("Deployment", "shop/web", "migrated"),
        ("DaemonSet", "shop/agent", "migrated"),
        ("StatefulSet", "shop/db", "migrated"),
        ("CronJob", "shop/nightly", "migrated"),
        ("Job", "shop/once", "skipped"),
    ] {
        assert_eq!(report.outcome(kind, name), outcome, "{kind}");
    }
    assert!(
        !report.0.to_string().contains("shop/plain"),
        "it is on neither network"
    );
}

async fn ingresses(bed: &Bed) {
    let front = bed.get("/apis/networking.k8s.io/v1/namespaces/shop/ingresses/front");
    let annotations = front.await["metadata"]["annotations"].take();
    let flat = json!({ "flatnetwork.pandaria.io/ingress": "true", "note": "mine" });
    assert_eq!(annotations, flat);
}

async fn row_120_services(bed: &Bed) {
    let new = "/api/v1/namespaces/shop/services/web-flat-network";
    let new = bed.get(new).await;
    assert_eq!(new["spec"]["clusterIP"], "None", "row 120");
    assert_eq!(new["spec"]["selector"], json!({ "app": "web" }));
    let port = &new["spec"]["ports"][0];
    assert_eq!(
        (&port["port"], &port["targetPort"]),
        (&json!(80), &json!("http"))
    );
    assert_eq!(
        new["metadata"]["annotations"],
        json!({ "k8s.v1.cni.cncf.io/networks": "rancher-flat-network" })
    );
    let old = bed
        .find("/api/v1/namespaces/shop/services/web-macvlan")
        .await;
    assert!(old.is_some(), "row 120: the old one is kept");
}

#[tokio::test]
async fn row_119_clean_is_refused_while_a_pod_has_an_address() {
    let pod = r#"
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanIP
metadata: {name: web-0, namespace: shop}
spec: {subnet: lab, podId: u, cidr: 192.168.1.10/24, mac: aa:bb:cc:dd:ee:ff}
"#;
    let bed = Bed::with("clean", &format!("{SITE}---{pod}")).await;
    let refused = bed.run("clean --yes --interval 0 -o json").await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("shop/web-0"),
        "row 119: {}",
        refused.stderr
    );
    let report = Report(serde_json::from_str(&refused.stdout).unwrap());
    assert_eq!(report.outcome("MacvlanIP", "shop/web-0"), "skipped");
    let subnets = "/apis/macvlan.cluster.cattle.io/v1/macvlansubnets";
    let left = bed.get(subnets).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 2, "row 119");

    bed.delete("/apis/macvlan.cluster.cattle.io/v1/namespaces/shop/macvlanips/web-0")
        .await;
    let report = bed.report("clean --yes --interval 0").await;
    assert_eq!(report.outcomes(), ["deleted"]);
    for name in ["macvlanips", "macvlansubnets"] {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        bed.wait_gone(&format!("{definitions}/{name}.macvlan.cluster.cattle.io"))
            .await;
        bed.wait_gone(&format!("/apis/macvlan.cluster.cattle.io/v1/{name}"))
            .await;
    }
    let again = bed.report("clean --yes").await;
    assert_eq!(again.outcomes(), ["skipped"]);
}

/// What pods on macvlan have is given to nobody else until they are gone.
#[tokio::test]
async fn addresses_of_pods_on_macvlan_are_excluded_until_the_pods_are_gone() {
    let pods = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata:
  name: web-0
  namespace: shop
  annotations: {macvlan.pandaria.cattle.io/ip: auto, macvlan.pandaria.cattle.io/subnet: lab}
spec: {containers: [{name: a, image: a}]}
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanIP
metadata: {name: web-0, namespace: shop}
spec: {subnet: lab, podId: u, cidr: 192.168.1.10/24, mac: aa:bb:cc:dd:ee:ff}
---
apiVersion: v1
kind: Pod
metadata:
  name: bare-0
  namespace: shop
  annotations: {macvlan.pandaria.cattle.io/ip: 192.168.1.14, macvlan.pandaria.cattle.io/subnet: lab}
spec: {containers: [{name: a, image: a}]}
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanIP
metadata: {name: bare-0, namespace: shop}
spec: {subnet: lab, podId: w, cidr: 192.168.1.14/24, mac: aa:bb:cc:dd:ee:fd}
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanIP
metadata: {name: gone-0, namespace: shop}
spec: {subnet: lab, podId: v, cidr: 192.168.1.11/24, mac: aa:bb:cc:dd:ee:fe}
"#;
    let bed = Bed::with("taken", &format!("{SITE}---{pods}")).await;
    let report = bed.report(MIGRATE).await;
    let named = report.object("StatefulSet", "shop/db")["notes"].to_string();
    assert!(named.contains("scale it to 0"), "{named}");
    let lab = bed.subnet("lab").await;
    let noted = &lab["metadata"]["annotations"]["fipd.io/migrated-addresses"];
    let expected = json!(["192.168.1.10", "192.168.1.14"]);
    assert_eq!(lab["spec"]["exclusions"], expected);
    assert_eq!(*noted, "192.168.1.10,192.168.1.14");
    let again = bed.report(MIGRATE).await;
    assert_eq!(again.outcomes(), ["skipped"]);

    let addresses = "/apis/macvlan.cluster.cattle.io/v1/namespaces/shop/macvlanips";
    for pod in ["web-0", "bare-0"] {
        bed.delete(&format!("{addresses}/{pod}")).await;
    }
    let last = bed.report(MIGRATE).await;
    let subnet = "cattle-flat-network/lab";
    assert_eq!(last.outcome("FlatNetworkSubnet", subnet), "migrated");
    let lab = bed.subnet("lab").await;
    assert_eq!(lab["spec"]["exclusions"], Value::Null);
    let noted = &lab["metadata"]["annotations"]["fipd.io/migrated-addresses"];
    assert_eq!(*noted, Value::Null);
}
