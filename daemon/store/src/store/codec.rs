//! The only place where the domain meets bytes: core types to rows, rows to core types.
//!
//! Encoding borrows and cannot lose anything. Decoding trusts nothing: arbitrary bytes give a value or a
//! [`DecodeError`], never a panic.

use std::net::IpAddr;

use fipd_core::{
    Account, Adoption, AuditEntry, BootId, ClockLine, ClusterId, ClusterProof, ClusterRecord,
    Epoch, Hour, Network, NetworkId, PoolId, Quota, RestoreHold, Rollup, System, Tenant, Timestamp,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    envelope::{RowDraft, StoredRow, Tags},
    rows::{
        AccountV1, AccountV2, AdoptionV1, AuditV1, ClockV6, ClusterProofV6, ClusterV1, EpochV1,
        IpV1, NetworkHoldV6, NetworkV1, QuotaV1, RollupV1, SealV1, TAG_AUDIT_LENGTH,
        TAG_CLUSTER_PROOF, TAG_NETWORK_HOLD, V1, V2, V6,
    },
    schema,
    seal::{self, Seal},
    tables::SEAL,
};
use redb::TableHandle as _;

mod code;
mod lease;
mod pool;
mod renewed;
mod token;

pub(super) use lease::{decode_lease, decode_past, encode_lease, encode_past};
use lease::{identity, identity_row};
pub(super) use pool::{decode_pool, encode_pool};
pub(super) use renewed::renewed;
pub(super) use token::{decode_key, decode_token, encode_key, encode_token};

/// Why a row could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the row is empty")]
    Empty,
    #[error("the row has version {found}, this fipd knows up to {known}")]
    Version { found: u8, known: u8 },
    #[error("the row has version {found}, where all of this store have {V6}")]
    Superseded { found: u8 },
    #[error("the row does not match the checksum over its table, key and value")]
    Checksum,
    #[error("the row is malformed: {0}")]
    Malformed(String),
    #[error("the row has {0} bytes too many")]
    Trailing(usize),
    #[error("{what} {value} is not allowed")]
    Value { what: &'static str, value: String },
}

impl DecodeError {
    pub(super) fn value(what: &'static str, value: impl ToString) -> Self {
        Self::Value {
            what,
            value: value.to_string(),
        }
    }
}

