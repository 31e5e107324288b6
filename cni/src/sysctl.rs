//! Settings of an interface below `/proc/sys/net`, in the namespace of the calling thread.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::link::Family;

/// Writes a setting of the interface. Returns whether the kernel has it: IPv6 may be switched off.
///
/// # Errors
/// When the setting of IPv4 is missing, or one cannot be written.
pub fn set_of_interface(
    family: Family,
    interface: &str,
    name: &str,
    value: u32,
) -> io::Result<bool> {
    let path = path(family, "conf", interface, name);
    match fs::write(path, value.to_string()) {
        Ok(()) => Ok(true),
        Err(error) if family == Family::V6 && error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a number of the interface, of its `conf` or `neigh`; `None` where the kernel does not say it.
pub fn read_of_interface(family: Family, of: &str, interface: &str, name: &str) -> Option<u32> {
    let text = fs::read_to_string(path(family, of, interface, name)).ok()?;
    text.trim().parse().ok()
}

fn path(family: Family, of: &str, interface: &str, name: &str) -> PathBuf {
    let family = match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    Path::new("/proc/sys/net")
        .join(family)
        .join(of)
        .join(interface)
        .join(name)
}
