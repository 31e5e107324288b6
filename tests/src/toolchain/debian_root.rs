//! A Debian with systemd as its first process, to be booted by `systemd-nspawn`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{cache_dir, cached, debian, run_logged};
use crate::say::progress;

/// What makes it, and what boots it.
const PACKAGES: &[&str] = &["debootstrap", "systemd-container", "util-linux"];
const RELEASE: &str = "bookworm";
/// What fipd's packages depend on, `rpm` for the one of these that is not Debian's, and what tests look with.
const INCLUDED: &str = "systemd,systemd-sysv,dbus,iproute2,nftables,ca-certificates,rpm,procps";

/// The root in the cache, made first when there is none. Nothing may write there: see [`crate::testbed::Machine`].
pub fn debian_root() -> Result<PathBuf> {
    debian::ensure(PACKAGES)?;
    let dir = cache_dir("debian-root", RELEASE)?;
    cached(&dir, "root", make)
}

fn make(half: &Path) -> Result<()> {
    progress(format_args!(
        "installing Debian ({RELEASE}) into a folder (a minute, once per machine)"
    ));
    let mut command = Command::new("debootstrap");
    command
        .arg("--variant=minbase")
        .arg(format!("--include={INCLUDED}"))
        .args([Path::new(RELEASE), half]);
    run_logged(command, &half.with_extension("log"))
}
