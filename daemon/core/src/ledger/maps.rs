//! What the maps of the ledger have in common: they are read on from a key, and keep nothing for a key that has nothing.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet, btree_map},
    ops::{Bound, SubAssign},
};

/// What the map has above the key.
pub(super) fn above<'a, K: Borrow<Q> + Ord, Q: Ord + ?Sized, V>(
    map: &'a BTreeMap<K, V>,
    key: Option<&Q>,
) -> btree_map::Range<'a, K, V> {
    let from = key.map_or(Bound::Unbounded, Bound::Excluded);
    map.range::<Q, _>((from, Bound::Unbounded))
}

/// Counts one less for the key; whether it was the last.
pub(super) fn uncount<K: Ord, N: From<u8> + PartialEq + SubAssign>(
    counts: &mut BTreeMap<K, N>,
    key: &K,
) -> bool {
    let Some(count) = counts.get_mut(key) else {
        return false;
    };
    *count -= N::from(1);
    let last = *count == N::from(0);
    if last {
        counts.remove(key);
    }
    last
}

/// Takes `one` out of what is kept for the key; whether it was the last.
pub(super) fn take_out<K: Borrow<Q> + Ord, Q: Ord + ?Sized, V: Ord>(
    sets: &mut BTreeMap<K, BTreeSet<V>>,
    key: &Q,
    one: &V,
) -> bool {
    let Some(set) = sets.get_mut(key) else {
        return false;
    };
    set.remove(one);
    let last = set.is_empty();
    if last {
        sets.remove(key);
    }
    last
}
