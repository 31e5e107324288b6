//! The labels that say which Services use a floating IP, in both generations.

use std::collections::BTreeMap;

use super::{SERVICE_NAME, SERVICE_NAMESPACE, SERVICE_PREFIX};

/// Which labels an entry stands in.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Slot {
    /// `service-name` and `service-namespace`, of the first generation.
    Single,
    /// `service-<n>-name` and `service-<n>-namespace`.
    Numbered(u64),
}

/// A Service as the labels name it. At least one half is not empty.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ServiceSlot {
    /// The labels it stands in.
    pub slot: Slot,
    /// The Service's namespace, or empty.
    pub namespace: String,
    /// The Service's name, or empty.
    pub name: String,
}

#[derive(Clone, Copy)]
enum Half {
    Namespace,
    Name,
}

/// The Services in the labels: the first generation's, then the numbered ones by number. Labels that follow neither form, or whose
/// number does not fit, are no Services.
#[must_use]
pub fn services(labels: &BTreeMap<String, String>) -> Vec<ServiceSlot> {
    let mut found: BTreeMap<Slot, ServiceSlot> = BTreeMap::new();
    for (key, value) in labels {
        let Some((slot, half)) = parse(key) else {
            continue;
        };
        let entry = found.entry(slot).or_insert_with(|| ServiceSlot {
            slot,
            namespace: String::new(),
            name: String::new(),
        });
        let text = match half {
            Half::Namespace => &mut entry.namespace,
            Half::Name => &mut entry.name,
        };
        if text.is_empty() {
            text.clone_from(value);
        }
    }
    found
        .into_values()
        .filter(|entry| !entry.namespace.is_empty() || !entry.name.is_empty())
        .collect()
}

/// The number a new Service gets: one more than the highest in the labels, so that gaps stay gaps.
#[must_use]
pub fn next_service_id(labels: &BTreeMap<String, String>) -> u64 {
    let highest = labels.keys().filter_map(|key| match parse(key)?.0 {
        Slot::Single => None,
        Slot::Numbered(number) => Some(number),
    });
    highest.max().map_or(0, |number| number.saturating_add(1))
}

/// Adds a Service, in the second generation's labels, unless the pair is there already. Says whether the labels changed.
pub fn add_service(labels: &mut BTreeMap<String, String>, namespace: &str, name: &str) -> bool {
    if services(labels)
        .iter()
        .any(|entry| entry.namespace == namespace && entry.name == name)
    {
        return false;
    }
    let number = next_service_id(labels);
    labels.insert(
        format!("{SERVICE_PREFIX}{number}-namespace"),
        namespace.to_owned(),
    );
    labels.insert(format!("{SERVICE_PREFIX}{number}-name"), name.to_owned());
    true
}

/// Removes a Service from the labels of either generation, wherever the pair stands. Says whether the labels changed.
pub fn remove_service(labels: &mut BTreeMap<String, String>, namespace: &str, name: &str) -> bool {
    let gone: Vec<Slot> = services(labels)
        .into_iter()
        .filter(|entry| entry.namespace == namespace && entry.name == name)
        .map(|entry| entry.slot)
        .collect();
    labels.retain(|key, _| parse(key).is_none_or(|(slot, _)| !gone.contains(&slot)));
    !gone.is_empty()
}

/// Removes the Services of both generations, empty halves too. Says whether the labels changed.
pub fn remove_all_services(labels: &mut BTreeMap<String, String>) -> bool {
    let before = labels.len();
    labels.retain(|key, _| parse(key).is_none());
    labels.len() != before
}

fn parse(key: &str) -> Option<(Slot, Half)> {
    match key {
        SERVICE_NAME => return Some((Slot::Single, Half::Name)),
        SERVICE_NAMESPACE => return Some((Slot::Single, Half::Namespace)),
        _ => {}
    }
    let (digits, half) = key.strip_prefix(SERVICE_PREFIX)?.split_once('-')?;
    let half = match half {
        "namespace" => Half::Namespace,
        "name" => Half::Name,
        _ => return None,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((Slot::Numbered(digits.parse().ok()?), half))
}
