//! The project's commands: `cargo verify`, `cargo demo`, `cargo torture` and `cargo bench-peers`.

pub mod bench_peers;
pub mod demo;
mod deny;
mod steps;
mod suites;
pub mod torture;
pub mod verify;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::say::progress;

/// The checkout this runner was built from.
pub fn checkout() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

<<<<<<< HEAD
/// Builds the daemon and, beside it, the CNI plugin, and gives back the daemon's path. The benches, which are a release build, measure it as users get it;
/// the tests use it with the checks of a debug build, and of what the unit tests have compiled already.
=======
const RELEASE: [&str; 5] = ["--release", "--package", "fipd-tests", "--package", "fipd"];

/// Builds the daemon and gives back the binary's path. The benches, which are a release build, measure it as users get it;
/// the tests use it with the checks of a debug build, and of what the unit tests have compiled already. Whose packages are
/// named with it decides on features of dependencies: as here, its library is the one that this program is linked with.
>>>>>>> 54a6251 (Do a look that finds nothing to do at little more than the cost of the list, size the packet filter's maps, gather news no longer than a look takes, and feed every parser a corpus)
pub fn build_daemon() -> Result<PathBuf> {
    progress("building fipd");
    let (how, binary) = if cfg!(debug_assertions) {
        (&["--workspace", "--bin", "fipd-cni"][..], "debug/fipd")
    } else {
        (&RELEASE[..], "release/fipd")
    };
    let mut build = Command::new("cargo");
    build.current_dir(checkout()).args(["build", "--quiet"]);
    let status = build.args(how).args(["--bin", "fipd"]).status();
    let status = status.context("start cargo")?;
    if !status.success() {
        bail!("cargo build {} --bin fipd: {status}", how.join(" "));
    }
    Ok(target_directory().join(binary))
}

/// Where cargo puts what it builds here.
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(given) => checkout().join(given),
        None => checkout().join("target"),
    }
}
