//! Which cluster a kubeconfig leads to: clones, restored etcds and second kubeconfigs have the same UIDs.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::time::Duration;

use fipd_crds::fipd_io::AddressClaim;
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER, wait_until,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
/// Two lists and a read, a minute apart, and what is left of three minutes.
const RELEASED: Duration = Duration::from_secs(180);
/// In which what does not happen would have happened.
const A_WHILE: Duration = Duration::from_secs(4);
const ROLE: &str = include_str!("../../packaging/rbac/claims.yaml");
const SETTINGS: &str = "[claims]\npools = [\"lab\"]\n";

/// A cluster with what fipd needs in it for claims.
async fn cluster(name: &str) -> ControlPlane {
    let plane = ControlPlane::start(name, ControlPlaneOptions::default())
        .await
        .unwrap();
    let own = fipd_crds::MANIFESTS
        .iter()
        .filter(|(name, _)| name.starts_with("fipd.io_"));
    let definitions: String = own.map(|(_, text)| format!("---\n{text}")).collect();
    plane.install_crds(&definitions).await.unwrap();
    plane.apply(ROLE).await.unwrap();
    plane.bind_role("fipd-claims", None).await.unwrap();
    plane
}

async fn site() -> Fipd {
    let fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    said(&fipd, &["pool", "create", "lab", "--cidr", "10.73.0.0/24"]).await;
    fipd.write_file("settings.toml", SETTINGS).unwrap();
    fipd
}

async fn said(fipd: &Fipd, arguments: &[&str]) -> String {
    let output = fipd.cli(arguments.iter().copied()).await.unwrap();
    output.success().unwrap()
}

/// Uploads a kubeconfig under a name.
async fn add(fipd: &Fipd, name: &str, kubeconfig: &str) {
    fipd.write_file("kubeconfig", kubeconfig).unwrap();
    let path = |file: &str| fipd.directory().join(file).display().to_string();
    let (kubeconfig, settings) = (path("kubeconfig"), path("settings.toml"));
    let line = [
        "clusters",
        "add",
        name,
        "--systems",
        "claims",
        "--kubeconfig",
        &kubeconfig,
        "--settings",
        &settings,
    ];
    said(fipd, &line).await;
}

async fn shown(fipd: &Fipd, name: &str) -> Value {
    let output = fipd.cli(["clusters", "show", name, "-o", "json"]).await;
    output.unwrap().json().unwrap()
}

/// Waits until a cluster is in a state; why, where there is a reason.
async fn until_state(fipd: &Fipd, name: &str, state: &str) -> String {
    wait_until(&format!("{name} is {state}"), DEADLINE, || async {
        let view = shown(fipd, name).await;
        let why = view["last_error"].as_str().unwrap_or_default().to_owned();
        (view["state"] == state)
            .then_some(why)
            .ok_or(view.to_string())
    })
    .await
    .unwrap()
}

async fn leases(fipd: &Fipd) -> Vec<String> {
    let listed = fipd.cli(["lease", "list", "-o", "json"]).await.unwrap();
    let listed = listed.json().unwrap();
    let leases = listed["leases"].as_array().unwrap().iter();
    let held = leases.filter(|lease| lease["state"] == "allocated");
    held.map(|lease| lease["address"].as_str().unwrap().to_owned())
        .collect()
}

/// The claims of a cluster, as its admin sees them.
struct Claims(Api<AddressClaim>);

impl Claims {
    async fn of(plane: &ControlPlane) -> Self {
        Self(Api::namespaced(plane.client().await.unwrap(), "default"))
    }

    async fn make(&self, name: &str) {
        let object = json!({
            "apiVersion": "fipd.io/v1alpha1", "kind": "AddressClaim", "metadata": { "name": name },
            "spec": { "poolRef": { "name": "lab" } },
        });
        let claim: AddressClaim = serde_json::from_value(object).unwrap();
        self.0.create(&PostParams::default(), &claim).await.unwrap();
    }

    async fn address(&self, name: &str) -> String {
        wait_until(&format!("{name} has an address"), DEADLINE, || async {
            let claim = self.0.get(name).await.map_err(|error| error.to_string())?;
            let claim = json!(claim);
            let address = claim["status"]["address"].as_str().map(str::to_owned);
            address.ok_or(claim.to_string())
        })
        .await
        .unwrap()
    }

    async fn made(&self, name: &str) -> String {
        self.make(name).await;
        self.address(name).await
    }

