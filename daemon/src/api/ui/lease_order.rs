//! Orders of a list of leases that the ledger does not keep: where each lease stands, and the first ones while all
//! of them pass by.
//!
//! Pure: whoever walks through the ledger hands the leases over step by step. What is kept is a page and a step.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap, sync::Arc};

use fipd_core::{ClusterId, Lease, LeaseKey, LeaseState, Ledger, Text};
use fipd_web_ui::Direction;
use serde::{Deserialize, Serialize};

/// What a lease is sorted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Value<'a> {
    Number(u64),
    /// System, cluster, kind, namespace, name and interface; empty for nobody.
    Owner([Cow<'a, str>; 6]),
}

/// Where a lease stands: by what it is sorted and, among equals, by its address. The next page begins behind a rank,
/// whatever became of the lease that had it.
pub type Rank<'a> = (Value<'a>, LeaseKey);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Owner,
    State,
    Since,
    /// Leases without an end come last, in both directions.
    Until,
}

/// An order of leases.
pub struct Sorting {
    by: By,
    direction: Direction,
    /// Names that owners are shown with.
    clusters: BTreeMap<ClusterId, Text>,
}

/// The first leases beyond a rank.
pub struct First<'a> {
    sorting: &'a Sorting,
    beyond: Option<Rank<'static>>,
    most: usize,
    /// Up to one more than `most`; the last one is behind all others then, which are in no order.
    kept: Vec<Arc<Lease>>,
}

impl Sorting {
    pub fn new(ledger: &Ledger, by: By, direction: Direction) -> Self {
        let clusters = ledger.clusters().take(Ledger::SCAN);
        let named = clusters.filter_map(|cluster| {
            let name = cluster.names.first()?;
            Some((cluster.id.clone(), Text::clone(name)))
        });
        Self {
            by,
            direction,
            clusters: named.collect(),
        }
    }

    pub fn rank<'l>(&'l self, lease: &'l Lease) -> Rank<'l> {
        let value = match self.by {
            By::Owner => Value::Owner(self.owner(lease)),
            By::State => Value::Number(match lease.state {
                LeaseState::Allocated => 0,
                LeaseState::Reserved => 1,
                LeaseState::Quarantined => 2,
                LeaseState::Probing => 3,
                LeaseState::Orphaned => 4,
            }),
            By::Since => Value::Number(lease.since.0),
            By::Until => Value::Number(match (lease.until, self.direction) {
                (Some(until), _) => until.0,
                (None, Direction::Up) => u64::MAX,
                (None, Direction::Down) => 0,
            }),
        };
        (value, lease.key)
    }

    fn owner<'l>(&'l self, lease: &'l Lease) -> [Cow<'l, str>; 6] {
        let Some(holder) = lease.owner() else {
            return Default::default();
        };
        let owner = &holder.identity;
        let cluster = owner.cluster.as_ref();
        let cluster = cluster.map_or("", |id| self.clusters.get(id).unwrap_or(&id.0));
        [
            owner.system.as_str(),
            cluster,
            &owner.kind,
            &owner.namespace,
            &owner.name,
            &owner.interface,
        ]
        .map(Cow::Borrowed)
    }

    fn compare(&self, left: &Rank<'_>, right: &Rank<'_>) -> Ordering {
        let values = left.0.cmp(&right.0);
        let values = match self.direction {
            Direction::Up => values,
            Direction::Down => values.reverse(),
        };
        values.then_with(|| left.1.cmp(&right.1))
    }

    fn compare_leases(&self, left: &Lease, right: &Lease) -> Ordering {
        self.compare(&self.rank(left), &self.rank(right))
    }
}

impl<'a> First<'a> {
    pub fn new(sorting: &'a Sorting, beyond: Option<Rank<'static>>, most: usize) -> Self {
        Self {
            sorting,
            beyond,
            most,
            kept: Vec::new(),
        }
    }

    /// Takes what belongs to the first of all so far.
    pub fn pass(&mut self, leases: &[Arc<Lease>]) {
        let sorting = self.sorting;
        let last = self.kept.get(self.most).cloned();
        let last = last.as_deref().map(|last| sorting.rank(last));
        for lease in leases {
            let rank = sorting.rank(lease);
            let beyond = self.beyond.as_ref();
            let early = beyond.is_some_and(|beyond| sorting.compare(&rank, beyond).is_le());
            let late = last.as_ref();
            let late = late.is_some_and(|last| sorting.compare(&rank, last).is_gt());
            if !early && !late {
                self.kept.push(Arc::clone(lease));
            }
        }
        if self.kept.len() > self.most {
            let order = |left: &Arc<Lease>, right: &Arc<Lease>| sorting.compare_leases(left, right);
            self.kept.select_nth_unstable_by(self.most, order);
            self.kept.truncate(self.most + 1);
        }
    }

