//! What the kernel says, cut into its messages. Pure.
//!
//! What is in a message is read by those whom it concerns: a name in one of them that is no text, or something of a newer
//! kernel, keeps nobody from the others.

use std::convert::Infallible;

use netlink_packet_core::{
    DecodeError, NetlinkBuffer, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    Parseable as _,
};

/// What is in a message that is not netlink's own.
#[derive(Debug)]
pub(super) struct Raw {
    /// `RTM_*` of `linux/rtnetlink.h`.
    pub kind: u16,
    /// What follows the common header.
    pub body: Vec<u8>,
}

impl NetlinkDeserializable for Raw {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self {
            kind: header.message_type,
            body: payload.to_vec(),
        })
    }
}

/// Ends with the first that is no message: where the next begins is not known then.
pub(super) fn answers(
    mut bytes: &[u8],
) -> impl Iterator<Item = Result<NetlinkMessage<Raw>, DecodeError>> {
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
        Some(NetlinkMessage::parse(&message))
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NetlinkPayload};

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
        let told = answers(bytes).map(|answer| match answer {
            Ok(NetlinkMessage {
                payload: NetlinkPayload::InnerMessage(raw),
                ..
            }) => format!("{} {:?}", raw.kind, raw.body),
            Ok(answer) => match list_end(&answer.payload) {
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
