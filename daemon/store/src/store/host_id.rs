//! Which host a store belongs to.

use std::{
    fmt, fs,
    io::{self, Read as _},
    path::Path,
};

use data_encoding::HEXLOWER;
use nix::sys::statfs::{FsType, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, fstatfs};
use sha2::{Digest as _, Sha256};

/// Where machine-id(5) is.
const MACHINE_ID: &str = "/etc/machine-id";
/// As machine-id(5) asks, what others may see is no machine id, but a hash of it that is fipd's own.
const KEY: &[u8] = b"fipd store host v1\0";
/// Of linux/magic.h; nix has no name for it.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// SHA-256 of an application key and the machine id of a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HostId([u8; 32]);

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({}...)", HEXLOWER.encode(&self.0[..4]))
    }
}

impl HostId {
    /// That of this host; `None` where `/etc/machine-id` says nothing that lasts: it is missing, empty, "uninitialized", on a
    /// file system that is gone with the next boot, or of a container's image.
    pub fn of_this_host() -> Option<Self> {
        Self::of_file(Path::new(MACHINE_ID)).unwrap_or_default()
    }

    fn of_file(path: &Path) -> io::Result<Option<Self>> {
        let file = fs::File::open(path)?;
        // An overlay is a container's, or that of a host whose /etc is made anew at each boot.
        let transient = [TMPFS_MAGIC, RAMFS_MAGIC, OVERLAYFS_SUPER_MAGIC];
        if transient.contains(&fstatfs(&file)?.filesystem_type()) {
            return Ok(None);
        }
        let mut text = String::new();
        file.take(64).read_to_string(&mut text)?;
        Ok(Self::of(&text))
    }

    /// That of a machine id: 32 lower-case hexadecimal digits, not all of them 0.
    pub fn of(machine_id: &str) -> Option<Self> {
        let id = machine_id.trim_end();
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_id =
            id.len() == 32 && id.bytes().all(is_digit) && id.bytes().any(|byte| byte != b'0');
        is_id.then(|| {
            Self(
                Sha256::new()
                    .chain_update(KEY)
                    .chain_update(id)
                    .finalize()
                    .into(),
            )
        })
    }

    /// As text for other files of the host, in hexadecimal digits.
    pub fn text(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// As the high-water record has it; 0 for an unknown host.
    pub(super) fn bytes(host: Option<Self>) -> [u8; 32] {
        host.map_or([0; 32], |host| host.0)
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Option<Self> {
        (bytes != [0; 32]).then_some(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3d1219c7c4c5404aaa1f6d2a48adfda4";

    #[test]
    fn only_a_machine_id_tells_a_host() {
        let host = HostId::of(&format!("{ID}\n"));
        assert_eq!(host, HostId::of(ID));
        assert_ne!(host, HostId::of("00000000000000000000000000000001"));
        for text in [
            "",
            "\n",
            "uninitialized\n",
            "00000000000000000000000000000000",
            "3D1219C7C4C5404AAA1F6D2A48ADFDA4",
            "3d1219c7-c4c5-404a-aa1f-6d2a48adfda4",
            "3d1219c7c4c5404aaa1f6d2a48adfda4a",
        ] {
            assert_eq!(HostId::of(text), None, "{text:?}");
        }
        assert_eq!(HostId::from_bytes(HostId::bytes(host)), host);
        assert_eq!(HostId::from_bytes(HostId::bytes(None)), None);
        assert!(!format!("{host:?}").contains("3d1219"));
    }

    #[test]
    fn a_file_that_is_gone_with_the_boot_tells_no_host() {
        let shm = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        let path = shm.path().join("machine-id");
        fs::write(&path, ID).unwrap();
        assert_eq!(HostId::of_file(&path).unwrap(), None);
        assert!(HostId::of_file(&shm.path().join("missing")).is_err());
    }
}
