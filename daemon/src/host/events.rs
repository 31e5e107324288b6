//! The socket that hears of changes of rules and links.

use std::io;

use netlink_packet_core::NetlinkPayload;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, TokioSocket, protocols};
use nix::libc::{RTM_DELLINK, RTM_DELRULE, RTM_NEWLINK, RTM_NEWRULE};

use super::{
    message,
    socket::{BUFFER, Requests, widen},
};
use crate::host::netlink_reply::{ReplyBody, answers};

/// Room for some ten thousand changes that are not read yet.
const NEWS_ROOM: usize = 8 << 20;
/// Pieces of news that are read before something else has its turn.
const NEWS: usize = 256;
/// `RTNLGRP_*` of `linux/rtnetlink.h`: links, rules of IPv4, rules of IPv6.
const GROUPS: [u32; 3] = [1, 8, 19];

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
pub(super) struct RuleEvents {
    socket: TokioSocket,
    /// That of [`Requests`], whose own changes are no news.
    own_port: u32,
    protocol: u8,
    buffer: Vec<u8>,
}

impl RuleEvents {
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
            own_port: requests.port(),
            protocol,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// Waits for some.
    pub async fn next(&mut self) -> io::Result<News> {
        self.buffer.clear();
        let mut news = match self.socket.recv(&mut self.buffer).await {
            Err(error) => lost(error)?,
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
                Err(error) => news.add(lost(error)?),
                Ok(_) => news.add(self.read()),
            }
        }
        // There is more: what is read now may be old by then.
        news.foreign = true;
        Ok(news)
    }

    fn read(&self) -> News {
        let mut news = News::default();
        for answer in answers(&self.buffer) {
            let Ok(answer) = answer else {
                // Something happened that cannot be read: it is looked at whole.
                news.foreign = true;
                continue;
            };
            let own = answer.header.port_number == self.own_port;
            match answer.body {
                ReplyBody::Message(kind, body) => match kind {
                    RTM_NEWRULE | RTM_DELRULE if !own => match message::read(body) {
                        Some(rule) if rule.rule.protocol == self.protocol => news.tagged = true,
                        Some(_) => news.foreign = true,
                        None => {}
                    },
                    RTM_NEWLINK | RTM_DELLINK => news.links = true,
                    _ => {}
                },
                ReplyBody::Control(NetlinkPayload::Overrun(_)) => news.overrun = true,
                ReplyBody::Control(_) => {}
            }
        }
        news
    }
}

fn lost(error: io::Error) -> io::Result<News> {
    match error.raw_os_error() == Some(nix::libc::ENOBUFS) {
        true => Ok(News {
            overrun: true,
            ..News::default()
        }),
        false => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
