//! Operations that fail, hang or are cut off.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fipd_tests::process::spawn_bound;
use fipd_tests::testbed::{Charts, wait_until};
use k8s_openapi::api::core::v1::Secret;

use super::{Bench, CONTROLLER, NAMESPACE, release, start_helm};

const DEADLINE: Duration = Duration::from_secs(60);
const HANGS: &str = "standIn: { hang: true }";

/// The state of the newest revision, as the label of its Secret says.
fn newest(stored: &[Secret]) -> Option<String> {
    let labels = stored
        .iter()
        .filter_map(|secret| secret.metadata.labels.as_ref());
    let revision =
        |of: &&std::collections::BTreeMap<String, String>| of["version"].parse::<u64>().ok();
    Some(labels.max_by_key(revision)?["status"].clone())
}

async fn wait_for_state(bench: &Bench, wanted: &str) {
    wait_until(&format!("the release is {wanted}"), DEADLINE, || async {
        match newest(&bench.stored().await) {
            Some(state) if state == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_23_failed_and_stuck_releases_recover() {
    let bench = Bench::start(&[(CONTROLLER, "0.4.0")]).await;
    let broken = bench.controller("0.4.0", "standIn: { broken: true }");
    let error = bench.ensure(&broken).await.unwrap_err();
    assert_eq!(error.reason(), "HelmFailed");
    let good = bench.controller("0.4.0", "image: { tag: good }");
    bench.operations(&good).await;
    assert!(bench.image(CONTROLLER).await.ends_with(":good"));
    // Once it was installed, the same is an upgrade that fails.
    assert!(bench.ensure(&broken).await.is_err());
    wait_for_state(&bench, "failed").await;
    assert_eq!(bench.operations(&good).await, ["upgrade"]);

    // helm gives up on a hook that never ends before fipd's deadline.
    let hanging = bench.controller("0.4.0", HANGS);
    let begun = Instant::now();
    let error = bench.ensure(&hanging).await.unwrap_err();
    assert!(
        ["HelmFailed", "HelmTimeout"].contains(&error.reason()),
        "{error}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(40),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(bench.operations(&good).await, ["upgrade"]);

    // An upgrade that is killed leaves the release pending.
    let repository = bench.charts.repository();
    let kubeconfig = bench.plane.kubeconfig_path().display().to_string();
    let upgrade = [
        "upgrade",
        CONTROLLER,
        CONTROLLER,
        "--repo",
        &repository,
        "--set",
        "standIn.hang=true",
        "--namespace",
        NAMESPACE,
        "--kubeconfig",
        &kubeconfig,
    ];
    let mut command = bench.charts.helm().command(&upgrade);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = spawn_bound(command).unwrap();
    wait_for_state(&bench, "pending-upgrade").await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(
        bench.ensure(&good).await.unwrap_err().reason(),
        "ReleaseBusy",
        "it may still run"
    );
    let recovered = wait_until(
        "the release counts as stuck and is recovered",
        DEADLINE,
        || async { bench.ensure(&good).await },
    );
    let operations = recovered.await.unwrap();
    assert_eq!(operations.first(), Some(&"rollback"), "{operations:?}");
    wait_for_state(&bench, "deployed").await;
    assert!(bench.image(CONTROLLER).await.ends_with(":good"));
    bench.assert_clean();
}

/// The test below, run by itself: installs a chart that hangs, until it is killed.
#[tokio::test]
#[ignore = "is run by the test of a killed fipd"]
async fn installs_until_killed() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("FIPD_TEST_DATA_DIR").is_empty() {
        return;
    }
    let config = fipd::config::Helm {
        path: Some(PathBuf::from(variable("FIPD_TEST_HELM"))),
        ..fipd::config::Helm::default()
    };
    let data_dir = PathBuf::from(variable("FIPD_TEST_DATA_DIR"));
    let helm = fipd::helm::Helm::start(
        &config,
        &data_dir,
        tokio_util::sync::CancellationToken::new(),
    );
    let kubeconfig = std::fs::read_to_string(variable("FIPD_TEST_KUBECONFIG")).unwrap();
    let access = fipd::helm::Access {
        cluster: "guest",
        kubeconfig: &kubeconfig,
        system: None,
    };
    let chart = Charts::local(CONTROLLER).display().to_string();
    let hanging = release(CONTROLLER, &chart, "0.4.0", HANGS);
    let _killed_before = helm.ensure(access, &hanging, None, &|| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_fipd_leaves_neither_helm_nor_files_nor_a_stuck_release() {
    let bench = Bench::start(&[]).await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "recovery::installs_until_killed", "--ignored"])
        .env("FIPD_TEST_DATA_DIR", bench.data_dir.path())
        .env("FIPD_TEST_HELM", bench.charts.helm().binary())
        .env("FIPD_TEST_KUBECONFIG", bench.plane.kubeconfig_path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut daemon = spawn_bound(command).unwrap();
    wait_for_state(&bench, "pending-install").await;
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let runs = bench.data_dir.path().join("helm/run");
    let left: Vec<_> = std::fs::read_dir(&runs).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "the killed daemon could not clean up");
    let process = std::fs::read_to_string(left[0].path().join("process")).unwrap();
    let helm_runs = format!("/proc/{}", process.split(' ').next().unwrap());
    assert!(PathBuf::from(&helm_runs).exists(), "helm outlives it");

    let next = start_helm(&bench.charts, bench.data_dir.path());
    bench.assert_clean();
    wait_until("helm is ended", DEADLINE, || async {
        match std::fs::read_to_string(format!("{helm_runs}/stat")) {
            Ok(stat) if !stat.contains(") Z ") => Err(stat),
            _ => Ok(()),
        }
    })
    .await
    .unwrap();
    let chart = Charts::local(CONTROLLER).display().to_string();
    let good = release(CONTROLLER, &chart, "0.4.0", "image: { tag: good }");
    let done = next
        .ensure(bench.access(), &good, None, &|| {})
        .await
        .unwrap();
    assert_eq!(done, ["rollback", "upgrade"], "without waiting");
    assert!(bench.image(CONTROLLER).await.ends_with(":good"));
}
