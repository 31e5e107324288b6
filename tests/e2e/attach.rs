//! A cluster that is taken in by uploading its kubeconfig, served, and left again without a trace of fipd.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::time::Duration;

use anyhow::Result;
use fipd_crds::fipd_io::AddressClaim;
use fipd_tests::scenario::{Scenario, write_kubeconfig};
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER, SiteOptions, wait_until,
};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::Discovery;
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const ROLE: &str = include_str!("../../packaging/rbac/claims.yaml");
const ROLES: [&str; 3] = [
    include_str!("../../packaging/rbac/rancher-fip-management.yaml"),
    include_str!("../../packaging/rbac/rancher-fip-adopt.yaml"),
    include_str!("../../packaging/rbac/ip-rule.yaml"),
];
const APP: &str = "rancher-fip-manager";
const API_SERVICE: &str = "rancher-fip-api-server";
const API_SERVICE_ROLE: &str = "fipd-rancher-fip-api-service";
const LEASES_IN: &str = "ip-rule-operator-system";

async fn cluster() -> Result<ControlPlane> {
    let plane = ControlPlane::start("east", ControlPlaneOptions::default()).await?;
    let own = fipd_crds::MANIFESTS
        .iter()
        .filter(|(name, _)| name.starts_with("fipd.io_"));
    let definitions: String = own.map(|(_, text)| format!("---\n{text}")).collect();
    plane.install_crds(&definitions).await?;
    plane.apply(ROLE).await?;
    plane.bind_role("fipd-claims", None).await?;
    plane.grant_identity().await?;
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

    wait_until(
        "two finalizers and a Pool are planned",
        DEADLINE,
        || async {
            let dry_run = ["clusters", "detach", "east", "--dry-run", "-o", "json"];
            let planned = fipd.cli(dry_run).await.unwrap().json().unwrap();
            let steps = planned["steps"].as_array().unwrap().len();
            (steps >= 3).then_some(()).ok_or(planned.to_string())
        },
    )
    .await
    .unwrap();
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

    // By another name nothing of it is left.
    let again = [
        "clusters",
        "add",
        "west",
        "--systems",
        "claims",
        "--kubeconfig",
        &kubeconfig,
    ];
    said(fipd.cli(again).await.unwrap());
    let west = || async {
        let shown = fipd.cli(["clusters", "show", "west", "-o", "json"]).await;
        shown.unwrap().json().unwrap()
    };
    wait_until("it is the same cluster", DEADLINE, || async {
        let west = west().await;
        let joined = west["state"] == "joined";
        joined.then_some(()).ok_or(west.to_string())
    })
    .await
    .unwrap();
    for command in [
        &["clusters", "detach", "west", "--dry-run"][..],
        &["clusters", "detach", "west"],
    ] {
        let refused = fipd.cli(command).await.unwrap();
        assert!(
            refused.code == 1 && refused.stderr.contains("`fipd clusters detach east`"),
            "{refused:?}"
        );
    }
    assert_eq!(west().await["detached"], false);
    let metrics = fipd.get("/metrics").await.unwrap().body;
    assert!(metrics.contains("fipd_cluster_up{cluster=\"east\"} 1"));
    // Its second name neither alerts nor counts.
    let second = "fipd_cluster_up{cluster=\"west\"}";
    assert!(!metrics.contains(second), "{metrics}");

    // Only its leases are left, and nobody is to mend that.
    for name in ["west", "east"] {
        said(fipd.cli(["clusters", "remove", name]).await.unwrap());
    }
    wait_until("it is only remembered", DEADLINE, || async {
        let metrics = fipd.get("/metrics").await.unwrap().body;
        let remembered = metrics.contains(",state=\"stopped\"}");
        let alerts = metrics.contains("fipd_cluster_up{");
        (remembered && !alerts).then_some(()).ok_or(metrics)
    })
    .await
    .unwrap();
}

fn agent() -> Value {
    json!({
        "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": "Agent",
        "metadata": { "name": "default", "namespace": "default" }, "spec": { "image": "fipd:1" },
    })
}

fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// Has fipd serve a cluster with these settings, these objects, and no more rights than these roles.
async fn serve(
    plane: &ControlPlane,
    fipd: &mut Fipd,
    objects: &[Value],
    roles: &[(&str, Option<&str>)],
    settings: &str,
) {
    let objects = objects.iter().map(Value::to_string);
    let texts: Vec<String> = ROLES
        .iter()
        .map(|role| (*role).to_owned())
        .chain(objects)
        .collect();
    plane.apply(&texts.join("\n---\n")).await.unwrap();
    for (role, namespace) in roles {
        plane.bind_role(role, *namespace).await.unwrap();
    }
    write_kubeconfig(fipd, "c", &plane.kubeconfig_of(RESTRICTED_USER)).unwrap();
    let config = format!(
        "[api]\nadvertise = \"https://192.0.2.7:9443\"\n[[cluster]]\nname = \"c\"\nkubeconfig = \"c.kubeconfig\"\n{settings}"
    );
    fipd.write_config(&config).unwrap();
    fipd.restart().await.unwrap();
    fipd.wait_ready(DEADLINE).await.unwrap();
}

/// What fipd makes and changes there, as an administrator sees it.
struct Traces {
    client: kube::Client,
}

impl Traces {
    async fn get(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Value {
        let gvk = GroupVersionKind::gvk(group, "v1", kind);
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = match namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        };
        json!(api.get_opt(name).await.unwrap())
    }

    async fn service(&self) -> Value {
        self.get("", "Service", APP, API_SERVICE).await
    }

    /// Which of these are there: group, kind, namespace, name.
    async fn there(&self, all: &[[&str; 4]]) -> Vec<String> {
        let mut found = Vec::new();
        for [group, kind, namespace, name] in all {
            if !self.get(group, kind, namespace, name).await.is_null() {
                found.push(format!("{kind} {name}"));
            }
        }
        found
    }

    /// Who holds a Lease.
    async fn holder(&self, namespace: &str, name: &str) -> String {
        let group = "coordination.k8s.io";
        let lease = self.get(group, "Lease", namespace, name).await;
        let holder = lease["spec"]["holderIdentity"].as_str();
        holder.unwrap_or_default().to_owned()
    }
}

const VALIDATION: [&str; 2] = [
    "admissionregistration.k8s.io",
    "ValidatingWebhookConfiguration",
];

fn attached(fipd: &Fipd) -> String {
    std::fs::read_to_string(fipd.data_dir().join("attached-clusters")).unwrap()
}

async fn detach(fipd: &Fipd) -> (i32, Value) {
    let output = fipd.cli(["clusters", "detach", "c", "-o", "json"]).await;
    let output = output.unwrap();
    let report = serde_json::from_str(&output.stdout);
    (output.code, report.unwrap_or_else(|_| json!(output.stderr)))
}

/// Once the API server knows of its rights.
async fn detach_cleanly(fipd: &Fipd) {
    wait_until("it is left", DEADLINE, || async {
        let (code, report) = detach(fipd).await;
        (code == 0).then_some(()).ok_or(report.to_string())
    })
    .await
    .unwrap();
    assert_eq!(attached(fipd), "");
}

