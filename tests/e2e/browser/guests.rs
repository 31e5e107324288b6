//! What the admin of a Rancher sees of it: its guest clusters, what its projects hold and wait for, and the Nodes of a cluster
//! with rules.

use std::time::Duration;

use fipd_tests::scenario::{Scenario, config_of};
use fipd_tests::testbed::{Browser, ControlPlane, SiteOptions, wait_until};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::pages::{checked_browser, look};
use super::{initial_admin, no_complaints, sign_in};

const GROUP: &str = "rancher.k8s.binbash.org";
const DEADLINE: Duration = Duration::from_secs(60);
/// A cluster with rules; nobody else decides there.
const WITH_RULES: &str = "[[cluster]]\nname = \"racks\"\nkubeconfig = \"lab.kubeconfig\"\nsystems = [\"ip-rule\"]\n\
    [cluster.ip-rule]\nleader-elect = false\n";

/// A Rancher with two guests, of which one has no pool, with a project that has nearly used up its quota, and with a pool for
/// which it queues.
async fn site() -> Scenario {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&["shop", "lab"]))
        .await
        .unwrap();
    let site = &scenario.site;
    let apply = async |kind: &str, meta: Value, spec: Value| {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1beta2"), "kind": kind, "metadata": meta, "spec": spec,
        });
        site.rancher.apply(&object.to_string()).await.unwrap();
    };
    let range = json!({ "start": "10.60.0.10", "end": "10.60.0.20" });
    let pool = json!({
        "ipConfig": { "family": "IPv4", "subnet": "10.60.0.0/24", "pool": range },
        "targetCluster": "shop", "targetNetwork": "vlan-1", "targetNetworkInterface": "eth1",
    });
    let default = json!({ "rancher-fip-default-network": "true" });
    let meta = json!({ "name": "shop--vlan-1", "annotations": default });
    apply("FloatingIPPool", meta, pool).await;
    let quota =
        json!({ "displayName": "Web shop", "floatingIPQuota": { "shop--vlan-1": 4, "gone": 2 } });
    let meta = json!({ "name": "p-shop" });
    apply("FloatingIPProjectQuota", meta, quota).await;
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "c-m-shop" } });
    site.rancher.apply(&namespace.to_string()).await.unwrap();
    let few = scenario.add_pool("few", "10.61.0.0/24", "10.61.0.10", "10.61.0.10");
    few.await.unwrap();
    for (name, pool) in [
        ("web", "shop--vlan-1"),
        ("api", "shop--vlan-1"),
        ("spare", "shop--vlan-1"),
        ("first", "few"),
        ("second", "few"),
        ("third", "few"),
    ] {
        let mut labels = json!({ format!("{GROUP}/project-name"): "p-shop" });
        if ["web", "api"].contains(&name) {
            labels[format!("{GROUP}/cluster-name")] = json!("c-m-shop");
        }
        let meta = json!({ "name": name, "namespace": "c-m-shop", "labels": labels });
        let spec = json!({ "floatingIPPool": pool });
        apply("FloatingIP", meta, spec).await;
    }
    add_nodes(&site.cluster("lab").unwrap().plane).await;
    let config =
        config_of(site, &[], "") + "[cluster.rancher-fip.cluster-manager]\nenabled = true\n";
    let advertise = format!("[api]\nadvertise = \"{}\"\n", scenario.fipd.url());
    let config = config + WITH_RULES + &advertise;
    scenario.fipd.write_config(&config).unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario
}

/// A name without a place to break it.
fn long_name() -> String {
    "n".repeat(63)
}

/// Two Nodes, of which one is dead, and an Agent.
async fn add_nodes(plane: &ControlPlane) {
    let texts = fipd_crds::MANIFESTS.iter();
    let own = texts.filter(|(name, _)| name.starts_with("api.operator.brtrm.dev_"));
    let definitions: String = own.map(|(_, text)| format!("---\n{text}")).collect();
    plane.install_crds(&definitions).await.unwrap();
    let name = long_name();
    for (kind, version, name) in [
        ("Node", "v1", "n1"),
        ("Node", "v1", name.as_str()),
        ("Agent", "api.operator.brtrm.dev/v1alpha1", name.as_str()),
    ] {
        let labels = json!({ "node-role.kubernetes.io/control-plane": "" });
        let object = json!({
            "apiVersion": version, "kind": kind, "metadata": { "name": name, "labels": labels }, "spec": {},
        });
        plane.apply(&object.to_string()).await.unwrap();
    }
    let dead = json!({ "status": { "conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    let nodes: Api<Node> = Api::all(plane.client().await.unwrap());
    let patch = Patch::Strategic(dead);
    let by = PatchParams::default();
    nodes.patch_status(&name, &by, &patch).await.unwrap();
}

/// Opens a page until it shows all of these.
pub(super) async fn wait_shown(browser: &Browser, url: &str, parts: &[&str]) {
    wait_until(&format!("{url} shows {parts:?}"), DEADLINE, || async {
        let open = browser.open(url).await;
        open.map_err(|error| error.to_string())?;
        let page = browser.text("main").await;
        let page = page.map_err(|error| error.to_string())?;
        let all = parts.iter().all(|part| page.contains(part));
        all.then_some(()).ok_or(page)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn guests_and_projects_are_shown_with_what_they_lack() {
    let scenario = site().await;
    let fipd = &scenario.fipd;
    let browser = checked_browser().await;
    sign_in(&browser, fipd, &initial_admin(fipd)).await;
    let guests = format!("{}/ui/guests", fipd.url());
    let parts = ["shop", "Ready", "p-shop", "shop--vlan-1", "lab"];
    let mut wrong = Vec::new();
    wait_shown(&browser, &guests, &parts).await;
    no_complaints(&browser).await;
    look(&browser, "guests-of-a-site", &mut wrong).await;
    let tenants = format!("{}/ui/tenants", fipd.url());
    wait_shown(&browser, &tenants, &["p-shop", "shop--vlan-1"]).await;
    look(&browser, "tenants-of-a-site", &mut wrong).await;
    let row = browser.text("#live-tenants tbody").await.unwrap();
    assert!(row.contains('3') && row.contains('4'), "{row}");
    let hosts = format!("{}/ui/hosts", fipd.url());
    let (name, dead_since) = (long_name(), "2026-01-01 00:00:00 UTC");
    let parts = [name.as_str(), "control-plane", dead_since, "Agents"];
    wait_shown(&browser, &hosts, &parts).await;
    look(&browser, "hosts-of-a-site", &mut wrong).await;
    let agents = format!("{hosts}?of=agents");
    wait_shown(&browser, &agents, &[&name, "Pods that are ready"]).await;
    look(&browser, "agents-of-a-site", &mut wrong).await;
    let few = format!("{}/ui/search?q=few", fipd.url());
    wait_shown(&browser, &few, &["1 of 1 used", "First in the queue"]).await;
    look(&browser, "pool-with-a-queue", &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
