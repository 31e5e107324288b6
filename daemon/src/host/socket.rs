//! The sockets to the kernel's routing tables: one that asks, and one that hears of changes.
//!
//! They are two so that a listing can be trusted. The kernel gives a list in pieces and finds its place again by counting, so
//! that a rule that comes or goes meanwhile makes another one be told twice or not at all. It queues the news of a change
//! when it makes it: if none is queued by the end of a listing, there was none.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's messages are enums of dozens, and grow"
)]

use std::{io, num::NonZeroI32, time::Duration};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAttribute, RouteMessage},
    rule::RuleMessage,
};
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols};

use fipd_core::{
    Family,
    host::{KernelRule, Rule},
};

use super::message;

/// The kernel answers at once; a list of a hundred thousand rules takes it 100 ms.
const DEADLINE: Duration = Duration::from_secs(5);
/// Above what the kernel puts into one piece of a list.
const BUFFER: usize = 64 << 10;
/// Room for some ten thousand changes that are not read yet.
const NEWS_ROOM: usize = 8 << 20;
/// Room for the refusals of a whole batch.
const ANSWER_ROOM: usize = 1 << 20;
/// Requests in one call of the kernel; it lets others at its tables between.
const BATCH: usize = 256;
/// Pieces of news that are read before something else has its turn.
const NEWS: usize = 256;
/// `RTNLGRP_*` of `linux/rtnetlink.h`: links, rules of IPv4, rules of IPv6.
const GROUPS: [u32; 3] = [1, 8, 19];
/// `NLM_F_DUMP_INTR` of `linux/netlink.h`: the list changed while it was given.
const INTERRUPTED: u16 = 0x10;

/// What the kernel did not do.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("the kernel did not answer within {} s", DEADLINE.as_secs())]
    Late,
    /// Never an empty list.
    #[error("the kernel refused to list: {0}")]
    List(io::Error),
    #[error("the kernel's answer cannot be read: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A list, and whether the kernel itself says that it changed meanwhile.
pub(super) struct Listed {
    pub messages: Vec<RouteNetlinkMessage>,
    pub interrupted: bool,
}

