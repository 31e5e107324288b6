//! Finding leases by the fingerprint of an identity.

use std::{collections::BTreeSet, ops::Bound, sync::Arc};

use crate::{
    Lease, LeaseKey,
    ledger::{
        intern::fingerprint,
        keyset::{Long, Packed, Short, merged, of_long, of_short, starts},
    },
};

/// Keys by the fingerprint of members and contenders, 16 bytes for an IPv4 lease.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Identities {
    v4: BTreeSet<(u64, Short)>,
    v6: BTreeSet<(u64, Long)>,
}

impl Identities {
    pub fn insert(&mut self, print: u64, key: LeaseKey) {
        match Packed::of(key) {
            Packed::V4(key) => self.v4.insert((print, key)),
            Packed::V6(key) => self.v6.insert((print, key)),
        };
    }

    pub fn remove(&mut self, print: u64, key: LeaseKey) {
        match Packed::of(key) {
            Packed::V4(key) => self.v4.remove(&(print, key)),
            Packed::V6(key) => self.v6.remove(&(print, key)),
        };
    }

    pub fn of(&self, print: u64) -> impl Iterator<Item = LeaseKey> {
        let v4 = self
            .v4
            .range((print, 0)..)
            .take_while(move |found| found.0 == print);
        let v6 = self
            .v6
            .range((print, (0, 0, 0))..)
            .take_while(move |found| found.0 == print);
        v4.map(|(_, key)| of_short(*key))
            .chain(v6.map(|(_, key)| of_long(*key)))
    }

    /// The same in the order of keys, those above `after`.
    pub fn after(&self, print: u64, after: Option<LeaseKey>) -> impl Iterator<Item = LeaseKey> {
        let (v4, v6) = starts(after);
        let v4 = (v4.map(|key| (print, key)), Bound::Unbounded);
        let v6 = (v6.map(|key| (print, key)), Bound::Unbounded);
        merged(
            self.v4
                .range(v4)
                .take_while(move |found| found.0 == print)
                .map(|(_, key)| key),
            self.v6
                .range(v6)
                .take_while(move |found| found.0 == print)
                .map(|(_, key)| key),
        )
    }

    pub fn of_sorted(leases: &[Arc<Lease>]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for lease in leases {
            for identity in crate::ledger::identities(lease) {
                let print = fingerprint(identity);
                match Packed::of(lease.key) {
                    Packed::V4(key) => v4.push((print, key)),
                    Packed::V6(key) => v6.push((print, key)),
                }
            }
        }
        Self {
            v4: v4.into_iter().collect(),
            v6: v6.into_iter().collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetworkId;

    #[test]
    fn keys_of_one_print_come_in_the_order_of_keys() {
        let keys = [(0, "10.0.0.1"), (0, "::1"), (1, "0.0.0.1"), (1, "::1")];
        let keys = keys.map(|(network, address)| LeaseKey {
            network: NetworkId(network),
            address: address.parse().expect(address),
        });
        let mut identities = Identities::default();
        for key in keys {
            for print in [6, 7, 8] {
                identities.insert(print, key);
            }
        }
        assert!(identities.after(7, None).eq(keys));
        for (at, key) in keys.iter().enumerate() {
            let rest = keys.iter().copied().skip(at + 1);
            assert!(identities.after(7, Some(*key)).eq(rest));
        }
        assert_eq!(identities.after(9, None).count(), 0);
    }
}
