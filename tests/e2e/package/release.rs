//! Release packages, which take minutes to build: only `cargo torture` does.

use std::path::{Path, PathBuf};
use std::process::Command;

use fipd_tests::process::run_bound;
use fipd_tests::runner::checkout;
use fipd_tests::testbed::{Kind, TestDirectory, packaging};
use fipd_tests::toolchain::{cargo_tool, debian};
use fipd_tests::versions::{CARGO_CYCLONEDX, CARGO_DEB, CARGO_GENERATE_RPM};

use super::host::Host;

const FOREIGN: &str = "aarch64-unknown-linux-gnu";
/// Of the CNI plugin, in bytes.
const LARGEST_PLUGIN: u64 = 2_000_000;
/// Makes the folder `$0` of programs that only say that they are old.
const OLD_TOOLS: &str = "mkdir -p \"$0\" && cd \"$0\" && for tool in cargo cargo-deb cargo-generate-rpm cargo-cyclonedx; do \
                         printf '#!/bin/sh\\necho tool 0.0.1\\n' >$tool && chmod 755 $tool; done";

/// Both packages, built of a copy of the tree in a folder of this name.
async fn build(directory: &TestDirectory, name: &str, arguments: &[&str]) -> Vec<PathBuf> {
    let tree = directory.path().join(name);
    let out = directory.path().join(format!("{name}-packages"));
    run(Command::new("git")
        .args(["clone", "--quiet", "--shared"])
        .arg(checkout())
        .arg(&tree))
    .await;
    let mut build = packaging(&tree).await.unwrap();
    // Its target directory is in it.
    build.env_remove("CARGO_TARGET_DIR").args(arguments);
    build.arg("--out").arg(&out);
    let said = run(&mut build).await;
    said.lines().map(PathBuf::from).collect()
}

async fn run(command: &mut Command) -> String {
    let shown = format!("{command:?}");
    let owned = std::mem::replace(command, Command::new("true"));
    let output = run_bound(owned).await.unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{shown}: {out}{err}");
    out.into_owned()
}

