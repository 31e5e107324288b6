//! Policy rules by hand-written netlink messages, which are the floor that the engine is measured against, and read by
//! rtnetlink, which is a second opinion on what the kernel has. Shares no code with the engine.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's messages are enums of dozens, and grow"
)]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt as _;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion};
use tokio::task::JoinHandle;

use crate::namespace::unshare;

/// `RTM_*` of `linux/rtnetlink.h`.
const NEW_RULE: u16 = 32;
const DELETE_RULE: u16 = 33;
const GET_RULE: u16 = 34;
/// `NLM_F_*` of `linux/netlink.h`.
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `FRA_*` of `linux/fib_rules.h`.
const SOURCE: u16 = 2;
const INPUT: u16 = 3;
const PRIORITY: u16 = 6;
const MARK: u16 = 10;
const TABLE: u16 = 15;
const PROTOCOL: u16 = 21;
/// `FR_ACT_TO_TBL` and `FR_ACT_UNREACHABLE`.
const TO_TABLE: u8 = 1;
const UNREACHABLE: u8 = 7;
const HEADER: usize = 16;
const BUFFER: usize = 64 << 10;
/// Answers of the kernel that are not read yet.
const ROOM: usize = 4 << 20;
/// Requests in one call.
const BATCH: usize = 256;

/// A rule of a host, or all of a family: what tests and benches need.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawRule {
    pub priority: u32,
    /// `None`: every source of IPv4.
    pub source: Option<IpAddr>,
    /// `None`: unreachable.
    pub table: Option<u32>,
    /// 0: without a tag.
    pub protocol: u8,
    pub mark: Option<u32>,
    /// The name of an interface.
    pub input: Option<String>,
}

impl RawRule {
    /// `from SOURCE lookup TABLE priority PRIORITY protocol PROTOCOL`
    pub fn new(source: IpAddr, table: u32, priority: u32, protocol: u8) -> Self {
        Self {
            priority,
            source: Some(source),
            table: Some(table),
            protocol,
            mark: None,
            input: None,
        }
    }

    /// `struct fib_rule_hdr` and what follows.
    fn payload(&self) -> Vec<u8> {
        let length = match self.source {
            None => 0,
            Some(IpAddr::V4(_)) => 32,
            Some(IpAddr::V6(_)) => 128,
        };
        let action = match self.table {
            Some(_) => TO_TABLE,
            None => UNREACHABLE,
        };
        let family = family(matches!(self.source, Some(IpAddr::V6(_))));
        let mut bytes = vec![family, 0, length, 0, 0, 0, 0, action, 0, 0, 0, 0];
        attribute(&mut bytes, PRIORITY, &self.priority.to_ne_bytes());
        match self.source {
            None => {}
            Some(IpAddr::V4(source)) => attribute(&mut bytes, SOURCE, &source.octets()),
            Some(IpAddr::V6(source)) => attribute(&mut bytes, SOURCE, &source.octets()),
        }
        if let Some(table) = self.table {
            attribute(&mut bytes, TABLE, &table.to_ne_bytes());
        }
        if self.protocol != 0 {
            attribute(&mut bytes, PROTOCOL, &[self.protocol]);
        }
        if let Some(mark) = self.mark {
            attribute(&mut bytes, MARK, &mark.to_ne_bytes());
        }
        if let Some(input) = &self.input {
            let name = [input.as_bytes(), &[0]].concat();
            attribute(&mut bytes, INPUT, &name);
        }
        bytes
    }
}

/// A rule as rtnetlink reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told(RuleMessage);

impl Told {
    /// The tag; 0 where it has none.
    pub fn protocol(&self) -> u8 {
        let protocol = self.find(|attribute| match attribute {
            RuleAttribute::Protocol(protocol) => Some(u8::from(*protocol)),
            _ => None,
        });
        protocol.unwrap_or(0)
    }

    /// What of it a [`RawRule`] can say.
    pub fn rule(&self) -> RawRule {
        RawRule {
            priority: self
                .find(|attribute| match attribute {
                    RuleAttribute::Priority(priority) => Some(*priority),
                    _ => None,
                })
                .unwrap_or(0),
            source: self.find(|attribute| match attribute {
                RuleAttribute::Source(source) => Some(*source),
                _ => None,
            }),
            table: self.find(|attribute| match attribute {
                RuleAttribute::Table(table) if self.0.header.action == RuleAction::ToTable => {
                    Some(*table)
                }
                _ => None,
            }),
            protocol: self.protocol(),
            mark: self.find(|attribute| match attribute {
                RuleAttribute::FwMark(mark) => Some(*mark),
                _ => None,
            }),
            input: self.find(|attribute| match attribute {
                RuleAttribute::Iifname(name) => Some(name.clone()),
                _ => None,
            }),
        }
    }

    fn find<T>(&self, read: impl Fn(&RuleAttribute) -> Option<T>) -> Option<T> {
        self.0.attributes.iter().find_map(read)
    }
}

