//! The handle over a stand-in for the CLI: a script that keeps its state in files beside it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, time::Instant};

use super::*;
use crate::{
    config::{AtOnce, Deadline},
    helm::{Activity, Unversioned, release::testing::written},
};

/// Answers as helm does about releases that `install` and `upgrade` note in files, and counts how many run at once.
const SCRIPT: &str = r#"#!/bin/sh
# HOME is DATA_DIR/helm/home
place="$HOME/../../fake"
mkdir -p "$place"
if [ "$1" = version ]; then cat "$place/version" 2>/dev/null || echo v3.22.0; exit 0; fi
echo "$*" >> "$place/calls"
name="$2"; [ "$1" = get ] && name="$3"; [ "$1" = list ] && name="$(echo "$5" | tr -d '^$')"
chart="$name"
for word in "$@"; do
    case "$last" in --version) version="$word";; --values) values="$word";; esac
    [ "$word" = --repo ] && chart="$last"
    last="$word"
done
[ -n "$version" ] || version="$(cat "$place/newest" 2>/dev/null)"
case "$1" in
status)
    sleep "$(cat "$place/slow-status" 2>/dev/null || echo 0)"
    [ -e "$place/$name" ] || { echo "Error: release: not found" >&2; exit 1; }
    cat "$place/$name";;
get) echo "{\"chart\":\"$(cat "$place/$name.chart" 2>/dev/null || echo "$name")\",\"version\":\"$(cat "$place/$name.version")\"}";;
show)
    sleep "$(cat "$place/slow-show" 2>/dev/null || echo 0)"
    [ -e "$place/unshown" ] && { echo "Error: no such repository" >&2; exit 1; }
    echo "version: $version";;
list) echo "[{\"name\":\"$name\"}]";;
install|upgrade)
    mkdir -p "$place/running"
    touch "$place/running/$$"
    now="$(ls "$place/running" | wc -l)"
    [ "$now" -gt "$(cat "$place/most" 2>/dev/null || echo 0)" ] && echo "$now" > "$place/most"
    sleep "$(cat "$place/slow" 2>/dev/null || echo 0)"
    rm "$place/running/$$"
    [ -e "$place/broken" ] && { echo "Error: no such chart" >&2; exit 1; }
    echo "$version" > "$place/$name.version"
    echo "$chart" > "$place/$name.chart"
    echo "{\"version\":1,\"info\":{\"status\":\"deployed\"},\"config\":$(cat "$values")}" > "$place/$name";;
history) echo '[{"revision":1,"status":"pending-install"}]';;
rollback) sed -i s/pending-install/deployed/ "$place/$name";;
uninstall) rm "$place/$name";;
esac
"#;

struct Fake {
    directory: tempfile::TempDir,
    helm: Helm,
}

impl Fake {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("helm-stand-in");
        fs::write(&path, SCRIPT).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(directory.path().join("fake")).unwrap();
        let config = config::Helm {
            path: Some(path),
            timeout: Deadline(Duration::from_secs(30)),
            at_once: AtOnce(2),
            ..config::Helm::default()
        };
        let helm = Helm::start(&config, directory.path(), CancellationToken::new());
        Self { directory, helm }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("fake").join(name)
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.file("calls")).unwrap_or_default()
    }

    async fn ensure(&self, cluster: &str, release: &Release) -> Result<Operations, HelmError> {
        self.ensure_at(cluster, release, None).await
    }

    async fn ensure_at(
        &self,
        cluster: &str,
        release: &Release,
        state: Option<&str>,
    ) -> Result<Operations, HelmError> {
        let access = Access {
            cluster,
            kubeconfig: "token: geheim",
            system: None,
        };
        self.helm.ensure(access, release, state, &|| {}).await
    }
}

fn release(name: &str, version: &str, values: &str) -> Release {
    let written = written(name, "https://charts.example.com", version, "lb", values);
    written.parse().unwrap()
}

