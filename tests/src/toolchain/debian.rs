//! Debian packages the suites need, installed when they are missing. Needs root and Debian, as `cargo verify` does.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::say::progress;

/// Has all of `packages` installed afterwards.
pub fn ensure(packages: &[&str]) -> Result<()> {
    let missing = packages
        .iter()
        .copied()
        .filter(|name| !installed(name))
        .collect::<Vec<_>>();
    if missing.is_empty() {
        return Ok(());
    }
    update_once()?;
    progress(format_args!(
        "installing Debian packages: {}",
        missing.join(" ")
    ));
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&missing);
    apt_get(&install)
}

/// The package that `package` depends on whose name begins with `start`.
pub fn dependency(package: &str, start: &str) -> Result<String> {
    update_once()?;
    let output = Command::new("apt-cache")
        .args(["depends", package])
        .output();
    let output = output.context("start apt-cache")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut all = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    let found = all.find(|name| name.starts_with(start));
    found.map(str::to_owned).with_context(|| {
        format!("apt-cache depends {package}: nothing begins with {start}: {text}")
    })
}

/// The files of a package below `folder`, without installing it.
pub fn unpack(package: &str, folder: &Path) -> Result<()> {
    update_once()?;
    let loaded = tempfile::tempdir()?;
    let mut download = Command::new("apt-get");
    download
        .args(["--quiet", "download", package])
        .current_dir(loaded.path());
    run(download)?;
    for entry in fs::read_dir(loaded.path())? {
        let mut extract = Command::new("dpkg-deb");
        extract.arg("--extract").arg(entry?.path()).arg(folder);
        run(extract)?;
    }
    Ok(())
}

fn installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Abbrev}", package])
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout.starts_with(b"ii"))
}

fn update_once() -> Result<()> {
    static UPDATED: OnceLock<()> = OnceLock::new();
    if UPDATED.get().is_none() {
        progress("reading Debian's package lists (apt-get update)");
        apt_get(&["update"])?;
        UPDATED.get_or_init(|| ());
    }
    Ok(())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command
        .args(["--quiet", "-o", "DPkg::Lock::Timeout=120"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    run(command)
}

/// One at a time on this machine: apt does not wait for another that reads the lists.
fn run(mut command: Command) -> Result<()> {
    let path = std::env::temp_dir().join("fipd-testbed.apt.lock");
    let lock = File::options().create(true).append(true).open(path)?;
    lock.lock()?;
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| {
        format!("start {shown}: the suites that need Debian packages run as root on Debian 12")
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{shown}: {}", said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_installed_again() {
        assert!(installed("dpkg"), "this is Debian");
        assert!(!installed("no-package-has-this-name"));
        ensure(&["dpkg", "apt"]).unwrap();
    }
}
