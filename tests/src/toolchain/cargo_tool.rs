//! Cargo's own helpers, installed from source into the cache.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{cache_dir, cached, run_logged};
use crate::say::progress;
use crate::versions;

/// The path of `cargo-deny`, installed first when the cache has none.
pub fn cargo_deny() -> Result<PathBuf> {
    let dir = cache_dir("cargo-deny", versions::CARGO_DENY)?;
    let root = cached(&dir, "root", |half| {
        progress(format_args!(
            "installing cargo-deny {} (two minutes, once per machine)",
            versions::CARGO_DENY
        ));
        let mut command = Command::new("cargo");
        command.args([
            "install",
            "cargo-deny",
            "--locked",
            "--version",
            versions::CARGO_DENY,
            "--root",
        ]);
        // A target directory given for this workspace is not for a foreign tool.
        command.arg(half).env_remove("CARGO_TARGET_DIR");
        run_logged(command, &half.with_extension("log"))
    })?;
    Ok(root.join("bin/cargo-deny"))
}