/// The socket that asks. After trouble it may have answers to come, and a new one is to be opened.
pub(super) struct Requests {
    socket: TokioSocket,
    port: u32,
    sequence: u32,
    buffer: Vec<u8>,
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
        })
    }

    /// All that is like this.
    pub async fn list(&mut self, like: RouteNetlinkMessage) -> Result<Listed, Trouble> {
        let sequence = self.send(vec![like], NLM_F_DUMP).await?;
        let listing = async {
            let mut listed = Listed {
                messages: Vec::new(),
                interrupted: false,
            };
            loop {
                for answer in self.answers(sequence).await? {
                    listed.interrupted |= answer.header.flags & INTERRUPTED != 0;
                    match answer.payload {
                        NetlinkPayload::InnerMessage(message) => listed.messages.push(message),
                        NetlinkPayload::Done(done) => {
                            return match NonZeroI32::new(done.code) {
                                None => Ok(listed),
                                Some(code) => Err(Trouble::List(refusal(code))),
                            };
                        }
                        NetlinkPayload::Error(error) => {
                            let code = error.code.map(refusal);
                            return Err(Trouble::List(code.unwrap_or_else(unexpected)));
                        }
                        _ => return Err(Trouble::List(unexpected())),
                    }
                }
            }
        };
        let listed = tokio::time::timeout(DEADLINE, listing).await;
        listed.map_err(|_| Trouble::Late)?
    }

    /// The rules of a family, in the kernel's order. A kernel without this family has none.
    pub async fn rules(&mut self, family: Family) -> Result<(Vec<KernelRule>, bool), Trouble> {
        let mut like = RuleMessage::default();
        like.header.family = message::family_number(family);
        let listed = match self.list(RouteNetlinkMessage::GetRule(like)).await {
            Err(Trouble::List(error)) if error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => {
                return Ok((Vec::new(), false));
            }
            listed => listed?,
        };
        let rules = listed.messages.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRule(rule) => message::read(rule),
            _ => None,
        });
        Ok((rules.collect(), listed.interrupted))
    }

    /// The rules of a family with what they are deleted by.
    pub async fn rules_whole(
        &mut self,
        family: Family,
    ) -> Result<Vec<(KernelRule, RuleMessage)>, Trouble> {
        let mut like = RuleMessage::default();
        like.header.family = message::family_number(family);
        let listed = self.list(RouteNetlinkMessage::GetRule(like)).await?;
        let rules = listed
            .messages
            .into_iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewRule(whole) => Some((message::read(&whole)?, whole)),
                _ => None,
            });
        Ok(rules.collect())
    }

    /// Whether a table has a route of a family. Ends the socket, since the rest of a large table is not waited for.
    pub async fn has_routes(mut self, family: Family, table: u32) -> Result<bool, Trouble> {
        let mut like = RouteMessage::default();
        like.header.address_family = message::family_number(family);
        like.attributes.push(RouteAttribute::Table(table));
        let like = RouteNetlinkMessage::GetRoute(like);
        let sequence = self.send(vec![like], NLM_F_DUMP).await?;
        let first = tokio::time::timeout(DEADLINE, self.answers(sequence)).await;
        let first = first.map_err(|_| Trouble::Late)??;
        let is_route = |answer: &NetlinkMessage<RouteNetlinkMessage>| {
            matches!(
                answer.payload,
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(_))
            )
        };
        Ok(first.iter().any(is_route))
    }

    /// Adds all of these, in this order. Answers those that the kernel refused.
    pub async fn add(&mut self, rules: &[Rule]) -> Result<Vec<(usize, io::Error)>, Trouble> {
        let messages = rules.iter().map(message::write);
        let messages = messages.map(RouteNetlinkMessage::NewRule);
        // The kernel walks all rules to honour NLM_F_EXCL, and ignores NLM_F_REPLACE.
        self.batch(messages, NLM_F_CREATE).await
    }

    /// Deletes the first rule that is like each of these, in this order.
    pub async fn delete(&mut self, rules: &[Rule]) -> Result<Vec<(usize, io::Error)>, Trouble> {
        let messages = rules.iter().map(message::write);
        self.batch(messages.map(RouteNetlinkMessage::DelRule), 0)
            .await
    }

    /// Deletes the first rule that is like each of these, which may be others', in this order.
    pub async fn delete_whole(
        &mut self,
        rules: Vec<RuleMessage>,
    ) -> Result<Vec<(usize, io::Error)>, Trouble> {
        let messages = rules.into_iter().map(RouteNetlinkMessage::DelRule);
        self.batch(messages, 0).await
    }

    async fn batch(
        &mut self,
        messages: impl Iterator<Item = RouteNetlinkMessage>,
        flags: u16,
    ) -> Result<Vec<(usize, io::Error)>, Trouble> {
        let mut messages = messages.peekable();
        let mut refused = Vec::new();
        let mut done = 0;
        while messages.peek().is_some() {
            let part: Vec<_> = messages.by_ref().take(BATCH).collect();
            let count = part.len();
            let last = self.send(part, flags).await?;
            let answered = tokio::time::timeout(DEADLINE, self.refusals(last, count));
            let some = answered.await.map_err(|_| Trouble::Late)??;
            refused.extend(some.into_iter().map(|(index, error)| (done + index, error)));
            done += count;
        }
        Ok(refused)
    }

    /// The kernel has done all requests when it answers the last. The others it answers only to refuse them.
    async fn refusals(
        &mut self,
        last: u32,
        count: usize,
    ) -> Result<Vec<(usize, io::Error)>, Trouble> {
        let mut refused = Vec::new();
        loop {
            self.receive().await?;
            for answer in parse(&self.buffer)? {
                let back = last.wrapping_sub(answer.header.sequence_number);
                let index = usize::try_from(back).ok().filter(|back| *back < count);
                let Some(index) = index.map(|back| count - 1 - back) else {
                    continue;
                };
                if let NetlinkPayload::Error(error) = answer.payload {
                    refused.extend(error.code.map(|code| (index, refusal(code))));
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
    ) -> Result<u32, Trouble> {
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
        sent.map_err(|_| Trouble::Late)??;
        Ok(self.sequence)
    }

    async fn answers(
        &mut self,
        sequence: u32,
    ) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>, Trouble> {
        self.receive().await?;
        let mut answers = parse(&self.buffer)?;
        answers.retain(|answer| answer.header.sequence_number == sequence);
        Ok(answers)
    }

    async fn receive(&mut self) -> io::Result<()> {
        self.buffer.clear();
        self.socket.recv(&mut self.buffer).await
    }
}

/// What was heard since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Others changed a rule that has this protocol.
    pub tagged: bool,
    /// Others changed another rule.
    pub foreign: bool,
    pub links: bool,
    /// More than could be kept.
    pub overrun: bool,
}

impl News {
    pub fn of_rules(self) -> bool {
        self.tagged || self.foreign || self.overrun
    }

    pub fn add(&mut self, other: Self) {
        self.tagged |= other.tagged;
        self.foreign |= other.foreign;
        self.links |= other.links;
        self.overrun |= other.overrun;
    }
}

/// The socket that hears.
pub(super) struct Events {
    socket: TokioSocket,
    /// That of [`Requests`], whose own changes are no news.
    own_port: u32,
    protocol: u8,
    buffer: Vec<u8>,
}

impl Events {
    pub fn open(requests: &Requests, protocol: u8) -> io::Result<Self> {
        let mut socket = TokioSocket::new(protocols::NETLINK_ROUTE)?;
        let inner = socket.socket_mut();
        inner.bind_auto()?;
        for group in GROUPS {
            inner.add_membership(group)?;
        }
        widen(&socket, NEWS_ROOM);
        Ok(Self {
            socket,
            own_port: requests.port,
            protocol,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// Waits for some.
    pub async fn next(&mut self) -> io::Result<News> {
        self.buffer.clear();
        let mut news = match self.socket.recv(&mut self.buffer).await {
            Err(error) => self.lost(error)?,
            Ok(()) => self.read(),
        };
        news.add(self.drain()?);
        Ok(news)
    }

    /// What is there already.
    pub fn drain(&mut self) -> io::Result<News> {
        let mut news = News::default();
        for _ in 0..NEWS {
            self.buffer.clear();
            let inner = self.socket.socket_ref();
            match inner.recv(&mut self.buffer, nix::libc::MSG_DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(news),
                Err(error) => news.add(self.lost(error)?),
                Ok(_) => news.add(self.read()),
            }
        }
        // There is more: what is read now may be old by then.
        news.foreign = true;
        Ok(news)
    }

    #[allow(clippy::unused_self, reason = "beside its sibling")]
    fn lost(&self, error: io::Error) -> io::Result<News> {
        match error.raw_os_error() == Some(nix::libc::ENOBUFS) {
            true => Ok(News {
                overrun: true,
                ..News::default()
            }),
            false => Err(error),
        }
    }

    fn read(&self) -> News {
        let mut news = News::default();
        let Ok(messages) = parse(&self.buffer) else {
            // Something happened that cannot be read: it is looked at whole.
            news.foreign = true;
            return news;
        };
        for message in messages {
            let own = message.header.port_number == self.own_port;
            match message.payload {
                NetlinkPayload::InnerMessage(
                    RouteNetlinkMessage::NewRule(rule) | RouteNetlinkMessage::DelRule(rule),
                ) if !own => match message::read(&rule) {
                    Some(rule) if rule.rule.protocol == self.protocol => news.tagged = true,
                    Some(_) => news.foreign = true,
                    None => {}
                },
                NetlinkPayload::InnerMessage(
                    RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_),
                ) => news.links = true,
                NetlinkPayload::Overrun(_) => news.overrun = true,
                _ => {}
            }
        }
        news
    }
}

fn parse(mut bytes: &[u8]) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>, Trouble> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes)
            .map_err(|error| Trouble::Unreadable(error.to_string()))?;
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
        let length = length.max(1).next_multiple_of(4);
        messages.push(message);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(messages)
}

/// Beyond what the system allows everybody, where fipd may.
fn widen(socket: &TokioSocket, bytes: usize) {
    use nix::sys::socket::{setsockopt, sockopt};
    let fd = socket.socket_ref();
    if setsockopt(&fd, sockopt::RcvBufForce, &bytes).is_err()
        && let Err(error) = setsockopt(&fd, sockopt::RcvBuf, &bytes)
    {
        tracing::debug!(%error, "the room of a socket to the kernel could not be widened");
    }
}

/// The kernel's codes are negative.
fn refusal(code: NonZeroI32) -> io::Error {
    io::Error::from_raw_os_error(code.get().saturating_abs())
}

fn unexpected() -> io::Error {
    io::Error::other("an answer that is none to a listing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::rule::RuleAttribute;

    #[tokio::test]
    async fn conformance_25_a_refused_listing_is_an_error_and_never_an_empty_list() {
        let mut requests = Requests::open().unwrap();
        let mut like = RuleMessage::default();
        like.header.family = message::family_number(Family::V4);
        like.attributes.push(RuleAttribute::Priority(1));
        let listed = requests.list(RouteNetlinkMessage::GetRule(like)).await;
        let Err(Trouble::List(error)) = listed else {
            panic!("a strict kernel refuses a filter")
        };
        assert_eq!(error.raw_os_error(), Some(nix::libc::EINVAL));
        let (rules, _) = requests.rules(Family::V4).await.unwrap();
        assert!(rules.iter().any(|one| one.rule.protocol == 2), "{rules:?}");
        let requests = Requests::open().unwrap();
        let routes = requests.has_routes(Family::V4, 4_000_000_000).await;
        assert_eq!(routes.ok(), Some(false), "a table that is not there");
    }

    #[test]
    fn news_adds_up() {
        let mut news = News {
            links: true,
            ..News::default()
        };
        assert!(!news.of_rules());
        news.add(News {
            overrun: true,
            ..News::default()
        });
        assert!(news.of_rules() && news.links);
    }
}