fn operations(done: Result<Operations, HelmError>) -> Vec<&'static str> {
    done.unwrap()
}

#[tokio::test]
async fn a_release_is_installed_left_alone_and_upgraded() {
    let fake = Fake::new();
    let first = release("purelb", "0.14.1", "a: 1");
    assert_eq!(operations(fake.ensure("east", &first).await), ["install"]);
    let calls = fake.calls();
    assert_eq!(operations(fake.ensure("east", &first).await), [""; 0]);
    assert_eq!(fake.calls(), calls, "nobody asks helm again so soon");
    fake.helm.recheck("east");
    assert_eq!(operations(fake.ensure("east", &first).await), [""; 0]);
    assert_ne!(fake.calls(), calls);
    let values = release("purelb", "0.14.1", "a: 2");
    assert_eq!(operations(fake.ensure("east", &values).await), ["upgrade"]);
    let version = release("purelb", "0.15.0", "a: 2");
    assert_eq!(operations(fake.ensure("east", &version).await), ["upgrade"]);
    let runs = fs::read_dir(fake.directory.path().join("helm/run")).unwrap();
    assert_eq!(runs.count(), 0, "no kubeconfig is left");
}

/// As if the last look had been this long ago.
fn age(fake: &Fake, by: Duration) {
    let mut memory = fake.helm.0.memory.lock();
    for last in memory.values_mut() {
        last.at.0 -= u64::try_from(by.as_millis()).unwrap();
    }
}

#[tokio::test]
async fn a_release_in_a_known_state_is_not_looked_at_again() {
    let fake = Fake::new();
    let first = release("purelb", "0.14.1", "a: 1");
    let hour = Duration::from_secs(3_600);
    let ensure = async |state| operations(fake.ensure_at("east", &first, state).await);
    let looked = async |state| {
        let before = fake.calls();
        assert_eq!(ensure(state).await, [""; 0]);
        fake.calls() != before
    };
    assert_eq!(ensure(None).await, ["install"]);
    assert!(!looked(Some("v1")).await, "it was installed just now");
    age(&fake, hour);
    assert!(looked(Some("v1")).await, "nobody knows this state");
    age(&fake, hour);
    assert!(!looked(Some("v1")).await);
    assert!(looked(Some("v2")).await, "it changed");
    age(&fake, hour);
    assert!(looked(None).await, "its state is not known");
}

#[tokio::test]
async fn a_release_without_a_version_stays_at_the_one_that_was_installed() {
    let fake = Fake::new();
    let newest = |version: &str| fs::write(fake.file("newest"), version).unwrap();
    let unversioned = |values: &str| {
        let mut written = written("purelb", "https://charts.example.com", "", "lb", values);
        written.unversioned = Unversioned::Newest;
        written.parse().unwrap()
    };
    let wanted = || {
        let progress = fake.helm.progress().into_values().next();
        progress.and_then(|progress| progress.wanted)
    };
    newest("1.0.0");
    let first = unversioned("a: 1");
    assert_eq!(operations(fake.ensure("east", &first).await), ["install"]);
    assert!(!fake.calls().contains("--version"), "{}", fake.calls());
    assert_eq!(wanted().as_deref(), Some("1.0.0"));
    newest("2.0.0");
    fake.helm.recheck("east");
    assert_eq!(operations(fake.ensure("east", &first).await), [""; 0]);
    let values = unversioned("a: 2");
    assert_eq!(operations(fake.ensure("east", &values).await), ["upgrade"]);
    assert!(fake.calls().contains("--version 1.0.0"), "{}", fake.calls());
    assert_eq!(wanted().as_deref(), Some("1.0.0"));
    let newest = fake.helm.newest(&values.chart).await.unwrap();
    assert_eq!(newest.as_str(), "2.0.0");
    let mut updated = values;
    updated.chart.version = newest;
    assert_eq!(operations(fake.ensure("east", &updated).await), ["upgrade"]);
    assert_eq!(wanted().as_deref(), Some("2.0.0"));
}

