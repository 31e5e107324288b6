//! A socket for whole Ethernet frames of one interface (`AF_PACKET`), which takes `CAP_NET_RAW` and no more.

use std::{
    io::{self, ErrorKind},
    mem::size_of,
    os::fd::{AsRawFd as _, OwnedFd},
    ptr,
};

use fipd_cni::frame::Mac;
use nix::{
    libc::{self, c_int, packet_mreq, sock_filter, sock_fprog, sockaddr_ll},
    setsockopt_impl, sockopt_impl,
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike as _, bind, recv, send,
        setsockopt, socket,
    },
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    interface_query::{self, LinkError, failed},
    message::InterfaceName,
};

/// Room for one frame; those about addresses are much shorter.
pub(super) const FRAME: usize = 2 << 10;

// Options that nix does not have.
sockopt_impl!(
    AddMembership,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_ADD_MEMBERSHIP,
    packet_mreq
);
sockopt_impl!(
    IgnoreOutgoing,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_IGNORE_OUTGOING,
    bool
);
sockopt_impl!(
    AttachFilter,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_ATTACH_FILTER,
    sock_fprog
);

/// Nothing is received before [`listen`](Self::listen).
pub(super) struct PacketSocket {
    fd: AsyncFd<OwnedFd>,
    interface: InterfaceName,
    index: c_int,
    mac: Mac,
}

impl PacketSocket {
    pub fn open(interface: &InterfaceName) -> Result<Self, LinkError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol, or frames of all interfaces would come in until it is bound.
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, None);
        let fd = fd.map_err(failed("open a packet socket"))?;
        let index = interface_query::index(&fd, interface)?;
        let mac = interface_query::mac(&fd, interface)?;
        Ok(Self {
            fd: register(fd).map_err(failed("wait for a packet socket"))?,
            interface: interface.clone(),
            index,
            mac,
        })
    }

    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Receives what the filter accepts from here on, and what is sent to these groups.
    pub fn listen(&self, mut filter: Vec<sock_filter>, groups: &[Mac]) -> Result<(), LinkError> {
        let program = sock_fprog {
            len: u16::try_from(filter.len()).unwrap_or(u16::MAX),
            filter: filter.as_mut_ptr(),
        };
        setsockopt(&self.fd, AttachFilter, &program).map_err(failed("filter frames"))?;
        setsockopt(&self.fd, IgnoreOutgoing, &true).map_err(failed("ignore own frames"))?;
        for group in groups {
            let [a, b, c, d, e, f] = group.0;
            let membership = packet_mreq {
                mr_ifindex: self.index,
                mr_type: libc::PACKET_MR_MULTICAST as u16,
                mr_alen: 6,
                mr_address: [a, b, c, d, e, f, 0, 0],
            };
            let joined = setsockopt(&self.fd, AddMembership, &membership);
            joined.map_err(failed("join a multicast group"))?;
        }
        // All protocols: on a port of a bridge, the bridge takes frames before those who listen to one protocol.
        let address = link_address(self.index, libc::ETH_P_ALL as u16);
        let address =
            address.ok_or_else(|| failed("bind")(io::Error::from(ErrorKind::InvalidInput)))?;
        bind(self.fd.as_raw_fd(), &address).map_err(failed("bind to the interface"))
    }

    /// Fails where a probe could not reach anybody: without a carrier the kernel may drop it and say nothing.
    pub fn check_link(&self) -> Result<(), LinkError> {
        let flags = interface_query::flags(self.fd.get_ref(), &self.interface)?;
        if flags & libc::IFF_NOARP != 0 {
            return Err(LinkError::NoArp(self.name()));
        }
        let ready = libc::IFF_UP | libc::IFF_RUNNING;
        match flags & ready == ready {
            true => Ok(()),
            false => Err(LinkError::Down(self.name())),
        }
    }

    pub async fn send(&self, frame: &[u8]) -> Result<(), LinkError> {
        let send = |fd: &OwnedFd| Ok(send(fd.as_raw_fd(), frame, MsgFlags::empty())?);
        let sent = self.fd.async_io(Interest::WRITABLE, send).await;
        sent.map(drop)
            .map_err(|error| self.failed("send a probe", error))
    }

    /// The next frame, cut to the buffer. Can be dropped without losing one.
    pub async fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], LinkError> {
        let receive = |fd: &OwnedFd| Ok(recv(fd.as_raw_fd(), buffer, MsgFlags::empty())?);
        let interest = Interest::READABLE | Interest::ERROR;
        let received = self.fd.async_io(interest, receive).await;
        let length = received.map_err(|error| self.failed("receive answers", error))?;
        Ok(buffer.get(..length).unwrap_or_default())
    }

    fn name(&self) -> String {
        self.interface.as_str().to_owned()
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> LinkError {
        match source.raw_os_error() {
            Some(libc::ENETDOWN) => LinkError::Down(self.name()),
            Some(libc::ENOBUFS) => LinkError::Dropped(self.name()),
            _ => LinkError::Io { doing, source },
        }
    }
}

/// Wakes up for frames, for room to send, and when the interface goes down.
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let interest = Interest::READABLE | Interest::WRITABLE | Interest::ERROR;
    // SAFETY: the AsyncFd owns the descriptor, which stays open and the same until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}

/// The frames of one protocol on one interface.
fn link_address(index: c_int, protocol: u16) -> Option<LinkAddr> {
    let address = sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of::<sockaddr_ll>()).ok();
    // SAFETY: the pointer is to a sockaddr_ll of that length, which is copied.
    unsafe { LinkAddr::from_raw(ptr::from_ref(&address).cast(), length) }
}
