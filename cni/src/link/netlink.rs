//! A blocking NETLINK_ROUTE socket.

use std::io;

use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NlasIterator, Parseable, parse_string,
};
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

/// Works on the network namespace of the thread that opened it, wherever it is used later.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    explanation: Option<String>,
    buffer: Vec<u8>,
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
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// The kernel's own words about the last failure, where it has any.
    pub fn explanation(&self) -> Option<&str> {
        self.explanation.as_deref()
    }

    /// Sends a request with these extra flags and waits until the kernel has carried it out.
    pub(super) fn request(
        &mut self,
        kind: u16,
        body: &impl Emitable,
        flags: u16,
    ) -> io::Result<()> {
        self.exchange(kind, body, NLM_F_ACK | flags, |_, _| ())
            .map(drop)
    }

    /// Asks for one object.
    pub(super) fn get<T: Parseable<[u8]>>(
        &mut self,
        kind: u16,
        body: &impl Emitable,
    ) -> io::Result<T> {
        let mut found = None;
        self.exchange(kind, body, NLM_F_ACK, |_, bytes| {
            found = Some(T::parse(bytes));
        })?;
        let found = found.ok_or(io::ErrorKind::InvalidData)?;
        found.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Asks for all objects, again if the listing changed meanwhile. Those that the netlink library cannot read are left out.
    pub(super) fn dump<T: Parseable<[u8]>>(
        &mut self,
        kind: u16,
        body: &impl Emitable,
    ) -> io::Result<Vec<T>> {
        for _ in 0..DUMPS {
            let mut found = Vec::new();
            let end = self.exchange(kind, body, NLM_F_DUMP, |listed, bytes| {
                // RTM_NEW*, RTM_DEL* and RTM_GET* of an object follow each other.
                if listed.checked_add(2) == Some(kind) {
                    found.extend(T::parse(bytes));
                }
            })?;
            if let End::Done = end {
                return Ok(found);
            }
        }
        Err(Errno::EINTR.into())
    }

    fn exchange(
        &mut self,
        kind: u16,
        body: &impl Emitable,
        flags: u16,
        mut each: impl FnMut(u16, &[u8]),
    ) -> io::Result<End> {
        self.send(kind, body, flags)?;
        let mut end = End::Done;
        loop {
            self.receive()?;
            let mut rest = self.buffer.as_slice();
            while let Some((message, after)) = Message::split(rest) {
                rest = after;
                if message.sequence != self.sequence {
                    continue;
                }
                if message.flags & NLM_F_DUMP_INTR != 0 {
                    end = End::Interrupted;
                }
                match message.kind {
                    NLMSG_DONE | NLMSG_ERROR => {
                        self.explanation = message.explanation();
                        return message.result().map(|()| end);
                    }
                    NLMSG_NOOP | NLMSG_OVERRUN => {}
                    kind => each(kind, message.body),
                }
            }
        }
    }

    fn send(&mut self, kind: u16, body: &impl Emitable, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = HEADER + body.buffer_len();
        let mut bytes = vec![0; length];
        body.emit(&mut bytes[HEADER..]);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        self.socket.send(&bytes, 0).map(drop)
    }

    fn receive(&mut self) -> io::Result<()> {
        self.buffer.clear();
        let length = loop {
            match self.socket.recv(&mut self.buffer, MSG_TRUNC) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                result => break result?,
            }
        };
        match length == self.buffer.len() {
            true => Ok(()),
            false => Err(Errno::EMSGSIZE.into()),
        }
    }
}

/// One message of a datagram.
#[derive(Debug, PartialEq, Eq)]
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first message, and what follows it.
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let message = bytes.get(..length)?;
        let (header, body) = message.split_at_checked(HEADER)?;
        let first = Self {
            kind: u16::from_ne_bytes(*header[4..].first_chunk()?),
            flags: u16::from_ne_bytes(*header[6..].first_chunk()?),
            sequence: u32::from_ne_bytes(*header[8..].first_chunk()?),
            body,
        };
        let after = bytes.get(length.next_multiple_of(4)..);
        Some((first, after.unwrap_or_default()))
    }

    /// Of `NLMSG_ERROR` and `NLMSG_DONE`, which begin with 0 or a negative number of an error.
    fn result(&self) -> io::Result<()> {
        match self
            .body
            .first_chunk()
            .map_or(0, |code| i32::from_ne_bytes(*code))
        {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code.wrapping_abs())),
        }
    }

    /// `NLMSGERR_ATTR_MSG`, behind the header of the request, whose body the kernel leaves out.
    fn explanation(&self) -> Option<String> {
        if self.kind != NLMSG_ERROR || self.flags & NLM_F_ACK_TLVS == 0 {
            return None;
        }
        let attributes = NlasIterator::new(self.body.get(4 + HEADER..)?).flatten();
        let text = attributes
            .into_iter()
            .find(|one| one.kind() == EXPLANATION)?;
        parse_string(text.value()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_datagram_is_cut_into_its_messages() {
        let both = [message(16, 2, &[1]), vec![0; 3], message(3, 0, &[])].concat();
        let (first, rest) = Message::split(&both).unwrap();
        assert_eq!((first.kind, first.flags, first.sequence), (16, 2, 7));
        assert_eq!(first.body, [1]);
        let (second, rest) = Message::split(rest).unwrap();
        assert_eq!((second.kind, second.body, rest), (3, &[][..], &[][..]));
        second.result().unwrap();
        for wrong in [&[][..], &[0; 16], &both[..10], &u32::MAX.to_ne_bytes()] {
            assert_eq!(Message::split(wrong), None);
        }
    }

    #[test]
    fn the_kernel_explains_what_it_refuses() {
        let code = (-22_i32).to_ne_bytes();
        let text = [10, 0, 1, 0, b'w', b'r', b'o', b'n', b'g', 0, 0, 0];
        let body = [&code[..], &[0; HEADER], &text].concat();
        let split = |flags, body: &[u8]| {
            let bytes = message(NLMSG_ERROR, flags, body);
            let (message, _) = Message::split(&bytes).unwrap();
            let error = message.result().unwrap_err();
            (error.raw_os_error(), message.explanation())
        };
        let wrong = Some("wrong".to_owned());
        assert_eq!(split(NLM_F_ACK_TLVS, &body), (Some(22), wrong));
        assert_eq!(split(0, &body), (Some(22), None));
        assert_eq!(split(NLM_F_ACK_TLVS, &body[..7]), (Some(22), None));
    }
}