/// Sockets to the routing tables of the network namespace in which they were opened; they keep that namespace alive.
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Netlink {
    /// In the namespace of this thread, which is in a runtime.
    pub fn open() -> Result<Self> {
        let kind = SockProtocol::NetlinkRoute;
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            kind,
        );
        let socket = socket.context("open a netlink socket")?;
        setsockopt(&socket, sockopt::RcvBufForce, &ROOM).context("widen a netlink socket")?;
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; BUFFER],
            handle,
            connection: tokio::spawn(connection),
        })
    }

    /// Adds these in this order, in batches. The kernel walks all rules that come before the place of the new one.
    pub fn add(&mut self, rules: &[RawRule]) -> Result<()> {
        self.all(NEW_RULE, CREATE, rules)
    }

    /// Deletes the first rule that is like each of these.
    pub fn delete(&mut self, rules: &[RawRule]) -> Result<()> {
        self.all(DELETE_RULE, 0, rules)
    }

    /// Deletes a rule as it was told. `false`: there is none.
    pub async fn delete_told(&self, rule: &Told) -> Result<bool> {
        match self.handle.rule().del(rule.0.clone()).execute().await {
            Ok(()) => Ok(true),
            Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -libc::ENOENT => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// All rules of both families, in the kernel's order.
    pub async fn dump(&self) -> Result<Vec<Told>> {
        let mut all = Vec::new();
        for family in [IpVersion::V4, IpVersion::V6] {
            let rules = self.handle.rule().get(family).execute();
            all.extend(rules.map_ok(Told).try_collect::<Vec<_>>().await?);
        }
        Ok(all)
    }

    /// Reads all rules of both families, and nothing of what is in them.
    pub fn skim(&mut self) -> Result<()> {
        for v6 in [false, true] {
            let like = vec![family(v6), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            self.send(GET_RULE, DUMP, &[like])?;
            while self.receive(|kind, _, _| match kind {
                NEW_RULE => Ok(true),
                DONE => Ok(false),
                _ => Err(io::Error::other("an answer that is none to a listing")),
            })? {}
        }
        Ok(())
    }

    fn all(&mut self, kind: u16, flags: u16, rules: &[RawRule]) -> Result<()> {
        for part in rules.chunks(BATCH) {
            let payloads = part.iter().map(RawRule::payload).collect::<Vec<_>>();
            self.send(kind, flags, &payloads)?;
            self.acknowledged()
                .with_context(|| format!("one of {} rules", rules.len()))?;
        }
        Ok(())
    }

    /// Until the last of a batch is answered; the first refusal is the error.
    fn acknowledged(&mut self) -> io::Result<()> {
        let last = self.sequence;
        let mut refused = None;
        while self.receive(|kind, sequence, payload| {
            let code = payload.first_chunk().map(|code| i32::from_ne_bytes(*code));
            let code = code.filter(|_| kind == ERROR).unwrap_or(-libc::EPROTO);
            if code != 0 && refused.is_none() {
                refused = Some(io::Error::from_raw_os_error(-code));
            }
            Ok(sequence != last)
        })? {}
        refused.map_or(Ok(()), Err)
    }

    fn send(&mut self, kind: u16, flags: u16, payloads: &[Vec<u8>]) -> Result<()> {
        let mut bytes = Vec::with_capacity(payloads.len() * 72);
        for (index, payload) in payloads.iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            let last = index + 1 == payloads.len();
            let ack = if last && flags & DUMP == 0 { ACK } else { 0 };
            let length = u32::try_from(HEADER + payload.len())?;
            bytes.extend(length.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend((REQUEST | ack | flags).to_ne_bytes());
            bytes.extend(self.sequence.to_ne_bytes());
            bytes.extend(0_u32.to_ne_bytes());
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let sent = send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty())?;
        ensure!(sent == bytes.len(), "the kernel took {sent} bytes only");
        Ok(())
    }

    /// The messages of one piece. `false` once `each` said that it was the last.
    fn receive(
        &mut self,
        mut each: impl FnMut(u16, u32, &[u8]) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let length = recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
        let mut rest = self.buffer.get(..length).unwrap_or_default();
        while let Some((length, kind, sequence)) = header(rest) {
            let payload = rest.get(HEADER..length).unwrap_or_default();
            if !each(kind, sequence, payload)? {
                return Ok(false);
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(true)
    }
}

fn header(bytes: &[u8]) -> Option<(usize, u16, u32)> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?);
    let length = usize::try_from(length).ok()?.max(HEADER);
    let sequence = u32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
    Some((length, half(bytes, 4)?, sequence))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn family(v6: bool) -> u8 {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    u8::try_from(family).unwrap_or_default()
}

fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or_default();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A socket into a network namespace of its own in which nothing else is.
pub fn elsewhere() -> Result<Netlink> {
    let runtime = tokio::runtime::Handle::current();
    let opened = std::thread::spawn(move || {
        let _runtime = runtime.enter();
        unshare()?;
        Netlink::open()
    });
    opened
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rules_come_back_as_they_were_said() {
        let mut kernel = elsewhere().unwrap();
        let boot = kernel.dump().await.unwrap();
        assert_eq!(boot.len(), 5, "{boot:?}");
        let v6 = RawRule::new("2001:db8::1".parse().unwrap(), u32::MAX, 10_000, 200);
        let v4 = RawRule {
            mark: Some(7),
            input: Some("lo".into()),
            ..RawRule::new("10.0.0.1".parse().unwrap(), 100, 9_000, 0)
        };
        let closed = RawRule {
            table: None,
            source: None,
            ..v4.clone()
        };
        let all = [v4, closed, v6];
        kernel.add(&all).unwrap();
        let told = kernel.dump().await.unwrap();
        let told = told.iter().filter(|one| !boot.contains(one));
        let back = told.map(Told::rule).collect::<Vec<_>>();
        assert_eq!(back, all);
        kernel.delete(&all[..1]).unwrap();
        assert!(kernel.delete(&all[..1]).is_err(), "it is gone");
        let told = kernel.dump().await.unwrap();
        let tagged = told.iter().find(|told| told.protocol() == 200).unwrap();
        assert!(kernel.delete_told(tagged).await.unwrap());
        assert!(!kernel.delete_told(tagged).await.unwrap());
    }
}
