//! The project's commands: `cargo verify`, `cargo demo`, `cargo torture` and `cargo bench-peers`.

pub mod bench_peers;
pub mod demo;
mod deny;
mod processors;
mod steps;
mod suites;
pub mod torture;
pub mod verify;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::say::progress;
use crate::toolchain::cargo_tool::target;

/// The checkout this runner was built from.
pub fn checkout() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

/// With these packages named, features of dependencies are those that this program is linked with: its library is used again.
const RELEASE: [&str; 5] = ["--release", "--package", "fipd-tests", "--package", "fipd"];

/// Builds the daemon and, beside it, the CNI plugin, and gives back the daemon's path. The benches, which are a release build,
/// measure the daemon as users get it; the tests use both with the checks of a debug build, and of what the unit tests have
/// compiled already.
pub fn build_daemon() -> Result<PathBuf> {
    progress("building fipd");
    let (how, binary) = if cfg!(debug_assertions) {
        (&["--workspace", "--bin", "fipd-cni"][..], "debug/fipd")
    } else {
        (&RELEASE[..], "release/fipd")
    };
    let mut build = Command::new("cargo");
    forget_own_package(&mut build);
    build.current_dir(checkout()).args(["build", "--quiet"]);
    let status = build.args(how).args(["--bin", "fipd"]).status();
    let status = status.context("start cargo")?;
    if !status.success() {
        bail!("cargo build {} --bin fipd: {status}", how.join(" "));
    }
    Ok(target_directory().join(binary))
}

/// Builds the CNI plugin as `packaging/build` does, static and small, for the benches.
pub fn build_plugin() -> Result<PathBuf> {
    progress("building fipd-cni");
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    target(&triple)?;
    let target = target_directory().join("bench-plugin");
    let mut build = Command::new("cargo");
    forget_own_package(&mut build);
    build
        .current_dir(checkout())
        .env("RUSTFLAGS", LINKER)
        .env("CARGO_TARGET_DIR", &target)
        .args(["build", "--quiet", "--locked", "--release", "--target"])
        .arg(&triple)
        .args(["--package", "fipd-cni", "--bin", "fipd-cni"]);
    for setting in SMALL {
        build.args(["--config", &format!("profile.release.{setting}")]);
    }
    let status = build.status().context("start cargo")?;
    if !status.success() {
        bail!("cargo build --package fipd-cni: {status}");
    }
    Ok(target.join(triple).join("release/fipd-cni"))
}

/// Links for musl without a C compiler.
const LINKER: &str = "-C linker=rust-lld";
/// Of the profile, as in `packaging/build`.
const SMALL: [&str; 5] = [
    "strip=\"symbols\"",
    "lto=\"fat\"",
    "incremental=false",
    "package.\"*\".opt-level=\"s\"",
    "package.\"*\".codegen-units=1",
];

/// Takes away what `cargo run` has told this program of its own package. Build scripts that look at such variables, ring's among
/// them, would be run again each time cargo is started with other ones, and all that depends on them be compiled again.
fn forget_own_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// Where cargo puts what it builds here.
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(given) => checkout().join(given),
        None => checkout().join("target"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benches_have_the_plugin_as_it_is_packaged() {
        let script = include_str!("../../packaging/build").replace('\\', "");
        for setting in SMALL {
            assert!(script.contains(setting), "{setting}");
        }
        assert!(script.contains(LINKER) && script.contains("-unknown-linux-musl"));
    }
}
