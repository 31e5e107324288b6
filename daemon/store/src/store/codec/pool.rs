//! Pools to bytes and back.

use fipd_core::{
    AddressSpec, ClusterId, Ends, NetworkId, Origin, Pool, PoolId, PoolScope, PoolSpec, QuotaUnit,
    Sticky, Timestamp,
};
use ipnet::IpNet;

use super::{DecodeError, EncodeError, code, ip, ip_row, system};
use crate::store::{
    envelope::{RowDraft, StoredRow, Tags},
    rows::{
        IpV1, OriginV1, PoolV1, PoolV2, PoolV3, PoolV4, PoolV5, ScopeV1, SpecV1, TAG_POOL_LENGTH,
        TAG_POOL_QUOTA_UNIT, V1, V2, V3, V4, V5, V6,
    },
};

pub(in crate::store) fn encode_pool(pool: &Pool) -> Result<RowDraft, EncodeError> {
    let spec = &pool.spec;
    let second = PoolV2 {
        pool: row(pool),
        quarantine: spec.quarantine,
    };
    let third = PoolV3 {
        pool: second,
        sticky_lasts: spec.sticky.lasts,
        sticky_most: spec.sticky.most,
        priority: spec.priority,
        scopes: spec.scopes.iter().map(scope_row).collect(),
        share_across_clusters: spec.share_across_clusters,
    };
    let mut tags = Tags::default();
    if let Some(length) = spec.allocation_length {
        tags.set(TAG_POOL_LENGTH, &length)?;
    }
    match spec.quota_unit {
        QuotaUnit::Lease => {}
        QuotaUnit::Address => tags.set(TAG_POOL_QUOTA_UNIT, &QUOTA_OF_ADDRESSES)?,
    }
    let row = PoolV5 {
        pool: PoolV4 {
            pool: third,
            network_by_default: spec.network_by_default,
        },
        quota_required: spec.quota_required,
    };
    RowDraft::tagged(&tags, &row)
}

/// [`TAG_POOL_QUOTA_UNIT`] of [`QuotaUnit::Address`].
const QUOTA_OF_ADDRESSES: u8 = 1;

fn quota_unit(tags: &Tags) -> Result<QuotaUnit, DecodeError> {
    match tags.get::<u8>(TAG_POOL_QUOTA_UNIT)? {
        None => Ok(QuotaUnit::Lease),
        Some(QUOTA_OF_ADDRESSES) => Ok(QuotaUnit::Address),
        Some(other) => Err(DecodeError::value("unit of quotas", other)),
    }
}

fn row(pool: &Pool) -> PoolV1<'_> {
    let spec = &pool.spec;
    PoolV1 {
        name: &spec.name,
        network: spec.network.0,
        addresses: spec.addresses.iter().map(spec_row).collect(),
        exclusions: spec.exclusions.iter().map(spec_row).collect(),
        gateway: spec.gateway.map(ip_row),
        prefix_len: spec.prefix_len,
        subnet: spec
            .subnet
            .map(|net| (ip_row(net.addr()), net.prefix_len())),
        ends_first: spec.ends.first,
        ends_last: spec.ends.last,
        ends_of: code::of_ends(spec.ends.of),
        order: code::of_order(spec.order),
        origin: match &spec.origin {
            Origin::Own => OriginV1::Own,
            Origin::Mirror {
                system,
                cluster,
                object,
                uid,
            } => OriginV1::Mirror {
                system: system.as_str(),
                cluster: &cluster.0,
                object,
                uid,
            },
        },
        closed: spec.closed,
        created: pool.created.0,
        generation: pool.generation,
    }
}

/// The row of any version, with the plain values of what it does not have.
pub(super) fn pool_row<'a>(row: &StoredRow<'a>) -> Result<PoolV5<'a>, DecodeError> {
    let pool = match row.version {
        V1 => fourth(third(PoolV2 {
            pool: row.read()?,
            quarantine: 0,
        })),
        V2 => fourth(third(row.read()?)),
        V3 => fourth(row.read()?),
        V4 => row.read()?,
        V5 | V6 => return row.read(),
        found => return Err(DecodeError::Version { found, known: V6 }),
    };
    Ok(PoolV5 {
        pool,
        quota_required: false,
    })
}

