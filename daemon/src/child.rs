//! What programs that fipd starts have in common: a process group that ends with them, and none of fipd's privileges.

use std::{
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::{Pid, geteuid},
};
use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities,
        set_no_new_privs,
    },
};
use tokio::process::{Child, Command};

/// Between two looks whether a child has ended.
const LOOK: Duration = Duration::from_millis(5);

/// The process group of a child; killed when dropped. The child must not have been waited for by then: its number may be
/// another's afterwards.
pub struct Group(Pid);

impl Group {
    /// Of a child that was started by a [`prepared`] command.
    pub fn of(child: &Child) -> Option<Self> {
        let pid = i32::try_from(child.id()?).ok()?;
        Some(Self(Pid::from_raw(pid)))
    }

    pub fn pid(&self) -> Pid {
        self.0
    }

    pub fn signal(&self, signal: Signal) {
        let _gone_already = killpg(self.0, signal);
    }

    /// Waits until the child has ended, and leaves it there: what it has started can still be killed with it.
    pub async fn ended(&self) -> io::Result<()> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        while waitid(Id::Pid(self.0), flags)? == WaitStatus::StillAlive {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// Has the program start in a process group of its own, without fipd's environment and capabilities, which it cannot get back, and
/// end where nobody waits for it.
pub fn prepared(command: &mut Command) -> &mut Command {
    command.env_clear().process_group(0).kill_on_drop(true);
    // SAFETY: runs between fork and exec; it makes system calls only, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(drop_privileges) }
}

/// The program that a shell would run.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&path).map(|directory| directory.join(name));
    all.find(|file| is_executable(file))
}

pub fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|of| of.is_file() && of.permissions().mode() & 0o111 != 0)
}

fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    match set_capabilities(None, sets) {
        // The unit's filter does not have the call. Who is not root keeps nothing through exec without ambient capabilities.
        Err(Errno::PERM) if !geteuid().is_root() => Ok(()),
        set => Ok(set?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_has_no_capabilities_and_cannot_get_any() {
        let mut command = Command::new("/bin/cat");
        prepared(command.arg("/proc/self/status"));
        let status = command.output().await.unwrap().stdout;
        let status = String::from_utf8(status).unwrap();
        let value = |name: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(value(set), "0000000000000000", "{set}");
        }
        assert_eq!(value("NoNewPrivs:"), "1");
    }
}