    /// Nobody serves it.
    async fn stays_untouched(&self, name: &str) {
        tokio::time::sleep(A_WHILE).await;
        let claim = json!(self.0.get(name).await.unwrap());
        assert!(claim["metadata"]["finalizers"].is_null(), "{claim}");
        assert!(claim["status"]["address"].is_null(), "{claim}");
    }

    /// Away at once, whatever fipd would do about it.
    async fn tear_out(&self, name: &str) {
        let patch = json!({ "metadata": { "finalizers": null } });
        let params = PatchParams::default();
        let patched = self.0.patch(name, &params, &Patch::Merge(&patch)).await;
        patched.unwrap();
        self.0.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// The challenge value that a cluster has now.
async fn challenge(plane: &ControlPlane) -> Option<String> {
    let secrets: Api<Secret> = Api::namespaced(plane.client().await.unwrap(), "kube-system");
    let secret = secrets.get_opt("fipd-identity").await.unwrap()?;
    let value = secret.data?.remove("challenge")?;
    Some(String::from_utf8(value.0).unwrap())
}

/// Restarts fipd and waits until the value is another one: a copy from before is an older one by then.
async fn renewed(fipd: &mut Fipd, plane: &ControlPlane) {
    let before = challenge(plane).await;
    fipd.restart().await.unwrap();
    wait_until("another challenge value", DEADLINE, || async {
        let now = challenge(plane).await;
        (now != before).then_some(()).ok_or(format!("{now:?}"))
    })
    .await
    .unwrap();
    // Until fipd has read it back, it does not know whether the write ended, and the one before counts as well.
    tokio::time::sleep(A_WHILE).await;
}

#[tokio::test]
async fn a_clone_leads_nothing_and_releases_nothing_until_it_is_set_apart() {
    let mut victim = cluster("victim").await;
    victim.grant_identity().await.unwrap();
    let mut fipd = site().await;
    add(&fipd, "victim", &victim.kubeconfig_of(RESTRICTED_USER)).await;
    let claims = Claims::of(&victim).await;
    let mut held = vec![claims.made("web").await, claims.made("api").await];
    held.sort();

    let clone = victim.clone_as("athief").await.unwrap();
    let clones = Claims::of(&clone).await;
    for name in ["web", "api"] {
        clones.tear_out(name).await;
    }
    clones.make("late").await;
    add(&fipd, "athief", &clone.kubeconfig_of(RESTRICTED_USER)).await;
    let why = until_state(&fipd, "athief", "identity-conflict").await;
    let step = "fipd clusters join athief --as victim";
    assert!(why.contains(step), "{why}");
    until_state(&fipd, "victim", "ready").await;
    let join = ["clusters", "join", "athief", "--as", "victim"];
    let refused = fipd.cli(join).await.unwrap();
    assert!(
        refused.code != 0 && refused.stderr.contains("two clusters"),
        "{refused:?}"
    );

    victim.kill_api().unwrap();
    fipd.restart().await.unwrap();
    until_state(&fipd, "athief", "identity-conflict").await;
    clones.stays_untouched("late").await;
    assert_eq!(leases(&fipd).await, held);

    said(&fipd, &["clusters", "new-identity", "athief"]).await;
    let late = clones.address("late").await;
    assert!(!held.contains(&late), "{late} of {held:?}");
    until_state(&fipd, "athief", "ready").await;
    let audit = said(&fipd, &["audit", "--limit", "50"]).await;
    assert!(audit.contains("cluster of its own"), "{audit}");

    victim.restart_api().await.unwrap();
    until_state(&fipd, "victim", "ready").await;
    let more = claims.made("more").await;
    assert!(!held.contains(&more) && more != late, "{more}");
    assert_eq!(claims.address("web").await, claims.address("web").await);
    assert_eq!(leases(&fipd).await.len(), 4);
    let ids = [
        shown(&fipd, "victim").await["id"].clone(),
        shown(&fipd, "athief").await["id"].clone(),
    ];
    assert_ne!(ids[0], ids[1]);
    // And it stays so.
    fipd.restart().await.unwrap();
    for name in ["victim", "athief"] {
        until_state(&fipd, name, "ready").await;
    }
}

#[tokio::test]
async fn a_restored_etcd_is_stopped_until_an_admin_says_that_it_is_the_cluster() {
    let mut east = cluster("east").await;
    east.grant_identity().await.unwrap();
    east.snapshot().await.unwrap();
    let mut fipd = site().await;
    add(&fipd, "east", &east.kubeconfig_of(RESTRICTED_USER)).await;
    let first = Claims::of(&east).await.made("web").await;

    east.restore_snapshot().await.unwrap();
    let why = until_state(&fipd, "east", "identity-conflict").await;
    assert!(
        why.contains("its etcd was restored to a time before"),
        "{why}"
    );
    Claims::of(&east).await.make("api").await;
    Claims::of(&east).await.stays_untouched("api").await;
    assert_eq!(leases(&fipd).await, std::slice::from_ref(&first));
    said(&fipd, &["clusters", "join", "east", "--as", "east"]).await;
    until_state(&fipd, "east", "ready").await;
    assert_ne!(Claims::of(&east).await.address("api").await, first);

    // The Secret is there now, but of a time before.
    east.snapshot().await.unwrap();
    renewed(&mut fipd, &east).await;
    until_state(&fipd, "east", "ready").await;
    east.restore_snapshot().await.unwrap();
    let why = until_state(&fipd, "east", "identity-conflict").await;
    assert!(why.contains("has not the latest value"), "{why}");
    said(&fipd, &["clusters", "join", "east", "--as", "east"]).await;
    until_state(&fipd, "east", "ready").await;
}

#[tokio::test]
async fn a_kubeconfig_exchanged_while_fipd_is_down_counts_only_where_it_leads_to_the_same_cluster()
{
    let east = cluster("east").await;
    east.grant_identity().await.unwrap();
    let mut fipd = site().await;
    fipd.write_file("east.kubeconfig", &east.kubeconfig_of(RESTRICTED_USER))
        .unwrap();
    fipd.write_config(
        "[[cluster]]\nname = \"east\"\nkubeconfig = \"east.kubeconfig\"\nsystems = [\"claims\"]\n\
         [cluster.claims]\npools = [\"lab\"]\n",
    )
    .unwrap();
    fipd.restart().await.unwrap();
    let claims = Claims::of(&east).await;
    let (web, api) = (claims.made("web").await, claims.made("api").await);
    let clone = east.clone_as("clone").await.unwrap();
    renewed(&mut fipd, &east).await;

    fipd.terminate(DEADLINE).await.unwrap();
    fipd.write_file("east.kubeconfig", &clone.kubeconfig_of(RESTRICTED_USER))
        .unwrap();
    let clones = Claims::of(&clone).await;
    for name in ["web", "api"] {
        clones.tear_out(name).await;
    }
    clones.make("late").await;
    fipd.restart().await.unwrap();
    until_state(&fipd, "east", "identity-conflict").await;
    clones.stays_untouched("late").await;
    assert_eq!(leases(&fipd).await.len(), 2);

    // Another user of the cluster itself.
    fipd.terminate(DEADLINE).await.unwrap();
    fipd.write_file("east.kubeconfig", east.kubeconfig_yaml())
        .unwrap();
    claims.tear_out("api").await;
    fipd.restart().await.unwrap();
    until_state(&fipd, "east", "ready").await;
    wait_until(
        "what was deleted meanwhile is released",
        RELEASED,
        || async {
            let held = leases(&fipd).await;
            (held == [web.clone()])
                .then_some(())
                .ok_or(format!("{held:?} with {api}"))
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn without_rights_a_second_kubeconfig_waits_for_an_admin() {
    let east = cluster("east").await;
    let fipd = site().await;
    add(&fipd, "east", &east.kubeconfig_of(RESTRICTED_USER)).await;
    until_state(&fipd, "east", "ready").await;
    let claims = Claims::of(&east).await;
    claims.made("web").await;
    add(&fipd, "west", &east.kubeconfig_of(RESTRICTED_USER)).await;
    let why = until_state(&fipd, "west", "identity-conflict").await;
    assert!(why.contains("packaging/rbac/identity.yaml"), "{why}");
    until_state(&fipd, "east", "ready").await;
    said(&fipd, &["clusters", "join", "west", "--as", "east"]).await;
    until_state(&fipd, "west", "joined").await;
    assert_eq!(challenge(&east).await, None);
    claims.made("api").await;
}

/// A site whose configuration file has clusters with claims: their names, kubeconfigs and further settings.
async fn configured(clusters: &[(&str, String, &str)]) -> Fipd {
    let mut fipd = site().await;
    let mut config = String::new();
    for (name, kubeconfig, settings) in clusters {
        let file = format!("{name}.kubeconfig");
        fipd.write_file(&file, kubeconfig).unwrap();
        config += &format!(
            "[[cluster]]\nname = {name:?}\nkubeconfig = {file:?}\nsystems = [\"claims\"]\n{settings}\n\
             [cluster.claims]\npools = [\"lab\"]\n"
        );
    }
    fipd.write_config(&config).unwrap();
    fipd.restart().await.unwrap();
    fipd
}

#[tokio::test]
async fn a_setting_names_another_namespace_for_the_secret() {
    let east = cluster("east").await;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "fipd-system" },
    });
    east.apply(&namespace.to_string()).await.unwrap();
    east.grant_identity_in("fipd-system").await.unwrap();
    let kubeconfig = east.kubeconfig_of(RESTRICTED_USER);
    let elsewhere = "identity-namespace = \"fipd-system\"";
    let fipd = configured(&[("east", kubeconfig, elsewhere)]).await;
    until_state(&fipd, "east", "ready").await;
    Claims::of(&east).await.made("web").await;
    assert_eq!(challenge(&east).await, None, "none in kube-system");
    let client = east.client().await.unwrap();
    let there = Api::<Secret>::namespaced(client, "fipd-system");
    let kept = there.get("fipd-identity").await.unwrap();
    assert!(kept.data.unwrap().contains_key("challenge"));
    said(&fipd, &["clusters", "detach", "east"]).await;
    assert!(there.get_opt("fipd-identity").await.unwrap().is_none());
}

#[tokio::test]
async fn same_as_of_the_configuration_joins_what_cannot_be_proved() {
    let east = cluster("east").await;
    let kubeconfig = || east.kubeconfig_of(RESTRICTED_USER);
    let fipd = configured(&[
        ("east", kubeconfig(), ""),
        ("west", kubeconfig(), "same-as = \"east\""),
        ("south", kubeconfig(), ""),
    ])
    .await;
    until_state(&fipd, "east", "ready").await;
    until_state(&fipd, "west", "joined").await;
    let why = until_state(&fipd, "south", "identity-conflict").await;
    assert!(why.contains("fipd clusters join south --as east"), "{why}");
    // It may be another cluster that uses addresses: until it is settled nobody gets a new one.
    let join = ["clusters", "join", "south", "--as", "east"];
    said(&fipd, &join).await;
    until_state(&fipd, "south", "joined").await;
    Claims::of(&east).await.made("web").await;
    assert_eq!(leases(&fipd).await.len(), 1);
}

/// Copies the store and its record.
fn copy_store(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in ["fipd.redb", "fipd.redb.high-water"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

#[tokio::test]
async fn a_cluster_that_knows_more_than_a_copied_back_store_has_its_networks_held() {
    let east = cluster("east").await;
    east.grant_identity().await.unwrap();
    let mut fipd = site().await;
    add(&fipd, "east", &east.kubeconfig_of(RESTRICTED_USER)).await;
    let claims = Claims::of(&east).await;
    let web = claims.made("web").await;
    fipd.terminate(DEADLINE).await.unwrap();
    let snapshot = fipd.directory().join("snapshot");
    copy_store(&fipd.data_dir(), &snapshot);
    fipd.restart().await.unwrap();
    let api = claims.made("api").await;
    fipd.terminate(DEADLINE).await.unwrap();

    copy_store(&snapshot, &fipd.data_dir());
    fipd.restart().await.unwrap();
    wait_until("the network is held", DEADLINE, || async {
        let hold = fipd.cli(["hold", "show", "-o", "json"]).await.unwrap();
        let hold = hold.json().unwrap();
        (hold["held"] == true && hold["networks"] == json!(["default"]))
            .then_some(())
            .ok_or(hold.to_string())
    })
    .await
    .unwrap();
    claims.make("late").await;
    tokio::time::sleep(A_WHILE).await;
    let late = json!(claims.0.get("late").await.unwrap());
    assert!(late["status"]["address"].is_null(), "{late}");
    assert_eq!(claims.address("web").await, web);
    assert_eq!(claims.address("api").await, api, "it is adopted again");
    let audit = said(&fipd, &["audit", "--limit", "20"]).await;
    assert!(audit.contains("it is an older copy"), "{audit}");

    // What both know by now holds nothing more.
    said(&fipd, &["hold", "lift", "--reason", "nothing was lost"]).await;
    let late = claims.address("late").await;
    assert!(late != web && late != api, "{late}");
    fipd.restart().await.unwrap();
    until_state(&fipd, "east", "ready").await;
    claims.made("last").await;
}
