//! Network namespaces for tests and benches, so that nothing they do to rules reaches this host.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// What the namespace of this thread is known by.
pub(crate) const OWN: &str = "/proc/thread-self/ns/net";

/// Takes this thread, and those that it starts from here on, into a network namespace of their own, with loopback up.
pub fn unshare() -> Result<()> {
    let before = std::fs::read_link(OWN)?;
    // SAFETY: gives this thread another namespace; no memory is touched.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error()).context("unshare the network; that needs root");
    }
    ensure!(
        std::fs::read_link(OWN)? != before,
        "still in the host's namespace"
    );
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()
        .context("start ip of iproute2")?;
    if !up.success() {
        bail!("ip link set lo up: {up}");
    }
    Ok(())
}

/// Runs something with a runtime of its own, all of whose threads are in a network namespace that ends with it.
pub fn in_namespace<T: Send>(
    threads: usize,
    run: impl AsyncFnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare()?;
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(threads)
                .enable_all()
                .build()?;
            runtime.block_on(run())
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Has a child be in the namespace of this thread, whichever thread starts it.
pub fn enter_in_child(command: &mut Command) -> io::Result<()> {
    let here = File::open(OWN)?;
    // SAFETY: setns and the reading of errno are async-signal-safe and allocate nothing; the closure keeps the file open.
    unsafe {
        command.pre_exec(
            move || match libc::setns(here.as_raw_fd(), libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
    Ok(())
}

/// Has this thread, and the children that it starts from here on, see the mounts of the process with this id.
pub fn enter_mounts(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/ns/mnt");
    let there = File::open(&path).with_context(|| format!("open {path}"))?;
    // A thread that shares its working directory with others cannot.
    // SAFETY: both give this thread other mounts; no memory is touched.
    let entered = unsafe {
        libc::unshare(libc::CLONE_FS) == 0 && libc::setns(there.as_raw_fd(), libc::CLONE_NEWNS) == 0
    };
    ensure!(entered, "{path}: {}", io::Error::last_os_error());
    Ok(())
}

/// Has a child see the mounts of the process with this id.
pub fn enter_mounts_in_child(command: &mut Command, pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/ns/mnt");
    let there = File::open(&path).with_context(|| format!("open {path}"))?;
    // SAFETY: setns and the reading of errno are async-signal-safe and allocate nothing; the closure keeps the file open.
    unsafe {
        command.pre_exec(
            move || match libc::setns(there.as_raw_fd(), libc::CLONE_NEWNS) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::process::spawn_bound;

    fn here() -> PathBuf {
        std::fs::read_link(OWN).unwrap()
    }

    #[test]
    fn all_threads_and_children_of_a_run_are_in_its_namespace_and_this_one_is_not() {
        let child = || {
            let mut command = Command::new("readlink");
            command
                .arg("/proc/self/ns/net")
                .stdout(std::process::Stdio::piped());
            let output = spawn_bound(command).unwrap().wait_with_output().unwrap();
            PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
        };
        assert_eq!(child(), here());
        let look = async || {
            let other = tokio::spawn(async { here() }).await?;
            ensure!(other == here() && other == child());
            Ok(other)
        };
        let (one, other) = (
            in_namespace(1, look).unwrap(),
            in_namespace(1, look).unwrap(),
        );
        assert!(one != other && one != here());
        assert_eq!(child(), here());
    }
}
