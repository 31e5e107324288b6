//! Tokens and keys to bytes and back.

use fipd_core::{
    KeyBytes, KeyId, NetworkId, PoolId, Scope, SigningKey, Tenant, Timestamp, Token, TokenId,
};

use super::{DecodeError, EncodeError, code, ip_row, only, pool::net};
use crate::store::{
    envelope::{RowDraft, StoredRow},
    rows::{KeyV1, TokenV1, TokenV2, V1, V2, V6},
};

pub(in crate::store) fn encode_token(token: &Token) -> Result<RowDraft, EncodeError> {
    let row = TokenV1 {
        name: &token.name,
        role: code::of_role(token.role),
        hash: token.hash,
        created: token.created.0,
        expires: token.expires.map(|at| at.0),
    };
    let scope = &token.scope;
    RowDraft::new(&TokenV2 {
        token: row,
        pools: scope.pools.iter().map(|id| id.0).collect(),
        networks: scope.networks.iter().map(|id| id.0).collect(),
        tenants: scope.tenants.iter().map(|tenant| &*tenant.0).collect(),
        from: token
            .from
            .iter()
            .map(|net| (ip_row(net.addr()), net.prefix_len()))
            .collect(),
    })
}

/// The row of any version, with the plain values of what it does not have.
pub(super) fn token_row<'a>(row: &StoredRow<'a>) -> Result<TokenV2<'a>, DecodeError> {
    match row.version {
        V1 => Ok(TokenV2 {
            token: row.read()?,
            pools: Vec::new(),
            networks: Vec::new(),
            tenants: Vec::new(),
            from: Vec::new(),
        }),
        V2 | V6 => row.read(),
        found => Err(DecodeError::Version { found, known: V6 }),
    }
}

pub(in crate::store) fn decode_token(
    key: [u8; 8],
    row: &StoredRow<'_>,
) -> Result<Token, DecodeError> {
    let row = token_row(row)?;
    let from = row.from.into_iter().map(|(address, len)| net(address, len));
    let tenants = row.tenants.into_iter().map(|name| Tenant(name.into()));
    Ok(Token {
        id: TokenId(u64::from_be_bytes(key)),
        name: row.token.name.into(),
        role: code::role(row.token.role)?,
        hash: row.token.hash,
        created: Timestamp(row.token.created),
        expires: row.token.expires.map(Timestamp),
        scope: Scope {
            pools: row.pools.into_iter().map(PoolId).collect(),
            networks: row.networks.into_iter().map(NetworkId).collect(),
            tenants: tenants.collect(),
        },
        from: from.collect::<Result<_, _>>()?,
    })
}

pub(in crate::store) fn encode_key(key: &SigningKey) -> Result<RowDraft, EncodeError> {
    RowDraft::new(&KeyV1 {
        created: key.created.0,
        until: key.until.map(|at| at.0),
        bytes: &key.bytes.0,
    })
}

pub(in crate::store) fn decode_key(
    key: [u8; 8],
    row: &StoredRow<'_>,
) -> Result<SigningKey, DecodeError> {
    let row: KeyV1<'_> = only(row)?;
    Ok(SigningKey {
        id: KeyId(u64::from_be_bytes(key)),
        created: Timestamp(row.created),
        bytes: KeyBytes(row.bytes.into()),
        until: row.until.map(Timestamp),
    })
}
