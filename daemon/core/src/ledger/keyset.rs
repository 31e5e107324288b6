//! Sets of lease keys that take little room: there are several per lease.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Bound,
};

use crate::{LeaseKey, NetworkId};

/// Lease keys under what they are filed under, in order; beside that 8 bytes for an IPv4 key and 24 for an IPv6 one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FiledKeys<F> {
    v4: BTreeSet<(F, Short)>,
    v6: BTreeSet<(F, Long)>,
}

/// Lease keys in order.
pub(super) type KeySet = FiledKeys<()>;

/// An IPv4 key: network and address.
type Short = u64;

/// An IPv6 key: network and both halves of the address.
type Long = (u32, u64, u64);

/// A key in the room of its family.
#[derive(Clone, Copy)]
enum Packed {
    V4(Short),
    V6(Long),
}

impl Packed {
    fn of(key: LeaseKey) -> Self {
        let network = key.network.0;
        match key.address {
            IpAddr::V4(address) => Self::V4(short(network, address)),
            IpAddr::V6(address) => Self::V6(long(network, address)),
        }
    }
}

fn short(network: u32, address: Ipv4Addr) -> Short {
    u64::from(network) << 32 | u64::from(address.to_bits())
}

fn long(network: u32, address: Ipv6Addr) -> Long {
    let [a, b, c, d, e, f, g, h, rest @ ..] = address.octets();
    (
        network,
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u64::from_be_bytes(rest),
    )
}

fn of_short(key: Short) -> LeaseKey {
    let [a, b, c, d, address @ ..] = key.to_be_bytes();
    let network = NetworkId(u32::from_be_bytes([a, b, c, d]));
    LeaseKey {
        network,
        address: Ipv4Addr::from(address).into(),
    }
}

fn of_long((network, high, low): Long) -> LeaseKey {
    let address = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    LeaseKey {
        network: NetworkId(network),
        address: address.into(),
    }
}

impl<F: Copy + Ord> FiledKeys<F> {
    /// Files a key; false if it was there.
    pub fn file(&mut self, under: F, key: LeaseKey) -> bool {
        match Packed::of(key) {
            Packed::V4(key) => self.v4.insert((under, key)),
            Packed::V6(key) => self.v6.insert((under, key)),
        }
    }

    /// Takes a key out; false if it was not there.
    pub fn unfile(&mut self, under: F, key: LeaseKey) -> bool {
        match Packed::of(key) {
            Packed::V4(key) => self.v4.remove(&(under, key)),
            Packed::V6(key) => self.v6.remove(&(under, key)),
        }
    }

    pub fn has(&self, under: F, key: LeaseKey) -> bool {
        match Packed::of(key) {
            Packed::V4(key) => self.v4.contains(&(under, key)),
            Packed::V6(key) => self.v6.contains(&(under, key)),
        }
    }

    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The keys above `after`, in order.
    pub fn of(&self, under: F, after: Option<LeaseKey>) -> impl Iterator<Item = LeaseKey> {
        let (v4, v6) = starts(after);
        let v4 = (v4.map(|key| (under, key)), Bound::Unbounded);
        let v6 = (v6.map(|key| (under, key)), Bound::Unbounded);
        let v4 = self.v4.range(v4).take_while(move |filed| filed.0 == under);
        let v6 = self.v6.range(v6).take_while(move |filed| filed.0 == under);
        let mut v4 = v4.map(|(_, key)| of_short(*key)).peekable();
        let mut v6 = v6.map(|(_, key)| of_long(*key)).peekable();
        std::iter::from_fn(move || match (v4.peek(), v6.peek()) {
            (Some(a), Some(b)) if a > b => v6.next(),
            (Some(_), _) => v4.next(),
            (None, _) => v6.next(),
        })
    }
}

impl KeySet {
    pub fn insert(&mut self, key: LeaseKey) -> bool {
        self.file((), key)
    }

    pub fn remove(&mut self, key: LeaseKey) -> bool {
        self.unfile((), key)
    }

    pub fn contains(&self, key: LeaseKey) -> bool {
        self.has((), key)
    }

    /// All keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = LeaseKey> {
        self.after(None)
    }

    /// The keys above `after`, in order.
    pub fn after(&self, after: Option<LeaseKey>) -> impl Iterator<Item = LeaseKey> {
        self.of((), after)
    }

    /// The keys from `first` to `last`, both of one network and family.
    pub fn within(&self, first: LeaseKey, last: LeaseKey) -> impl Iterator<Item = LeaseKey> {
        let at_first = Some(first).filter(|first| *first <= last && self.contains(*first));
        let rest = self.after(Some(first)).take_while(move |key| *key <= last);
        at_first.into_iter().chain(rest)
    }
}

/// Takes keys in any order; sorted ones make the densest set.
impl<F: Ord> FromIterator<(F, LeaseKey)> for FiledKeys<F> {
    fn from_iter<T: IntoIterator<Item = (F, LeaseKey)>>(keys: T) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (under, key) in keys {
            match Packed::of(key) {
                Packed::V4(key) => v4.push((under, key)),
                Packed::V6(key) => v6.push((under, key)),
            }
        }
        Self {
            v4: v4.into_iter().collect(),
            v6: v6.into_iter().collect(),
        }
    }
}

impl FromIterator<LeaseKey> for KeySet {
    fn from_iter<T: IntoIterator<Item = LeaseKey>>(keys: T) -> Self {
        keys.into_iter().map(|key| ((), key)).collect()
    }
}

/// Where the keys above `after` begin, by family.
fn starts(after: Option<LeaseKey>) -> (Bound<Short>, Bound<Long>) {
    match after.map(|after| (Packed::of(after), after.network.0)) {
        None => (Bound::Included(0), Bound::Included((0, 0, 0))),
        // IPv4 comes first within a network.
        Some((Packed::V4(key), network)) => {
            (Bound::Excluded(key), Bound::Included((network, 0, 0)))
        }
        Some((Packed::V6(key), network)) => (
            Bound::Excluded(short(network, Ipv4Addr::BROADCAST)),
            Bound::Excluded(key),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(network: NetworkId, address: IpAddr) -> LeaseKey {
        LeaseKey { network, address }
    }

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
    #[test]
    fn keys_of_one_print_come_in_the_order_of_keys() {
        let keys = [(0, "10.0.0.1"), (0, "::1"), (1, "0.0.0.1"), (1, "::1")];
        let keys = keys.map(|(network, address)| LeaseKey {
            network: NetworkId(network),
            address: address.parse().expect(address),
        });
        let mut identities = FiledKeys::default();
        for key in keys {
            for print in [6, 7, 8] {
                identities.file(print, key);
            }
        }
        assert!(identities.of(7, None).eq(keys));
        for (at, key) in keys.iter().enumerate() {
            let rest = keys.iter().copied().skip(at + 1);
            assert!(identities.of(7, Some(*key)).eq(rest));
        }
        assert_eq!(identities.of(9, None).count(), 0);
    }
}
