//! One row of an import: a JSON object as an export writes it, read as what it says.

use std::collections::BTreeMap;

use fipd_core::{
    AddressSpec, Contender, Ends, EndsOf, Family, Holder, ImportRow, ImportedLease, ImportedPool,
    Lease, LeaseKey, LeaseState, Ledger, Member, NetworkId, Order, Origin, PoolId, PoolSpec,
    PortClaim, QuotaUnit, Sticky, Tenant, Text, Timestamp,
};
use ipnet::IpNet;
use serde::{Deserialize, de::DeserializeOwned, de::IgnoredAny};
use serde_json::Value;

use crate::{
    api::{
        convert::{self, given},
        problem::Problem,
        rest::{pools, wants},
        wire::{OriginView, PoolScope},
    },
    clock,
};

/// Told by the fields that only it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Lease,
    Pool,
    Quota,
    Separation,
    Network,
}

impl Kind {
    pub fn of(value: &Value) -> Self {
        let has = |field: &str| value.get(field).is_some();
        if has("networks") {
            Self::Separation
        } else if has("limit") {
            Self::Quota
        } else if has("addresses") {
            Self::Pool
        } else if has("address") {
            Self::Lease
        } else {
            Self::Network
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkRow {
    name: String,
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "pools")]
    _pools: Option<IgnoredAny>,
    #[serde(rename = "waiting_for")]
    _waiting_for: Option<IgnoredAny>,
    #[serde(rename = "held_until")]
    _held_until: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeparationRow {
    networks: Vec<String>,
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaRow {
    tenant: String,
    pool: String,
    limit: u64,
    #[serde(rename = "used")]
    _used: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolRow {
    name: String,
    network: Option<String>,
    network_by_default: Option<bool>,
    addresses: Vec<String>,
    #[serde(default)]
    exclusions: Vec<String>,
    allocation_length: Option<u8>,
    gateway: Option<String>,
    prefix: Option<u8>,
    subnet: Option<String>,
    reserve: Option<ReserveRow>,
    #[serde(default)]
    order: Order,
    origin: Option<OriginView>,
    #[serde(default)]
    closed: bool,
    #[serde(default)]
    quarantine: u32,
    #[serde(default)]
    priority: u16,
    #[serde(default)]
    scopes: Vec<PoolScope>,
    #[serde(default)]
    share_across_clusters: bool,
    #[serde(default)]
    quota_required: bool,
    #[serde(default)]
    quota_unit: QuotaUnit,
    sticky_for: Option<u32>,
    sticky_most: Option<u32>,
    id: Option<u32>,
    generation: Option<u64>,
    created: Option<String>,
    #[serde(rename = "family")]
    _family: Option<IgnoredAny>,
    #[serde(rename = "usage")]
    _usage: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReserveRow {
    first: Option<u32>,
    last: Option<u32>,
    of: Option<EndsOf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseRow {
    address: String,
    length: Option<u8>,
    network: Option<String>,
    pool: Option<String>,
    state: Option<LeaseState>,
    /// Enough for a lease of one holder without an instance.
    owner: Option<String>,
    #[serde(default)]
    members: Vec<MemberRow>,
    #[serde(default)]
    contenders: Vec<ContenderRow>,
    tenant: Option<String>,
    group: Option<String>,
    #[serde(default)]
    labels: BTreeMap<Text, Text>,
    since: Option<String>,
    until: Option<String>,
    #[serde(rename = "prefix")]
    _prefix: Option<IgnoredAny>,
    #[serde(rename = "gateway")]
    _gateway: Option<IgnoredAny>,
    #[serde(rename = "marks")]
    _marks: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberRow {
    owner: String,
    #[serde(default)]
    instance: String,
    #[serde(default)]
    ports: Vec<PortClaim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContenderRow {
    owner: String,
    #[serde(default)]
    instance: String,
    tenant: Option<String>,
    since: String,
    #[serde(default)]
    uses: Vec<String>,
}

/// The row that the object says.
pub fn row(ledger: &Ledger, value: &Value) -> Result<ImportRow, Problem> {
    match Kind::of(value) {
        Kind::Network => {
            let row: NetworkRow = fields(value)?;
            Ok(ImportRow::Network(row.name.into()))
        }
        Kind::Separation => {
            let row: SeparationRow = fields(value)?;
            let networks = <[String; 2]>::try_from(row.networks).map_err(|networks| {
                Problem::invalid("networks", networks.join(" "), "the names of two networks")
            })?;
            let [one, other] = networks.map(Text::from);
            Ok(ImportRow::Separation(one, other))
        }
        Kind::Quota => {
            let row: QuotaRow = fields(value)?;
            Ok(ImportRow::Quota {
                pool: row.pool.into(),
                tenant: Tenant(convert::text("tenant", &row.tenant)?),
                limit: row.limit,
            })
        }
        Kind::Pool => pool(ledger, fields(value)?),
        Kind::Lease => lease(ledger, fields(value)?),
    }
}

fn fields<T: DeserializeOwned>(value: &Value) -> Result<T, Problem> {
    T::deserialize(value)
        .map_err(|error| Problem::invalid("row", value.to_string(), error.to_string()))
}

fn tenant(text: &Option<String>) -> Result<Option<Tenant>, Problem> {
    given(text, |text| convert::text("tenant", text).map(Tenant))
}

fn uses(texts: &[String]) -> Result<Vec<IpNet>, Problem> {
    let uses = texts.iter().map(|text| {
        let (address, length) = convert::prefix("uses", text)?;
        let length = length.unwrap_or_else(|| Family::of(address).bits());
        let allowed = "an address or a prefix such as 2001:db8::/64";
        IpNet::new(address, length).map_err(|_| Problem::invalid("uses", text.as_str(), allowed))
    });
    uses.collect()
}

fn time(field: &str, text: &str) -> Result<Timestamp, Problem> {
    let allowed = "a time such as 2030-01-01T00:00:00Z";
    clock::parse_rfc3339(text).ok_or_else(|| Problem::invalid(field, text, allowed))
}

fn pool(ledger: &Ledger, row: PoolRow) -> Result<ImportRow, Problem> {
    let addresses = convert::specs("addresses", &row.addresses)?;
    let family = addresses.first().map_or(Family::V4, AddressSpec::family);
    let default = Ends::own_default_of(family, row.allocation_length);
    let ends = row.reserve.map_or(default, |given| Ends {
        first: given.first.unwrap_or(default.first),
        last: given.last.unwrap_or(default.last),
        of: given.of.unwrap_or(default.of),
    });
    let spec = PoolSpec {
        exclusions: convert::specs("exclusions", &row.exclusions)?,
        allocation_length: row.allocation_length,
        gateway: given(&row.gateway, |text| convert::address("gateway", text))?,
        prefix_len: row.prefix,
        subnet: given(&row.subnet, |text| convert::parse("subnet", text))?,
        ends,
        order: row.order,
        origin: origin(ledger, row.origin)?,
        closed: row.closed,
        priority: row.priority,
        scopes: row.scopes.into_iter().map(wants::scope).collect(),
        share_across_clusters: row.share_across_clusters,
        quota_required: row.quota_required,
        quota_unit: row.quota_unit,
        quarantine: row.quarantine,
        sticky: pools::sticky(Sticky::OWN_DEFAULT, row.sticky_for, row.sticky_most),
        ..PoolSpec::own(row.name, addresses)
    };
    Ok(ImportRow::Pool(Box::new(ImportedPool {
        network: row.network.map(Into::into),
        network_by_default: row.network_by_default,
        spec,
        id: row.id.map(PoolId),
        created: given(&row.created, |text| time("created", text))?,
        generation: row.generation,
    })))
}

fn origin(ledger: &Ledger, origin: Option<OriginView>) -> Result<Origin, Problem> {
    Ok(match origin {
        None | Some(OriginView::Own) => Origin::Own,
        Some(OriginView::Mirror {
            system,
            cluster,
            object,
            uid,
        }) => Origin::Mirror {
            system: convert::system(&system)?,
            cluster: convert::cluster_id(ledger, &cluster),
            object: object.into(),
            uid: uid.into(),
        },
    })
}

fn lease(ledger: &Ledger, row: LeaseRow) -> Result<ImportRow, Problem> {
    let holder = |owner: &str, instance: &str| -> Result<Holder, Problem> {
        Ok(Holder {
            identity: convert::owner(ledger, owner)?,
            instance: convert::text("instance", instance)?,
        })
    };
    let member = |member: MemberRow| {
        Ok::<_, Problem>(Member {
            holder: holder(&member.owner, &member.instance)?,
            ports: member.ports,
        })
    };
    let members = row.members.into_iter().map(member);
    let mut members = members.collect::<Result<Vec<_>, _>>()?;
    if let Some(owner) = row.owner.as_deref().filter(|_| members.is_empty()) {
        members.push(Member {
            holder: holder(owner, "")?,
            ports: Vec::new(),
        });
    }
    let contender = |contender: &ContenderRow| {
        Ok::<_, Problem>(Contender {
            holder: holder(&contender.owner, &contender.instance)?,
            tenant: tenant(&contender.tenant)?,
            since: time("since", &contender.since)?,
            uses: uses(&contender.uses)?,
        })
    };
    let contenders = row.contenders.iter().map(contender);
    let contenders = contenders.collect::<Result<Vec<_>, _>>()?;
    let (address, length) = convert::prefix("address", &row.address)?;
    let key = LeaseKey {
        network: NetworkId::DEFAULT,
        address,
    };
    if let (Some(named), Some(length)) = (length, row.length)
        && named != length
    {
        let allowed = format!("{named}, as in the address, or nothing");
        return Err(Problem::invalid("length", length.to_string(), allowed));
    }
    Ok(ImportRow::Lease(Box::new(ImportedLease {
        network: row.network.unwrap_or_else(|| "default".to_owned()).into(),
        pool: row.pool.map(Into::into),
        since: given(&row.since, |text| time("since", text))?,
        lease: Lease {
            length: length.or(row.length).unwrap_or_else(|| key.bits()),
            key,
            pool: None,
            state: row.state.unwrap_or(LeaseState::Allocated),
            members: members.into_iter().collect(),
            contenders,
            tenant: tenant(&row.tenant)?,
            group: row.group.map(Into::into),
            since: Timestamp(0),
            until: given(&row.until, |text| time("until", text))?,
            labels: row.labels.into(),
        },
    })))
}
