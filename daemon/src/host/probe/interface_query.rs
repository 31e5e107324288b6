//! What the kernel says about one interface by name, without netlink: the helper may not open such a socket.

use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd as _, OwnedFd},
    ptr,
};

use fipd_cni::frame::Mac;
use nix::libc::{self, c_int};

use super::message::InterfaceName;

/// Why nothing can be asked on an interface.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("there is no interface {0}")]
    Absent(String),
    #[error("interface {0} is not Ethernet")]
    NotEthernet(String),
    #[error("interface {0} does not resolve addresses (NOARP)")]
    NoArp(String),
    #[error("interface {0} is down or has no carrier")]
    Down(String),
    #[error("interface {0} drops what is sent: it has no carrier, or its queue is full")]
    Dropped(String),
    #[error("cannot {doing}: {source}")]
    Io {
        doing: &'static str,
        source: io::Error,
    },
}

pub(super) fn failed<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> LinkError {
    move |error| LinkError::Io {
        doing,
        source: error.into(),
    }
}

/// The number of the interface.
pub(super) fn index(fd: &OwnedFd, name: &InterfaceName) -> Result<c_int, LinkError> {
    let [a, b, c, d, ..] = ask(fd, name, libc::SIOCGIFINDEX)?;
    Ok(c_int::from_ne_bytes([a, b, c, d]))
}

/// Its `IFF_*`, as far as they fit into 16 bits.
pub(super) fn flags(fd: &OwnedFd, name: &InterfaceName) -> Result<c_int, LinkError> {
    let [a, b, ..] = ask(fd, name, libc::SIOCGIFFLAGS)?;
    Ok(c_int::from(u16::from_ne_bytes([a, b])))
}

/// The address of its network card, which is Ethernet.
pub(super) fn mac(fd: &OwnedFd, name: &InterfaceName) -> Result<Mac, LinkError> {
    let [k, l, a, b, c, d, e, f, ..] = ask(fd, name, libc::SIOCGIFHWADDR)?;
    match u16::from_ne_bytes([k, l]) {
        libc::ARPHRD_ETHER => Ok(Mac([a, b, c, d, e, f])),
        _ => Err(LinkError::NotEthernet(name.as_str().to_owned())),
    }
}

/// The kernel's `struct ifreq`.
#[repr(C, align(8))]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    /// As long as the longest member of the union is on any machine.
    value: [u8; VALUE],
}

const VALUE: usize = 24;
const _: () = assert!(size_of::<InterfaceRequest>() >= size_of::<libc::ifreq>());

/// What one of the `SIOCGIF` requests writes.
fn ask(fd: &OwnedFd, name: &InterfaceName, request: libc::Ioctl) -> Result<[u8; VALUE], LinkError> {
    let mut query = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        value: [0; VALUE],
    };
    // The last byte stays zero: names are shorter.
    for (to, from) in query.name.iter_mut().zip(name.as_str().bytes()) {
        *to = from;
    }
    // SAFETY: the kernel reads and writes a struct ifreq, which is not longer than the query.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), request, ptr::from_mut(&mut query)) };
    if done == 0 {
        return Ok(query.value);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENODEV) => Err(LinkError::Absent(name.as_str().to_owned())),
        _ => Err(failed("look at the interface")(error)),
    }
}