#[tokio::test]
async fn a_chart_that_is_not_to_be_had_is_looked_for_once_for_all_clusters_and_later_again() {
    let fake = Fake::new();
    let took = Duration::from_secs(2);
    fs::write(fake.file("slow-show"), took.as_secs().to_string()).unwrap();
    fs::write(fake.file("unshown"), "").unwrap();
    let chart = release("purelb", "0.14.1", "").chart;
    let looked = || fake.calls().matches("show chart").count();
    let check = || fake.helm.check_chart(&chart);
    let failed: [_; 3] = tokio::join!(check(), check(), check()).into();
    for failed in failed {
        assert_eq!(failed.unwrap_err().reason(), "HelmFailed");
    }
    assert_eq!(looked(), 1);
    fs::remove_file(fake.file("unshown")).unwrap();
    tokio::time::sleep(took + Duration::from_secs(1)).await;
    for count in [2, 3] {
        check().await.unwrap();
        assert_eq!(looked(), count, "what was to be had may be so no more");
    }
}

#[tokio::test]
async fn a_release_keeps_its_name_and_its_chart_another() {
    let fake = Fake::new();
    let mut written = written("purelb", "https://charts.example.com", "0.14.1", "lb", "");
    written.name = "lb-two".to_owned();
    let wanted = written.parse().unwrap();
    assert_eq!(operations(fake.ensure("east", &wanted).await), ["install"]);
    let install = "install lb-two --create-namespace purelb --repo https://charts.example.com ";
    assert!(fake.calls().contains(install), "{}", fake.calls());
    fake.helm.recheck("east");
    assert_eq!(operations(fake.ensure("east", &wanted).await), [""; 0]);
    let access = Access {
        cluster: "east",
        kubeconfig: "",
        system: None,
    };
    assert!(fake.helm.uninstall(access, "lb", "lb-two").await.unwrap());
    assert!(
        fake.calls().contains("\nuninstall lb-two "),
        "{}",
        fake.calls()
    );
}

#[tokio::test]
async fn only_what_changes_something_is_told_to_begin() {
    let fake = Fake::new();
    let first = release("purelb", "0.14.1", "a: 1");
    let begun = Mutex::new(0);
    let begins = || *begun.lock() += 1;
    let access = Access {
        cluster: "east",
        kubeconfig: "token: geheim",
        system: None,
    };
    for _ in 0..2 {
        let done = fake.helm.ensure(access, &first, None, &begins).await;
        done.unwrap();
        fake.helm.recheck("east");
    }
    assert_eq!(*begun.lock(), 1, "the second is only a look");
}

#[tokio::test]
async fn a_failure_is_told_and_not_repeated_at_once() {
    let fake = Fake::new();
    fs::write(fake.file("broken"), "").unwrap();
    let wanted = release("purelb", "0.14.1", "");
    let said = fake.ensure("east", &wanted).await.unwrap_err();
    assert_eq!(said.to_string(), "helm install failed: no such chart");
    let calls = fake.calls();
    assert!(fake.ensure("east", &wanted).await.is_err());
    assert_eq!(fake.calls(), calls);
    let progress = fake.helm.progress().into_values().next().unwrap();
    assert_eq!(progress.activity, Activity::Idle);
    let last = progress.last.unwrap().error.unwrap();
    assert_eq!(last.reason, "HelmFailed");
    fs::remove_file(fake.file("broken")).unwrap();
    let corrected = release("purelb", "0.14.2", "");
    assert_eq!(
        operations(fake.ensure("east", &corrected).await),
        ["install"],
        "a change is tried at once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_in_all_and_one_for_each_cluster() {
    let fake = Fake::new();
    // Longer than a busy machine takes to start the second one.
    fs::write(fake.file("slow"), "2").unwrap();
    let names = ["east", "east", "west", "north"];
    let begun = Instant::now();
    let all = names.iter().enumerate().map(|(number, cluster)| {
        let wanted = release(&format!("purelb-{number}"), "0.14.1", "");
        let fake = &fake;
        async move { fake.ensure(cluster, &wanted).await.map(drop) }
    });
    futures::future::try_join_all(all).await.unwrap();
    assert_eq!(fs::read_to_string(fake.file("most")).unwrap().trim(), "2");
    assert!(begun.elapsed() >= Duration::from_secs(4));
}

#[tokio::test]
async fn a_missing_cli_is_a_reason_and_found_once_it_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("helm");
    let config = config::Helm {
        path: Some(path.clone()),
        ..config::Helm::default()
    };
    let helm = Helm::start(&config, directory.path(), CancellationToken::new());
    let access = Access {
        cluster: "east",
        kubeconfig: "",
        system: None,
    };
    let wanted = release("purelb", "0.14.1", "");
    let error = helm
        .ensure(access, &wanted, None, &|| {})
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "HelmMissing");
    // The private directory has this name, so that it is there but no program.
    assert!(error.to_string().contains("is no program"), "{error}");
}

