//! What each row has around it since schema 2, and where all rows are made and taken apart.
//!
//! ```text
//!  06 | CRC-32, little-endian | tagged fields, one byte where there are none | the row of super::rows
//! ```
//!
//! The checksum covers the table's name, the key and all that follows it: a flipped bit in a key, or a value under
//! another key, is found even where the pages match. Rows of earlier versions are a version byte and the row; a store
//! has them only until its rewrite is finished (see [`super::rewrite`]).

use redb::{Key, Table};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    codec::{DecodeError, EncodeError},
    error::ReadError,
    rows::{KNOWN_TAGS, V6},
};

/// Version byte and checksum.
const HEAD: usize = 5;

/// Which versions the rows of a store may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowFormat {
    /// Any: the store was of schema 1, and its rewrite is not finished.
    Mixed,
    /// Only the latest; any other is damage.
    Latest,
}

/// Fields that came after their row, by number, ascending; none takes no memory. See [`super::rows`] for how to add one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tags(Vec<(u16, Vec<u8>)>);

impl Tags {
    /// The field with this number; `None` where the row has none.
    ///
    /// # Errors
    /// When its bytes are no `T`.
    pub(super) fn get<T: DeserializeOwned>(&self, tag: u16) -> Result<Option<T>, DecodeError> {
        let field = self.0.iter().find(|(number, _)| *number == tag);
        field.map(|(_, bytes)| whole(bytes)).transpose()
    }

    /// Sets a field.
    ///
    /// # Errors
    /// No value of the core gives one.
    pub(super) fn set<T: Serialize>(&mut self, tag: u16, value: &T) -> Result<(), EncodeError> {
        let bytes = postcard::to_extend(value, Vec::new())?;
        self.put(tag, bytes);
        Ok(())
    }

    fn put(&mut self, tag: u16, bytes: Vec<u8>) {
        match self.0.binary_search_by_key(&tag, |(number, _)| *number) {
            Ok(at) => {
                if let Some(field) = self.0.get_mut(at) {
                    field.1 = bytes;
                }
            }
            Err(at) => self.0.insert(at, (tag, bytes)),
        }
    }
}

/// A row whose checksum holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredRow<'a> {
    pub version: u8,
    pub tags: Tags,
    /// Of the whole value.
    pub bytes: usize,
    body: &'a [u8],
}

impl<'a> StoredRow<'a> {
    /// The row that lies under `key` of `table`.
    ///
    /// # Errors
    /// When the checksum does not hold, or the version is one that `format` does not allow.
    pub(super) fn open(
        table: &str,
        key: &[u8],
        value: &'a [u8],
        format: RowFormat,
    ) -> Result<Self, DecodeError> {
        let (&version, rest) = value.split_first().ok_or(DecodeError::Empty)?;
        let bytes = value.len();
        if version != V6 {
            return match format {
                RowFormat::Mixed => Ok(Self {
                    version,
                    tags: Tags::default(),
                    bytes,
                    body: rest,
                }),
                RowFormat::Latest => Err(DecodeError::Superseded { found: version }),
            };
        }
        let (sum, rest) = rest.split_first_chunk().ok_or(DecodeError::Checksum)?;
        if u32::from_le_bytes(*sum) != checksum(table, key, rest) {
            return Err(DecodeError::Checksum);
        }
        let (tags, body) = postcard::take_from_bytes(rest)?;
        Ok(Self {
            version,
            tags,
            bytes,
            body,
        })
    }

    /// The row as a `T`, to its last byte.
    pub(super) fn read<T: Deserialize<'a>>(&self) -> Result<T, DecodeError> {
        whole(self.body)
    }
}

/// A row to be written. The tags of the row that it replaces are kept where this fipd does not know them.
#[derive(Debug)]
pub(super) struct RowDraft(Vec<u8>);

impl RowDraft {
    /// A row without tagged fields.
    pub(super) fn new<T: Serialize>(row: &T) -> Result<Self, EncodeError> {
        Self::tagged(&Tags::default(), row)
    }

    pub(super) fn tagged<T: Serialize>(tags: &Tags, row: &T) -> Result<Self, EncodeError> {
        let head = vec![V6, 0, 0, 0, 0];
        let bytes = postcard::to_extend(tags, head)?;
        Ok(Self(postcard::to_extend(row, bytes)?))
    }

    /// Bytes of the value.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value to write under `key` of `table`, and nowhere else.
    pub(super) fn finish(&mut self, table: &str, key: &[u8]) -> &[u8] {
        if let Some((head, rest)) = self.0.split_at_mut_checked(HEAD)
            && let Some((_, sum)) = head.split_first_mut()
        {
            sum.copy_from_slice(&checksum(table, key, rest).to_le_bytes());
        }
        &self.0
    }

    /// Takes over what the replaced row has and this fipd does not know; says whether there was any.
    fn keep_unknown(&mut self, table: &str, key: &[u8], replaced: &[u8]) -> bool {
        if replaced.first() != Some(&V6) || replaced.get(HEAD) == Some(&0) {
            return false;
        }
        // A row that is damaged has nothing to keep.
        let Ok(old) = StoredRow::open(table, key, replaced, RowFormat::Mixed) else {
            return false;
        };
        let unknown = old.tags.0.into_iter();
        let unknown = unknown.filter(|(tag, _)| !KNOWN_TAGS.contains(&(table, *tag)));
        let unknown: Vec<_> = unknown.collect();
        let own = self.0.get(HEAD..).map(postcard::take_from_bytes::<Tags>);
        let Some(Ok((mut tags, body))) = own.filter(|_| !unknown.is_empty()) else {
            return false;
        };
        for (tag, bytes) in unknown {
            tags.put(tag, bytes);
        }
        let Ok(mut bytes) = postcard::to_extend(&tags, vec![V6, 0, 0, 0, 0]) else {
            return false;
        };
        bytes.extend_from_slice(body);
        self.0 = bytes;
        true
    }
}

/// Writes a row; the only way into a table but [`super::tables::SCHEMA`]'s.
pub(super) fn insert<K: Key + 'static>(
    table: &mut Table<'_, K, &'static [u8]>,
    name: &str,
    key: &K::SelfType<'_>,
    draft: &mut RowDraft,
) -> Result<(), ReadError> {
    let bytes = K::as_bytes(key);
    let replaced = table.insert(key, draft.finish(name, bytes.as_ref()))?;
    let changed =
        replaced.is_some_and(|replaced| draft.keep_unknown(name, bytes.as_ref(), replaced.value()));
    if changed {
        table.insert(key, draft.finish(name, bytes.as_ref()))?;
    }
    Ok(())
}

fn checksum(table: &str, key: &[u8], rest: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for part in [table.as_bytes(), key] {
        // Their lengths, so that no byte can move from one to the next.
        sum.update(&(part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    sum.update(rest);
    sum.finalize()
}

/// A value that ends where the bytes do.
fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let (value, left) = postcard::take_from_bytes(bytes)?;
    if left.is_empty() {
        Ok(value)
    } else {
        Err(DecodeError::Trailing(left.len()))
    }
}
