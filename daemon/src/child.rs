//! What programs that fipd starts have in common: a process group that ends with them, and none of fipd's privileges.

use std::{io, time::Duration};

use nix::{
    errno::Errno,
    libc,
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::{Pid, geteuid},
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

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilitySets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

fn drop_privileges() -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: neither call has a pointer among its arguments.
    let kept = unsafe {
        libc::prctl(
            libc::PR_SET_NO_NEW_PRIVS,
            1 as libc::c_ulong,
            zero,
            zero,
            zero,
        ) != 0
            || libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong,
                zero,
                zero,
                zero,
            ) != 0
    };
    if kept {
        return Err(io::Error::last_os_error());
    }
    let header = CapabilityHeader {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let none = [CapabilitySets {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    }; 2];
    // SAFETY: header and sets have the layout of this version and outlive the call.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    // The unit's filter does not have the call. Who is not root keeps nothing through exec without ambient capabilities.
    if set != 0 && (geteuid().is_root() || Errno::last() != Errno::EPERM) {
        return Err(io::Error::last_os_error());
    }
    Ok(())
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
