//! Objects that the original controller made for an announcer: known by what it writes, never by their names alone.
//!
//! MetalLB and PureLB refuse a pool that overlaps another, so no address can have our object beside the original's, and
//! without any it is not announced. So such an object is taken over in place and keeps its name. A controller of the
//! original that still runs leaves a Service that shows an address alone, and deletes these objects by both names when
//! the Service ends, as fipd does.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_crds::labels::{
    LEGACY_PREFIX, PURELB_AGGREGATION, SERVICE_GROUP, legacy_pool_object, pool_object,
};
use serde_json::{Value, json};

use super::{
    announce::{ADVERTISEMENT, GROUP, POOL},
    observe::Svc,
};
use crate::{
    controller::{client::MANAGER, kind::Kind, owned::identify, store::Key},
    systems::rancher_fip::names::{
        MANAGED_BY, PURELB_GROUP, SERVICE_LABEL, SERVICE_NAMESPACE_LABEL,
    },
};

/// Whose an object with one of the names for an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Nobodys,
    Ours,
    /// The original's, made for this Service or for nobody who still has the address.
    Originals,
    /// An admin's: it is left as it is.
    Others,
}

/// Where the object that announces an address of a Service may be.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub service: &'a Key,
    pub address: IpAddr,
}

impl Place<'_> {
    /// The name that fipd and later releases of the original give it.
    pub fn name(&self) -> String {
        pool_object(self.address)
    }

    /// The name that older releases of the original give it.
    pub fn legacy(&self) -> String {
        legacy_pool_object(&self.service.namespace, &self.service.name)
    }

    pub fn whose(&self, kind: Kind, object: Option<&Value>) -> Whose {
        let Some(object) = object else {
            return Whose::Nobodys;
        };
        let legacy = name(object) == Some(&*self.legacy());
        match manager(object) {
            // Ours under the Service's name may be for an address that it had before.
            Some(MANAGER) if kind == POOL && legacy && !holds(kind, object, self.address) => {
                Whose::Others
            }
            Some(MANAGER) => Whose::Ours,
            None if self.made(kind, object, legacy) => Whose::Originals,
            Some(_) | None => Whose::Others,
        }
    }

    /// Whether the original made it, under the name of the address or under that of the Service.
    fn made(&self, kind: Kind, object: &Value, legacy: bool) -> bool {
        if kind == ADVERTISEMENT {
            return advertises_itself(object);
        }
        let Some(original) = Original::read(kind, object) else {
            return false;
        };
        let named = original.service.as_ref();
        let its = named.is_none_or(|named| named == self.service);
        match legacy {
            // A group is the Service's, whatever its address was.
            true => its && (kind == GROUP || original.address == self.address),
            false => original.address == self.address,
        }
    }
}

/// Whether an object of the original is for the addresses of a Service, or is the group that the Service names: two
/// Services of different namespaces may share one of its oldest names.
pub fn is_for(kind: Kind, object: &Value, svc: &Svc, name: &str) -> bool {
    let shown = svc.addresses();
    let its = Original::read(kind, object).is_none_or(|made| shown.contains(&made.address));
    its || svc.mark(PURELB_GROUP) == Some(name)
}

/// Which name the pool of an address has, by what there is under both; `None`: an admin's is in the way.
pub fn choose(place: &Place<'_>, named: Whose, legacy: Whose) -> Option<String> {
    match (named, legacy) {
        (Whose::Ours | Whose::Originals, _) => Some(place.name()),
        (_, Whose::Ours | Whose::Originals) => Some(place.legacy()),
        (Whose::Nobodys, Whose::Nobodys | Whose::Others) => Some(place.name()),
        (Whose::Others, Whose::Nobodys | Whose::Others) => None,
    }
}

/// The name of a Service's PureLB group: the one that the Service names, where that is the original's oldest.
pub fn group_name(svc: &Svc, service: &Key, first: IpAddr) -> String {
    let place = Place {
        service,
        address: first,
    };
    let legacy = place.legacy();
    if svc.mark(PURELB_GROUP) == Some(&*legacy) {
        legacy
    } else {
        place.name()
    }
}

/// Which Services show an address: its key, and whether it is ours.
pub type Users = BTreeMap<IpAddr, Vec<(Key, bool)>>;

pub fn users<'a>(services: impl IntoIterator<Item = (&'a Key, &'a Svc)>) -> Users {
    let mut users = Users::new();
    for (key, svc) in services {
        let addresses: BTreeSet<IpAddr> = svc.addresses().into_iter().collect();
        for address in addresses {
            let shown = users.entry(address).or_default();
            shown.push((key.clone(), svc.is_marked()));
        }
    }
    users
}

/// The pools or groups of the original by address.
pub fn names(kind: Kind, objects: &[Value]) -> impl Iterator<Item = (IpAddr, &str)> {
    objects
        .iter()
        .filter_map(move |one| Some((Original::read(kind, one)?.address, name(one)?)))
}

