//! Packages from npm, each in a folder of its own in the cache.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{cache_dir, cached, debian, run_logged};
use crate::say::progress;
use crate::versions;

/// The version, and the checksum that what is fetched must have.
const AXE: [(&str, &str); 2] = [
    ("package.json", include_str!("../../axe/package.json")),
    (
        "package-lock.json",
        include_str!("../../axe/package-lock.json"),
    ),
];

/// axe-core, the checker of accessibility: one script that is put into pages. Fetched first when the cache has none.
pub fn axe_core() -> Result<PathBuf> {
    let dir = cache_dir("axe-core", versions::AXE_CORE)?;
    let root = cached(&dir, "root", |half| {
        ensure_npm()?;
        progress(format_args!(
            "fetching axe-core {} from npm",
            versions::AXE_CORE
        ));
        fs::create_dir_all(half)?;
        for (name, text) in AXE {
            let path = half.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        let mut install = Command::new("npm");
        install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        install.current_dir(half);
        run_logged(install, &half.with_extension("log"))
    })?;
    Ok(root.join("node_modules/axe-core/axe.min.js"))
}

/// Debian's npm, unless there is one of another origin: the two exclude each other.
fn ensure_npm() -> Result<()> {
    let found = Command::new("npm").arg("--version").output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    debian::ensure(&["npm"])
}