impl From<EncodeError> for DecodeError {
    fn from(error: EncodeError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Why a row could not be made; no value of the core does that.
pub(super) type EncodeError = postcard::Error;

/// A row of which there is one version, which was written alone before it was part of a [`V6`].
pub(super) fn only<'a, T: Deserialize<'a>>(row: &StoredRow<'a>) -> Result<T, DecodeError> {
    match row.version {
        V1 | V6 => row.read(),
        found => Err(DecodeError::Version { found, known: V6 }),
    }
}

/// The same of a row that borrows nothing.
pub(super) fn plain<T: DeserializeOwned>(row: &StoredRow<'_>) -> Result<T, DecodeError> {
    only(row)
}

pub(super) fn encode_epoch(epoch: &Epoch) -> Result<RowDraft, EncodeError> {
    RowDraft::new(&EpochV1 {
        number: epoch.number,
        began: epoch.began.0,
        hold: epoch.hold.map(|hold| (hold.left, hold.until.0)),
    })
}

fn hold((left, until): (u64, u64)) -> Result<RestoreHold, DecodeError> {
    if left == 0 {
        return Err(DecodeError::value("hold of", "0 ms"));
    }
    Ok(RestoreHold {
        left,
        until: Timestamp(until),
    })
}

pub(super) fn decode_epoch(row: &StoredRow<'_>) -> Result<Epoch, DecodeError> {
    let row: EpochV1 = only(row)?;
    Ok(Epoch {
        number: row.number,
        began: Timestamp(row.began),
        hold: row.hold.map(hold).transpose()?,
    })
}

pub(super) fn encode_clock(line: &ClockLine) -> Result<RowDraft, EncodeError> {
    RowDraft::new(&ClockV6 {
        boot: line.boot.map(|boot| boot.0),
        uptime: line.uptime,
        book: line.book.0,
        unconfirmed: line.unconfirmed,
    })
}

pub(super) fn decode_clock(row: &StoredRow<'_>) -> Result<ClockLine, DecodeError> {
    let row: ClockV6 = only(row)?;
    Ok(ClockLine {
        boot: row.boot.map(BootId),
        uptime: row.uptime,
        book: Timestamp(row.book),
        unconfirmed: row.unconfirmed,
    })
}

/// The value under [`super::seal::ROW`]. A backup of an older schema has it as the fipd reads it that wrote the store.
pub(super) fn encode_seal(seal: &Seal) -> Result<Vec<u8>, EncodeError> {
    let row = SealV1 {
        created: seal.created.0,
        version: &seal.version,
        schema: seal.schema,
        revision: seal.revision,
        digest: seal.digest,
    };
    if seal.schema < schema::CHECKED {
        return postcard::to_extend(&row, vec![V1]);
    }
    let mut draft = RowDraft::new(&row)?;
    Ok(draft.finish(SEAL.name(), seal::ROW.as_bytes()).to_vec())
}

pub(super) fn decode_seal(row: &StoredRow<'_>) -> Result<Seal, DecodeError> {
    let row: SealV1<'_> = only(row)?;
    Ok(Seal {
        created: Timestamp(row.created),
        version: row.version.to_owned(),
        schema: row.schema,
        revision: row.revision,
        digest: row.digest,
    })
}

pub(super) fn encode_network(network: &Network) -> Result<RowDraft, EncodeError> {
    let mut tags = Tags::default();
    if let Some(hold) = network.hold {
        let field: NetworkHoldV6 = (hold.left, hold.until.0);
        tags.set(TAG_NETWORK_HOLD, &field)?;
    }
    let row = NetworkV1 {
        name: &network.name,
    };
    RowDraft::tagged(&tags, &row)
}

pub(super) fn decode_network(key: [u8; 4], row: &StoredRow<'_>) -> Result<Network, DecodeError> {
    let held = row.tags.get::<NetworkHoldV6>(TAG_NETWORK_HOLD)?;
    let row: NetworkV1<'_> = only(row)?;
    Ok(Network {
        id: NetworkId(u32::from_be_bytes(key)),
        name: row.name.into(),
        hold: held.map(hold).transpose()?,
    })
}

pub(super) fn encode_quota(quota: &Quota) -> Result<RowDraft, EncodeError> {
    RowDraft::new(&QuotaV1 { limit: quota.limit })
}

pub(super) fn decode_quota(
    key: (PoolId, Tenant),
    row: &StoredRow<'_>,
) -> Result<Quota, DecodeError> {
    let (pool, tenant) = key;
    let QuotaV1 { limit } = only(row)?;
    Ok(Quota {
        pool,
        tenant,
        limit,
    })
}

pub(super) fn encode_cluster(cluster: &ClusterRecord) -> Result<RowDraft, EncodeError> {
    let mut tags = Tags::default();
    if let Some(proof) = &cluster.proof {
        let field = ClusterProofV6 {
            nonce: proof.nonce.as_deref().map(str::to_owned),
            value: proof.value.to_string(),
            next: proof.next.as_deref().map(str::to_owned),
            ca: proof.ca.to_string(),
            lead: proof.lead.to_string(),
            way: proof.way.to_string(),
        };
        tags.set(TAG_CLUSTER_PROOF, &field)?;
    }
    let row = ClusterV1 {
        names: cluster.names.iter().map(|name| &**name).collect(),
        discovered: cluster.discovered,
        first_seen: cluster.first_seen.0,
    };
    RowDraft::tagged(&tags, &row)
}

pub(super) fn decode_cluster(key: &str, row: &StoredRow<'_>) -> Result<ClusterRecord, DecodeError> {
    let proof = row.tags.get::<ClusterProofV6>(TAG_CLUSTER_PROOF)?;
    let proof = proof.map(|field| ClusterProof {
        nonce: field.nonce.map(Into::into),
        value: field.value.into(),
        next: field.next.map(Into::into),
        ca: field.ca.into(),
        lead: field.lead.into(),
        way: field.way.into(),
    });
    let row: ClusterV1<'_> = only(row)?;
    Ok(ClusterRecord {
        id: ClusterId(key.into()),
        names: row.names.into_iter().map(Into::into).collect(),
        discovered: row.discovered,
        first_seen: Timestamp(row.first_seen),
        proof,
    })
}

pub(super) fn encode_adoption(marker: &Adoption) -> Result<RowDraft, EncodeError> {
    RowDraft::new(&AdoptionV1 {
        network: marker.network.0,
        cluster: &marker.cluster,
        system: marker.system.as_str(),
        at: marker.at.0,
        skipped: marker.skipped,
    })
}

pub(super) fn decode_adoption(row: &StoredRow<'_>) -> Result<Adoption, DecodeError> {
    let row: AdoptionV1<'_> = only(row)?;
    Ok(Adoption {
        network: NetworkId(row.network),
        cluster: row.cluster.into(),
        system: system(row.system)?,
        at: Timestamp(row.at),
        skipped: row.skipped,
    })
}

pub(super) fn encode_account(account: &Account) -> Result<RowDraft, EncodeError> {
    RowDraft::new(&AccountV2 {
        account: AccountV1 {
            role: code::of_role(account.role),
            password_hash: &account.password_hash,
            created: account.created.0,
        },
        disabled: account.disabled,
    })
}

fn account_row<'a>(row: &StoredRow<'a>) -> Result<AccountV2<'a>, DecodeError> {
    match row.version {
        V1 => Ok(AccountV2 {
            account: row.read()?,
            disabled: false,
        }),
        V2 | V6 => row.read(),
        found => Err(DecodeError::Version { found, known: V6 }),
    }
}

