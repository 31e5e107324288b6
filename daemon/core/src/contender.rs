//! Who was found using what another has.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{Holder, LeaseKey, LeasePrefix, Span, Tenant, Timestamp};

/// Someone found using an address, or part of a prefix, that another holds. It gets what it uses when that is released: who uses
/// more before who uses less, then the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contender {
    pub holder: Holder,
    pub tenant: Option<Tenant>,
    pub since: Timestamp,
    /// What it uses of the lease where that is not all: prefixes in order that have no address in common.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<IpNet>,
}

impl Contender {
    /// The most parts of a lease; of who uses more, those next to each other count as one with what is between them.
    pub const MAX_USES: usize = 64;

    /// What it uses of the lease that covers `lease`.
    pub fn used_of(&self, lease: LeasePrefix) -> impl Iterator<Item = LeasePrefix> {
        let all = self.uses.is_empty().then_some(lease);
        let uses = self.uses.iter();
        let parts = uses.map(move |net| LeasePrefix::of(lease.key.network, *net));
        all.into_iter().chain(parts)
    }

    /// Whether it uses any of these addresses, which are some of the lease.
    pub fn uses_any(&self, span: Span) -> bool {
        let mut uses = self.uses.iter();
        self.uses.is_empty() || uses.any(|net| Span::of_net(*net).overlaps(&span))
    }

    /// Whether its uses are parts of the lease, in order and apart.
    pub(crate) fn is_sound(&self, lease: LeasePrefix) -> bool {
        let span = lease.span();
        let mut before: Option<Span> = None;
        self.uses.len() <= Self::MAX_USES
            && self.used_of(lease).all(|used| {
                let after = before.is_none_or(|one| one.last < used.span().first);
                before = Some(used.span());
                let part = self.uses.is_empty() || used.length > lease.length;
                part && after && used.is_aligned() && span.covers(&used.span())
            })
    }

    /// The same as contender for a lease that covers `to`, where it contended for one that covers `from`. `None`: it uses
    /// nothing of that.
    pub(crate) fn moved(&self, from: LeasePrefix, to: LeasePrefix) -> Option<Self> {
        let mut moved: Option<Self> = None;
        for used in self.used_of(from) {
            if used.span().overlaps(&to.span()) {
                let next = moved.get_or_insert_with(|| Self {
                    uses: part(used, to).into_iter().collect(),
                    ..self.clone()
                });
                next.adds(used, to);
            }
        }
        moved
    }

    /// Adds a use of the lease.
    pub(crate) fn adds(&mut self, used: LeasePrefix, lease: LeasePrefix) {
        if self.uses.is_empty() {
            return;
        }
        let Some(net) = part(used, lease) else {
            self.uses.clear();
            return;
        };
        if self.uses.iter().any(|known| known.contains(&net)) {
            return;
        }
        self.put(net);
        if self.uses.len() > Self::MAX_USES {
            self.merge_nearest();
        }
    }

    /// In its place, and for all that is in it.
    fn put(&mut self, net: IpNet) {
        self.uses.retain(|known| !net.contains(known));
        let at = self.uses.partition_point(|known| *known < net);
        self.uses.insert(at, net);
    }

    /// Two uses that are next to each other become one, with what is between them: those for which that is the least.
    fn merge_nearest(&mut self) {
        let pairs = self
            .uses
            .windows(2)
            .filter_map(|pair| around_both(pair.first()?, pair.last()?));
        if let Some(merged) = pairs.max_by_key(IpNet::prefix_len) {
            self.put(merged);
        }
    }

    /// Ends the use that begins there in a lease; whether one is left.
    pub(crate) fn ends(&mut self, key: LeaseKey, lease: LeasePrefix) -> bool {
        if self.uses.is_empty() {
            return key != lease.key;
        }
        self.uses.retain(|net| net.addr() != key.address);
        !self.uses.is_empty()
    }
}

/// The smallest prefix that has both.
fn around_both(one: &IpNet, other: &IpNet) -> Option<IpNet> {
    let mut around = Some(*one);
    while let Some(net) = around.filter(|net| !net.contains(other)) {
        around = net.supernet();
    }
    around
}

/// What a use is of a lease; `None`: all of it.
pub(crate) fn part(used: LeasePrefix, lease: LeasePrefix) -> Option<IpNet> {
    (used.length > lease.length).then(|| used.net())
}