fn third(pool: PoolV2<'_>) -> PoolV3<'_> {
    PoolV3 {
        pool,
        sticky_lasts: Sticky::OFF.lasts,
        sticky_most: Sticky::OFF.most,
        priority: 0,
        scopes: Vec::new(),
        share_across_clusters: false,
    }
}

fn fourth(pool: PoolV3<'_>) -> PoolV4<'_> {
    PoolV4 {
        pool,
        network_by_default: false,
    }
}

pub(in crate::store) fn decode_pool(
    key: [u8; 4],
    stored: &StoredRow<'_>,
) -> Result<Pool, DecodeError> {
    let PoolV5 {
        pool,
        quota_required,
    } = pool_row(stored)?;
    let PoolV4 {
        pool,
        network_by_default,
    } = pool;
    let PoolV3 {
        pool,
        sticky_lasts: lasts,
        sticky_most: most,
        priority,
        scopes,
        share_across_clusters,
    } = pool;
    let PoolV2 {
        pool: row,
        quarantine,
    } = pool;
    let allocation_length = stored.tags.get::<u8>(TAG_POOL_LENGTH)?;
    let quota_unit = quota_unit(&stored.tags)?;
    let (of, order) = (code::ends(row.ends_of)?, code::order(row.order)?);
    let spec = PoolSpec {
        allocation_length,
        quota_unit,
        name: row.name.into(),
        network: NetworkId(row.network),
        network_by_default,
        addresses: row
            .addresses
            .into_iter()
            .map(spec)
            .collect::<Result<_, _>>()?,
        exclusions: row
            .exclusions
            .into_iter()
            .map(spec)
            .collect::<Result<_, _>>()?,
        gateway: row.gateway.map(ip),
        prefix_len: row.prefix_len,
        subnet: row
            .subnet
            .map(|(address, len)| net(address, len))
            .transpose()?,
        ends: Ends {
            first: row.ends_first,
            last: row.ends_last,
            of,
        },
        order,
        origin: origin(row.origin)?,
        closed: row.closed,
        quarantine,
        sticky: Sticky { lasts, most },
        priority,
        scopes: scopes.into_iter().map(scope).collect(),
        share_across_clusters,
        quota_required,
    };
    Ok(Pool {
        id: PoolId(u32::from_be_bytes(key)),
        spec,
        created: Timestamp(row.created),
        generation: row.generation,
    })
}

fn origin(row: OriginV1<'_>) -> Result<Origin, DecodeError> {
    Ok(match row {
        OriginV1::Own => Origin::Own,
        OriginV1::Mirror {
            system: name,
            cluster,
            object,
            uid,
        } => Origin::Mirror {
            system: system(name)?,
            cluster: ClusterId(cluster.into()),
            object: object.into(),
            uid: uid.into(),
        },
    })
}

fn scope_row(scope: &PoolScope) -> ScopeV1<'_> {
    let labels = scope.labels.iter();
    ScopeV1 {
        cluster: scope.cluster.as_deref(),
        project: scope.project.as_deref(),
        namespaces: scope.namespaces.iter().map(|name| &**name).collect(),
        labels: labels.map(|(key, value)| (&**key, &**value)).collect(),
    }
}

fn scope(row: ScopeV1<'_>) -> PoolScope {
    let labels = row.labels.into_iter();
    PoolScope {
        cluster: row.cluster.map(Into::into),
        project: row.project.map(Into::into),
        namespaces: row.namespaces.into_iter().map(Into::into).collect(),
        labels: labels
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
    }
}

fn spec_row(spec: &AddressSpec) -> SpecV1 {
    match *spec {
        AddressSpec::Cidr(net) => SpecV1::Cidr(ip_row(net.addr()), net.prefix_len()),
        AddressSpec::Single(address) => SpecV1::Single(ip_row(address)),
        AddressSpec::Range(first, last) => SpecV1::Range(ip_row(first), ip_row(last)),
    }
}

fn spec(row: SpecV1) -> Result<AddressSpec, DecodeError> {
    Ok(match row {
        SpecV1::Cidr(address, len) => AddressSpec::Cidr(net(address, len)?),
        SpecV1::Single(address) => AddressSpec::Single(ip(address)),
        SpecV1::Range(first, last) => {
            let (first, last) = (ip(first), ip(last));
            if first.is_ipv4() != last.is_ipv4() || first > last {
                return Err(DecodeError::value("range", format!("{first}-{last}")));
            }
            AddressSpec::Range(first, last)
        }
    })
}

pub(super) fn net(address: IpV1, len: u8) -> Result<IpNet, DecodeError> {
    let net = IpNet::new(ip(address), len).map_err(|_| DecodeError::value("prefix length", len))?;
    if net.trunc() == net {
        Ok(net)
    } else {
        Err(DecodeError::value("CIDR with host bits", net))
    }
}
