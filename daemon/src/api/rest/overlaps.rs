//! Pools of one network that may give the same addresses: allowed, and easily not meant.

use fipd_core::{Overlap, Pool, PoolId, Scope};

use crate::{
    api::{
        access::visible::VisibleLedger,
        wire::{Checked, OverlapView, SharedRangeView},
    },
    clusters::{Clusters, ranges::SharedRange},
    ipam::Ipam,
};

/// The most overlaps of a pool that are shown.
pub const SHOWN: usize = 20;

/// Where other pools that the caller sees may give what the pool may give.
pub fn views(visible: VisibleLedger<'_>, pool: PoolId, most: usize) -> Vec<OverlapView> {
    seen(visible, visible.ledger.overlaps(pool, most))
}

/// Where pools of other networks, which nobody chose, may mean the same addresses.
pub fn doubts(visible: VisibleLedger<'_>, pool: PoolId, most: usize) -> Vec<OverlapView> {
    seen(visible, visible.ledger.ambiguities(pool, most))
}

/// What other load balancers may allocate of the pool.
pub fn shared(clusters: &Clusters, scope: &Scope, pool: &Pool) -> Vec<SharedRangeView> {
    // Clusters are not for those who see a part.
    if !scope.is_all() {
        return Vec::new();
    }
    let ranges = clusters.shared_ranges(pool, SHOWN).into_iter();
    let view = |range: SharedRange| SharedRangeView {
        cluster: range.cluster.to_string(),
        object: range.object.to_string(),
        first: range.first,
        last: range.last,
    };
    ranges.map(view).collect()
}

fn seen(visible: VisibleLedger<'_>, overlaps: Vec<Overlap>) -> Vec<OverlapView> {
    let view = |overlap: Overlap| {
        let other = visible.ledger.pool(overlap.pool)?;
        visible.scope.has_pool(other).then(|| OverlapView {
            pool: other.spec.name.to_string(),
            first: overlap.first,
            last: overlap.last,
        })
    };
    overlaps.into_iter().filter_map(view).collect()
}

/// One line for each pool that overlaps another; the lock is given back after each.
pub fn checks(ipam: &Ipam) -> Vec<Checked> {
    const TOLD: usize = 3;
    let scope = Scope::default();
    let pools = ipam.pools();
    let mut checks = Vec::new();
    for pool in pools {
        let overlaps = ipam.read(|ledger| {
            let scope = &scope;
            views(VisibleLedger { ledger, scope }, pool.id, TOLD)
        });
        let doubt = ipam.read(|ledger| ledger.ambiguity(pool.id));
        let what = format!("pool {}", pool.spec.name);
        checks.extend(doubt.map(|detail| Checked::new(&*what, false, detail)));
        if !overlaps.is_empty() {
            let texts: Vec<_> = overlaps.iter().map(ToString::to_string).collect();
            let texts = texts.join(", ");
            let detail = format!("may give the same addresses as another: {texts}");
            checks.push(Checked::new(what, true, detail));
        }
    }
    checks
}
