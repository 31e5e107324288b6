//! Other pools of the address book that give the addresses of a subnet.

use std::sync::Arc;

use fipd_core::{
    AddressSpec, ClusterId, Ledger, NetworkId, Origin, Pool, PoolId, PoolSpec, Span, System,
};

use super::{super::Wrong, spans, subnet::RANGES};

/// The most pools that are compared with.
const COMPARED: usize = 64;
/// The most pools that a message names.
const NAMED: usize = 5;

/// A pool that gives some of the addresses as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOverlap {
    pub pool: Arc<Pool>,
    /// The lowest run of addresses that both give.
    pub span: Span,
}

/// The open pools of the network, of whatever system, that give any of these addresses as well; `own`: the subnet's own pool.
/// Looks at a bounded number of pools and at no lease.
pub fn overlaps(
    ledger: &Ledger,
    network: NetworkId,
    own: Option<PoolId>,
    given: &[Span],
) -> Vec<PoolOverlap> {
    let (Some(first), Some(last)) = (
        given.iter().min_by_key(|span| span.first),
        given.iter().max_by_key(|span| span.last),
    ) else {
        return Vec::new();
    };
    let whole = Span {
        last: last.last,
        ..*first
    };
    // A network that does not exist yet has no pools.
    let Ok(preview) = ledger.preview_pool(None, &sketch(network, given)) else {
        return Vec::new();
    };
    let others = preview.overlaps.into_iter().filter(|id| Some(*id) != own);
    let overlap = |id: PoolId| {
        let pool = ledger.pool(id).filter(|pool| !pool.spec.closed)?;
        let theirs = ledger.pool_spans(id, whole)?;
        let span = spans::intersection(given, &[theirs.assignable, theirs.withheld].concat())?;
        let pool = Arc::clone(pool);
        Some(PoolOverlap { pool, span })
    };
    others.take(COMPARED).filter_map(overlap).collect()
}

/// A pool of these addresses that nobody has: the pool of a subnet has a namespace in its name.
fn sketch(network: NetworkId, given: &[Span]) -> PoolSpec {
    let range = |span: &Span| AddressSpec::Range(span.first_address(), span.last_address());
    PoolSpec {
        network,
        origin: Origin::Mirror {
            system: System::flat_network(),
            cluster: ClusterId("x".into()),
            object: "x".into(),
            uid: "x".into(),
        },
        ..PoolSpec::own("flat-network/x/x", given.iter().map(range).collect())
    }
}

/// Refuses a subnet whose addresses other pools give.
///
/// # Errors
/// There are such pools.
pub fn refuse(overlaps: &[PoolOverlap]) -> Result<(), Wrong> {
    let Some(first) = overlaps.first() else {
        return Ok(());
    };
    let names = names(overlaps);
    let allowed = format!(
        "other pools of the network give these addresses as well: {names}; write ranges or exclusions that leave them out, or have one of the pools put into another network"
    );
    Err(Wrong::new(RANGES, &spans::text(&first.span), allowed))
}

/// The names of the pools, for a message.
pub fn names(overlaps: &[PoolOverlap]) -> String {
    super::some(overlaps.iter().map(|one| &one.pool.spec.name), NAMED)
}
