//! Debian packages the suites need, installed when they are missing. Needs root and Debian, as `cargo verify` does.

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
    let output = Command::new("apt-get")
        .args(["--quiet", "-o", "DPkg::Lock::Timeout=120"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .context("start apt-get: the suites that need Debian packages run as root on Debian 12")?;
    if !output.status.success() {
        bail!(
            "apt-get {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
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
