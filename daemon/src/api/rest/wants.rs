//! What an allocation asks for, from the wire to the ledger.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::{
    Allocate, Asker, Choice, Family, Holder, PoolScope, PoolSpec, Role, Selection, Tenant, Text,
};

use crate::api::{
    access::{auth::Caller, visible::VisibleLedger},
    convert::{self, given},
    problem::Problem,
    wire::{self, Select, Want},
};

/// The most labels of an asker.
const MAX_LABELS: usize = 256;

/// The request that an allocation's body makes.
pub fn allocation(
    visible: VisibleLedger<'_>,
    body: wire::Allocate,
    caller: &Caller,
) -> Result<Allocate, Problem> {
    let most = Allocate::MAX_WANTS;
    let count = body.wants.len();
    if !(1..=most).contains(&count) {
        let allowed = format!("1 to {most} entries");
        return Err(Problem::invalid("wants", count.to_string(), allowed));
    }
    let identity = convert::owner(visible.ledger, &body.owner)?;
    let instance = convert::text("instance", &body.instance)?;
    let tenant = given(&body.tenant, |tenant| convert::text("tenant", tenant))?;
    let wants = body.wants.iter().map(|want| want_of(visible, want));
    let wants = wants.collect::<Result<_, _>>()?;
    Ok(Allocate {
        holder: Holder { identity, instance },
        tenant: tenant.map(Tenant).or_else(|| own_tenant(caller)),
        wants,
        waiting_since: None,
        by_admin: caller.role == Role::Admin && caller.scope.tenants.is_empty(),
        share: body.share.as_ref().map(convert::share).transpose()?,
        probe: body.probe,
        actor: caller.actor.clone(),
    })
}

/// Who is charged where the request does not say: the tenant of a token that is for one.
fn own_tenant(caller: &Caller) -> Option<Tenant> {
    match caller.scope.tenants.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    }
}

fn want_of(visible: VisibleLedger<'_>, want: &Want) -> Result<fipd_core::Want, Problem> {
    let count = want.count.unwrap_or(1);
    if !(1..=fipd_core::Want::MAX_COUNT).contains(&count) {
        let allowed = format!("1 to {}", fipd_core::Want::MAX_COUNT);
        return Err(Problem::invalid("count", count.to_string(), allowed));
    }
    let named = given(&want.address, |text| convert::prefix("address", text))?;
    let (address, length) = named.map_or((None, None), |(address, length)| (Some(address), length));
    if address.is_some() && count != 1 {
        let allowed = "1 where an address is named";
        return Err(Problem::invalid("count", count.to_string(), allowed));
    }
    let pool = match (&want.pool, &want.select) {
        (Some(name), None) => {
            let pool = visible.pool(name);
            let pool = pool.map_err(|problem| problem.about("pool", name))?;
            check_length(want, length, &pool.spec)?;
            Choice::Pool(pool.id)
        }
        (None, Some(select)) => {
            let length = selected_length(want, select, named)?;
            selection(visible, select, address, length)?.into()
        }
        (Some(name), Some(_)) => {
            return Err(Problem::invalid("pool", name, "either `pool` or `select`"));
        }
        (None, None) => return Err(Problem::invalid("pool", "", "a pool's name, or `select`")),
    };
    Ok(fipd_core::Want {
        pool,
        address,
        count,
    })
}

/// Bits of what is selected; `None` for an address.
fn selected_length(
    want: &Want,
    select: &Select,
    named: Option<(IpAddr, Option<u8>)>,
) -> Result<Option<u8>, Problem> {
    match (select.length, named, &want.address) {
        (Some(length), Some((_, Some(named))), Some(text)) if length != named => {
            let allowed = format!("a prefix of /{length}, as `select` says");
            Err(Problem::invalid("address", text, allowed))
        }
        (None, Some((address, named)), _) => {
            // Of one address, `/32` and `/128` say nothing.
            let whole = Family::of(address).bits();
            Ok(named.filter(|named| *named != whole))
        }
        (length, ..) => Ok(length),
    }
}

/// A prefix that is named is as long as those that the pool gives.
fn check_length(want: &Want, length: Option<u8>, spec: &PoolSpec) -> Result<(), Problem> {
    let given = spec.lease_length();
    match (length, want.address.as_deref()) {
        (Some(length), Some(text)) if length != given => {
            let allowed = match spec.allocation_length {
                Some(_) => format!("a prefix of /{given}, as pool {} gives", spec.name),
                None => format!("an address, as pool {} gives", spec.name),
            };
            Err(Problem::invalid("address", text, allowed))
        }
        _ => Ok(()),
    }
}

