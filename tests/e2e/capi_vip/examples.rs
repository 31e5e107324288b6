//! The examples that packages carry: each goes from `kubectl apply` to a rendered control plane whose kube-vip holds the address
//! that fipd gave.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use fipd_tests::process::run_bound;
use fipd_tests::testbed::cluster_api::install_example_providers;
use fipd_tests::toolchain::Component;
use kube::core::{ApiResource, GroupVersionKind};

use super::*;

const FOLDER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../packaging/examples/cluster-api"
);
const ANNOTATION: &str = "fipd.io/control-plane-vip";

/// All examples, as `(distribution, mode)`.
const EXAMPLES: [(&str, &str); 4] = [
    ("kubeadm", "annotation"),
    ("kubeadm", "variable"),
    ("rke2", "annotation"),
    ("rke2", "variable"),
];

fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.yaml"))
}

/// The only document of a YAML text.
fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// The objects of an example in another namespace.
fn objects(name: &str, namespace: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file(name)).unwrap();
    let mut all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    for object in &mut all {
        let field = match object["kind"] == "Namespace" {
            true => "name",
            false => "namespace",
        };
        assert_eq!(object["metadata"][field], "clusters", "{object}");
        object["metadata"][field] = json!(namespace);
    }
    all
}

fn of_kind<'a>(objects: &'a mut [Value], kind: &str) -> &'a mut Value {
    let mut all = objects.iter_mut();
    all.find(|object| object["kind"] == kind).unwrap()
}

/// What an example says of its pool for IPv6.
fn pool_for_ipv6(name: &str) -> Value {
    let text = std::fs::read_to_string(file(name)).unwrap();
    let lines = text.lines().skip_while(|line| !line.ends_with("For IPv6:"));
    let lines = lines.skip(1).map_while(|line| line.strip_prefix("#   "));
    let lines: Vec<_> = lines.collect();
    yaml(&lines.join("\n"))
}

impl Bed {
    /// fipd runs, and the namespace has nothing.
    async fn for_examples(namespace: &str) -> Self {
        let bed = Self::start(Class::without_endpoint(namespace)).await;
        let plane = &bed.management.plane;
        install_example_providers(plane).await.unwrap();
        bed
    }

    async fn apply(&self, objects: &[Value]) {
        let documents = objects.iter().map(|object| format!("---\n{object}\n"));
        let text: String = documents.collect();
        self.management.plane.apply(&text).await.unwrap();
    }

    async fn kubectl_apply(&self, file: &Path) {
        let binary = tokio::task::spawn_blocking(|| Component::Kubectl.path());
        let mut command = Command::new(binary.await.unwrap().unwrap());
        command
            .env("KUBECONFIG", self.management.plane.kubeconfig_path())
            .args(["apply", "--filename"])
            .arg(file);
        let output = run_bound(command).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", file.display());
    }

    /// The object that the Cluster refers to in this field, once it passes the test.
    async fn wait_referred(
        &self,
        (cluster, field, version): (&str, &str, &str),
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Value {
        let seen = self
            .wait(cluster, "is rendered", |one| {
                one["spec"][field]["name"].is_string()
            })
            .await;
        let text = |name: &str| seen["spec"][field][name].as_str().unwrap().to_owned();
        let kind = GroupVersionKind::gvk(&text("apiGroup"), version, &text("kind"));
        let resource = ApiResource::from_gvk(&kind);
        let client = self.ipam.client.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, &self.core.namespace, &resource);
        let what = format!("{} of {cluster} {what}", kind.kind);
        let seen = wait_object(&what, PROMPT, (&api, &text("name")), test).await;
        self.explained(seen)
    }

    async fn wait_control_plane(&self, cluster: &str, host: Option<&str>) {
        let version = match cluster.starts_with("rke2") {
            true => "v1beta1",
            false => "v1beta2",
        };
        let carries = |control_plane: &Value| match kube_vip(control_plane) {
            Some((address, subnet)) => {
                let whole = if address.contains(':') { "128" } else { "32" };
                assert_eq!(subnet, whole, "{control_plane}");
                host == Some(&*address)
            }
            None => host.is_none(),
        };
        let reference = (cluster, "controlPlaneRef", version);
        let what = format!("has kube-vip for {host:?}");
        let seen = self.wait_referred(reference, &what, carries).await;
        if cluster.starts_with("rke2") {
            let names: Vec<_> = host.into_iter().collect();
            assert_eq!(seen["spec"]["serverConfig"]["tlsSan"], json!(names));
        }
    }

    /// Waits until all that an example makes has the address of fipd, which is in this range.
    async fn wait_example(&self, name: &str, (first, last): (IpAddr, IpAddr)) {
        let what = "has an endpoint";
        let seen = self.wait(name, what, |one| endpoint(one)["host"].is_string());
        let seen = seen.await;
        let host = endpoint(&seen)["host"].as_str().unwrap();
        let address: IpAddr = host.parse().unwrap();
        assert!(first <= address && address <= last, "{name}: {host}");
        assert_eq!(endpoint(&seen)["port"], 6443);
        let claim = self.path(&format!("vip-cp-{name}"));
        assert_eq!(self.ipam.wait_address(&claim).await.unwrap(), host);
        self.wait_lease(host, CLAIM, &format!("vip-cp-{name}"))
            .await;

        self.wait_control_plane(name, Some(host)).await;
        let endpoint = json!({ "host": host, "port": 6443 });
        let reference = (name, "infrastructureRef", "v1alpha1");
        self.wait_referred(reference, "has the endpoint", |one| {
            one["spec"]["controlPlaneEndpoint"] == endpoint
        })
        .await;
        let seen = json!(self.clusters().get(name).await.unwrap());
        let annotation = &seen["metadata"]["annotations"][ANNOTATION];
        let both = (variable(&seen, CLUSTER_VIP), annotation);
        let (given, none) = (json!(host), Value::Null);
        let expected = match name.ends_with("-variable") {
            true => (&given, &none),
            false => (&none, &given),
        };
        assert_eq!(both, expected, "{seen}");
        self.wait_says(name, ENDPOINT_READY, "True", "AddressAllocated")
            .await;
    }
}