/// The pools or groups of the original that stand beside ours or in its way: for an address that one Service of ours
/// has and nobody else shows.
pub fn in_the_way(kind: Kind, objects: &[Value], users: &Users) -> Vec<(Key, String)> {
    let ours = objects
        .iter()
        .filter(|object| manager(object) == Some(MANAGER));
    let replaced: BTreeSet<IpAddr> = ours
        .flat_map(|object| addresses(kind, object))
        .filter_map(host)
        .collect();
    let goes = |object: &&Value| {
        let Some(original) = Original::read(kind, object) else {
            return false;
        };
        let address = original.address;
        let Some([(service, true)]) = users.get(&address).map(Vec::as_slice) else {
            return false;
        };
        let place = Place { service, address };
        let own = [place.name(), place.legacy()];
        replaced.contains(&address) || !own.iter().any(|own| name(object) == Some(own))
    };
    objects.iter().filter(goes).filter_map(identify).collect()
}

/// What the original wrote into a pool or group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Original {
    address: IpAddr,
    /// Where it says.
    service: Option<Key>,
}

impl Original {
    /// An object that has exactly what the original writes, under one of its names.
    fn read(kind: Kind, object: &Value) -> Option<Self> {
        if manager(object).is_some() || object.pointer("/metadata/ownerReferences").is_some() {
            return None;
        }
        let addresses = addresses(kind, object);
        let [text] = addresses.as_slice() else {
            return None;
        };
        let address = host(text)?;
        let service = if kind == POOL {
            selected(object)?
        } else {
            None
        };
        let found = name(object)?;
        let legacy = match &service {
            Some(key) => found == legacy_pool_object(&key.namespace, &key.name),
            None => kind == GROUP && found.starts_with(LEGACY_PREFIX),
        };
        (legacy || found == pool_object(address)).then_some(Self { address, service })
    }
}

/// The Service that a pool selects, `None` where it is a group of them; nothing if the original did not write it.
fn selected(pool: &Value) -> Option<Option<Key>> {
    let allocation = pool.pointer("/spec/serviceAllocation")?;
    let [selector] = allocation.get("serviceSelectors")?.as_array()?.as_slice() else {
        return None;
    };
    let labels = selector.get("matchLabels")?.as_object()?;
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    match (label(SERVICE_NAMESPACE_LABEL), label(SERVICE_LABEL)) {
        (Some(namespace), Some(name)) if labels.len() == 2 => {
            let namespaces = allocation.get("namespaces")?.as_array()?;
            let its = namespaces.iter().any(|one| one == namespace);
            its.then(|| Some(Key::new(namespace, name)))
        }
        _ => (labels.len() == 1 && label(SERVICE_GROUP).is_some()).then_some(None),
    }
}

/// Whether an advertisement is as the original writes it.
pub fn is_advertisement(object: &Value) -> bool {
    manager(object).is_none() && advertises_itself(object)
}

/// Whether an advertisement is for the pool of its own name and for nothing else.
fn advertises_itself(object: &Value) -> bool {
    let Some(spec) = object.get("spec").and_then(Value::as_object) else {
        return false;
    };
    let written = ["ipAddressPools", "interfaces"];
    spec.keys().all(|key| written.contains(&&**key))
        && spec.get("ipAddressPools") == Some(&json!([name(object)]))
}

/// The addresses in a pool or group, as they are written.
fn addresses(kind: Kind, object: &Value) -> Vec<&str> {
    let list = |path: &str| object.pointer(path).and_then(Value::as_array);
    if kind == POOL {
        let all = list("/spec/addresses").into_iter().flatten();
        return all.map(|one| one.as_str().unwrap_or("")).collect();
    }
    let pools = ["/spec/local/v4pools", "/spec/local/v6pools"];
    let pools = pools.iter().filter_map(|path| list(path)).flatten();
    pools
        .map(
            |pool| match pool.get("aggregation").and_then(Value::as_str) {
                Some(PURELB_AGGREGATION) => pool.get("pool").and_then(Value::as_str).unwrap_or(""),
                Some(_) | None => "",
            },
        )
        .collect()
}

fn holds(kind: Kind, object: &Value, address: IpAddr) -> bool {
    let all = addresses(kind, object);
    all.iter().any(|text| host(text) == Some(address))
}

/// The address of a CIDR that is one; the original writes `/32` behind both families.
fn host(text: &str) -> Option<IpAddr> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    (bits == "32" || (bits == "128" && address.is_ipv6())).then_some(address)
}

fn name(object: &Value) -> Option<&str> {
    object.pointer("/metadata/name").and_then(Value::as_str)
}

/// Who manages it. The original does not say so on its objects.
fn manager(object: &Value) -> Option<&str> {
    let labels = object.pointer("/metadata/labels")?;
    labels.get(MANAGED_BY).and_then(Value::as_str)
}

#[cfg(test)]
mod tests;
