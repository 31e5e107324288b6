//! Listings of this host's links and routes by rtnetlink, each over a connection of its own that ends with it.
//!
//! A listing that broke off, was refused or changed meanwhile is never read as a short one: it ends with the kernel's code,
//! and each message says whether the list changed. rtnetlink leaves out what it cannot read: a link whose name or alias is no
//! UTF-8 is not seen.

use std::{io, ops::ControlFlow, pin::pin};

use futures::StreamExt as _;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;

use super::socket::{DEADLINE, NetlinkError, list_end};

/// Messages of one listing. The kernel cannot have more VRFs than it has tables in use, which is far below.
const MOST: usize = 1 << 16;

/// Whether the list changed while the kernel gave it.
pub(super) type Interrupted = bool;

/// Lists all that is like this until `read` breaks; what the kernel sent beyond that, some megabytes at most, is dropped.
pub(super) async fn list(
    like: RouteNetlinkMessage,
    read: impl FnMut(RouteNetlinkMessage) -> ControlFlow<()>,
) -> Result<Interrupted, NetlinkError> {
    let listed = tokio::time::timeout(DEADLINE, within(like, read)).await;
    listed.map_err(|_| NetlinkError::Late)?
}

async fn within(
    like: RouteNetlinkMessage,
    mut read: impl FnMut(RouteNetlinkMessage) -> ControlFlow<()>,
) -> Result<Interrupted, NetlinkError> {
    let (mut connection, mut handle, _) = rtnetlink::new_connection_with_strict_check()?;
    connection.set_forward_done(true);
    let mut request = NetlinkMessage::from(like);
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut answers = pin!(handle.request(request).map_err(io::Error::other)?);
    let mut interrupted = false;
    for _ in 0..=MOST {
        let answer = tokio::select! {
            biased;
            answer = answers.next() => answer,
            () = &mut connection => None,
        };
        let Some(answer) = answer else {
            return Err(NetlinkError::List(io::ErrorKind::UnexpectedEof.into()));
        };
        interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
        if let NetlinkPayload::InnerMessage(message) = answer.payload {
            if read(message).is_break() {
                return Ok(interrupted);
            }
        } else {
            return list_end(&answer.payload).map(|()| interrupted);
        }
    }
    let text = format!("there are more than {MOST}");
    Err(NetlinkError::List(io::Error::other(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::{
        link::LinkMessage,
        route::{RouteAttribute, RouteMessage},
    };

    #[tokio::test]
    async fn conformance_25_a_refused_listing_is_an_error_and_never_an_empty_list() {
        let mut like = RouteMessage::default();
        like.attributes.push(RouteAttribute::Priority(1));
        let like = RouteNetlinkMessage::GetRoute(like);
        let listed = list(like, |_| ControlFlow::Continue(())).await;
        let Err(NetlinkError::List(error)) = listed else {
            panic!("a strict kernel refuses a filter: {listed:?}")
        };
        assert_eq!(error.raw_os_error(), Some(nix::libc::EINVAL));
    }

    #[tokio::test]
    async fn a_listing_ends_with_its_last_message_or_where_its_reader_has_enough() {
        let links = || RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut all = 0;
        let count = |_| {
            all += 1;
            ControlFlow::Continue(())
        };
        list(links(), count).await.unwrap();
        assert!(all > 0, "there is a loopback");
        let mut first = 0;
        let one = |_| {
            first += 1;
            ControlFlow::Break(())
        };
        list(links(), one).await.unwrap();
        assert_eq!(first, 1);
    }
}
