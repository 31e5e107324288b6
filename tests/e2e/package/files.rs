//! What is in the packages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use fipd_tests::process::run_bound;
use fipd_tests::testbed::{Kind, Packages, TestDirectory};
use fipd_tests::toolchain::debian;
use serde_json::Value;

/// Both packages unpacked.
struct Unpacked {
    deb: PathBuf,
    rpm: PathBuf,
    _directory: TestDirectory,
}

impl Unpacked {
    async fn new() -> Self {
        tokio::task::spawn_blocking(|| {
            debian::ensure(&["rpm2cpio", "cpio", "man-db", "mandoc", "zsh", "binutils"])
        })
        .await
        .unwrap()
        .unwrap();
        let directory = TestDirectory::new().unwrap();
        let (deb, rpm) = (directory.path().join("deb"), directory.path().join("rpm"));
        sh(
            "dpkg-deb --extract \"$0\" \"$1\"",
            &[&file(Kind::Deb).await, &deb],
        )
        .await;
        std::fs::create_dir(&rpm).unwrap();
        sh("cd \"$1\" && rpm2cpio \"$0\" | cpio --quiet --extract --make-directories --no-absolute-filenames", &[&file(Kind::Rpm).await, &rpm]).await;
        Self {
            deb,
            rpm,
            _directory: directory,
        }
    }
}

async fn file(kind: Kind) -> PathBuf {
    let packages = Packages::built().await.unwrap();
    packages
        .folder()
        .join(Packages::file(Packages::NEWER, kind))
}

/// What a script of a shell prints, with these arguments from `$0` on; it succeeds.
async fn sh(script: &str, arguments: &[&Path]) -> String {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).args(arguments);
    let output = run_bound(command).await.unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{script} {arguments:?}: {out}{err}"
    );
    format!("{out}{err}")
}

