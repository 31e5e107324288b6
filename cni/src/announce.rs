//! Tells the neighbors where addresses are, so that they forget who had them before.

use std::{io, net::IpAddr, thread, time::Duration};

use crate::{frame, packet_socket::PacketSocket};

/// One may be lost.
const TIMES: usize = 3;
const APART: Duration = Duration::from_millis(50);

/// Announces the addresses of the interface in the namespace of the calling thread.
///
/// # Errors
/// When the interface is not there or not up.
pub fn announce(interface: &str, addresses: &[IpAddr]) -> io::Result<()> {
    let socket = PacketSocket::open(interface)?;
    for time in 0..TIMES {
        if time > 0 {
            thread::sleep(APART);
        }
        for address in addresses {
            socket.send(&frame::announcement(socket.mac(), *address))?;
        }
    }
    Ok(())
}
