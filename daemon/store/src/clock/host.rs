//! The host's clocks as the time of the address book needs them.

use std::{io, sync::Arc};

use fipd_core::{BootId, ClockReading, Timestamp};
use nix::{
    libc,
    time::{ClockId, clock_gettime},
};
use schemars::JsonSchema;
use serde::Deserialize;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Tells the wall clock's time; need not be monotonic.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Who says that the wall clock is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClockTrust {
    #[default]
    Kernel,
    Wall,
}

/// Whether the kernel says that its wall clock is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Synchronised {
    Yes,
    No,
    /// It cannot be asked; why.
    Unknown(String),
}

/// Reads a host's clocks.
pub trait HostClock: Send + Sync {
    fn read(&self) -> ClockReading;
    fn synchronised(&self) -> Synchronised;
}

/// A wall clock alone, which is right.
pub struct WallClock(pub Clock);

impl HostClock for WallClock {
    fn read(&self) -> ClockReading {
        ClockReading {
            boot: None,
            uptime: 0,
            wall: (self.0)(),
        }
    }

    fn synchronised(&self) -> Synchronised {
        Synchronised::Yes
    }
}

/// The clocks of this host.
#[derive(Clone, Copy, Debug)]
pub struct KernelClock {
    boot: Option<BootId>,
    trust: ClockTrust,
}

impl KernelClock {
    pub fn new(trust: ClockTrust) -> Self {
        let boot = std::fs::read_to_string(BOOT_ID);
        let boot = boot.ok().and_then(|text| parse_boot_id(text.trim()));
        if boot.is_none() {
            tracing::warn!(
                "{BOOT_ID} cannot be read: each start of fipd counts as a reboot for the time of the address book"
            );
        }
        Self { boot, trust }
    }
}

impl HostClock for KernelClock {
    fn read(&self) -> ClockReading {
        // The wall clock first: a pause before the second reading, or a suspend, must not look like a jump forward.
        let wall = super::now();
        ClockReading {
            boot: self.boot,
            uptime: uptime(),
            wall,
        }
    }

    fn synchronised(&self) -> Synchronised {
        match self.trust {
            ClockTrust::Wall => Synchronised::Yes,
            ClockTrust::Kernel => judge(ask_kernel()),
        }
    }
}

/// Milliseconds of CLOCK_BOOTTIME. Every Linux that fipd runs on has it; without it no time passes but the wall clock's.
fn uptime() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME);
    time.map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
        let nanos = u64::try_from(time.tv_nsec()).unwrap_or_default();
        seconds.saturating_mul(1_000) + nanos / 1_000_000
    })
}

/// The kernel's state of its clock, and the status bits.
fn ask_kernel() -> io::Result<(libc::c_int, libc::c_int)> {
    // SAFETY: `timex` is a C struct of numbers, for which zeros are values.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `timex` of ours that lives until the call returns; `modes` is 0, which only reads.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((state, timex.status))
}

fn judge(asked: io::Result<(libc::c_int, libc::c_int)>) -> Synchronised {
    match asked {
        Err(error) => Synchronised::Unknown(format!("adjtimex: {error}")),
        Ok((state, status)) if state == libc::TIME_ERROR || status & libc::STA_UNSYNC != 0 => {
            Synchronised::No
        }
        Ok(_) => Synchronised::Yes,
    }
}

fn parse_boot_id(text: &str) -> Option<BootId> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| BootId(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_a_uuid() {
        let id = parse_boot_id("c9b7eda8-d2d0-4ec7-b034-f232eeb35a91").unwrap();
        assert_eq!((id.0[0], id.0[15]), (0xc9, 0x91));
        for bad in ["", "c9b7", "zzb7eda8-d2d0-4ec7-b034-f232eeb35a91"] {
            assert_eq!(parse_boot_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_boot_clock_of_this_host_advances() {
        let clock = KernelClock::new(ClockTrust::Kernel);
        let before = clock.read();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let after = clock.read();
        assert!(after.uptime > before.uptime && after.boot == before.boot);
        assert!(after.wall > Timestamp(0));
    }

    #[test]
    fn a_trusted_wall_clock_needs_no_word_of_the_kernel() {
        let asked = KernelClock::new(ClockTrust::Wall).synchronised();
        assert_eq!(asked, Synchronised::Yes);
    }

    #[test]
    fn a_kernel_that_may_not_be_asked_is_not_one_that_says_no() {
        let refused = Err(io::Error::from_raw_os_error(libc::EPERM));
        let Synchronised::Unknown(why) = judge(refused) else {
            panic!("EPERM is no answer")
        };
        assert!(why.starts_with("adjtimex: "), "{why}");
        assert_eq!(judge(Ok((libc::TIME_OK, 0))), Synchronised::Yes);
        assert_eq!(judge(Ok((libc::TIME_ERROR, 0))), Synchronised::No);
        let unsynchronised = (libc::TIME_OK, libc::STA_UNSYNC);
        assert_eq!(judge(Ok(unsynchronised)), Synchronised::No);
    }
}
