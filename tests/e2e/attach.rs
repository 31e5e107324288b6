//! A cluster that is taken in by uploading its kubeconfig, served, and left again without a trace of fipd.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::time::Duration;

use anyhow::Result;
use fipd_crds::fipd_io::AddressClaim;
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER, wait_until,
};
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::discovery::Discovery;
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const ROLE: &str = include_str!("../../packaging/rbac/claims.yaml");

async fn cluster() -> Result<ControlPlane> {
    let plane = ControlPlane::start("east", ControlPlaneOptions::default()).await?;
    let own = fipd_crds::MANIFESTS
        .iter()
        .filter(|(name, _)| name.starts_with("fipd.io_"));
    let definitions: String = own.map(|(_, text)| format!("---\n{text}")).collect();
    plane.install_crds(&definitions).await?;
    plane.apply(ROLE).await?;
    plane.bind_role("fipd-claims", None).await?;
    Ok(plane)
}

fn claim(name: &str) -> AddressClaim {
    let object = json!({
        "apiVersion": "fipd.io/v1alpha1", "kind": "AddressClaim", "metadata": { "name": name },
        "spec": { "poolRef": { "name": "lab" } },
    });
    serde_json::from_value(object).unwrap()
}

async fn address(claims: &Api<AddressClaim>, name: &str) -> String {
    wait_until("the claim has an address", DEADLINE, || async {
        let claim = json!(claims.get(name).await.map_err(|error| error.to_string())?);
        let address = claim["status"]["address"].as_str().map(str::to_owned);
        address.ok_or(claim.to_string())
    })
    .await
    .unwrap()
}

/// Every object of the cluster in whose metadata there is something of fipd's.
async fn marked(plane: &ControlPlane) -> Result<Vec<String>> {
    let client = plane.client().await?;
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation("list") || resource.kind == "Event" {
                continue;
            }
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let Ok(list) = all.list(&ListParams::default()).await else {
                continue;
            };
            for object in list {
                let meta = json!({
                    "finalizers": object.metadata.finalizers, "labels": object.metadata.labels,
                    "annotations": object.metadata.annotations,
                });
                let name = object.metadata.name.unwrap_or_default();
                // What the admin installed for it is not fipd's.
                let admins = [
                    "CustomResourceDefinition",
                    "ClusterRole",
                    "ClusterRoleBinding",
                    "Role",
                    "RoleBinding",
                ];
                if meta.to_string().contains("fipd") && !admins.contains(&resource.kind.as_str()) {
                    found.push(format!("{} {name}: {meta}", resource.kind));
                }
            }
        }
    }
    Ok(found)
}

async fn leases(fipd: &Fipd) -> Vec<Value> {
    let listed = fipd.cli(["lease", "list", "-o", "json"]).await.unwrap();
    let listed = listed.json().unwrap();
    listed["leases"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_cluster_is_added_by_upload_and_left_without_a_trace_and_with_its_addresses() {
    let plane = cluster().await.unwrap();
    let mut fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    fipd.write_file("east.yaml", &plane.kubeconfig_of(RESTRICTED_USER))
        .unwrap();
    fipd.write_file("east.toml", "[claims]\npools = [\"lab\"]\n")
        .unwrap();
    let said = |output: fipd_tests::testbed::CliOutput| output.success().unwrap();
    let pool = ["pool", "create", "lab", "--cidr", "10.73.0.0/24"];
    said(fipd.cli(pool).await.unwrap());
    let path = |name: &str| fipd.directory().join(name).display().to_string();
    let (kubeconfig, settings) = (path("east.yaml"), path("east.toml"));
    let add = [
        "clusters",
        "add",
        "east",
        "--systems",
        "claims",
        "--kubeconfig",
        &kubeconfig,
        "--settings",
        &settings,
    ];
    said(fipd.cli(add).await.unwrap());

    let claims: Api<AddressClaim> = Api::namespaced(plane.client().await.unwrap(), "default");
    let made = claims.create(&PostParams::default(), &claim("web")).await;
    made.unwrap();
    let first = address(&claims, "web").await;
    fipd.restart().await.unwrap();
    let made = claims.create(&PostParams::default(), &claim("api")).await;
    made.unwrap();
    let second = address(&claims, "api").await;
    assert_ne!(first, second);
    let attached = || std::fs::read_to_string(fipd.data_dir().join("attached-clusters")).unwrap();
    assert_eq!(attached(), "east\n");
    assert!(
        !marked(&plane).await.unwrap().is_empty(),
        "it has left something by now"
    );

    let planned = fipd
        .cli(["clusters", "detach", "east", "--dry-run", "-o", "json"])
        .await;
    let planned = planned.unwrap().json().unwrap();
    let steps = planned["steps"].as_array().unwrap().len();
    assert!(steps >= 3, "two finalizers and a Pool: {planned}");
    let left = said(fipd.cli(["clusters", "detach", "east"]).await.unwrap());
    assert!(left.contains("were taken away"), "{left}");
    let marks = marked(&plane).await.unwrap();
    assert!(marks.is_empty(), "{marks:#?}");
    let held = leases(&fipd).await;
    assert_eq!(held.len(), 2, "addresses are kept: {held:?}");
    wait_until("nobody is attached", DEADLINE, || async {
        match attached().as_str() {
            "" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await
    .unwrap();
    let again = said(fipd.cli(["clusters", "detach", "east"]).await.unwrap());
    assert!(again.contains("nothing of fipd's"), "{again}");

    fipd.restart().await.unwrap();
    let made = claims.create(&PostParams::default(), &claim("late")).await;
    made.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let late = json!(claims.get("late").await.unwrap());
    assert!(
        late["metadata"]["finalizers"].is_null(),
        "it stays off: {late}"
    );
    let audit = said(
        fipd.cli(["audit", "--limit", "100", "-o", "json"])
            .await
            .unwrap(),
    );
    assert!(
        audit.contains("detach east: AddressClaim default/web"),
        "{audit}"
    );
    said(fipd.cli(["clusters", "attach", "east"]).await.unwrap());
    assert_ne!(address(&claims, "late").await, first);
    assert_eq!(address(&claims, "web").await, first);
}