/// All files below a folder, each with its path from there.
fn tree(folder: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(format!("/{}", path.strip_prefix(folder).unwrap().display()));
            }
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_packages_have_all_that_an_admin_needs() {
    let unpacked = Unpacked::new().await;
    let (deb, rpm) = (tree(&unpacked.deb), tree(&unpacked.rpm));
    for file in [
        "/usr/bin/fipd",
        "/etc/fipd/fipd.toml",
        "/usr/lib/systemd/system/fipd.service",
        "/usr/lib/systemd/system/fipd.socket",
        "/usr/lib/systemd/system/fipd-cni.socket",
        "/usr/lib/systemd/system/fipd-probe.socket",
        "/usr/lib/systemd/system/fipd-probe@.service",
        "/usr/lib/sysusers.d/fipd.conf",
        "/usr/lib/tmpfiles.d/fipd.conf",
        "/usr/share/man/man1/fipd.1.gz",
        "/usr/share/man/man1/fipd-lease-allocate.1.gz",
        "/usr/share/bash-completion/completions/fipd",
        "/usr/share/fish/vendor_completions.d/fipd.fish",
        "/usr/share/fipd/crds/fipd.io_pools.yaml",
        "/usr/share/fipd/rbac/rancher-fip-management.yaml",
        "/usr/share/fipd/cluster-api/ipam-components.yaml",
        "/usr/share/fipd/cluster-api/metadata.yaml",
        "/usr/share/doc/fipd/examples/cluster-api/capiprovider.yaml",
        "/usr/share/doc/fipd/cni.md",
        "/usr/share/doc/fipd/fipd.cdx.json",
        "/usr/share/doc/fipd/fipd.example.toml",
        "/usr/share/doc/fipd/examples/cluster-api/kubeadm-annotation.yaml",
        "/usr/share/doc/fipd/examples/cluster-api/kubeadm-variable.yaml",
        "/usr/share/doc/fipd/examples/cluster-api/rke2-annotation.yaml",
        "/usr/share/doc/fipd/examples/cluster-api/rke2-variable.yaml",
    ] {
        assert!(
            deb.contains(file) && rpm.contains(file),
            "{file}: {deb:?} {rpm:?}"
        );
    }
    assert!(
        deb.contains("/usr/lib/cni/fipd-cni")
            && deb.contains("/usr/share/zsh/vendor-completions/_fipd")
    );
    assert!(
        rpm.contains("/usr/libexec/cni/fipd-cni")
            && rpm.contains("/usr/share/zsh/site-functions/_fipd")
    );
    assert!(
        deb.contains("/usr/share/doc/fipd/copyright")
            && rpm.contains("/usr/share/doc/fipd/LICENSE")
    );
    // Every page, definition and role that there is.
    let named = |files: &BTreeSet<String>, start: &str| {
        files
            .iter()
            .filter(|file| file.starts_with(start))
            .cloned()
            .collect::<Vec<_>>()
    };
    for start in [
        "/usr/share/man/",
        "/usr/share/fipd/",
        "/usr/share/doc/fipd/examples/",
        "/usr/lib/systemd/",
    ] {
        assert_eq!(named(&deb, start), named(&rpm, start), "{start}");
    }
    assert_eq!(
        named(&deb, "/usr/share/fipd/crds/").len(),
        fipd_crds::MANIFESTS.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_packages_need_is_said() {
    let (deb, rpm) = (file(Kind::Deb).await, file(Kind::Rpm).await);
    let depends = sh("dpkg-deb --field \"$0\" Depends Recommends", &[&deb]).await;
    let requires = sh(
        "rpm --query --package --requires --recommends \"$0\" 2>/dev/null",
        &[&rpm],
    )
    .await;
    for name in ["nftables", "systemd", "helm"] {
        assert!(
            depends.contains(name) && requires.contains(name),
            "{depends}\n{requires}"
        );
    }
    let configs = sh(
        "dpkg-deb --control \"$0\" \"$1\" && cat \"$1/conffiles\"",
        &[
            &deb,
            &Packages::built().await.unwrap().folder().join("control"),
        ],
    )
    .await;
    assert_eq!(configs.trim(), "/etc/fipd/fipd.toml");
    let configs = sh(
        "rpm --query --package --configfiles \"$0\" 2>/dev/null",
        &[&rpm],
    )
    .await;
    assert_eq!(configs.trim(), "/etc/fipd/fipd.toml");

    // The binary asks for no newer C library than the packages say.
    let unpacked = Unpacked::new().await;
    let symbols = sh(
        "objdump --dynamic-syms \"$0\"",
        &[&unpacked.deb.join("usr/bin/fipd")],
    )
    .await;
    let versions = symbols.split("GLIBC_2.").skip(1).map(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        digits.parse::<u32>().unwrap()
    });
    let newest = versions.max().unwrap();
    let said = |text: &str, start: &str| {
        let (_, rest) = text.split_once(start).unwrap();
        rest.split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .parse::<u32>()
            .unwrap()
    };
    assert!(
        newest <= said(&depends, "libc6 (>= 2."),
        "{newest}: {depends}"
    );
    assert!(
        newest <= said(&requires, "glibc >= 2."),
        "{newest}: {requires}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_completions_and_the_bill_of_materials_can_be_read() {
    let unpacked = Unpacked::new().await;
    let root = &unpacked.deb;
    // Readers are two; mandoc's warnings are about a blank line that is written twice.
    let check = "cd \"$0\"/usr/share/man; for page in man*/*.gz; do \
                 MANROFFSEQ= man --warnings --local-file \"./$page\" 2>&1 >/dev/null; \
                 gunzip --stdout \"$page\" | mandoc -T lint -W error || echo \"in $page\"; done";
    assert_eq!(sh(check, &[root]).await, "", "no page has errors");
    let page = sh("gunzip --stdout \"$0\"/usr/share/man/man1/fipd-pool-create.1.gz | mandoc -T ascii | col -b", &[root]).await;
    assert!(
        page.contains("--cidr") && page.contains("fipd-pool-create"),
        "{page}"
    );
    let serve = sh(
        "gunzip --stdout \"$0\"/usr/share/man/man1/fipd-serve.1.gz",
        &[root],
    )
    .await;
    assert!(serve.contains("SIGHUP"), "all that --help says: {serve}");
    sh("bash -n \"$0\"/usr/share/bash-completion/completions/fipd; zsh -n \"$0\"/usr/share/zsh/vendor-completions/_fipd", &[root]).await;

    let text = std::fs::read(root.join("usr/share/doc/fipd/fipd.cdx.json")).unwrap();
    let bill: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let parts = bill["components"].as_array().unwrap();
    for name in ["redb", "rustls", "tokio"] {
        let part = parts.iter().find(|part| part["name"] == name).unwrap();
        assert!(
            part["version"].is_string() && part["licenses"].is_array() && part["purl"].is_string(),
            "{part}"
        );
    }
    let own = String::from_utf8(text).unwrap();
    assert!(!own.contains("/tmp/"), "no path of the build: {own}");
}
