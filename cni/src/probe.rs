//! Asks on the wire whether somebody else uses addresses, before they are configured.

use std::{
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

use crate::{
    attachment::ProbeResult,
    frame::{self, Mac},
    packet_socket::PacketSocket,
};

/// Probes of each address. RFC 5227 and RFC 4862 wait seconds between them, for links of other days.
const TIMES: u32 = 3;
const APART: Duration = Duration::from_millis(250);
/// How long answers to the last probe may take; all of it ends within a second.
const LAST: Duration = Duration::from_millis(400);

/// Probes the addresses through an interface of the calling thread's namespace, which must be up.
///
/// # Errors
/// When the interface is not there or not up.
pub fn probe(interface: &str, addresses: &[IpAddr]) -> io::Result<Vec<ProbeResult>> {
    let mut socket = PacketSocket::open(interface)?;
    let groups = addresses.iter().filter_map(|ip| match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => Some(frame::solicited_node(*ip)),
    });
    let groups: Vec<_> = groups.collect();
    if !groups.is_empty() {
        socket.join(groups.into_iter())?;
    }
    let mut users = vec![None; addresses.len()];
    for time in 1..=TIMES {
        for (address, user) in addresses.iter().zip(&users) {
            if user.is_none() {
                socket.send(&frame::probe(socket.mac(), *address))?;
            }
        }
        let wait = if time < TIMES { APART } else { LAST };
        listen(&socket, addresses, &mut users, wait)?;
    }
    let results = addresses.iter().zip(users);
    let results = results.map(|(address, user)| ProbeResult {
        address: *address,
        user: user.map(|mac| mac.to_string()),
    });
    Ok(results.collect())
}

/// Ends early when every address has a user.
fn listen(
    socket: &PacketSocket,
    addresses: &[IpAddr],
    users: &mut [Option<Mac>],
    wait: Duration,
) -> io::Result<()> {
    let end = Instant::now() + wait;
    while users.iter().any(Option::is_none) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let Some(frame) = socket.receive(left)? else {
            continue;
        };
        for (address, user) in addresses.iter().zip(&mut *users) {
            *user = user.or_else(|| frame::conflict(socket.mac(), *address, &frame));
        }
    }
    Ok(())
}