#[tokio::test]
async fn a_helm_that_is_too_old_is_not_used() {
    let fake = Fake::new();
    fs::write(fake.file("version"), "v3.9.4+g1").unwrap();
    let error = fake
        .ensure("east", &release("purelb", "0.14.1", ""))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "HelmUnsupported");
    assert!(error.to_string().contains("v3.9.4"), "{error}");
    assert_eq!(fake.calls(), "");
}

#[tokio::test]
async fn what_is_uninstalled_is_off_the_board() {
    let fake = Fake::new();
    fake.ensure("east", &release("purelb", "0.14.1", ""))
        .await
        .unwrap();
    let access = Access {
        cluster: "east",
        kubeconfig: "",
        system: None,
    };
    assert!(fake.helm.uninstall(access, "lb", "purelb").await.unwrap());
    assert!(!fake.helm.uninstall(access, "lb", "purelb").await.unwrap());
    assert!(fake.helm.progress().is_empty());
}

/// A release with fipd's label on which something has just begun.
fn pend(fake: &Fake) {
    let now = clock::rfc3339(clock::now());
    let state = format!(
        r#"{{"version":1,"info":{{"status":"pending-install","last_deployed":"{now}"}},"config":{{}}}}"#
    );
    fs::write(fake.file("purelb"), state).unwrap();
    fs::write(fake.file("purelb.version"), "0.14.1").unwrap();
    fake.helm.recheck("east");
}

async fn drop_soon<T>(work: impl Future<Output = T>) {
    let cut = tokio::time::timeout(Duration::from_millis(700), work);
    assert!(cut.await.is_err());
}

#[tokio::test]
async fn only_what_fipd_itself_was_changing_is_taken_back_at_once() {
    let fake = Fake::new();
    let wanted = release("purelb", "0.14.1", "");
    pend(&fake);
    assert_eq!(
        fake.ensure("east", &wanted).await.unwrap_err().reason(),
        "ReleaseBusy"
    );
    // A look that is cut off changed nothing.
    fs::write(fake.file("slow-status"), "5").unwrap();
    fake.helm.recheck("east");
    drop_soon(fake.ensure("east", &wanted)).await;
    fs::remove_file(fake.file("slow-status")).unwrap();
    pend(&fake);
    assert_eq!(
        fake.ensure("east", &wanted).await.unwrap_err().reason(),
        "ReleaseBusy"
    );

    fs::remove_file(fake.file("purelb")).unwrap();
    fs::write(fake.file("slow"), "5").unwrap();
    fake.helm.recheck("east");
    drop_soon(fake.ensure("east", &wanted)).await;
    fs::remove_file(fake.file("slow")).unwrap();
    pend(&fake);
    assert_eq!(operations(fake.ensure("east", &wanted).await), ["rollback"]);
    pend(&fake);
    assert_eq!(
        fake.ensure("east", &wanted).await.unwrap_err().reason(),
        "ReleaseBusy"
    );
}
