//! Links in netlink's form.
//!
//! By hand: the netlink library reads and writes every attribute of every kind of link, which is a fifth of the plugin's binary, and
//! one it cannot read keeps it from the others.

use netlink_packet_core::{DecodeError, DefaultNla, Emitable, Nla as _, NlasIterator, Parseable};

/// Length of `struct ifinfomsg`.
const HEADER: usize = 16;

/// A message of `RTM_*LINK`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkMessage {
    pub index: u32,
    /// `IFF_*`.
    pub flags: u32,
    /// Which of the flags are meant.
    pub change: u32,
    pub attributes: Vec<DefaultNla>,
}

impl Emitable for LinkMessage {
    fn buffer_len(&self) -> usize {
        HEADER + self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        // Family and type, for the kernel to know.
        buffer[..4].fill(0);
        buffer[4..8].copy_from_slice(&self.index.to_ne_bytes());
        buffer[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        buffer[12..HEADER].copy_from_slice(&self.change.to_ne_bytes());
        self.attributes.as_slice().emit(&mut buffer[HEADER..]);
    }
}

impl Parseable<[u8]> for LinkMessage {
    fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (header, attributes) = bytes
            .split_at_checked(HEADER)
            .ok_or_else(|| DecodeError::from("a link without its header"))?;
        let word = |at: usize| {
            let word = header[at..].first_chunk();
            word.map_or(0, |word| u32::from_ne_bytes(*word))
        };
        Ok(Self {
            index: word(4),
            flags: word(8),
            change: word(12),
            attributes: split(attributes),
        })
    }
}

/// The attributes in these bytes, up to the first that is malformed.
pub(super) fn split(bytes: &[u8]) -> Vec<DefaultNla> {
    let found = NlasIterator::new(bytes).map_while(Result::ok);
    found
        .map(|one| DefaultNla::new(one.kind(), one.value().to_vec()))
        .collect()
}

/// Attributes in an attribute.
pub(super) fn nest(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    DefaultNla::new(kind, bytes)
}

/// A text with the zero that ends it.
pub(super) fn text(kind: u16, text: &str) -> DefaultNla {
    DefaultNla::new(kind, [text.as_bytes(), &[0]].concat())
}

pub(super) fn number(kind: u16, number: u32) -> DefaultNla {
    DefaultNla::new(kind, number.to_ne_bytes().to_vec())
}

pub(super) fn short(kind: u16, number: u16) -> DefaultNla {
    DefaultNla::new(kind, number.to_ne_bytes().to_vec())
}

pub(super) fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes
}

pub(super) fn read_text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// 0 where it is too short.
pub(super) fn read_number(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |word| u32::from_ne_bytes(*word))
}

/// 0 where it is too short.
pub(super) fn read_short(bytes: &[u8]) -> u16 {
    bytes
        .first_chunk()
        .map_or(0, |word| u16::from_ne_bytes(*word))
}
