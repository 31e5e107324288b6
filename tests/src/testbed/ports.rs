//! Free loopback ports below the kernel's range for outgoing connections, so that none is taken by a client between two
//! starts of the same server.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

const PORTS: Range<u16> = 18_000..32_000;

/// A port nobody listens on and that this process has not been given before.
pub fn free_port() -> Result<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Runs side by side begin at different places.
    let count = PORTS.end - PORTS.start;
    let offset = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(count))?;
    for step in 0..count {
        let port = PORTS.start + (offset + step) % count;
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return Ok(port);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_the_same_port_twice_and_never_one_in_use() {
        let first = free_port().unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first + 1));
        let second = free_port().unwrap();
        assert!(PORTS.contains(&first) && PORTS.contains(&second));
        assert_ne!(first, second);
    }
}
