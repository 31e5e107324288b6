//! What the kernel says, cut into its messages. Pure.
//!
//! What is in a message is read by those whom it concerns: a name in one of them that is no text, or something of a newer
//! kernel, keeps nobody from the others.

use std::{io, num::NonZeroI32};

use netlink_packet_core::{
    NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer,
};

/// The bytes are not messages, so that it is not known what they say.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unreadable(String);

pub(super) struct NetlinkReply<'a> {
    /// Of the request.
    pub sequence: u32,
    /// Of the socket that asked.
    pub port: u32,
    /// The list changed while it was given.
    pub interrupted: bool,
    pub said: Said<'a>,
}

#[derive(Debug)]
pub(super) enum Said<'a> {
    /// Its kind, `RTM_*` of `linux/rtnetlink.h`, and what follows the common header.
    Message(u16, &'a [u8]),
    /// The end of a list, or why it is none.
    Done(Option<io::Error>),
    /// A request was done, or why not.
    Answered(Option<io::Error>),
    /// More was said than there was room for.
    Overrun,
    Nothing,
}

/// Ends with the first that is no message: where the next begins is not known then.
pub(super) fn answers(
    mut bytes: &[u8],
) -> impl Iterator<Item = Result<NetlinkReply<'_>, Unreadable>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let message = match NetlinkBuffer::new_checked(bytes) {
            Ok(message) => message,
            Err(error) => {
                bytes = &[];
                return Some(Err(Unreadable(error.to_string())));
            }
        };
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        let next = length.checked_next_multiple_of(4).unwrap_or(usize::MAX);
        bytes = bytes.get(next..).unwrap_or_default();
        Some(read(&message))
    })
}

fn read<'a>(message: &NetlinkBuffer<&'a [u8]>) -> Result<NetlinkReply<'a>, Unreadable> {
    let body = message.payload();
    let said = match message.message_type() {
        NLMSG_NOOP => Said::Nothing,
        NLMSG_OVERRUN => Said::Overrun,
        // Old kernels say nothing at the end of a list that is whole.
        NLMSG_DONE if body.is_empty() => Said::Done(None),
        NLMSG_DONE => Said::Done(refusal(body)?),
        NLMSG_ERROR => Said::Answered(refusal(body)?),
        kind => Said::Message(kind, body),
    };
    Ok(NetlinkReply {
        sequence: message.sequence_number(),
        port: message.port_number(),
        interrupted: message.flags() & NLM_F_DUMP_INTR != 0,
        said,
    })
}

/// The kernel's codes are negative; 0 is none.
fn refusal(body: &[u8]) -> Result<Option<io::Error>, Unreadable> {
    let Some(code) = body.first_chunk() else {
        return Err(Unreadable("an answer without a code".to_owned()));
    };
    let code = NonZeroI32::new(i32::from_ne_bytes(*code));
    Ok(code.map(|code| io::Error::from_raw_os_error(code.get().saturating_abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            Ok(answer) => format!("{:?}", answer.said),
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
            message(NLMSG_ERROR, 0, &[0; 4]),
        ]
        .concat();
        let expected = [
            "Message(32, [255, 255, 255, 255, 255])",
            "Message(16, [120])",
            "Done(None)",
            "Done(Some(Os { code: 95, kind: Unsupported, message: \"Operation not supported\" }))",
            "Answered(None)",
        ];
        assert_eq!(told(&bytes), expected);
        let flags = answers(&bytes).map(|one| one.unwrap().interrupted);
        assert!(flags.eq([false, true, false, false, false]));
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
