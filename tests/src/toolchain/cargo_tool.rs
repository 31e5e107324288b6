//! Cargo's own helpers, installed from source into the cache.

use std::path::PathBuf;
use std::process::Command;
use std::{fs, io};

use anyhow::{Context, Result, ensure};

use super::{cache_dir, cached, run_logged};
use crate::runner::checkout;
use crate::say::progress;
use crate::versions;

/// The path of `cargo-deny`, installed first when the cache has none.
pub fn cargo_deny() -> Result<PathBuf> {
    install("cargo-deny", versions::CARGO_DENY, QUICKLY)
}

/// The paths of what `packaging/build` needs, installed first when the cache has none.
pub fn packagers() -> Result<[PathBuf; 3]> {
    Ok([
        install("cargo-deb", versions::CARGO_DEB, QUICKLY)?,
        // It hashes each package several times, 20 s a package without optimization.
        install("cargo-generate-rpm", versions::CARGO_GENERATE_RPM, "1")?,
        install("cargo-cyclonedx", versions::CARGO_CYCLONEDX, QUICKLY)?,
    ])
}

/// The path of `cargo-fuzz`, installed first when the cache has none, and so is the nightly compiler that it needs.
pub fn cargo_fuzz() -> Result<PathBuf> {
    nightly()?;
    install("cargo-fuzz", versions::CARGO_FUZZ, QUICKLY)
}

fn nightly() -> Result<()> {
    let version = ["run", "nightly", "rustc", "--version"];
    let there = Command::new("rustup").args(version).output();
    if there.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    progress("installing a nightly compiler by rustup (a minute, once per machine)");
    let dir = cache_dir("cargo-fuzz", versions::CARGO_FUZZ)?;
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let mut command = Command::new("rustup");
    command.args(["toolchain", "install", "nightly", "--profile", "minimal"]);
    run_logged(command, &dir.join("nightly.log"))
}

/// Has a target of the compiler of this checkout, where rustup manages it; else it is as it was installed.
pub fn target(triple: &str) -> Result<()> {
    let mut command = Command::new("rustup");
    command.current_dir(checkout());
    match command.args(["--quiet", "target", "add", triple]).status() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        status => {
            let status = status.context("start rustup")?;
            ensure!(status.success(), "rustup target add {triple}: {status}");
            Ok(())
        }
    }
}

/// Overrides the release profiles of the tools, as it overrides the level of optimization.
const QUICK_BUILD: [(&str, &str); 2] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];
/// The level of optimization of a tool that runs for seconds: compiling it costs more than running it.
const QUICKLY: &str = "0";

/// Installs a tool with a level of optimization of its own.
fn install(name: &str, version: &str, optimization: &str) -> Result<PathBuf> {
    let dir = cache_dir(name, version)?;
    let root = cached(&dir, &format!("opt-{optimization}"), |half| {
        progress(format_args!(
            "installing {name} {version} (a minute or two, once per machine)"
        ));
        let mut command = Command::new("cargo");
        command.args(["install", name, "--locked", "--version", version, "--root"]);
        // A target directory given for this workspace is not for a foreign tool.
        command.arg(half).env_remove("CARGO_TARGET_DIR");
        command
            .envs(QUICK_BUILD)
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", optimization);
        run_logged(command, &half.with_extension("log"))
    })?;
    Ok(root.join("bin").join(name))
}
