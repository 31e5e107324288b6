//! A socket for whole Ethernet frames of one interface, in the namespace of the thread that opens it.

use std::{
    io::{self, ErrorKind},
    net::{Ipv6Addr, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd},
    time::Duration,
};

use nix::{
    ifaddrs::getifaddrs,
    sys::{
        socket::{
            AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom,
            sendto, setsockopt, socket, sockopt::ReceiveTimeout,
        },
        time::TimeVal,
    },
};

use crate::frame::Mac;

/// Room for one frame; those about addresses are much shorter.
const FRAME: usize = 2 << 10;

pub struct PacketSocket {
    fd: OwnedFd,
    /// Stays while the groups are joined.
    groups: Option<UdpSocket>,
    address: LinkAddr,
    mac: Mac,
}

impl PacketSocket {
    /// # Errors
    /// When there is no such interface, or the process lacks `CAP_NET_RAW`.
    pub fn open(interface: &str) -> io::Result<Self> {
        // All protocols: on a port of a bridge, the bridge takes frames before those who listen to one protocol.
        let fd = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )?;
        let mut found = getifaddrs()?.filter(|one| one.interface_name == interface);
        let address = found.find_map(|one| one.address?.as_link_addr().copied());
        let address = address.ok_or(ErrorKind::NotFound)?;
        let mac = address.addr().ok_or(ErrorKind::Unsupported)?;
        // Its protocol is 0, which leaves that of the socket.
        bind(fd.as_raw_fd(), &address)?;
        Ok(Self {
            fd,
            groups: None,
            address,
            mac: Mac(mac),
        })
    }

    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Has the interface accept frames to these groups.
    ///
    /// # Errors
    /// When IPv6 is switched off.
    pub fn join(&mut self, groups: impl Iterator<Item = Ipv6Addr>) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
        let index = u32::try_from(self.address.ifindex()).unwrap_or_default();
        for group in groups {
            match socket.join_multicast_v6(&group, index) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                result => result?,
            }
        }
        self.groups = Some(socket);
        Ok(())
    }

    /// # Errors
    /// When the interface is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        sendto(self.fd.as_raw_fd(), frame, &self.address, MsgFlags::empty())?;
        Ok(())
    }

    /// The next frame of the interface; `None`: none came in `patience`, or one of another interface.
    ///
    /// # Errors
    /// When the interface goes down.
    pub fn receive(&self, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        // A timeout of zero would wait for ever.
        let micros = patience.as_micros().max(1);
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        let timeout = TimeVal::new(micros / 1_000_000, micros % 1_000_000);
        setsockopt(&self.fd, ReceiveTimeout, &timeout)?;
        let mut buffer = vec![0; FRAME];
        let received = recvfrom::<LinkAddr>(self.fd.as_raw_fd(), &mut buffer);
        match received.map_err(io::Error::from) {
            Ok((length, from)) => {
                buffer.truncate(length);
                let is_of_this = |from: LinkAddr| from.ifindex() == self.address.ifindex();
                Ok(from.is_some_and(is_of_this).then_some(buffer))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }
}
