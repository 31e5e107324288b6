//! What the kernel says, cut into its messages. Pure.
//!
//! What is in a message is read by those whom it concerns: a name in one of them that is no text, or something of a newer
//! kernel, keeps nobody from the others.

use netlink_packet_core::{
    DecodeError, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, Parseable as _,
};
use netlink_packet_route::RouteNetlinkMessage;

/// Length of the header that all messages have, `struct nlmsghdr` of `linux/netlink.h`.
const HEADER: usize = 16;

/// One message.
pub(super) struct Reply<'a> {
    pub header: NetlinkHeader,
    pub body: ReplyBody<'a>,
}

/// What is in a message.
pub(super) enum ReplyBody<'a> {
    /// Its kind, `RTM_*` of `linux/rtnetlink.h`, and what follows the header: a list of many is not copied.
    Message(u16, &'a [u8]),
    /// Netlink's own.
    Control(NetlinkPayload<RouteNetlinkMessage>),
}

/// Ends with the first that is no message: where the next begins is not known then.
pub(super) fn answers(mut bytes: &[u8]) -> impl Iterator<Item = Result<Reply<'_>, DecodeError>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut bytes);
        let message = match NetlinkBuffer::new_checked(&rest) {
            Ok(message) => message,
            Err(error) => return Some(Err(error)),
        };
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        let next = length.checked_next_multiple_of(4).unwrap_or(usize::MAX);
        bytes = rest.get(next..).unwrap_or_default();
        let body = rest.get(HEADER..length).unwrap_or_default();
        Some(read(&message, body))
    })
}

fn read<'a>(message: &NetlinkBuffer<&&[u8]>, body: &'a [u8]) -> Result<Reply<'a>, DecodeError> {
    let header = NetlinkHeader::parse(message)?;
    let body = match header.message_type {
        NLMSG_NOOP | NLMSG_ERROR | NLMSG_DONE | NLMSG_OVERRUN => {
            ReplyBody::Control(NetlinkMessage::parse(message)?.payload)
        }
        kind => ReplyBody::Message(kind, body),
    };
    Ok(Reply { header, body })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLM_F_DUMP_INTR;

    use super::*;
    use crate::host::socket::list_end;

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(9_u32.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn told(bytes: &[u8]) -> Vec<String> {
        let told = answers(bytes).map(|answer| match answer.map(|answer| answer.body) {
            Ok(ReplyBody::Message(kind, body)) => format!("{kind} {body:?}"),
            Ok(ReplyBody::Control(control)) => match list_end(&control) {
                Ok(()) => "the end".to_owned(),
                Err(trouble) => trouble.to_string(),
            },
            Err(error) => error.to_string(),
        });
        told.collect()
    }

    #[test]
    fn whatever_is_in_a_message_the_others_are_read() {
        let bytes = [
            message(32, 0, &[0xff; 5]),
            message(16, NLM_F_DUMP_INTR, b"x"),
            message(NLMSG_DONE, 0, &[]),
            message(NLMSG_DONE, 0, &(-95_i32).to_ne_bytes()),
            message(NLMSG_ERROR, 0, &(-1_i32).to_ne_bytes()),
            message(NLMSG_ERROR, 0, &[0; 4]),
        ]
        .concat();
        let expected = [
            "32 [255, 255, 255, 255, 255]",
            "16 [120]",
            "the end",
            "the kernel refused to list: Operation not supported (os error 95)",
            "the kernel refused to list: Operation not permitted (os error 1)",
            "the kernel refused to list: an answer that is none to a listing",
        ];
        assert_eq!(told(&bytes), expected);
        let flags = answers(&bytes).map(|one| one.unwrap().header.flags);
        assert!(flags.eq([0, NLM_F_DUMP_INTR, 0, 0, 0, 0]));
    }

    #[test]
    fn bytes_that_are_no_messages_are_an_error_and_end_it() {
        let whole = message(32, 0, &[1, 2, 3, 4]);
        let short = [whole.as_slice(), &whole[..18]].concat();
        let told = told(&short);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[1].contains("length"), "{told:?}");
        let no_code = message(NLMSG_ERROR, 0, &[]);
        assert!(answers(&no_code).all(|answer| answer.is_err()));
    }
}
