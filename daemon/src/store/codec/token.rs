//! Tokens and keys to bytes and back.

use fipd_core::{
    KeyBytes, KeyId, NetworkId, PoolId, Scope, SigningKey, Tenant, Timestamp, Token, TokenId,
};

use super::{
    DecodeError, EncodeError, code, decode, decode_as, encode, encode_as, ip_row, pool::net,
};
use crate::store::rows::{KeyV1, TokenV1, TokenV2, V1, V2};

pub(in crate::store) fn encode_token(token: &Token) -> Result<Vec<u8>, EncodeError> {
    let row = TokenV1 {
        name: &token.name,
        role: code::of_role(token.role),
        hash: token.hash,
        created: token.created.0,
        expires: token.expires.map(|at| at.0),
    };
    let scope = &token.scope;
    // Files of tokens without limits can be read by an earlier fipd.
    if scope.is_all() && token.from.is_empty() {
        return encode(&row);
    }
    let limited = TokenV2 {
        token: row,
        pools: scope.pools.iter().map(|id| id.0).collect(),
        networks: scope.networks.iter().map(|id| id.0).collect(),
        tenants: scope.tenants.iter().map(|tenant| &*tenant.0).collect(),
        from: token
            .from
            .iter()
            .map(|net| (ip_row(net.addr()), net.prefix_len()))
            .collect(),
    };
    encode_as(V2, &limited)
}

pub(in crate::store) fn decode_token(key: [u8; 8], bytes: &[u8]) -> Result<Token, DecodeError> {
    let row = if bytes.first() == Some(&V1) {
        TokenV2 {
            token: decode(bytes)?,
            pools: Vec::new(),
            networks: Vec::new(),
            tenants: Vec::new(),
            from: Vec::new(),
        }
    } else {
        decode_as(V2, bytes)?
    };
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

pub(in crate::store) fn encode_key(key: &SigningKey) -> Result<Vec<u8>, EncodeError> {
    encode(&KeyV1 {
        created: key.created.0,
        until: key.until.map(|at| at.0),
        bytes: &key.bytes.0,
    })
}

pub(in crate::store) fn decode_key(key: [u8; 8], bytes: &[u8]) -> Result<SigningKey, DecodeError> {
    let row: KeyV1<'_> = decode(bytes)?;
    Ok(SigningKey {
        id: KeyId(u64::from_be_bytes(key)),
        created: Timestamp(row.created),
        bytes: KeyBytes(row.bytes.into()),
        until: row.until.map(Timestamp),
    })
}
