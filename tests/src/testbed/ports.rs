//! Free loopback ports below the kernel's range for outgoing connections, so that none is taken by a client between two
//! starts of the same server.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

const PORTS: Range<u16> = 18_000..32_000;

/// A port nobody listens on and that no test process of this network namespace has, also while its server is down
/// between two starts: an abstract socket with the number of the port is bound for as long as this process lives.
pub fn free_port() -> Result<u16> {
    static RESERVED: Mutex<BTreeMap<u16, UnixListener>> = Mutex::new(BTreeMap::new());
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    // Runs side by side begin at different places.
    let count = PORTS.end - PORTS.start;
    let offset = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(count))?;
    for step in 0..count {
        let port = PORTS.start + (offset + step) % count;
        if reserved.contains_key(&port) {
            continue;
        }
        let name = SocketAddr::from_abstract_name(format!("fipd-testbed-port-{port}"))?;
        let Ok(reservation) = UnixListener::bind_addr(&name) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            reserved.insert(port, reservation);
            return Ok(port);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_another_process_reserved_is_skipped() {
        let first = free_port().unwrap();
        let names = (1..=50).filter_map(|step| {
            let name = format!("fipd-testbed-port-{}", first + step);
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).ok()
        });
        let others: Vec<_> = names.collect();
        assert!(!others.is_empty());
        let second = free_port().unwrap();
        assert!(
            !(first + 1..=first + 50).contains(&second),
            "{first} {second}"
        );
    }

    #[test]
    fn never_the_same_port_twice_and_never_one_in_use() {
        let first = free_port().unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first + 1));
        let second = free_port().unwrap();
        assert!(PORTS.contains(&first) && PORTS.contains(&second));
        assert_ne!(first, second);
    }
}
