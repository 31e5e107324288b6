//! Runs one probe on the network.

use std::{
    hash::{BuildHasher as _, RandomState},
    net::IpAddr,
    time::Duration,
};

use fipd_cni::frame::{self, Mac};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    AddressUse,
    interface_query::LinkError,
    message::ProbeRequest,
    packet_socket::{FRAME, PacketSocket},
    schedule, socket_filter,
};

/// No probe takes longer, whatever happens: schedules end before.
const PROBE_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(super) enum DetectError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the probe took longer than {} s", PROBE_DEADLINE.as_secs())]
    Late,
}

pub(super) async fn detect(request: &ProbeRequest) -> Result<AddressUse, DetectError> {
    let detected = timeout(PROBE_DEADLINE, run(request)).await;
    Ok(detected.map_err(|_| DetectError::Late)??)
}

async fn run(request: &ProbeRequest) -> Result<AddressUse, LinkError> {
    let socket = PacketSocket::open(&request.interface)?;
    let address = request.address.into();
    socket.listen(socket_filter::about(address), &frame::groups(address))?;
    socket.check_link()?;
    let (start, frame) = (Instant::now(), frame::probe(socket.mac(), address));
    let schedule = schedule::timing(address).schedule(request.timeout.duration(), random);
    for at in schedule.sends {
        if let Some(mac) = conflict(&socket, address, start + at).await? {
            return Ok(AddressUse::InUse { mac });
        }
        socket.check_link()?;
        socket.send(&frame).await?;
    }
    if let Some(mac) = conflict(&socket, address, start + schedule.end).await? {
        return Ok(AddressUse::InUse { mac });
    }
    socket.check_link()?;
    Ok(AddressUse::Free)
}

/// Listens until somebody claims the address, at most until then, however many frames come in.
async fn conflict(
    socket: &PacketSocket,
    address: IpAddr,
    until: Instant,
) -> Result<Option<Mac>, LinkError> {
    let mut buffer = [0; FRAME];
    while Instant::now() < until {
        let Ok(frame) = timeout_at(until, socket.receive(&mut buffer)).await else {
            break;
        };
        if let Some(mac) = frame::conflict(socket.mac(), address, frame?) {
            return Ok(Some(mac));
        }
    }
    Ok(None)
}

/// From 0 to 1; good enough to spread probes of several hosts.
fn random() -> f64 {
    // Seeded by the system, and another number each time.
    let number = RandomState::new().hash_one(());
    f64::from((number >> 32) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_spread_from_0_to_1() {
        let numbers: Vec<f64> = (0..1000).map(|_| random()).collect();
        assert!(numbers.iter().all(|number| (0.0..=1.0).contains(number)));
        let low = numbers.iter().filter(|number| **number < 0.5).count();
        assert!((300..700).contains(&low), "{low} of 1000");
    }
}
