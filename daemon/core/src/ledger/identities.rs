//! Finding leases by the fingerprint of an identity.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    intern::fingerprint,
    keyset::{Long, Packed, Short, of_long, of_short},
};
use crate::{Lease, LeaseKey};

/// Keys by the fingerprint of members and contenders, 16 bytes for an IPv4 lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Identities {
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

    pub fn of_sorted(leases: &[Arc<Lease>]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for lease in leases {
            for identity in super::identities(lease) {
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
