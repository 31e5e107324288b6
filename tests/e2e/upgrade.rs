//! An earlier fipd's store, configuration and roles under this one.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use fipd_crds::fipd_io::AddressClaim;
use fipd_tests::scenario::{Scenario, config_of, create_services, wait_assigned, write_kubeconfig};
use fipd_tests::testbed::{RESTRICTED_USER, SiteOptions, wait_until};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

/// The roles of that fipd, as `packaging/rbac` had them.
const MANAGEMENT: &str = include_str!("upgrade/rancher-fip-management.yaml");
const DOWNSTREAM: &str = include_str!("upgrade/rancher-fip-downstream.yaml");
const CLAIMS: &str = include_str!("upgrade/claims.yaml");
const DEADLINE: Duration = Duration::from_secs(90);
const POOL: &str = "a--public";
const WEBHOOK: &str = "fipd-rancher-fip-validator";

async fn shown(scenario: &Scenario, command: &[&str]) -> Value {
    let mut command = command.to_vec();
    command.extend(["-o", "json"]);
    scenario.fipd.cli(command).await.unwrap().json().unwrap()
}

/// The addresses that the address book has somebody for.
async fn leased(scenario: &Scenario) -> BTreeSet<String> {
    let list = shown(scenario, &["lease", "list"]).await;
    let leases = list["leases"].as_array().unwrap().iter();
    leases
        .map(|lease| lease["address"].as_str().unwrap().to_owned())
        .collect()
}

/// What was uploaded to that fipd under this name: a cluster with claims, by the roles of that time.
async fn uploaded(scenario: &Scenario, name: &str) {
    let plane = &scenario.site.cluster(name).unwrap().plane;
    let own = fipd_crds::MANIFESTS
        .iter()
        .filter(|(name, _)| name.starts_with("fipd.io_"));
    let definitions: String = own.map(|(_, text)| format!("---\n{text}")).collect();
    plane.install_crds(&definitions).await.unwrap();
    plane.apply(CLAIMS).await.unwrap();
    plane.bind_role("fipd-claims", None).await.unwrap();
    let kept = json!({
        "added": { name: {
            "systems": ["claims"], "settings": "[claims]\npools = [\"lab\"]\n",
            "kubeconfig": plane.kubeconfig_of(RESTRICTED_USER),
        } },
        "detached": [], "held": { name: ["claims"] },
    });
    let data_dir = scenario.fipd.data_dir();
    fs::write(data_dir.join("clusters.json"), kept.to_string()).unwrap();
    fs::write(data_dir.join("attached-clusters"), format!("{name}\n")).unwrap();
}

/// The configuration of that fipd: the webhook, and a second way to the cluster `a`.
fn configuration(scenario: &Scenario) -> String {
    let one = config_of(&scenario.site, &["a"], "");
    let at = one.find("[[cluster]]\nname = \"a\"").unwrap();
    let second = one[at..].replace("\"a\"", "\"a-too\"");
    let second = second.replace("\"a.kubeconfig\"", "\"a-too.kubeconfig\"");
    format!(
        "[api]\nadvertise = \"{}\"\n{one}{second}",
        scenario.fipd.url()
    )
}

/// The webhook as that fipd wrote it.
async fn earlier_webhook(scenario: &Scenario) {
    let webhook = |plural: &str, scope: &str| {
        json!({
            "name": format!("{plural}.rancher-fip.fipd.io"), "admissionReviewVersions": ["v1"],
            "clientConfig": { "url": format!("{}/admission/rancher/{plural}", scenario.fipd.url()) },
            "failurePolicy": "Ignore", "matchPolicy": "Equivalent", "sideEffects": "None", "timeoutSeconds": 3,
            "rules": [{
                "apiGroups": ["rancher.k8s.binbash.org"], "apiVersions": ["v1beta1", "v1beta2"],
                "operations": ["CREATE", "UPDATE"], "resources": [plural], "scope": scope,
            }],
        })
    };
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": WEBHOOK, "labels": { "app.kubernetes.io/managed-by": "fipd" } },
        "webhooks": [webhook("floatingips", "Namespaced"), webhook("floatingippools", "Cluster")],
    });
    scenario
        .site
        .rancher
        .apply(&object.to_string())
        .await
        .unwrap();
}

/// Waits until a cluster is in a state; what else is shown of it.
async fn until_state(scenario: &Scenario, name: &str, state: &str) -> Value {
    wait_until(&format!("{name} is {state}"), DEADLINE, || async {
        let view = shown(scenario, &["clusters", "show", name]).await;
        match view["state"] == state {
            true => Ok(view),
            false => Err(view.to_string()),
        }
    })
    .await
    .unwrap()
}