/// What `packaging/build` of a tree that has nothing else says with old tools.
async fn refused(tree: &Path) -> String {
    let tools = tree.with_extension("tools");
    run(Command::new("sh").args(["-ec", OLD_TOOLS]).arg(&tools)).await;
    let mut build = Command::new(tree.join("packaging/build"));
    build.env("PATH", format!("{}:/usr/bin:/bin", tools.display()));
    let output = run_bound(build).await.unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_tree_with_changes_is_refused_and_another_tool_is_warned_of() {
    let directory = TestDirectory::new().unwrap();
    let tree = directory.path().join("tree");
    for file in ["packaging/build", "tests/src/versions.rs"] {
        let (from, to) = (checkout().join(file), tree.join(file));
        run(Command::new("install").arg("-D").arg(from).arg(to)).await;
    }
    let git = |arguments: &str| {
        let mut git = Command::new("git");
        git.arg("-C").arg(&tree).args(arguments.split(' '));
        git
    };
    run(&mut git("init --quiet")).await;
    let said = refused(&tree).await;
    assert!(said.contains("?? packaging/"), "{said}");

    run(&mut git("add .")).await;
    run(&mut git(
        "-c user.name=a -c user.email=a@example.net commit --quiet --message=a",
    ))
    .await;
    // Of no package.
    std::fs::write(tree.join("notes"), "").unwrap();
    let said = refused(&tree).await;
    assert!(!said.contains("not as its commit"), "{said}");
    for (tool, version) in [
        ("cargo-deb", CARGO_DEB),
        ("cargo-generate-rpm", CARGO_GENERATE_RPM),
        ("cargo-cyclonedx", CARGO_CYCLONEDX),
    ] {
        let warning = format!("warning: {tool} is 0.0.1 and not {version};");
        assert!(said.contains(&warning), "{said}");
    }

    std::fs::write(tree.join("CHANGELOG.md"), "").unwrap();
    let said = refused(&tree).await;
    assert!(said.contains("?? CHANGELOG.md"), "{said}");
}

fn name(path: &Path) -> &std::ffi::OsStr {
    path.file_name().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "two release builds; cargo torture has the time"]
async fn the_same_commit_gives_the_same_packages_wherever_it_is_built() {
    let directory = TestDirectory::new().unwrap();
    let here = build(&directory, "here", &[]).await;
    let there = build(&directory, "some/where/else", &[]).await;
    assert_eq!(here.len(), 2, "{here:?}");
    for (one, other) in here.iter().zip(&there) {
        assert_eq!(name(one), name(other));
        let (a, b) = (std::fs::read(one).unwrap(), std::fs::read(other).unwrap());
        assert!(a == b, "{} and {} differ", one.display(), other.display());
    }
    for (package, kind) in here.iter().zip([Kind::Deb, Kind::Rpm]) {
        gives_an_address(package, kind).await;
    }
}

/// Installed on a machine of its own, as an admin does with a release.
async fn gives_an_address(package: &Path, kind: Kind) {
    let host = Host::beside(package.parent().unwrap(), kind).await;
    host.install_file(&name(package).to_string_lossy()).await;
    host.active().await;
    let version = host.sh("fipd --version").await;
    assert_eq!(version, concat!("fipd ", env!("CARGO_PKG_VERSION")));
    let plugin = match kind {
        Kind::Deb => "/usr/lib/cni/fipd-cni",
        Kind::Rpm => "/usr/libexec/cni/fipd-cni",
    };
    let size = host.sh(&format!("stat --format=%s {plugin}")).await;
    let size: u64 = size.trim().parse().unwrap();
    assert!(size <= LARGEST_PLUGIN, "{size} bytes");
    let libraries = host.said(&format!("ldd {plugin} 2>&1")).await;
    assert!(!libraries.contains("libc.so"), "{libraries}");
    host.sh("fipd pool create lab --cidr 10.20.0.0/28").await;
    host.sh("fipd lease allocate --pool lab --owner fipd/vm/lab/web")
        .await;
    host.sh("systemctl kill --signal=KILL fipd.service").await;
    host.active().await;
    let leases = host.sh("fipd lease list").await;
    assert!(leases.contains("10.20.0.1"), "{leases}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a release build for another machine; cargo torture has the time"]
async fn packages_for_arm64_are_built_here_and_run() {
    let needs = [
        "gcc-aarch64-linux-gnu",
        "libc6-dev-arm64-cross",
        "qemu-user-static",
        "binutils",
        "cpio",
    ];
    tokio::task::spawn_blocking(move || debian::ensure(&needs))
        .await
        .unwrap()
        .unwrap();
    cargo_tool::target(FOREIGN).unwrap();
    let directory = TestDirectory::new().unwrap();
    let built = build(&directory, "arm64", &["--arch", "arm64"]).await;
    // By name: the .rpm comes first.
    let [rpm, deb] = built.as_slice() else {
        panic!("{built:?}");
    };
    let said = run(Command::new("dpkg-deb")
        .arg("--field")
        .arg(deb)
        .arg("Architecture"))
    .await;
    assert_eq!(said.trim(), "arm64");
    assert!(rpm.to_string_lossy().ends_with(".aarch64.rpm"), "{rpm:?}");
    let root = directory.path().join("root");
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(deb)
        .arg(&root))
    .await;
    let fipd = root.join("usr/bin/fipd");
    let head = run(Command::new("readelf").arg("--file-header").arg(&fipd)).await;
    assert!(head.contains("AArch64"), "{head}");
    let plugin = root.join("usr/lib/cni/fipd-cni");
    assert!(std::fs::metadata(&plugin).unwrap().len() <= LARGEST_PLUGIN);
    let headers = run(Command::new("readelf")
        .arg("--program-headers")
        .arg(&plugin))
    .await;
    assert!(!headers.contains("INTERP"), "it is static: {headers}");
    let version = run(Command::new("qemu-aarch64-static")
        .args(["-L", "/usr/aarch64-linux-gnu"])
        .arg(&fipd)
        .arg("--version"))
    .await;
    assert_eq!(version.trim(), concat!("fipd ", env!("CARGO_PKG_VERSION")));
}
