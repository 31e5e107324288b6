//! The only place where the domain meets bytes: core types to rows, rows to core types.
//!
//! Encoding borrows and cannot lose anything. Decoding trusts nothing: arbitrary bytes give a value or a
//! [`DecodeError`], never a panic.

use std::net::IpAddr;

use fipd_core::{
    Account, Adoption, AuditEntry, ClusterId, ClusterRecord, Epoch, Hour, Network, NetworkId,
    PoolId, Quota, RestoreHold, Rollup, System, Tenant, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{
    rows::{
        AccountV1, AccountV2, AdoptionV1, AuditV1, ClusterV1, EpochV1, IpV1, NetworkV1, QuotaV1,
        RollupV1, SealV1, StateV1, V1, V2,
    },
    seal::Seal,
};

mod code;
mod lease;
mod pool;
mod token;

pub(super) use lease::{decode_lease, decode_past, encode_lease, encode_past};
use lease::{identity, identity_row};
pub(super) use pool::{decode_pool, encode_pool};
pub(super) use token::{decode_key, decode_token, encode_key, encode_token};

/// Why a row could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the row is empty")]
    Empty,
    #[error("the row has version {found}, this fipd knows up to {known}")]
    Version { found: u8, known: u8 },
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

/// Why a row could not be made; no value of the core does that.
pub(super) type EncodeError = postcard::Error;

fn encode<T: Serialize>(row: &T) -> Result<Vec<u8>, EncodeError> {
    encode_as(V1, row)
}

fn encode_as<T: Serialize>(version: u8, row: &T) -> Result<Vec<u8>, EncodeError> {
    postcard::to_extend(row, vec![version])
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    decode_as(V1, bytes)
}

/// A row that says nothing but that it is there.
pub(super) fn encode_mark() -> Result<Vec<u8>, EncodeError> {
    encode(&())
}

pub(super) fn decode_mark(bytes: &[u8]) -> Result<(), DecodeError> {
    decode(bytes)
}

fn decode_as<'a, T: Deserialize<'a>>(known: u8, bytes: &'a [u8]) -> Result<T, DecodeError> {
    let (&found, rest) = bytes.split_first().ok_or(DecodeError::Empty)?;
    if found != known {
        return Err(DecodeError::Version { found, known });
    }
    let (row, left) = postcard::take_from_bytes(rest)
        .map_err(|error| DecodeError::Malformed(error.to_string()))?;
    if left.is_empty() {
        Ok(row)
    } else {
        Err(DecodeError::Trailing(left.len()))
    }
}

pub(super) fn encode_state(state: &StateV1) -> Result<Vec<u8>, EncodeError> {
    encode(state)
}

pub(super) fn decode_state(bytes: &[u8]) -> Result<StateV1, DecodeError> {
    decode(bytes)
}

pub(super) fn encode_epoch(epoch: &Epoch) -> Result<Vec<u8>, EncodeError> {
    encode(&EpochV1 {
        number: epoch.number,
        began: epoch.began.0,
        hold: epoch.hold.map(|hold| (hold.left, hold.until.0)),
    })
}

pub(super) fn decode_epoch(bytes: &[u8]) -> Result<Epoch, DecodeError> {
    let row: EpochV1 = decode(bytes)?;
    let hold = |(left, until)| match left {
        0 => Err(DecodeError::value("hold of", "0 ms")),
        left => Ok(RestoreHold {
            left,
            until: Timestamp(until),
        }),
    };
    Ok(Epoch {
        number: row.number,
        began: Timestamp(row.began),
        hold: row.hold.map(hold).transpose()?,
    })
}

pub(super) fn encode_seal(seal: &Seal) -> Result<Vec<u8>, EncodeError> {
    encode(&SealV1 {
        created: seal.created.0,
        version: &seal.version,
        schema: seal.schema,
        revision: seal.revision,
        digest: seal.digest,
    })
}

pub(super) fn decode_seal(bytes: &[u8]) -> Result<Seal, DecodeError> {
    let row: SealV1<'_> = decode(bytes)?;
    Ok(Seal {
        created: Timestamp(row.created),
        version: row.version.to_owned(),
        schema: row.schema,
        revision: row.revision,
        digest: row.digest,
    })
}

pub(super) fn encode_network(network: &Network) -> Result<Vec<u8>, EncodeError> {
    encode(&NetworkV1 {
        name: &network.name,
    })
}

pub(super) fn decode_network(key: [u8; 4], bytes: &[u8]) -> Result<Network, DecodeError> {
    let row: NetworkV1<'_> = decode(bytes)?;
    Ok(Network {
        id: NetworkId(u32::from_be_bytes(key)),
        name: row.name.into(),
    })
}

pub(super) fn encode_quota(quota: &Quota) -> Result<Vec<u8>, EncodeError> {
    encode(&QuotaV1 { limit: quota.limit })
}

pub(super) fn decode_quota(key: (PoolId, Tenant), bytes: &[u8]) -> Result<Quota, DecodeError> {
    let (pool, tenant) = key;
    let QuotaV1 { limit } = decode(bytes)?;
    Ok(Quota {
        pool,
        tenant,
        limit,
    })
}

pub(super) fn encode_cluster(cluster: &ClusterRecord) -> Result<Vec<u8>, EncodeError> {
    encode(&ClusterV1 {
        names: cluster.names.iter().map(|name| &**name).collect(),
        discovered: cluster.discovered,
        first_seen: cluster.first_seen.0,
    })
}

pub(super) fn decode_cluster(key: &str, bytes: &[u8]) -> Result<ClusterRecord, DecodeError> {
    let row: ClusterV1<'_> = decode(bytes)?;
    Ok(ClusterRecord {
        id: ClusterId(key.into()),
        names: row.names.into_iter().map(Into::into).collect(),
        discovered: row.discovered,
        first_seen: Timestamp(row.first_seen),
    })
}

pub(super) fn encode_adoption(marker: &Adoption) -> Result<Vec<u8>, EncodeError> {
    encode(&AdoptionV1 {
        network: marker.network.0,
        cluster: &marker.cluster,
        system: marker.system.as_str(),
        at: marker.at.0,
        skipped: marker.skipped,
    })
}

pub(super) fn decode_adoption(bytes: &[u8]) -> Result<Adoption, DecodeError> {
    let row: AdoptionV1<'_> = decode(bytes)?;
    Ok(Adoption {
        network: NetworkId(row.network),
        cluster: row.cluster.into(),
        system: system(row.system)?,
        at: Timestamp(row.at),
        skipped: row.skipped,
    })
}

pub(super) fn encode_account(account: &Account) -> Result<Vec<u8>, EncodeError> {
    let row = AccountV1 {
        role: code::of_role(account.role),
        password_hash: &account.password_hash,
        created: account.created.0,
    };
    match account.disabled {
        // Can be read by an earlier fipd.
        false => encode(&row),
        true => encode_as(
            V2,
            &AccountV2 {
                account: row,
                disabled: true,
            },
        ),
    }
}

pub(super) fn decode_account(key: &str, bytes: &[u8]) -> Result<Account, DecodeError> {
    let AccountV2 {
        account: row,
        disabled,
    } = match bytes.first() {
        Some(&V1) => AccountV2 {
            account: decode(bytes)?,
            disabled: false,
        },
        _ => decode_as(V2, bytes)?,
    };
    Ok(Account {
        name: key.into(),
        role: code::role(row.role)?,
        password_hash: row.password_hash.into(),
        created: Timestamp(row.created),
        disabled,
    })
}

pub(super) fn encode_rollup(row: &Rollup) -> Result<Vec<u8>, EncodeError> {
    encode(&RollupV1 {
        size: row.size,
        used: row.used,
        quarantined: row.quarantined,
        highest: row.highest,
        given: row.given,
        released: row.released,
        refused: row.refused,
    })
}

pub(super) fn decode_rollup(pool: PoolId, hour: Hour, bytes: &[u8]) -> Result<Rollup, DecodeError> {
    let row: RollupV1 = decode(bytes)?;
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

pub(super) fn encode_audit(entry: &AuditEntry) -> Result<Vec<u8>, EncodeError> {
    encode(&AuditV1 {
        at: entry.at.0,
        actor: &entry.actor,
        action: code::of_action(entry.action),
        network: entry.network.map(|id| id.0),
        address: entry.address.map(ip_row),
        pool: entry.pool.map(|id| id.0),
        identity: entry.identity.as_ref().map(identity_row),
        detail: &entry.detail,
    })
}

pub(super) fn decode_audit(bytes: &[u8]) -> Result<AuditEntry, DecodeError> {
    let row: AuditV1<'_> = decode(bytes)?;
    Ok(AuditEntry {
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