/// A site whose clusters grant fipd what the earlier roles say and no more, and that fipd's store.
async fn earlier() -> Scenario {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&["a", "up"]))
        .await
        .unwrap();
    let rancher = &scenario.site.rancher;
    let plane = &scenario.site.cluster("a").unwrap().plane;
    rancher.apply(MANAGEMENT).await.unwrap();
    let role = "fipd-rancher-fip-management";
    rancher.bind_role(role, None).await.unwrap();
    plane.apply(DOWNSTREAM).await.unwrap();
    let role = "fipd-rancher-fip-downstream";
    plane.bind_role(role, None).await.unwrap();
    for (name, plane) in [("rancher", rancher), ("a", plane), ("a-too", plane)] {
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&scenario.fipd, name, &kubeconfig).unwrap();
    }
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("../daemon/store/tests/fixtures");
    fs::create_dir_all(scenario.fipd.data_dir()).unwrap();
    let there = scenario.fipd.data_dir().join("fipd.redb");
    fs::copy(store.join("store-v1-full.redb"), there).unwrap();
    uploaded(&scenario, "up").await;
    earlier_webhook(&scenario).await;
    let configuration = configuration(&scenario);
    scenario.fipd.write_config(&configuration).unwrap();
    scenario
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_store_and_earlier_roles_go_on_under_this_fipd() {
    let mut scenario = earlier().await;
    scenario
        .add_pool(POOL, "10.77.0.0/24", "10.77.0.1", "10.77.0.30")
        .await
        .unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    let kept = leased(&scenario).await;
    for address in [
        "10.60.0.1",
        "10.60.0.2",
        "10.60.0.4",
        "10.60.0.6",
        "fd00:60::7",
        "192.0.2.7",
    ] {
        assert!(kept.contains(address), "{address}: {kept:?}");
    }
    let people = shown(&scenario, &["user", "list"]).await.to_string();
    assert!(people.contains("\"ann\""), "{people}");
    let tokens = shown(&scenario, &["token", "list"]).await.to_string();
    assert!(tokens.contains("token-17") && tokens.contains("token-18"));
    // The earlier fipd had restored it a moment before.
    let held = shown(&scenario, &["hold", "show"]).await;
    assert_eq!(held["held"], true, "{held}");
    shown(&scenario, &["hold", "lift", "--reason", "a test"]).await;
    // The second way is not known to that store, needs what no earlier role grants, and says so; an admin's word is enough.
    until_state(&scenario, "a", "ready").await;
    let second = until_state(&scenario, "a-too", "identity-conflict").await;
    let why = second["last_error"].as_str().unwrap();
    assert!(why.contains("packaging/rbac/identity.yaml"), "{why}");
    let join = ["clusters", "join", "a-too", "--as", "a"];
    scenario.fipd.cli(join).await.unwrap().success().unwrap();
    until_state(&scenario, "a-too", "joined").await;
    // What this fipd looks at beyond those roles holds neither the adoption nor an address back.
    let api: Api<Service> = Api::default_namespaced(scenario.client("a").await.unwrap());
    create_services(&api, &["web".to_owned()], POOL)
        .await
        .unwrap();
    let given = wait_assigned(&api, 1, DEADLINE).await.unwrap();
    let address = given["web"][0].to_string();
    assert!(!kept.contains(&address) && address.starts_with("10.77.0."));
    assert_eq!(leased(&scenario).await.len(), kept.len() + 1);
    // The finalizer lets go.
    api.delete("web", &DeleteParams::default()).await.unwrap();
    wait_until("the Service is gone", DEADLINE, || async {
        match api.get_opt("web").await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("still there".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
    .unwrap();
    // The uploaded cluster is served.
    until_state(&scenario, "up", "ready").await;
    let pool = ["pool", "create", "lab", "--cidr", "10.78.0.0/24"];
    scenario.fipd.cli(pool).await.unwrap().success().unwrap();
    let client = scenario.client("up").await.unwrap();
    let claims: Api<AddressClaim> = Api::namespaced(client, "default");
    let claim = json!({
        "apiVersion": "fipd.io/v1alpha1", "kind": "AddressClaim", "metadata": { "name": "vm" },
        "spec": { "poolRef": { "name": "lab" } },
    });
    let claim = serde_json::from_value(claim).unwrap();
    claims.create(&PostParams::default(), &claim).await.unwrap();
    wait_until("the claim has its address", DEADLINE, || async {
        let claim = claims.get("vm").await.map_err(|error| error.to_string())?;
        let claim = json!(claim);
        let address = claim["status"]["address"].as_str();
        address.map(drop).ok_or(claim.to_string())
    })
    .await
    .unwrap();
    // The webhook is brought up to date.
    let webhooks: Api<ValidatingWebhookConfiguration> =
        Api::all(scenario.site.rancher.client().await.unwrap());
    wait_until("the webhook is renewed", DEADLINE, || async {
        let webhook = webhooks.get(WEBHOOK).await;
        let webhook = json!(webhook.map_err(|error| error.to_string())?);
        let all = webhook["webhooks"].as_array().unwrap();
        let fresh = |one: &Value| {
            one["matchConditions"].is_array() && one["rules"].to_string().contains("DELETE")
        };
        match all.iter().any(fresh) && all.len() > 2 {
            true => Ok(()),
            false => Err(webhook.to_string()),
        }
    })
    .await
    .unwrap();
    // With what was written since, it starts again.
    scenario.fipd.kill9().unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    assert!(leased(&scenario).await.is_superset(&kept));
    let checked = scenario.fipd.cli(["check"]).await.unwrap();
    assert!(!checked.stdout.contains("damage"), "{checked:?}");
}
