//! Rows of older versions as the latest. Each is read to its end first, so that no damage gets a checksum of its own.

use redb::TableHandle as _;
use serde::{Deserialize, Serialize};

use super::{DecodeError, account_row, lease::lease_row, only, pool::pool_row, token::token_row};
use crate::store::{
    envelope::{RowDraft, StoredRow},
    rows::{
        AdoptionV1, AuditV1, ClockV6, ClusterV1, EpochV1, KeyV1, NetworkV1, PastV1, QuotaV1,
        RollupV1, StateV1,
    },
    tables::{
        ACCOUNTS, ADOPTIONS, AUDIT, CLOCK, CLUSTERS, EPOCH, KEYS, LEASES, META, NETWORKS, PASTS,
        POOLS, QUOTAS, ROLLUPS, SEPARATIONS, STATE, TOKENS, parse_lease_key,
    },
};

/// The row under `key` of `table`, to be written in the latest version.
///
/// # Errors
/// When it cannot be read, or the table is none that older rows can be in.
pub(in crate::store) fn renewed(
    table: &str,
    key: &[u8],
    row: &StoredRow<'_>,
) -> Result<RowDraft, DecodeError> {
    let is = |name: &str| table == name;
    if is(LEASES.name()) {
        let key = key.try_into().map_err(|_| unknown("lease key", key))?;
        made(&lease_row(parse_lease_key(key)?, row)?)
    } else if is(AUDIT.name()) {
        same::<AuditV1<'_>>(row)
    } else if is(ROLLUPS.name()) {
        same::<RollupV1>(row)
    } else if is(PASTS.name()) {
        same::<PastV1<'_>>(row)
    } else if is(POOLS.name()) {
        made(&pool_row(row)?)
    } else if is(ACCOUNTS.name()) {
        made(&account_row(row)?)
    } else if is(TOKENS.name()) {
        made(&token_row(row)?)
    } else if is(NETWORKS.name()) {
        same::<NetworkV1<'_>>(row)
    } else if is(QUOTAS.name()) {
        same::<QuotaV1>(row)
    } else if is(CLUSTERS.name()) {
        same::<ClusterV1<'_>>(row)
    } else if is(ADOPTIONS.name()) {
        same::<AdoptionV1<'_>>(row)
    } else if is(SEPARATIONS.name()) {
        same::<()>(row)
    } else if is(KEYS.name()) {
        same::<KeyV1<'_>>(row)
    } else if is(META.name()) && key == STATE.as_bytes() {
        same::<StateV1>(row)
    } else if is(META.name()) && key == EPOCH.as_bytes() {
        same::<EpochV1>(row)
    } else if is(META.name()) && key == CLOCK.as_bytes() {
        same::<ClockV6>(row)
    } else {
        Err(unknown("table of an older row", key))
    }
}

fn same<'a, T: Deserialize<'a> + Serialize>(row: &StoredRow<'a>) -> Result<RowDraft, DecodeError> {
    made(&only::<T>(row)?)
}

fn made(row: &impl Serialize) -> Result<RowDraft, DecodeError> {
    Ok(RowDraft::new(row)?)
}

fn unknown(what: &'static str, key: &[u8]) -> DecodeError {
    DecodeError::value(what, format!("{key:02x?}"))
}
