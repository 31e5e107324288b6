//! A blocking NETLINK_ROUTE socket.

use std::io;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NlasIterator, parse_string,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::{
    errno::Errno,
    libc::MSG_TRUNC,
    sys::{
        socket::{setsockopt, sockopt::ReceiveTimeout},
        time::TimeVal,
    },
};

/// How long the kernel may take, in seconds.
const TIMEOUT: i64 = 5;
/// The kernel sends at most half of this at once.
const BUFFER: usize = 64 << 10;
/// How often a dump that others interrupt starts again.
const DUMPS: usize = 8;
/// Length of `struct nlmsghdr`, and where its type is.
const HEADER: usize = 16;
/// `NLMSGERR_ATTR_MSG`.
const EXPLANATION: u16 = 1;

type Message = NetlinkMessage<RouteNetlinkMessage>;

/// Works on the network namespace of the thread that opened it, wherever it is used later.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    explanation: Option<String>,
}

/// What ends the answer to a request.
enum End {
    Done,
    /// The listing changed while the kernel wrote it.
    Interrupted,
}

impl Netlink {
    /// # Errors
    /// When the process is out of descriptors or the kernel lacks netlink.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(TIMEOUT, 0))?;
        // Kernels before 4.20 lack strict checking, and listings are filtered here as well.
        let _ = socket.set_netlink_get_strict_chk(true);
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        Ok(Self {
            socket,
            sequence: 0,
            explanation: None,
        })
    }

    /// The kernel's own words about the last failure, where it has any.
    pub fn explanation(&self) -> Option<&str> {
        self.explanation.as_deref()
    }

    /// Sends a request with these extra flags and waits until the kernel has carried it out.
    pub(super) fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK | flags, |_| ()).map(drop)
    }

    /// Asks for one object.
    pub(super) fn get(&mut self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let mut found = None;
        self.exchange(message, NLM_F_ACK, |one| found = Some(one))?;
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Asks for all objects, again if the listing changed meanwhile.
    pub(super) fn dump(
        &mut self,
        message: &RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        for _ in 0..DUMPS {
            let mut found = Vec::new();
            let end = self.exchange(message.clone(), NLM_F_DUMP, |one| found.push(one))?;
            if let End::Done = end {
                return Ok(found);
            }
        }
        Err(Errno::EINTR.into())
    }

    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<End> {
        self.send(message, flags)?;
        let mut end = End::Done;
        loop {
            let datagram = self.receive()?;
            let mut rest = datagram.as_slice();
            while let Some((bytes, after)) = split(rest) {
                rest = after;
                // The library cannot read every kind of object; those it cannot read are none of ours.
                let Ok(message) = Message::deserialize(bytes) else {
                    continue;
                };
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                if message.header.flags & NLM_F_DUMP_INTR != 0 {
                    end = End::Interrupted;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(one) => each(one),
                    NetlinkPayload::Done(done) if done.code < 0 => return Err(os(done.code)),
                    NetlinkPayload::Done(_) => return Ok(end),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(end),
                    NetlinkPayload::Error(error) => {
                        self.explanation = explanation(&error, message.header.flags);
                        return Err(os(error.raw_code()));
                    }
                    _ => {}
                }
            }
        }
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.explanation = None;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = Message::new(header, message.into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::with_capacity(BUFFER);
        let length = loop {
            match self.socket.recv(&mut buffer, MSG_TRUNC) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                result => break result?,
            }
        };
        match length == buffer.len() {
            true => Ok(buffer),
            false => Err(Errno::EMSGSIZE.into()),
        }
    }
}

fn os(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code.wrapping_abs())
}

/// The first message of a datagram, and what follows it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    if length < HEADER {
        return None;
    }
    let message = bytes.get(..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((message, after))
}

/// `NLMSGERR_ATTR_MSG` behind the header of the request, whose body the kernel leaves out.
fn explanation(error: &ErrorMessage, flags: u16) -> Option<String> {
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let attributes = NlasIterator::new(error.header.get(HEADER..)?).flatten();
    let text = attributes
        .into_iter()
        .find(|one| one.kind() == EXPLANATION)?;
    parse_string(text.value()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_cut_into_its_messages() {
        let first = [&17_u32.to_ne_bytes()[..], &[1; 13]].concat();
        let second = [&16_u32.to_ne_bytes()[..], &[2; 12]].concat();
        let both = [&first[..], &[0; 3], &second].concat();
        let (message, rest) = split(&both).unwrap();
        assert_eq!(message, first);
        assert_eq!(split(rest).unwrap(), (&second[..], &[][..]));
        for wrong in [&[][..], &[0; 16], &both[..10], &u32::MAX.to_ne_bytes()] {
            assert_eq!(split(wrong), None);
        }
    }

    #[test]
    fn the_kernel_explains_what_it_refuses() {
        let text = b"wrong\0";
        let mut error = ErrorMessage::default();
        error.header = [&[0; HEADER][..], &[10, 0, 1, 0], text, &[0, 0]].concat();
        assert_eq!(
            explanation(&error, NLM_F_ACK_TLVS).as_deref(),
            Some("wrong")
        );
        assert_eq!(explanation(&error, 0), None);
        error.header.truncate(3);
        assert_eq!(explanation(&error, NLM_F_ACK_TLVS), None);
    }
}