#[tokio::test]
async fn a_management_cluster_is_left_without_a_trace_with_the_roles_that_are_shipped() {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&[])).await.unwrap();
    let (plane, fipd) = (&scenario.site.rancher, &mut scenario.fipd);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": API_SERVICE, "namespace": APP },
        "spec": { "selector": { "app": "api" }, "ports": [{ "name": "https", "port": 8443 }] },
    });
    let roles = [
        ("fipd-rancher-fip-management", None),
        (API_SERVICE_ROLE, Some(APP)),
    ];
    let settings = "systems = [\"rancher-fip\"]\n[cluster.rancher-fip]\napi-service = true\n";
    serve(plane, fipd, &[namespace(APP), service], &roles, settings).await;
    let client = plane.client().await.unwrap();
    let traces = Traces {
        client: client.clone(),
    };
    let [group, kind] = VALIDATION;
    let made = [[group, kind, "", "fipd-rancher-fip-validator"]];
    let lock = "rancher-fip-manager-lock";
    let is_before = |service: &Value| service["spec"]["selector"] == json!({ "app": "api" });
    wait_until("all that fipd makes is there", DEADLINE, || async {
        let (made, service) = (traces.there(&made).await, traces.service().await);
        let there = made.len() == 1 && !is_before(&service);
        there.then_some(()).ok_or(format!("{made:?} {service}"))
    })
    .await
    .unwrap();
    assert!(!traces.holder(APP, lock).await.is_empty());
    assert_eq!(attached(fipd), "c\n");

    // What it may not see it does not take for clean.
    let bindings = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "RoleBinding");
    let resource = ApiResource::from_gvk(&bindings);
    let bindings: Api<DynamicObject> = Api::namespaced_with(client, APP, &resource);
    let params = DeleteParams::default();
    bindings.delete(API_SERVICE_ROLE, &params).await.unwrap();
    let restricted = Traces {
        client: plane.client_of(RESTRICTED_USER).await.unwrap(),
    };
    wait_until("it is refused", DEADLINE, || async {
        let service = GroupVersionKind::gvk("", "v1", "Service");
        let resource = ApiResource::from_gvk(&service);
        let api: Api<DynamicObject> =
            Api::namespaced_with(restricted.client.clone(), APP, &resource);
        let asked = api.get_opt(API_SERVICE).await;
        asked.map_or(Ok(()), |_| Err("it is read"))
    })
    .await
    .unwrap();
    let (code, report) = detach(fipd).await;
    let left: Vec<&str> = (report["left"].as_array().unwrap().iter())
        .map(|left| left.as_str().unwrap())
        .collect();
    assert_eq!((code, &report["clean"]), (1, &json!(false)), "{report}");
    assert_eq!(left.len(), 2, "{left:#?}");
    // The Service is seen with the other role, too, and not written.
    let says = |what: &str, why: &str| {
        let mut left = left.iter();
        left.any(|one| one.starts_with(what) && one.contains(why))
    };
    assert!(says("EndpointSlice", "packaging/rbac"), "{left:#?}");
    assert!(says("Service", "cannot patch"), "{left:#?}");
    assert_eq!(attached(fipd), "c\n");
    assert_eq!(traces.there(&made).await, Vec::<String>::new());

    plane.bind_role(API_SERVICE_ROLE, Some(APP)).await.unwrap();
    detach_cleanly(fipd).await;
    let service = traces.service().await;
    assert!(is_before(&service), "{service}");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 8443, "{service}");
    assert_eq!(traces.holder(APP, lock).await, "");
    let marks = marked(plane).await.unwrap();
    assert!(marks.is_empty(), "{marks:#?}");
}

#[tokio::test]
async fn a_cluster_with_rules_is_left_without_a_trace_with_the_roles_that_are_shipped() {
    let plane = ControlPlane::start("c", ControlPlaneOptions::default());
    let plane = plane.await.unwrap();
    let own = fipd_crds::MANIFESTS.iter();
    let own = own.filter(|(name, _)| name.starts_with("api.operator.brtrm.dev_"));
    let definitions: String = own.map(|(_, text)| format!("---\n{text}")).collect();
    plane.install_crds(&definitions).await.unwrap();
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    let roles = [
        ("fipd-ip-rule", None),
        ("fipd-ip-rule-lease", Some(LEASES_IN)),
        ("fipd-ip-rule-agents", None),
        ("fipd-ip-rule-node", None),
    ];
    let objects = [namespace(LEASES_IN), agent()];
    let settings = "systems = [\"ip-rule\"]\n";
    serve(&plane, &mut fipd, &objects, &roles, settings).await;
    let traces = Traces {
        client: plane.client().await.unwrap(),
    };
    let [group, kind] = VALIDATION;
    let rbac = "rbac.authorization.k8s.io";
    let made = [
        [group, kind, "", "fipd-ip-rule-validator"],
        ["apps", "DaemonSet", "default", "iprule-agent"],
        ["", "ConfigMap", "default", "iprule-agent"],
        ["", "ServiceAccount", "default", "iprule-agent"],
        [rbac, "ClusterRoleBinding", "", "iprule-agent"],
    ];
    wait_until("all that fipd makes is there", DEADLINE, || async {
        let made = traces.there(&made).await;
        (made.len() == 5).then_some(()).ok_or(format!("{made:?}"))
    })
    .await
    .unwrap();
    let lock = "fed43742.brtrm.dev";
    assert!(!traces.holder(LEASES_IN, lock).await.is_empty());
    assert_eq!(attached(&fipd), "c\n");
    detach_cleanly(&fipd).await;
    assert_eq!(traces.there(&made).await, Vec::<String>::new());
    assert_eq!(traces.holder(LEASES_IN, lock).await, "");
    let marks = marked(&plane).await.unwrap();
    assert!(marks.is_empty(), "{marks:#?}");
}
