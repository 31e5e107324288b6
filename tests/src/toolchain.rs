//! Fetches, builds and caches the real components the testbed starts.
//!
//! Outputs live outside the checkout in `~/.cache/fipd-testbed/<name>-<version>-r<recipe>/` (`FIPD_TESTBED_CACHE` puts them
//! elsewhere), so only the first run of a machine pays. A build happens under a file lock and its result is renamed into
//! place, so parallel runs neither build twice nor see half a file.

pub mod cargo_tool;
pub mod debian;
pub mod debian_root;
pub mod go;
pub mod kernel;
pub mod npm;
pub mod python;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use crate::process::tail;
use crate::say::progress;
use crate::versions;

pub use go::Component;

/// Has every component of the control planes in the cache afterwards.
pub fn prepare() -> Result<()> {
    for component in Component::ALL {
        component.path()?;
    }
    Ok(())
}

/// Where the outputs of `name` at `version` belong.
pub(crate) fn cache_dir(name: &str, version: &str) -> Result<PathBuf> {
    let root = match std::env::var_os("FIPD_TESTBED_CACHE") {
        Some(root) => PathBuf::from(root),
        None => std::env::home_dir()
            .ok_or_else(|| anyhow!("no home directory: set FIPD_TESTBED_CACHE to a directory for the testbed's builds"))?
            .join(".cache/fipd-testbed"),
    };
    Ok(root.join(format!("{name}-{version}-r{}", versions::RECIPE)))
}

/// Gives back `dir/file`, after calling `build` to make it when it is not there.
///
/// `build` writes to the path it is given, which is in the same directory and becomes `file` by rename.
fn cached(dir: &Path, file: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let done = dir.join(file);
    if done.exists() {
        return Ok(done);
    }
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let lock_path = dir.join(".lock");
    let lock = File::options().create(true).append(true).open(&lock_path)?;
    if lock.try_lock().is_err() {
        progress(format_args!(
            "waiting for another run that is building in {}",
            dir.display()
        ));
        lock.lock()
            .with_context(|| format!("lock {}", lock_path.display()))?;
    }
    if done.exists() {
        return Ok(done);
    }
    let half = dir.join(format!(
        ".{}.{}",
        file.replace('/', "_"),
        std::process::id()
    ));
    let start = Instant::now();
    build(&half)?;
    fs::rename(&half, &done)
        .with_context(|| format!("rename {} to {}", half.display(), done.display()))?;
    progress(format_args!(
        "{} is ready after {:.0} s",
        done.display(),
        start.elapsed().as_secs_f64()
    ));
    Ok(done)
}

/// Runs a build command to its end; when it fails the error carries the end of its output.
fn run_logged(mut command: Command, log: &Path) -> Result<()> {
    let out = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let shown = format!("{command:?}");
    command.stdout(out.try_clone()?).stderr(out);
    let status = command.status().with_context(|| format!("start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}\n{}", tail(log));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_happens_once_however_many_ask() {
        let dir = tempfile::tempdir().unwrap();
        let builds = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let path = cached(dir.path(), "tool", |half| {
                        builds.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        Ok(fs::write(half, "built")?)
                    });
                    assert_eq!(fs::read_to_string(path.unwrap()).unwrap(), "built");
                });
            }
        });
        assert_eq!(builds.into_inner(), 1);
    }

    #[test]
    fn a_failed_build_leaves_nothing_behind_that_looks_done() {
        let dir = tempfile::tempdir().unwrap();
        let failed = cached(dir.path(), "tool", |half| {
            fs::write(half, "half")?;
            bail!("the compiler said no")
        });
        assert_eq!(failed.unwrap_err().to_string(), "the compiler said no");
        assert!(!dir.path().join("tool").exists());
    }

    #[test]
    fn a_failing_command_is_told_with_its_output() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo missing header >&2; exit 2"]);
        let text = run_logged(command, &dir.path().join("log"))
            .unwrap_err()
            .to_string();
        assert!(text.contains("missing header"), "{text}");
    }
}
