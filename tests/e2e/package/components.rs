//! What clusterctl and Rancher Turtles install of fipd, read by the real clusterctl.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use fipd_tests::process::run_bound;
use fipd_tests::runner::checkout;
use fipd_tests::testbed::{TestDirectory, documents};
use fipd_tests::toolchain::Component;
use serde_json::{Value, json};

const PROVIDER: &str = "cluster.x-k8s.io/provider";
const VERSION: &str = env!("CARGO_PKG_VERSION");

async fn run(command: Command) -> String {
    let shown = format!("{command:?}");
    let output = run_bound(command).await.unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{shown}: {out}{err}");
    out.into_owned()
}

/// `packaging/cluster-api-components`, as `packaging/build` calls it.
async fn components(version: &str, out: &Path) {
    let mut script = Command::new(checkout().join("packaging/cluster-api-components"));
    script.arg(version).arg(out);
    run(script).await;
}

/// What clusterctl would install from the local repository.
async fn generated(directory: &TestDirectory, version: &str) -> Vec<Value> {
    let repository = directory.path().join("ipam-fipd");
    let file = repository.join(format!("v{version}/ipam-components.yaml"));
    let config = directory.path().join("clusterctl.yaml");
    let provider = json!({ "name": "fipd", "url": file, "type": "IPAMProvider" });
    std::fs::write(&config, json!({ "providers": [provider] }).to_string()).unwrap();
    let binary = tokio::task::spawn_blocking(|| Component::Clusterctl.path()).await;
    let mut command = Command::new(binary.unwrap().unwrap());
    command
        .env("HOME", directory.path())
        .env("XDG_CONFIG_HOME", directory.path())
        // It would ask GitHub for a newer one.
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
        .args(["generate", "provider", "--ipam"])
        .arg(format!("fipd:v{version}"))
        .arg("--config")
        .arg(&config);
    documents(&run(command).await).unwrap()
}

/// Makes numbers comparable: Go writes 128.0 as 128.
fn whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let float = number.as_f64();
            *value = json!(float);
        }
        Value::Array(all) => all.iter_mut().for_each(whole),
        Value::Object(all) => all.values_mut().for_each(whole),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Objects by kind and name.
fn by_name(objects: Vec<Value>) -> BTreeMap<(String, String), Value> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let named = objects.into_iter().map(|object| {
        let key = (text(&object["kind"]), text(&object["metadata"]["name"]));
        (key, object)
    });
    named.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusterctl_installs_the_definitions_and_roles_that_fipd_prints() {
    let directory = TestDirectory::new().unwrap();
    components(VERSION, directory.path()).await;
    let objects = by_name(generated(&directory, VERSION).await);
    for ((kind, name), object) in &objects {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels[PROVIDER], "ipam-fipd", "{kind} {name}");
    }
    let namespaces = objects.keys().filter(|(kind, _)| kind == "Namespace");
    let namespaces: Vec<_> = namespaces.map(|(_, name)| &**name).collect();
    assert_eq!(namespaces, ["fipd-system"]);

    let ours = fipd_crds::all().into_iter();
    let ours: Vec<_> = ours
        .filter(|crd| crd.spec.group == "ipam.cluster.x-k8s.io")
        .map(|crd| json!(crd))
        .collect();
    assert_eq!(ours.len(), 4);
    let roles = std::fs::read_to_string(checkout().join("packaging/rbac/cluster-api.yaml"));
    let roles = documents(&roles.unwrap()).unwrap();
    assert_eq!(objects.len(), 1 + ours.len() + roles.len());
    for mut wanted in ours.into_iter().chain(roles) {
        let key = (
            wanted["kind"].as_str().unwrap().to_owned(),
            wanted["metadata"]["name"].as_str().unwrap().to_owned(),
        );
        let mut found = objects[&key].clone();
        if key.0 == "CustomResourceDefinition" {
            let labels = &found["metadata"]["labels"];
            assert_eq!(labels["clusterctl.cluster.x-k8s.io/move-hierarchy"], "");
            assert_eq!(labels["cluster.x-k8s.io/v1beta1"], "v1alpha2");
            assert_eq!(labels["cluster.x-k8s.io/v1beta2"], "v1alpha2");
        }
        for object in [&mut wanted, &mut found] {
            // The script and clusterctl add some.
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.remove("labels");
            object.as_object_mut().unwrap().remove("status");
            whole(object);
        }
        assert_eq!(found, wanted, "{key:?}");
    }
}

#[tokio::test]
async fn every_release_series_has_a_contract() {
    let directory = TestDirectory::new().unwrap();
    for version in [VERSION, "7.4.2"] {
        components(version, directory.path()).await;
        let file = format!("ipam-fipd/v{version}/metadata.yaml");
        let text = std::fs::read_to_string(directory.path().join(file)).unwrap();
        let metadata = documents(&text).unwrap().remove(0);
        assert_eq!(
            metadata["apiVersion"],
            "clusterctl.cluster.x-k8s.io/v1alpha3"
        );
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap());
        let wanted = json!({ "major": parts.next(), "minor": parts.next(), "contract": "v1beta2" });
        let series = metadata["releaseSeries"].as_array().unwrap();
        assert!(series.contains(&wanted), "{text}");
        let first = json!({ "major": 0, "minor": 1, "contract": "v1beta2" });
        assert!(series.contains(&first), "{text}");
    }
}

#[test]
fn the_example_for_turtles_names_this_version() {
    let file = checkout().join("packaging/examples/cluster-api/capiprovider.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let [provider] = &documents(&text).unwrap()[..] else {
        panic!("{text}");
    };
    assert_eq!(provider["apiVersion"], "turtles-capi.cattle.io/v1alpha1");
    assert_eq!(provider["kind"], "CAPIProvider");
    let spec = &provider["spec"];
    assert_eq!(
        (&spec["name"], &spec["type"]),
        (&json!("fipd"), &json!("ipam"))
    );
    assert_eq!(spec["version"], format!("v{VERSION}"));
    let command = format!("kubectl create configmap v{VERSION} --namespace fipd-system");
    assert!(text.contains(&command), "{text}");
}
