//! Leases, past leases and who has them to bytes and back.

use std::collections::BTreeMap;

use fipd_core::{
    ClusterId, Contender, Holder, Identity, Lease, LeaseKey, Member, PastLease, PoolId, Tenant,
    Timestamp,
};

use super::{DecodeError, EncodeError, code, ip_row, only, pool::net, system};
use crate::store::{
    envelope::{RowDraft, StoredRow, Tags},
    rows::{
        ContenderV1, HolderV1, IdentityV1, IpV1, LeaseV1, LeaseV2, LeaseV6, MemberV1, OwnerV6,
        PastV1, TAG_LEASE_USES, UsesV6, V1, V2, V6,
    },
};

pub(in crate::store) fn encode_lease(lease: &Lease) -> Result<RowDraft, EncodeError> {
    let row = LeaseV1 {
        pool: lease.pool.map(|id| id.0),
        state: code::of_state(lease.state),
        members: lease.members.iter().map(member_row).collect(),
        contenders: lease.contenders.iter().map(contender_row).collect(),
        tenant: lease.tenant.as_ref().map(|tenant| &*tenant.0),
        group: lease.group.as_deref(),
        since: lease.since.0,
        until: lease.until.map(|until| until.0),
    };
    let labels = lease.labels.iter().map(|(key, value)| (&**key, &**value));
    let labels = labels.collect();
    let mut tags = Tags::default();
    let uses = uses_field(&lease.contenders);
    if !uses.is_empty() {
        tags.set(TAG_LEASE_USES, &uses)?;
    }
    let row = LeaseV6 {
        prefix_len: lease.length,
        lease: LeaseV2 { lease: row, labels },
    };
    RowDraft::tagged(&tags, &row)
}

/// The row of any version, with the plain values of what it does not have.
pub(super) fn lease_row<'a>(
    key: LeaseKey,
    row: &StoredRow<'a>,
) -> Result<LeaseV6<'a>, DecodeError> {
    let prefix_len = key.bits();
    match row.version {
        V1 => Ok(LeaseV6 {
            prefix_len,
            lease: LeaseV2 {
                lease: row.read()?,
                labels: Vec::new(),
            },
        }),
        V2 => Ok(LeaseV6 {
            prefix_len,
            lease: row.read()?,
        }),
        V6 => row.read(),
        found => Err(DecodeError::Version { found, known: V6 }),
    }
}

pub(in crate::store) fn decode_lease(
    key: LeaseKey,
    stored: &StoredRow<'_>,
) -> Result<Lease, DecodeError> {
    let LeaseV6 {
        prefix_len,
        lease: LeaseV2 { lease: row, labels },
    } = lease_row(key, stored)?;
    if prefix_len > key.bits() {
        return Err(DecodeError::value("prefix length of a lease", prefix_len));
    }
    let label = |(key, value): (&str, &str)| (key.into(), value.into());
    let contenders = row.contenders.iter().map(contender);
    let mut contenders: Vec<Contender> = contenders.collect::<Result<_, _>>()?;
    if let Some(uses) = stored.tags.get::<UsesV6>(TAG_LEASE_USES)? {
        read_uses(&uses, &mut contenders)?;
    }
    Ok(Lease {
        length: prefix_len,
        key,
        pool: row.pool.map(PoolId),
        state: code::state(row.state)?,
        members: row.members.iter().map(member).collect::<Result<_, _>>()?,
        contenders,
        tenant: row.tenant.map(|text| Tenant(text.into())),
        group: row.group.map(Into::into),
        since: Timestamp(row.since),
        until: row.until.map(Timestamp),
        labels: labels.into_iter().map(label).collect(),
    })
}

pub(in crate::store) fn encode_past(past: &PastLease) -> Result<RowDraft, EncodeError> {
    RowDraft::new(&PastV1 {
        pool: past.pool.0,
        identity: identity_row(&past.identity),
        released: past.released.0,
        own: past.own,
    })
}

pub(in crate::store) fn decode_past(
    key: LeaseKey,
    row: &StoredRow<'_>,
) -> Result<PastLease, DecodeError> {
    let row: PastV1<'_> = only(row)?;
    Ok(PastLease {
        key,
        pool: PoolId(row.pool),
        identity: identity(&row.identity)?,
        released: Timestamp(row.released),
        own: row.own,
    })
}

pub(super) fn identity_row(identity: &Identity) -> IdentityV1<'_> {
    IdentityV1 {
        system: identity.system.as_str(),
        cluster: identity.cluster.as_ref().map(|cluster| &*cluster.0),
        kind: &identity.kind,
        namespace: &identity.namespace,
        name: &identity.name,
        interface: &identity.interface,
    }
}

pub(super) fn identity(row: &IdentityV1<'_>) -> Result<Identity, DecodeError> {
    Ok(Identity {
        system: system(row.system)?,
        cluster: row.cluster.map(|text| ClusterId(text.into())),
        kind: row.kind.into(),
        namespace: row.namespace.into(),
        name: row.name.into(),
        interface: row.interface.into(),
    })
}

fn holder_row(holder: &Holder) -> HolderV1<'_> {
    HolderV1 {
        identity: identity_row(&holder.identity),
        instance: &holder.instance,
    }
}

fn holder(row: &HolderV1<'_>) -> Result<Holder, DecodeError> {
    Ok(Holder {
        identity: identity(&row.identity)?,
        instance: row.instance.into(),
    })
}

fn member_row(member: &Member) -> MemberV1<'_> {
    MemberV1 {
        holder: holder_row(&member.holder),
        ports: member.ports.iter().map(code::of_port).collect(),
    }
}

fn member(row: &MemberV1<'_>) -> Result<Member, DecodeError> {
    Ok(Member {
        holder: holder(&row.holder)?,
        ports: row
            .ports
            .iter()
            .map(|&(protocol, port)| code::port(protocol, port))
            .collect::<Result<_, _>>()?,
    })
}

fn contender_row(contender: &Contender) -> ContenderV1<'_> {
    ContenderV1 {
        holder: holder_row(&contender.holder),
        tenant: contender.tenant.as_ref().map(|tenant| &*tenant.0),
        since: contender.since.0,
    }
}

fn contender(row: &ContenderV1<'_>) -> Result<Contender, DecodeError> {
    Ok(Contender {
        holder: holder(&row.holder)?,
        tenant: row.tenant.map(|text| Tenant(text.into())),
        since: Timestamp(row.since),
        uses: Vec::new(),
    })
}

fn uses_field(contenders: &[Contender]) -> UsesV6 {
    let row = |one: &Contender| {
        let uses = one.uses.iter();
        let uses = uses.map(|net| (ip_row(net.addr()), net.prefix_len()));
        (owner_field(&one.holder.identity), uses.collect())
    };
    let some = contenders.iter().filter(|one| !one.uses.is_empty());
    some.map(row).collect()
}

fn owner_field(identity: &Identity) -> OwnerV6 {
    let row = identity_row(identity);
    let parts = [row.kind, row.namespace, row.name, row.interface];
    let cluster = row.cluster.map(Into::into);
    (row.system.into(), cluster, parts.map(Into::into))
}

fn read_uses(rows: &UsesV6, contenders: &mut [Contender]) -> Result<(), DecodeError> {
    let rows: BTreeMap<&OwnerV6, &Vec<(IpV1, u8)>> =
        rows.iter().map(|(owner, uses)| (owner, uses)).collect();
    for one in contenders {
        let uses = rows.get(&owner_field(&one.holder.identity));
        for (address, length) in uses.into_iter().copied().flatten() {
            one.uses.push(net(*address, *length)?);
        }
    }
    Ok(())
}
