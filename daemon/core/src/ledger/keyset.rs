//! Sets of lease keys that take little room: there are several per lease.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Bound,
};

use crate::{LeaseKey, NetworkId};

/// Lease keys in order; 8 bytes for an IPv4 one and 20 for an IPv6 one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeySet {
    v4: BTreeSet<(NetworkId, Ipv4Addr)>,
    v6: BTreeSet<(NetworkId, Ipv6Addr)>,
}

impl KeySet {
    pub fn insert(&mut self, key: LeaseKey) -> bool {
        match key.address {
            IpAddr::V4(address) => self.v4.insert((key.network, address)),
            IpAddr::V6(address) => self.v6.insert((key.network, address)),
        }
    }

    pub fn remove(&mut self, key: LeaseKey) -> bool {
        match key.address {
            IpAddr::V4(address) => self.v4.remove(&(key.network, address)),
            IpAddr::V6(address) => self.v6.remove(&(key.network, address)),
        }
    }

    pub fn contains(&self, key: LeaseKey) -> bool {
        match key.address {
            IpAddr::V4(address) => self.v4.contains(&(key.network, address)),
            IpAddr::V6(address) => self.v6.contains(&(key.network, address)),
        }
    }

    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// All keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = LeaseKey> {
        self.after(None)
    }

    /// The keys above `after`, in order.
    pub fn after(&self, after: Option<LeaseKey>) -> impl Iterator<Item = LeaseKey> {
        let (v4, v6) = match after {
            None => (Bound::Unbounded, Bound::Unbounded),
            // IPv4 comes first within a network.
            Some(LeaseKey {
                network,
                address: IpAddr::V4(address),
            }) => (
                Bound::Excluded((network, address)),
                Bound::Included((network, Ipv6Addr::UNSPECIFIED)),
            ),
            Some(LeaseKey {
                network,
                address: IpAddr::V6(address),
            }) => (
                Bound::Excluded((network, Ipv4Addr::BROADCAST)),
                Bound::Excluded((network, address)),
            ),
        };
        merged(
            self.v4.range((v4, Bound::Unbounded)),
            self.v6.range((v6, Bound::Unbounded)),
        )
    }

    /// The keys from `first` to `last`, both of one network and family.
    pub fn within(&self, first: LeaseKey, last: LeaseKey) -> impl Iterator<Item = LeaseKey> {
        let mut end = false;
        let from = (first <= last).then_some(first);
        let at_first = from.filter(|first| self.contains(*first));
        let rest = self.after(from).take_while(move |key| {
            end |= *key > last;
            !end
        });
        at_first
            .into_iter()
            .chain(rest)
            .take_while(move |_| from.is_some())
    }
}

/// Takes keys in any order; sorted ones make the densest set.
impl FromIterator<LeaseKey> for KeySet {
    fn from_iter<T: IntoIterator<Item = LeaseKey>>(keys: T) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for key in keys {
            match key.address {
                IpAddr::V4(address) => v4.push((key.network, address)),
                IpAddr::V6(address) => v6.push((key.network, address)),
            }
        }
        Self {
            v4: v4.into_iter().collect(),
            v6: v6.into_iter().collect(),
        }
    }
}

fn merged<'a>(
    v4: impl Iterator<Item = &'a (NetworkId, Ipv4Addr)>,
    v6: impl Iterator<Item = &'a (NetworkId, Ipv6Addr)>,
) -> impl Iterator<Item = LeaseKey> {
    let mut v4 = v4
        .map(|(network, address)| key(*network, (*address).into()))
        .peekable();
    let mut v6 = v6
        .map(|(network, address)| key(*network, (*address).into()))
        .peekable();
    std::iter::from_fn(move || match (v4.peek(), v6.peek()) {
        (Some(a), Some(b)) if a > b => v6.next(),
        (Some(_), _) => v4.next(),
        (None, _) => v6.next(),
    })
}

fn key(network: NetworkId, address: IpAddr) -> LeaseKey {
    LeaseKey { network, address }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_the_order_of_keys() {
        let keys: Vec<LeaseKey> = [
            (0, "10.0.0.1"),
            (0, "10.0.0.2"),
            (0, "::1"),
            (0, "::2"),
            (1, "0.0.0.1"),
            (1, "::1"),
        ]
        .map(|(network, address)| key(NetworkId(network), address.parse().expect(address)))
        .to_vec();
        let set: KeySet = keys.iter().rev().copied().collect();
        assert!(set.iter().eq(keys.iter().copied()));
        for (at, from) in keys.iter().enumerate() {
            assert!(set.after(Some(*from)).eq(keys[at + 1..].iter().copied()));
        }
        assert!(set.within(keys[0], keys[1]).eq(keys[0..2].iter().copied()));
        assert!(set.within(keys[3], keys[3]).eq(keys[3..4].iter().copied()));
        let gap = key(NetworkId(0), "10.0.0.3".parse().expect("an address"));
        assert_eq!(set.within(gap, gap).count(), 0);
    }
}
