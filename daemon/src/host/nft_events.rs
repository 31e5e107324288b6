//! What the packet filter tells of changes: the messages of `NETLINK_NETFILTER`, and the number that each transaction raises.

use std::{collections::VecDeque, io, time::Duration};

use netlink_packet_core::{NLM_F_REQUEST, NlasIterator};
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};

use super::{
    netlink_reply::{ReplyBody, answers},
    nft::TABLE,
    socket::widen,
};

/// `NETLINK_NETFILTER` and its group `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`.
const NETFILTER: isize = 12;
const GROUP: u32 = 7;
/// For news that wait, in bytes.
const ROOM: usize = 4 << 20;
/// `nlmsghdr` and `nfgenmsg`.
const HEADERS: usize = 20;
/// `nfgenmsg`.
const FAMILY: usize = 4;
/// `NFT_MSG_GETGEN` of `NFNL_SUBSYS_NFTABLES`, `linux/netfilter/nf_tables.h`.
const GET_GENERATION: u16 = (10 << 8) | 16;
/// The kernel answers at once or not at all.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Hears of all changes.
pub(super) fn listen() -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(NETFILTER)?;
    socket.socket_mut().bind_auto()?;
    resume(&mut socket)?;
    // One change of kube-proxy may tell of some ten thousand rules.
    widen(&socket, ROOM);
    Ok(socket)
}

/// Does not hear for a while: where nobody listens, the kernel takes many sources at once three times as fast.
pub(super) fn pause(socket: &mut TokioSocket) -> io::Result<()> {
    socket.socket_mut().drop_membership(GROUP)
}

pub(super) fn resume(socket: &mut TokioSocket) -> io::Result<()> {
    socket.socket_mut().add_membership(GROUP)
}

/// How many transactions there have been, round and round; each adds one.
pub(super) async fn generation() -> io::Result<u32> {
    let mut socket = TokioSocket::new(NETFILTER)?;
    socket.socket_mut().bind_auto()?;
    let mut ask = u32::try_from(HEADERS)
        .map_err(io::Error::other)?
        .to_ne_bytes()
        .to_vec();
    ask.extend(GET_GENERATION.to_ne_bytes());
    ask.extend(NLM_F_REQUEST.to_ne_bytes());
    ask.resize(HEADERS, 0);
    socket.send_to(&ask, &SocketAddr::new(0, 0)).await?;
    let mut answer = Vec::with_capacity(1 << 10);
    tokio::time::timeout(ANSWERS_WITHIN, socket.recv(&mut answer)).await??;
    let number = answer.get(HEADERS..).and_then(first);
    let number = number.and_then(|bytes| bytes.try_into().ok());
    let number = number.ok_or_else(|| io::Error::other("no number of a generation"))?;
    Ok(u32::from_be_bytes(number))
}

/// Whether any of these is about our table, and of a process that is none of these.
pub(super) fn by_others(bytes: &[u8], runs: &VecDeque<u32>) -> bool {
    answers(bytes).flatten().any(|answer| {
        let ReplyBody::Message(_, body) = answer.body else {
            return false;
        };
        let name = body.get(FAMILY..).and_then(first);
        let name = name.unwrap_or_default();
        name.strip_suffix(&[0]).unwrap_or(&name) == TABLE.as_bytes()
            && !runs.contains(&answer.header.port_number)
    })
}

/// The value of attribute 1, which is the name of the table in all messages of `linux/netfilter/nf_tables.h` that have one, and
/// the number of a generation.
fn first(attributes: &[u8]) -> Option<Vec<u8>> {
    let mut all = NlasIterator::new(attributes).flatten();
    let first = all.find(|attribute| attribute.kind() == 1)?;
    Some(first.value().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(port: u32, table: &str) -> Vec<u8> {
        let mut name = table.as_bytes().to_vec();
        name.push(0);
        let mut attributes = vec![12, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let length = u16::try_from(4 + name.len()).unwrap();
        attributes.extend(length.to_ne_bytes());
        attributes.extend(1_u16.to_ne_bytes());
        attributes.extend(name);
        attributes.resize(attributes.len().next_multiple_of(4), 0);
        let length = u32::try_from(20 + attributes.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([0; 8]);
        bytes.extend(port.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn only_what_others_did_to_our_table_is_news() {
        let runs = VecDeque::from([7]);
        assert!(!by_others(&message(7, TABLE), &runs));
        assert!(!by_others(&message(8, "kube-proxy"), &runs));
        let both = [message(8, "kube-proxy"), message(8, TABLE)].concat();
        assert!(by_others(&both, &runs));
        assert!(!by_others(&[1, 2, 3], &runs));
    }
}
