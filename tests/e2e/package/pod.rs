//! A host goes from the package to the static pod and back, by what the manifest says.

use std::process::Command;

use fipd_tests::process::run_bound;
use fipd_tests::runner::checkout;
use fipd_tests::testbed::{Kind, Packages, get_unix};

use super::host::Host;
use super::life::{CONFIG, STORE, UNITS, owners};
use super::plugin::a_deletion_waits_for_fipd;

const MANIFEST: &str = "/usr/share/fipd/static-pod/fipd.yaml";
/// fipd as the kubelet runs it: root with one capability, started again when it fails.
const POD: &str = "systemd-run --quiet --unit=pod --collect --property=CapabilityBoundingSet=CAP_NET_ADMIN \
                   --property=NoNewPrivileges=yes --property=Restart=on-failure \
                   /usr/bin/fipd serve --config=/etc/fipd/fipd.toml --socket=/run/fipd/fipd.sock";

/// The commands that the manifest's comment has after the line that begins like this.
fn commands<'a>(manifest: &'a str, start: &str) -> Vec<&'a str> {
    let mut lines = manifest.lines();
    assert!(
        lines.any(|line| line.starts_with(&format!("# {start}"))),
        "{start:?}: {manifest}"
    );
    let commands: Vec<_> = lines
        .skip_while(|line| !line.starts_with("#   "))
        .map_while(|line| line.strip_prefix("#   "))
        .collect();
    assert!(!commands.is_empty(), "{start:?}: {manifest}");
    commands
}

/// Runs the commands after that line, where a fipd.toml is.
async fn follow(host: &Host, start: &str) {
    let manifest = host.sh(&format!("cat {MANIFEST}")).await;
    for command in commands(&manifest, start) {
        host.sh(&format!("cd /root && {command}")).await;
    }
}

async fn to_the_pod(host: &Host) {
    host.sh(&format!("cp {CONFIG} /root/fipd.toml")).await;
    follow(host, "On the host, first").await;
    follow(host, "Where the package was before").await;
    host.sh(POD).await;
    answers(host).await;
}

async fn back(host: &Host) {
    host.sh("systemctl stop pod.service").await;
    follow(host, "Back again").await;
    host.active().await;
    owners(host).await;
}

/// Until the pod has opened the store and both sockets.
async fn answers(host: &Host) {
    let both = "test -S /run/fipd/cni.sock && fipd pool list >/dev/null";
    host.until("the pod answers", both, |_| true).await;
    alone(host).await;
}

/// The pod has all to itself, and answers.
async fn alone(host: &Host) {
    assert_eq!(
        host.said(&format!("systemctl is-active {UNITS} pod.service"))
            .await,
        "inactive\ninactive\ninactive\nactive"
    );
    let foreign = "find /var/lib/fipd /run/fipd -not -user root";
    assert_eq!(host.sh(foreign).await, "");
    let socket = host.path("/run/fipd/fipd.sock");
    assert_eq!(get_unix(&socket, "/readyz").await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_over_to_the_static_pod_and_back() {
    let host = Host::bare(Kind::Deb).await;
    host.install(Packages::OLDER).await;
    host.active().await;
    host.sh("fipd pool create lab --cidr 10.20.0.0/28").await;
    host.sh("fipd lease allocate --pool lab --owner fipd/vm/lab/web")
        .await;
    let leases = host.sh("fipd lease list").await;

    to_the_pod(&host).await;
    assert_eq!(host.sh("fipd lease list").await, leases);
    a_deletion_waits_for_fipd(&host, "systemctl stop pod.service", POD).await;
    answers(&host).await;
    // What a boot does to files; the kubelet makes the folder that is missing.
    host.sh("systemctl stop pod.service && rm -r /run/fipd")
        .await;
    host.said("systemd-tmpfiles --create --remove --boot").await;
    host.sh(&format!("install -d -m 0755 /run/fipd && {POD}"))
        .await;
    answers(&host).await;
    assert_eq!(host.sh("fipd lease list").await, leases);
    host.install(Packages::NEWER).await;
    alone(&host).await;
    back(&host).await;
    assert_eq!(host.sh("fipd lease list").await, leases);

    to_the_pod(&host).await;
    host.sh("echo alpha >/var/lib/fipd/attached-clusters").await;
    let said = host.remove().await;
    assert!(
        !said.contains("still attached"),
        "the pod serves it: {said}"
    );
    let said = host.sh("dpkg --purge fipd 2>&1").await;
    assert!(said.contains("/var/lib/fipd and /etc/fipd stay"), "{said}");
    host.sh(&format!("test -s {STORE}")).await;
    alone(&host).await;

    // Somebody who knows of no pod.
    host.sh(&format!("systemctl unmask {UNITS}")).await;
    let said = host.install(Packages::NEWER).await;
    assert!(said.contains("is not started beside it"), "{said}");
    alone(&host).await;
    back(&host).await;
    assert_eq!(host.sh("fipd lease list").await, leases);
}

#[tokio::test]
async fn the_image_that_the_manifest_names_is_made_and_loaded_by_what_it_says() {
    let manifest = std::fs::read_to_string(checkout().join("packaging/static-pod/fipd.yaml"));
    let manifest = manifest.unwrap();
    let made = commands(&manifest, "A kubelet runs it");
    let image: Vec<_> = made[1].split(' ').collect();
    let ["packaging/image", "--tag", tag, "--save", file, binary] = image.as_slice() else {
        panic!("{image:?}");
    };
    let named = format!("      image: {tag}");
    assert!(manifest.lines().any(|line| line == named), "{named}");
    assert_eq!(*tag, concat!("fipd:", env!("CARGO_PKG_VERSION")));
    assert_eq!(
        (made[0], *binary),
        ("cargo build --release -p fipd", "target/release/fipd")
    );
    let loaded = commands(&manifest, "Load it into");
    assert_eq!(loaded, [format!("ctr -n k8s.io images import {file}")]);

    // As far as it goes without a binary.
    let mut command = Command::new(checkout().join(image[0]));
    command.args(&image[1..5]);
    let said = run_bound(command).await.unwrap().stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("which binary?"), "{said}");
}
