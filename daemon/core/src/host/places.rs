//! Sources whose rules have another priority than the first of the band, because they took the place of older rules.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use super::desired::RuleSet;

/// The place of a source for as long as it goes by this table and its set names no priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub table: u32,
    pub priority: u32,
}

pub type Places = BTreeMap<IpAddr, Place>;

/// The sets with the priorities of the places: a set that names no priority is split where its sources have several.
pub fn placed(sets: impl IntoIterator<Item = RuleSet>, places: &Places) -> Vec<RuleSet> {
    let mut all = Vec::new();
    for mut set in sets {
        if places.is_empty() || set.priority.is_some() {
            all.push(set);
            continue;
        }
        let mut apart: BTreeMap<u32, BTreeSet<IpAddr>> = BTreeMap::new();
        set.sources.retain(|source| {
            let place = places.get(source).filter(|place| place.table == set.table);
            if let Some(place) = place {
                apart.entry(place.priority).or_default().insert(*source);
            }
            place.is_none()
        });
        let apart: Vec<RuleSet> = apart
            .into_iter()
            .map(|(priority, sources)| RuleSet {
                sources,
                priority: Some(priority),
                name: set.name.clone(),
                ..set
            })
            .collect();
        all.push(set);
        all.extend(apart);
    }
    all
}

/// The places that these sets still use.
pub fn used<S: Borrow<RuleSet>>(sets: impl IntoIterator<Item = S>, places: &Places) -> Places {
    let mut used = Places::new();
    if places.is_empty() {
        return used;
    }
    for set in sets {
        let set = set.borrow();
        let stays = |(source, place): &(&IpAddr, &Place)| {
            set.priority.is_none() && place.table == set.table && set.sources.contains(source)
        };
        let of_set = places.iter().filter(stays);
        used.extend(of_set.map(|(source, place)| (*source, *place)));
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{HostSettings, Marks, Mode, desired};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn set(sources: &[&str], table: u32, priority: Option<u32>) -> RuleSet {
        RuleSet {
            name: "lb".into(),
            sources: sources.iter().map(|one| ip(one)).collect(),
            table,
            priority,
            fail_closed: false,
            mode: Mode::Auto,
        }
    }

    #[test]
    fn a_source_without_a_stated_priority_stays_at_its_place_for_as_long_as_its_table_is_the_same()
    {
        let place = |priority| Place {
            table: 100,
            priority,
        };
        let places = Places::from([
            (ip("10.0.0.1"), place(998)),
            (ip("10.0.0.2"), place(4_999)),
            (ip("10.0.0.9"), place(7)),
        ]);
        let sets = [
            set(&["10.0.0.1", "10.0.0.3"], 100, None),
            set(&["10.0.0.2"], 200, None),
            set(&["10.0.0.9"], 100, Some(1_000)),
        ];
        let all = placed(sets.clone(), &places);
        let rules = desired(&all, &HostSettings::default(), &Marks::new()).rules;
        let shown: Vec<String> = rules.iter().map(ToString::to_string).collect();
        let expected = [
            "998: from 10.0.0.1 lookup 100 proto 200",
            "1000: from 10.0.0.9 lookup 100 proto 200",
            "10000: from 10.0.0.2 lookup 200 proto 200",
            "10000: from 10.0.0.3 lookup 100 proto 200",
        ];
        assert_eq!(shown, expected);
        let still = used(&sets, &places);
        assert_eq!(still, Places::from([(ip("10.0.0.1"), place(998))]));
        assert_eq!(placed(sets.clone(), &Places::new()), sets);
    }
}
