//! Looking for entries of the audit log, newest first and a bounded number of rows at a time.

use fipd_core::{Action, AuditEntry, Family, Identity, NetworkId, PoolId, Span, Text, Timestamp};
use redb::ReadableTable;

use super::{
    envelope::RowFormat,
    error::ReadError,
    reader::{StoreReader, audit_entry},
};

/// Which entries are wanted; empty fields match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Part of who asked.
    pub actor: Option<Text>,
    pub action: Option<Action>,
    pub network: Option<NetworkId>,
    /// About an address of these, or a prefix that has any of them.
    pub touches: Option<Span>,
    pub pool: Option<PoolId>,
    pub owner: Option<Identity>,
    /// Not before.
    pub from: Option<Timestamp>,
    /// Not after.
    pub to: Option<Timestamp>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditFound {
    /// With their numbers, newest first.
    pub entries: Vec<(u64, AuditEntry)>,
    /// Ask again below this number; `None` at the end. There may be more after an empty answer.
    pub next: Option<u64>,
}

impl AuditFilter {
    /// Whether the row has octets anywhere that an address of the span has, or a prefix around its first: cheaper than reading it.
    fn may_match(&self, row: &[u8]) -> bool {
        let Some(span) = self.touches else {
            return true;
        };
        let begins_around = |first: u128| {
            let host_bits = first.trailing_zeros();
            first.checked_shr(host_bits) == span.first.checked_shr(host_bits)
        };
        let octets = usize::from(Family::bits(span.family) / 8);
        row.windows(octets).any(|octets| {
            let first = octets
                .iter()
                .fold(0, |sum, octet| sum << 8 | u128::from(*octet));
            (span.first..=span.last).contains(&first) || begins_around(first)
        })
    }

    /// Whether the entry is wanted.
    pub fn matches(&self, entry: &AuditEntry) -> bool {
        let actor = |part: &Text| entry.actor.contains(&**part);
        let touches = |span: Span| entry.span().is_some_and(|one| one.overlaps(&span));
        self.touches.is_none_or(touches)
            && (self.network.is_none() || self.network == entry.network)
            && (self.pool.is_none() || self.pool == entry.pool)
            && self.action.is_none_or(|action| entry.action == action)
            && (self.owner.is_none() || self.owner == entry.identity)
            && self.actor.as_ref().is_none_or(actor)
            && self.from.is_none_or(|from| entry.at >= from)
            && self.to.is_none_or(|to| entry.at <= to)
    }
}

impl StoreReader {
    /// Wanted entries below number `before`, at most `limit`, from at most `rows` rows. Blocks on the disk.
    ///
    /// # Errors
    /// While the store is being reopened, and when an entry cannot be read.
    pub fn audit_search(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        limit: usize,
        rows: usize,
    ) -> Result<AuditFound, ReadError> {
        let (table, format) = self.audit()?;
        let mut end = before.unwrap_or(u64::MAX);
        if let Some(to) = filter.to {
            end = end.min(first_after((&table, format), to, end)?);
        }
        let start = match filter.from.map(|from| from.0.checked_sub(1)) {
            Some(Some(before)) => first_after((&table, format), Timestamp(before), end)?,
            Some(None) | None => 0,
        };
        let mut found = AuditFound::default();
        let all = start.min(end).to_be_bytes()..end.to_be_bytes();
        let newest = table.range::<[u8; 8]>(all)?.rev();
        for (seen, item) in newest.enumerate() {
            let (key, value) = item?;
            let number = u64::from_be_bytes(key.value());
            if seen == rows || found.entries.len() == limit {
                found.next = Some(number.saturating_add(1));
                break;
            }
            if !filter.may_match(value.value()) {
                continue;
            }
            let entry = audit_entry(number, value.value(), format)?;
            if filter.matches(&entry) {
                found.entries.push((number, entry));
            }
        }
        Ok(found)
    }
}

impl StoreReader {
    /// Wanted entries above number `after`, oldest first, at most `limit`, from at most `rows` rows. `next` is the number
    /// that the next search begins behind. Blocks on the disk.
    ///
    /// # Errors
    /// As [`Self::audit_search`].
    pub fn audit_search_up(
        &self,
        filter: &AuditFilter,
        after: Option<u64>,
        limit: usize,
        rows: usize,
    ) -> Result<AuditFound, ReadError> {
        let (table, format) = self.audit()?;
        let mut start = after.map_or(0, |after| after.saturating_add(1));
        if let Some(before) = filter.from.and_then(|from| from.0.checked_sub(1)) {
            start = start.max(first_after((&table, format), Timestamp(before), u64::MAX)?);
        }
        let mut found = AuditFound::default();
        for (seen, item) in table.range::<[u8; 8]>(start.to_be_bytes()..)?.enumerate() {
            let (key, value) = item?;
            let number = u64::from_be_bytes(key.value());
            if seen == rows || found.entries.len() == limit {
                found.next = number.checked_sub(1);
                break;
            }
            // Numbers and times grow together: nothing later is wanted.
            let entry = audit_entry(number, value.value(), format)?;
            if filter.to.is_some_and(|to| entry.at > to) {
                break;
            }
            if filter.matches(&entry) {
                found.entries.push((number, entry));
            }
        }
        Ok(found)
    }
}

/// The number of the first entry later than `at`, or `end`: halving, since numbers and times grow together.
pub(super) fn first_after(
    (table, format): (&impl ReadableTable<[u8; 8], &'static [u8]>, RowFormat),
    at: Timestamp,
    end: u64,
) -> Result<u64, ReadError> {
    let first = table.first()?;
    let mut low = first.map_or(end, |(key, _)| u64::from_be_bytes(key.value()));
    let last = table.last()?;
    let last = last.map_or(0, |(key, _)| u64::from_be_bytes(key.value()));
    let mut high = end.min(last.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        let next = table.range::<[u8; 8]>(middle.to_be_bytes()..)?.next();
        let Some(item) = next else {
            high = middle;
            continue;
        };
        let (key, value) = item?;
        let number = u64::from_be_bytes(key.value());
        if audit_entry(number, value.value(), format)?.at > at {
            high = middle;
        } else {
            low = number.saturating_add(1);
        }
    }
    Ok(low)
}
