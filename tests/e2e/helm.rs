//! Charts by the real helm CLI against real API servers: from a repository, a registry and a file, kept in step, recovered.
//!
//! There is no kubelet, so no pod ever gets ready: fipd does not wait for workloads unless it is told to, and what hangs here
//! is a hook, which helm always waits for.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "helm/guests.rs"]
mod guests;
#[path = "helm/recovery.rs"]
mod recovery;

use std::path::Path;
use std::time::Duration;

use fipd::config::{self, Deadline};
use fipd::helm::{
    Access, ChartRelease, Helm, HelmError, OWNER, OWNER_LABEL, Operations, Release, Unversioned,
};
use fipd_tests::testbed::{Charts, ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "rancher-fip-manager";
const CONTROLLER: &str = "rancher-fip-lb-controller";

/// An API server, charts, and fipd's part that installs them.
struct Bench {
    helm: Helm,
    plane: ControlPlane,
    charts: Charts,
    data_dir: tempfile::TempDir,
}

impl Bench {
    async fn start(charts: &[(&str, &str)]) -> Self {
        let plane = ControlPlane::start("guest", ControlPlaneOptions::default());
        let (plane, charts) = futures::future::try_join(plane, Charts::start(charts))
            .await
            .unwrap();
        let data_dir = tempfile::tempdir().unwrap();
        let helm = start_helm(&charts, data_dir.path());
        Self {
            helm,
            plane,
            charts,
            data_dir,
        }
    }

    fn access(&self) -> Access<'_> {
        Access {
            cluster: "guest",
            kubeconfig: self.plane.kubeconfig_yaml(),
            system: None,
        }
    }

    async fn ensure(&self, release: &Release) -> Result<Operations, HelmError> {
        self.helm.recheck("guest");
        self.helm.ensure(self.access(), release, None, &|| {}).await
    }

    async fn operations(&self, release: &Release) -> Vec<&'static str> {
        self.ensure(release).await.unwrap()
    }

    /// The controller's chart of the repository.
    fn controller(&self, version: &str, values: &str) -> Release {
        release(CONTROLLER, &self.charts.repository(), version, values)
    }

    async fn deployment(&self, name: &str) -> Deployment {
        let api: Api<Deployment> = Api::namespaced(self.plane.client().await.unwrap(), NAMESPACE);
        api.get(name).await.unwrap()
    }

    async fn image(&self, name: &str) -> String {
        let deployment = self.deployment(name).await;
        let pod = deployment.spec.template.spec.unwrap();
        pod.containers[0].image.clone().unwrap()
    }

    /// helm as an admin would run it.
    async fn by_hand(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.plane.kubeconfig_path().display().to_string();
        let mut all = arguments.to_vec();
        all.extend(["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig]);
        self.charts.helm().run(&all).await.unwrap()
    }

    /// What helm stores of its releases in the cluster.
    async fn stored(&self) -> Vec<Secret> {
        let api: Api<Secret> = Api::namespaced(self.plane.client().await.unwrap(), NAMESPACE);
        api.list(&ListParams::default().labels("owner=helm"))
            .await
            .unwrap()
            .items
    }

    /// No kubeconfig is left on the disk.
    fn assert_clean(&self) {
        let left = std::fs::read_dir(self.data_dir.path().join("helm/run")).unwrap();
        assert_eq!(left.count(), 0);
    }
}

fn start_helm(charts: &Charts, data_dir: &Path) -> Helm {
    let config = config::Helm {
        path: Some(charts.helm().binary().to_owned()),
        timeout: Deadline(Duration::from_secs(20)),
        ca_file: Some(charts.ca_file()),
        ..config::Helm::default()
    };
    Helm::start(&config, data_dir, CancellationToken::new())
}

fn release(chart: &str, reference: &str, version: &str, values: &str) -> Release {
    let written = ChartRelease {
        prefix: "RancherFipLBController",
        name: chart.into(),
        chart: chart.into(),
        reference: reference.into(),
        version: version.into(),
        unversioned: Unversioned::Refused,
        once: false,
        namespace: NAMESPACE.into(),
        values: values.into(),
    };
    written.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_of_a_repository_are_kept_in_step_with_version_and_values() {
    let bench = Bench::start(&[(CONTROLLER, "0.4.0"), (CONTROLLER, "0.4.1")]).await;
    let first = bench.controller("0.4.0", "image: { tag: v0.4.0 }");
    assert_eq!(bench.operations(&first).await, ["install"]);
    let stored = bench.stored().await;
    let labels = stored[0].metadata.labels.as_ref().unwrap();
    assert_eq!(labels.get(OWNER_LABEL).map(String::as_str), Some(OWNER));
    assert_eq!(bench.operations(&first).await, [""; 0]);
    bench.assert_clean();

    // Only the values change (defect 23).
    let values = bench.controller("0.4.0", "image: { tag: v0.4.0-patched }");
    assert_eq!(bench.operations(&values).await, ["upgrade"]);
    assert!(bench.image(CONTROLLER).await.ends_with(":v0.4.0-patched"));
    let version = bench.controller("v0.4.1", "image: { tag: v0.4.0-patched }");
    assert_eq!(bench.operations(&version).await, ["upgrade"]);
    let deployed = bench.deployment(CONTROLLER).await;
    let labels = deployed.metadata.labels.unwrap();
    assert_eq!(labels["stand-in/chart-version"], "0.4.1");
    assert_eq!(bench.operations(&version).await, [""; 0]);

    // Somebody changes values by hand.
    let index = bench.charts.repository();
    bench
        .by_hand(&[
            "upgrade",
            CONTROLLER,
            CONTROLLER,
            "--repo",
            &index,
            "--version",
            "0.4.1",
            "--set",
            "image.tag=mine",
        ])
        .await;
    assert_eq!(bench.operations(&version).await, ["upgrade"]);
    assert!(bench.image(CONTROLLER).await.ends_with(":v0.4.0-patched"));

    let missing = bench.controller("9.9.9", "");
    let error = bench.ensure(&missing).await.unwrap_err();
    assert_eq!(error.reason(), "HelmFailed");
    assert!(error.to_string().contains("9.9.9"), "{error}");
    bench.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_come_from_a_registry_and_from_files() {
    let bench = Bench::start(&[("purelb", "0.14.1")]).await;
    let values = "image: { tag: v0.14.1 }\nlbnodeagent: { sendgarp: yes }\n";
    let oci = release("purelb", &bench.charts.oci("purelb"), "0.14.1", values);
    assert_eq!(bench.operations(&oci).await, ["install"]);
    assert_eq!(bench.operations(&oci).await, [""; 0]);
    assert!(bench.image("allocator").await.ends_with(":v0.14.1"));

    let path = Charts::local("metallb").display().to_string();
    let local = release(
        "metallb",
        &path,
        "0.15.3",
        "speaker: { frr: { image: { tag: 10.4.1 } } }",
    );
    assert_eq!(bench.operations(&local).await, ["install"]);
    assert_eq!(bench.operations(&local).await, [""; 0]);
    let other = release("metallb", &path, "0.15.2", "");
    let error = bench.ensure(&other).await.unwrap_err();
    assert_eq!(error.reason(), "ChartConfigInvalid");
    assert!(error.to_string().contains("0.15.3"), "{error}");

    // What carries the label is uninstalled, once.
    let metallb = async || {
        bench
            .helm
            .uninstall(bench.access(), NAMESPACE, "metallb")
            .await
            .unwrap()
    };
    assert!(metallb().await);
    assert!(!metallb().await);
    bench.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_the_originals_is_adopted_and_a_foreign_one_left_alone() {
    let bench = Bench::start(&[(CONTROLLER, "0.4.0"), ("purelb", "0.14.1")]).await;
    let repository = bench.charts.repository();
    let install = [
        "install",
        CONTROLLER,
        CONTROLLER,
        "--repo",
        &repository,
        "--version",
        "0.4.0",
        "--create-namespace",
    ];
    bench.by_hand(&install).await;
    let uninstall = async || {
        bench
            .helm
            .uninstall(bench.access(), NAMESPACE, CONTROLLER)
            .await
    };
    let refused = uninstall().await.unwrap_err();
    assert_eq!(refused.reason(), "ReleaseForeign");
    bench.deployment(CONTROLLER).await;

    let wanted = bench.controller("0.4.0", "");
    assert_eq!(
        bench.operations(&wanted).await,
        ["upgrade"],
        "it gets fipd's label"
    );
    assert_eq!(bench.operations(&wanted).await, [""; 0]);
    bench.helm.recheck("guest");
    assert!(uninstall().await.unwrap());

    // The same name, another chart.
    bench
        .by_hand(&["install", "purelb", CONTROLLER, "--repo", &repository])
        .await;
    let purelb = release("purelb", &repository, "0.14.1", "");
    let error = bench.ensure(&purelb).await.unwrap_err();
    assert_eq!(error.reason(), "ReleaseForeign");
    assert!(error.to_string().contains(CONTROLLER), "{error}");
    assert_eq!(bench.by_hand(&["list", "--short"]).await.trim(), "purelb");
}