pub(super) fn decode_account(key: &str, row: &StoredRow<'_>) -> Result<Account, DecodeError> {
    let AccountV2 {
        account: row,
        disabled,
    } = account_row(row)?;
    Ok(Account {
        name: key.into(),
        role: code::role(row.role)?,
        password_hash: row.password_hash.into(),
        created: Timestamp(row.created),
        disabled,
    })
}

pub(super) fn encode_rollup(row: &Rollup) -> Result<RowDraft, EncodeError> {
    RowDraft::new(&RollupV1 {
        size: row.size,
        used: row.used,
        quarantined: row.quarantined,
        highest: row.highest,
        given: row.given,
        released: row.released,
        refused: row.refused,
    })
}

pub(super) fn decode_rollup(
    pool: PoolId,
    hour: Hour,
    row: &StoredRow<'_>,
) -> Result<Rollup, DecodeError> {
    let row: RollupV1 = only(row)?;
    Ok(Rollup {
        pool,
        hour,
        size: row.size,
        used: row.used,
        quarantined: row.quarantined,
        highest: row.highest,
        given: row.given,
        released: row.released,
        refused: row.refused,
    })
}

pub(super) fn encode_audit(entry: &AuditEntry) -> Result<RowDraft, EncodeError> {
    let mut tags = Tags::default();
    if let Some(length) = entry.length {
        tags.set(TAG_AUDIT_LENGTH, &length)?;
    }
    let row = AuditV1 {
        at: entry.at.0,
        actor: &entry.actor,
        action: code::of_action(entry.action),
        network: entry.network.map(|id| id.0),
        address: entry.address.map(ip_row),
        pool: entry.pool.map(|id| id.0),
        identity: entry.identity.as_ref().map(identity_row),
        detail: &entry.detail,
    };
    RowDraft::tagged(&tags, &row)
}

pub(super) fn decode_audit(row: &StoredRow<'_>) -> Result<AuditEntry, DecodeError> {
    let length = row.tags.get::<u8>(TAG_AUDIT_LENGTH)?;
    let row: AuditV1<'_> = only(row)?;
    Ok(AuditEntry {
        length,
        at: Timestamp(row.at),
        actor: row.actor.into(),
        action: code::action(row.action)?,
        network: row.network.map(NetworkId),
        address: row.address.map(ip),
        pool: row.pool.map(PoolId),
        identity: row.identity.as_ref().map(identity).transpose()?,
        detail: row.detail.into(),
    })
}

fn ip_row(address: IpAddr) -> IpV1 {
    match address {
        IpAddr::V4(v4) => IpV1::V4(v4.octets()),
        IpAddr::V6(v6) => IpV1::V6(v6.octets()),
    }
}

fn ip(row: IpV1) -> IpAddr {
    match row {
        IpV1::V4(octets) => octets.into(),
        IpV1::V6(octets) => octets.into(),
    }
}

fn system(text: &str) -> Result<System, DecodeError> {
    text.parse().map_err(|_| DecodeError::value("system", text))
}
