//! The socket that lists the kernel's rules, and has it change them.
//!
//! Links and routes are read by rtnetlink; rules are not, since it waits for an answer to each rule where this sends 256 in
//! one call, leaves out a rule that it cannot read where the engine has to see that somebody has one, and does not say which
//! port made a change.
//!
//! The socket is another one than that which hears of changes, so that a listing can be trusted. The kernel gives a list in pieces and
//! finds its place again by counting, so that a rule that comes or goes meanwhile makes another one be told twice or not at
//! all. It queues the news of a change when it makes it: if none is queued by the end of a listing, there was none.

use std::{collections::BTreeMap, io, num::NonZeroI32, time::Duration};

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{RouteNetlinkMessage, rule::RuleMessage};
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols};
use nix::libc::{EAFNOSUPPORT, RTM_NEWRULE};

use fipd_core::{
    Family,
    host::{KernelRule, Rule},
};

use super::message;
use crate::host::netlink_reply::{ReplyBody, answers};

/// The kernel answers at once; a list of a hundred thousand rules takes it 100 ms.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);
/// Above what the kernel puts into one piece of a list.
pub(super) const BUFFER: usize = 64 << 10;
/// Room for the refusals of a whole batch.
const ANSWER_ROOM: usize = 1 << 20;
/// Requests in one call of the kernel; it lets others at its tables between.
const BATCH: usize = 256;

