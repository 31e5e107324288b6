//! What a daemon calls itself in Leases.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use data_encoding::HEXLOWER;
use fipd_core::Text;

use crate::host_name::host_name;

const PREFIX: &str = "fipd_";

/// Whether the holder of a Lease is a fipd, on whatever host.
pub fn is_fipd(holder: &str) -> bool {
    holder.starts_with(PREFIX)
}

/// The same over restarts of a daemon on a running host, so that it takes its leases again at once; another for every
/// other daemon, since one data directory has one daemon.
pub fn identity(data_dir: &Path) -> Text {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let host = host_name().unwrap_or_default();
    let place = fs::metadata(data_dir).map(|meta| (meta.dev(), meta.ino()));
    let (Ok(boot), Ok((device, inode))) = (read("/proc/sys/kernel/random/boot_id"), place) else {
        return format!("{PREFIX}{host}_{}", by_chance()).into();
    };
    let boot: String = boot.chars().take(8).collect();
    format!("{PREFIX}{host}_{boot}_{device:x}_{inode:x}").into()
}

fn by_chance() -> String {
    let mut bytes = [0_u8; 16];
    // Without random numbers the process tells daemons of one host apart.
    if getrandom::fill(&mut bytes).is_err() {
        return std::process::id().to_string();
    }
    HEXLOWER.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_keeps_its_name_and_two_have_two() {
        let one = tempfile::tempdir().expect("a directory");
        let two = tempfile::tempdir().expect("a directory");
        assert_eq!(identity(one.path()), identity(one.path()));
        assert_ne!(identity(one.path()), identity(two.path()));
        let missing = Path::new("/nonexistent");
        assert_ne!(identity(missing), identity(missing));
    }
}