fn selection(
    visible: VisibleLedger<'_>,
    select: &Select,
    address: Option<IpAddr>,
    length: Option<u8>,
) -> Result<Selection, Problem> {
    let network = given(&select.network, |name| Ok(visible.network(name)?.id))?;
    let family = match (select.family.as_deref(), address) {
        (Some("ipv4"), _) => Family::V4,
        (Some("ipv6"), _) => Family::V6,
        (Some(other), _) => return Err(Problem::invalid("family", other, "ipv4 or ipv6")),
        (None, Some(address)) => Family::of(address.to_canonical()),
        (None, None) => return Err(Problem::invalid("family", "", "ipv4 or ipv6")),
    };
    let name = |field: &str, text: &Option<String>| given(text, |text| convert::text(field, text));
    if select.labels.len() > MAX_LABELS {
        let (many, allowed) = (select.labels.len(), format!("at most {MAX_LABELS}"));
        return Err(Problem::invalid("labels", many.to_string(), allowed));
    }
    let text = |text: &String| convert::text("labels", text);
    let label = |(key, value): (&String, &String)| Ok((text(key)?, text(value)?));
    let labels: Result<BTreeMap<Text, Text>, Problem> = select.labels.iter().map(label).collect();
    let cluster = name("cluster", &select.cluster)?;
    Ok(Selection {
        length,
        network,
        family,
        asker: Asker {
            cluster: cluster.map(|cluster| convert::cluster_id(visible.ledger, &cluster)),
            project: name("project", &select.project)?,
            namespace: name("namespace", &select.namespace)?,
            labels: labels?,
        },
    })
}

/// For whom a pool is there; the limits are the ledger's to check.
pub fn scope(scope: wire::PoolScope) -> PoolScope {
    let labels = scope.labels.into_iter();
    PoolScope {
        cluster: scope.cluster.map(Into::into),
        project: scope.project.map(Into::into),
        namespaces: scope.namespaces.into_iter().map(Into::into).collect(),
        labels: labels
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
    }
}

/// A scope as clients see it.
pub fn scope_view(scope: &PoolScope) -> wire::PoolScope {
    let labels = scope.labels.iter();
    wire::PoolScope {
        cluster: scope.cluster.as_ref().map(ToString::to_string),
        project: scope.project.as_ref().map(ToString::to_string),
        namespaces: scope.namespaces.iter().map(ToString::to_string).collect(),
        labels: labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(want: &Want) -> Result<fipd_core::Want, Problem> {
        let (ledger, scope) = (&fipd_core::Ledger::new(), &fipd_core::Scope::default());
        want_of(VisibleLedger { ledger, scope }, want)
    }

    fn field(want: Want) -> String {
        let problem = parsed(&want).unwrap_err();
        problem.field.map_or_else(String::new, String::from)
    }

    #[test]
    fn a_want_names_a_pool_or_selects_one() {
        let select = Select {
            family: Some("ipv4".into()),
            cluster: Some("east".into()),
            ..Select::default()
        };
        assert_eq!(field(Want::default()), "pool");
        assert_eq!(
            field(Want {
                pool: Some("p".into()),
                select: Some(select.clone()),
                ..Want::default()
            }),
            "pool"
        );
        let selecting = |select| Want {
            select: Some(select),
            ..Want::default()
        };
        assert_eq!(field(selecting(Select::default())), "family");
        let bad = Select {
            family: Some("v4".into()),
            ..Select::default()
        };
        assert_eq!(field(selecting(bad)), "family");
        let want = parsed(&selecting(select)).unwrap();
        let Choice::Any(selection) = want.pool else {
            panic!("{want:?}");
        };
        assert_eq!(&*selection.asker.cluster.unwrap().0, "east");
        let by_address = Want {
            address: Some("fd00::1".into()),
            ..selecting(Select::default())
        };
        let want = parsed(&by_address).unwrap();
        assert!(matches!(want.pool, Choice::Any(selection) if selection.family == Family::V6));
    }

    #[test]
    fn the_length_of_an_address_is_that_of_its_family() {
        let length = |address: &str| {
            let want = parsed(&Want {
                select: Some(Select::default()),
                address: Some(address.into()),
                ..Want::default()
            });
            let Choice::Any(selection) = want.unwrap().pool else {
                panic!("{address}");
            };
            selection.length
        };
        for address in ["10.0.0.7/32", "fd00::7/128", "::ffff:10.0.0.7/128"] {
            assert_eq!(length(address), None, "{address}");
        }
        assert_eq!(length("fd00::/64"), Some(64));
        assert_eq!(length("::ffff:10.0.0.0/120"), Some(24));
    }
}
