//! Settings of an interface below `/proc/sys/net`, in the namespace of the calling thread.

use std::{fs, io, path::Path};

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
    let directory = match family {
        Family::V4 => "/proc/sys/net/ipv4/conf",
        Family::V6 => "/proc/sys/net/ipv6/conf",
    };
    let path = Path::new(directory).join(interface).join(name);
    match fs::write(path, value.to_string()) {
        Ok(()) => Ok(true),
        Err(error) if family == Family::V6 && error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