    /// The leases in order, and whether there are more.
    pub fn finish(mut self) -> (Vec<Arc<Lease>>, bool) {
        let sorting = self.sorting;
        self.kept
            .sort_unstable_by(|left, right| sorting.compare_leases(left, right));
        let more = self.kept.len() > self.most;
        self.kept.truncate(self.most);
        (self.kept, more)
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::{Member, Timestamp, testing};
    use proptest::prelude::*;

    use super::*;
    use crate::api::page as cursor;

    const EVERY: [By; 4] = [By::Owner, By::State, By::Since, By::Until];

    fn sorting(by: By, direction: Direction) -> Sorting {
        let name = |id: &str, name: &str| (ClusterId(id.into()), Text::from(name));
        Sorting {
            by,
            direction,
            clusters: [name("uid-1", "west"), name("uid-2", "east")].into(),
        }
    }

    fn lease(number: u16, (owner, state, since): (&str, LeaseState, u64)) -> Arc<Lease> {
        let [high, low] = number.to_be_bytes();
        let member = |owner: &str| Member {
            holder: testing::holder(owner, ""),
            ports: Vec::new(),
        };
        let owner = Some(owner).filter(|owner| !owner.is_empty());
        Arc::new(Lease {
            members: owner.into_iter().map(member).collect(),
            state,
            since: Timestamp(since),
            until: (since % 3 > 0).then_some(Timestamp(since % 7)),
            ..testing::lease(testing::key([10, 0, high, low]), None, None)
        })
    }

    /// All pages one after the other, each from the text of the rank that the one before ended with.
    fn pages(sorting: &Sorting, leases: &[Arc<Lease>], most: usize, step: usize) -> Vec<LeaseKey> {
        let (mut shown, mut after) = (Vec::new(), String::new());
        loop {
            let mut first = First::new(sorting, cursor::read(&after).ok(), most);
            for some in leases.chunks(step) {
                first.pass(some);
                assert!(first.kept.len() <= most + 1, "no more than a page is kept");
            }
            let (found, more) = first.finish();
            shown.extend(found.iter().map(|lease| lease.key));
            let last = found.last().map(|last| sorting.rank(last));
            match last.filter(|_| more) {
                Some(last) => after = cursor::text(&last),
                None => return shown,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn pages_have_each_lease_once_and_in_order(
            rows in prop::collection::vec((0..6_usize, 0..5_usize, 0..20_u64), 0..120),
            most in 1..60_usize,
            step in 1..300_usize,
        ) {
            let owners = [
                "", "fipd/Host/lab/a", "fipd/Host/lab/a-ü&=_ %", "fipd/Host/lab/b",
                "rancher-fip/uid-1/Service/shop/web", "rancher-fip/uid-2/Service/shop/web",
            ];
            let states = [
                LeaseState::Allocated, LeaseState::Reserved, LeaseState::Quarantined,
                LeaseState::Probing, LeaseState::Orphaned,
            ];
            let rows = rows.into_iter().zip(0..);
            let leases: Vec<_> = rows
                .map(|((owner, state, since), at)| lease(at, (owners[owner], states[state], since)))
                .collect();
            for by in EVERY {
                for direction in [Direction::Up, Direction::Down] {
                    let sorting = sorting(by, direction);
                    let mut all: Vec<_> = leases.iter().collect();
                    all.sort_by(|left, right| sorting.compare_leases(left, right));
                    let all: Vec<_> = all.iter().map(|lease| lease.key).collect();
                    prop_assert_eq!(pages(&sorting, &leases, most, step), all);
                }
            }
        }
    }

    #[test]
    fn leases_without_an_end_come_last_in_both_directions() {
        let leases: Vec<_> = [3, 8, 6, 2]
            .into_iter()
            .zip(0..)
            .map(|(since, at)| lease(at, ("", LeaseState::Reserved, since)))
            .collect();
        let ends: Vec<_> = leases.iter().map(|lease| lease.until).collect();
        let at = |number| Some(Timestamp(number));
        assert_eq!(ends, [None, at(1), None, at(2)]);
        let order = |direction| {
            let keys = pages(&sorting(By::Until, direction), &leases, 3, 2);
            let last = |key: &LeaseKey| key.address.to_string().pop().unwrap();
            keys.iter().map(last).collect::<String>()
        };
        assert_eq!(order(Direction::Up), "1302");
        assert_eq!(order(Direction::Down), "3102");
    }

    #[test]
    fn owners_are_sorted_as_they_are_shown() {
        let leases: Vec<_> = [
            "rancher-fip/uid-1/Service/shop/web",
            "",
            "rancher-fip/uid-2/Service/shop/web",
            "fipd/Host/lab/b",
            "fipd/Host/lab/a",
        ]
        .into_iter()
        .zip(0..)
        .map(|(owner, at)| lease(at, (owner, LeaseState::Allocated, 0)))
        .collect();
        let order = |direction| {
            let keys = pages(&sorting(By::Owner, direction), &leases, 2, 2);
            let last = |key: &LeaseKey| key.address.to_string().pop().unwrap();
            keys.iter().map(last).collect::<String>()
        };
        assert_eq!(order(Direction::Up), "14320");
        assert_eq!(order(Direction::Down), "02341");
    }
}