/// What the kernel did not do.
#[derive(Debug, thiserror::Error)]
pub(super) enum NetlinkError {
    #[error("the kernel did not answer within {} s", DEADLINE.as_secs())]
    Late,
    /// Never an empty list.
    #[error("the kernel refused to list: {0}")]
    List(io::Error),
    #[error("the kernel's answer cannot be read: {0}")]
    Unreadable(#[from] DecodeError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Requests that the kernel refused, by their places.
pub(super) type Refusals = Vec<(usize, io::Error)>;

/// The socket that asks. After trouble it may have answers to come, and a new one is to be opened.
pub(super) struct Requests {
    socket: TokioSocket,
    port: u32,
    sequence: u32,
    buffer: Vec<u8>,
    /// Rules in the last list of each family.
    listed: BTreeMap<u8, usize>,
}

impl Requests {
    pub fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(protocols::NETLINK_ROUTE)?;
        let inner = socket.socket_mut();
        let port = inner.bind_auto()?.port_number();
        inner.connect(&SocketAddr::new(0, 0))?;
        inner.set_netlink_get_strict_chk(true)?;
        inner.set_cap_ack(true)?;
        inner.set_ext_ack(true)?;
        widen(&socket, ANSWER_ROOM);
        Ok(Self {
            socket,
            port,
            sequence: 0,
            buffer: Vec::with_capacity(BUFFER),
            listed: BTreeMap::new(),
        })
    }

    /// By which news tells who made a change.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// The rules of a family, in the kernel's order, and whether they changed meanwhile.
    pub async fn rules(&mut self, family: Family) -> Result<(Vec<KernelRule>, bool), NetlinkError> {
        self.rules_as(like(family), message::read).await
    }

    /// The rules of a family with what they are deleted by; without those that cannot be said whole.
    pub async fn rules_whole(
        &mut self,
        family: Family,
    ) -> Result<Vec<(KernelRule, RuleMessage)>, NetlinkError> {
        let read = |body: &[u8]| message::read(body).zip(message::whole(body));
        let (rules, _) = self.rules_as(like(family), read).await?;
        Ok(rules)
    }

    /// Lists rules as the request says. Answers what `read` makes of each, which gets what follows the common header, and whether
    /// the kernel itself says that the list changed meanwhile. A kernel without this family has none.
    async fn rules_as<T>(
        &mut self,
        like: RuleMessage,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<(Vec<T>, bool), NetlinkError> {
        let family = u8::from(like.header.family);
        let like = RouteNetlinkMessage::GetRule(like);
        let sequence = self.send(vec![like], NLM_F_DUMP).await?;
        let listing = async {
            // Mostly there are as many as before.
            let before = self.listed.get(&family).copied().unwrap_or_default();
            let (mut rules, mut interrupted) = (Vec::with_capacity(before), false);
            loop {
                self.receive().await?;
                for answer in answers(&self.buffer) {
                    let answer = answer?;
                    if answer.header.sequence_number != sequence {
                        continue;
                    }
                    interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
                    match answer.body {
                        ReplyBody::Message(RTM_NEWRULE, body) => rules.extend(read(body)),
                        ReplyBody::Message(..) => {}
                        ReplyBody::Control(control) => {
                            self.listed.insert(family, rules.len());
                            return list_end(&control).map(|()| (rules, interrupted));
                        }
                    }
                }
            }
        };
        let listed = tokio::time::timeout(DEADLINE, listing).await;
        match listed.map_err(|_| NetlinkError::Late)? {
            Err(NetlinkError::List(error)) if error.raw_os_error() == Some(EAFNOSUPPORT) => {
                Ok((Vec::new(), false))
            }
            listed => listed,
        }
    }

    /// Adds all of these, in this order. Answers those that the kernel refused.
    pub async fn add(&mut self, rules: &[Rule]) -> Result<Refusals, NetlinkError> {
        let messages = rules.iter().map(message::write);
        let messages = messages.map(RouteNetlinkMessage::NewRule);
        // The kernel walks all rules to honour NLM_F_EXCL, and ignores NLM_F_REPLACE.
        self.batch(messages, NLM_F_CREATE).await
    }

    /// Deletes the first rule that is like each of these, in this order.
    pub async fn delete(&mut self, rules: &[Rule]) -> Result<Refusals, NetlinkError> {
        let messages = rules.iter().map(message::write);
        let messages = messages.map(RouteNetlinkMessage::DelRule);
        self.batch(messages, 0).await
    }

    /// Deletes the first rule that is like each of these, which may be others', in this order.
    pub async fn delete_whole(
        &mut self,
        rules: Vec<RuleMessage>,
    ) -> Result<Refusals, NetlinkError> {
        let messages = rules.into_iter().map(RouteNetlinkMessage::DelRule);
        self.batch(messages, 0).await
    }

    async fn batch(
        &mut self,
        messages: impl Iterator<Item = RouteNetlinkMessage>,
        flags: u16,
    ) -> Result<Refusals, NetlinkError> {
        let mut messages = messages.peekable();
        let mut refused = Vec::new();
        let mut done = 0;
        while messages.peek().is_some() {
            let part: Vec<_> = messages.by_ref().take(BATCH).collect();
            let count = part.len();
            let last = self.send(part, flags).await?;
            let answered = tokio::time::timeout(DEADLINE, self.refusals(last, count));
            let some = answered.await.map_err(|_| NetlinkError::Late)??;
            refused.extend(some.into_iter().map(|(index, error)| (done + index, error)));
            done += count;
        }
        Ok(refused)
    }

    /// The kernel has done all requests when it answers the last. The others it answers only to refuse them.
    async fn refusals(&mut self, last: u32, count: usize) -> Result<Refusals, NetlinkError> {
        let mut refused = Vec::new();
        loop {
            self.receive().await?;
            for answer in answers(&self.buffer) {
                let answer = answer?;
                let back = last.wrapping_sub(answer.header.sequence_number);
                let index = usize::try_from(back).ok().filter(|back| *back < count);
                let Some(index) = index.map(|back| count - 1 - back) else {
                    continue;
                };
                if let ReplyBody::Control(NetlinkPayload::Error(error)) = answer.body {
                    refused.extend(error.code.map(|_| (index, error.to_io())));
                    if back == 0 {
                        return Ok(refused);
                    }
                }
            }
        }
    }

    /// All in one call; the last is answered in any case. Answers its number.
    async fn send(
        &mut self,
        messages: Vec<RouteNetlinkMessage>,
        flags: u16,
    ) -> Result<u32, NetlinkError> {
        let mut bytes = Vec::with_capacity(messages.len() * 96);
        let count = messages.len();
        for (index, message) in messages.into_iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            let mut header = NetlinkHeader::default();
            header.sequence_number = self.sequence;
            header.flags = NLM_F_REQUEST | flags;
            if index + 1 == count && flags & NLM_F_DUMP != NLM_F_DUMP {
                header.flags |= NLM_F_ACK;
            }
            let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
            message.finalize();
            let start = bytes.len();
            bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
            if let Some(room) = bytes.get_mut(start..) {
                message.serialize(room);
            }
        }
        let sent = tokio::time::timeout(DEADLINE, self.socket.send(&bytes)).await;
        sent.map_err(|_| NetlinkError::Late)??;
        Ok(self.sequence)
    }

    async fn receive(&mut self) -> io::Result<()> {
        self.buffer.clear();
        self.socket.recv(&mut self.buffer).await
    }
}

/// What a list of all rules of a family asks for.
fn like(family: Family) -> RuleMessage {
    let mut like = RuleMessage::default();
    like.header.family = message::family_number(family);
    like
}

/// Beyond what the system allows everybody, where fipd may.
pub(super) fn widen(socket: &TokioSocket, bytes: usize) {
    use nix::sys::socket::{setsockopt, sockopt};
    let fd = socket.socket_ref();
    if setsockopt(&fd, sockopt::RcvBufForce, &bytes).is_err()
        && let Err(error) = setsockopt(&fd, sockopt::RcvBuf, &bytes)
    {
        tracing::debug!(%error, "the room of a socket to the kernel could not be widened");
    }
}

/// Whether this is how a list ends that is whole.
pub(super) fn list_end<T>(payload: &NetlinkPayload<T>) -> Result<(), NetlinkError> {
    let code = match payload {
        NetlinkPayload::Done(done) if done.code == 0 => return Ok(()),
        NetlinkPayload::Done(done) => Some(done.code),
        NetlinkPayload::Error(error) => error.code.map(NonZeroI32::get),
        NetlinkPayload::Noop | NetlinkPayload::Overrun(_) | _ => None,
    };
    let unexpected = || io::Error::other("an answer that is none to a listing");
    let refused = |code: i32| io::Error::from_raw_os_error(code.saturating_abs());
    Err(NetlinkError::List(code.map_or_else(unexpected, refused)))
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::{AddressFamily, rule::RuleAttribute};

    use super::*;

    #[tokio::test]
    async fn conformance_25_a_refused_listing_is_an_error_and_never_an_empty_list() {
        let mut requests = Requests::open().unwrap();
        let mut filtered = like(Family::V4);
        filtered.attributes.push(RuleAttribute::Priority(1));
        let listed = requests.rules_as(filtered, message::read).await;
        let Err(NetlinkError::List(error)) = listed else {
            panic!("a strict kernel refuses a filter")
        };
        assert_eq!(error.raw_os_error(), Some(nix::libc::EINVAL));
        let (rules, _) = requests.rules(Family::V4).await.unwrap();
        assert!(rules.iter().any(|one| one.rule.protocol == 2), "{rules:?}");
    }

    #[tokio::test]
    async fn a_kernel_without_a_family_has_no_rules_of_it() {
        let mut requests = Requests::open().unwrap();
        let mut none = RuleMessage::default();
        // DECnet, which Linux has no more.
        none.header.family = AddressFamily::from(12);
        let (rules, interrupted) = requests.rules_as(none, message::read).await.unwrap();
        assert_eq!((rules.len(), interrupted), (0, false));
        let whole = requests.rules_whole(Family::V4).await.unwrap();
        assert!(!whole.is_empty(), "the socket is as good as before");
    }
}