/// Address and prefix length of the kube-vip of a control plane; `None`: it has none.
fn kube_vip(control_plane: &Value) -> Option<(String, String)> {
    let spec = &control_plane["spec"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let content = |files: &Value, path: &str| {
        let mut all = files.as_array().into_iter().flatten();
        let found = all.find(|file| file["path"] == path)?;
        Some(yaml(found["content"].as_str().unwrap()))
    };
    if control_plane["kind"] == "RKE2ControlPlane" {
        let path = "/var/lib/rancher/rke2/server/manifests/kube-vip-apiserver.yaml";
        let chart = content(&spec["files"], path)?;
        assert_eq!(chart["kind"], "HelmChart", "{chart}");
        let values = yaml(chart["spec"]["valuesContent"].as_str().unwrap());
        let address = text(&values["config"]["address"]);
        return Some((address, text(&values["env"]["vip_subnet"])));
    }
    let path = "/etc/kubernetes/manifests/kube-vip.yaml";
    let pod = content(&spec["kubeadmConfigSpec"]["files"], path)?;
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let of = |name: &str| {
        let found = env.iter().find(|one| one["name"] == name);
        text(&found.unwrap()["value"])
    };
    Some((of("address"), of("vip_subnet")))
}

fn range(text: &Value) -> (IpAddr, IpAddr) {
    let (first, last) = text.as_str().unwrap().split_once('-').unwrap();
    (first.parse().unwrap(), last.parse().unwrap())
}

/// As `kubectl apply` takes them from the folder.
#[tokio::test(flavor = "multi_thread")]
async fn the_packaged_examples_go_from_kubectl_apply_to_a_control_plane_with_its_address() {
    let entries = std::fs::read_dir(FOLDER).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    // Turtles reads that one, and no part of it is a Cluster.
    found.retain(|path| !path.ends_with("capiprovider.yaml"));
    found.sort();
    let names = EXAMPLES.map(|(distribution, mode)| format!("{distribution}-{mode}"));
    assert_eq!(found, names.clone().map(|name| file(&name)));

    let bed = Bed::for_examples("clusters").await;
    for name in &names {
        bed.kubectl_apply(&file(name)).await;
    }
    for name in &names {
        let mut objects = objects(name, "clusters");
        let addresses = &of_kind(&mut objects, "InClusterIPPool")["spec"]["addresses"];
        bed.wait_example(name, range(&addresses[0])).await;
    }
    // Applied once more, they take nothing away for long.
    for name in &names {
        bed.kubectl_apply(&file(name)).await;
        let host = json!(bed.clusters().get(name).await.unwrap());
        let host = endpoint(&host)["host"].as_str().unwrap().to_owned();
        bed.wait_control_plane(name, Some(&host)).await;
    }
}

/// With the pool that their comments have for IPv6.
#[tokio::test(flavor = "multi_thread")]
async fn the_packaged_examples_hold_for_ipv6() {
    let bed = Bed::for_examples("examples-ipv6").await;
    for (distribution, mode) in EXAMPLES {
        let name = format!("{distribution}-{mode}");
        let mut objects = objects(&name, "examples-ipv6");
        let spec = pool_for_ipv6(&name);
        of_kind(&mut objects, "InClusterIPPool")["spec"] = spec.clone();
        of_kind(&mut objects, CLUSTER)["spec"]["clusterNetwork"] = json!({
            "pods": { "cidrBlocks": ["fd00:42::/56"] }, "services": { "cidrBlocks": ["fd00:43::/112"] },
        });
        bed.apply(&objects).await;
        bed.wait_example(&name, range(&spec["addresses"][0])).await;
    }
}

/// Cluster API takes such a class and renders no kube-vip, without a word. The lines in the condition are all that is missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_reads_cluster_vip_and_lacks_it_is_told_the_lines_that_it_needs() {
    const NAME: &str = "rke2-variable";
    let bed = Bed::for_examples("undeclared").await;
    let mut objects = objects(NAME, "undeclared");
    let class = of_kind(&mut objects, "ClusterClass")["spec"].as_object_mut();
    let declared = class.unwrap().remove("variables").unwrap();
    let addresses = of_kind(&mut objects, "InClusterIPPool")["spec"]["addresses"].clone();
    bed.apply(&objects).await;
    let said = bed
        .wait_says(NAME, ENDPOINT_READY, "False", "VariableMissing")
        .await;
    let (text, lines) = said.split_once('\n').unwrap();
    assert!(text.contains("of ClusterClass rke2-variable"), "{text}");
    assert_eq!(yaml(lines), declared, "the lines are those of the example");
    let told = bed.ipam.wait_event(CLUSTER, NAME, "VariableMissing").await;
    assert_eq!(told.unwrap(), said);
    bed.wait_control_plane(NAME, None).await;

    let patch = Patch::Merge(json!({ "spec": { "variables": yaml(lines) } }));
    let classes = bed.core.classes(ApiVersion::V1Beta2);
    classes
        .patch(NAME, &PatchParams::default(), &patch)
        .await
        .unwrap();
    bed.wait_example(NAME, range(&addresses[0])).await;
}
