//! The map of a pool's IPv4 addresses: 256 cells at a time, one /24 per page.

use std::net::{IpAddr, Ipv4Addr};

use fipd_core::{Family, LeaseState, PoolSpans, Span};

use crate::{links, shorten};

/// What one address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellKind {
    Free,
    Allocated,
    Reserved,
    Probing,
    Quarantined,
    Orphaned,
    Contended,
    Gateway,
    Excluded,
    /// Not given until an admin says which network it is of.
    Withheld,
    /// The first or the last ones of a prefix.
    ReservedEnd,
    /// No address of the pool.
    Outside,
}

/// One address of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub network: u32,
    pub address: Ipv4Addr,
    pub kind: CellKind,
    /// Who holds it; empty where nobody does.
    pub owner: String,
}

/// A lease as the map needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub address: Ipv4Addr,
    pub state: LeaseState,
    pub contended: bool,
    pub owner: String,
}

/// What the map of one /24 is made from. Spans need no order.
#[derive(Clone, Copy, Debug)]
pub struct MapPlan<'a> {
    pub network: u32,
    /// Any address of the /24.
    pub at: Ipv4Addr,
    /// What the pool has there.
    pub spans: &'a PoolSpans,
    /// What exclusions take away.
    pub excluded: &'a [Span],
    pub gateway: Option<IpAddr>,
    pub leases: &'a [Held],
}

/// One page of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressMap {
    /// Always 256, in order.
    pub cells: Vec<Cell>,
    /// Which /24 of the pool this is, from 1.
    pub block: u64,
    pub blocks: u64,
    pub first: Option<String>,
    pub previous: Option<String>,
    pub next: Option<String>,
    pub last: Option<String>,
    /// Of the box that goes to an address.
    pub goto: crate::Field,
    /// Where that box is sent.
    pub target: String,
}

/// The 256 cells of the /24 around `plan.at`.
pub fn cells(plan: &MapPlan<'_>) -> Vec<Cell> {
    let base = plan.at.to_bits() & !0xff;
    (0..256)
        .map(|offset| {
            let address = Ipv4Addr::from_bits(base | offset);
            let held = plan.leases.iter().find(|held| held.address == address);
            let kind = held.map_or_else(|| unheld(plan, address), Held::kind);
            let owner = held.map_or_else(String::new, |held| held.owner.clone());
            Cell {
                network: plan.network,
                address,
                kind,
                owner,
            }
        })
        .collect()
}

/// The /24s that the spans of IPv4 touch, as sorted, disjoint runs of numbers `address >> 8`.
pub fn blocks(spans: impl IntoIterator<Item = Span>) -> Vec<(u32, u32)> {
    let number = |address: u128| u32::try_from(address >> 8).ok();
    let spans = spans.into_iter().filter(|span| span.family == Family::V4);
    let runs = spans.filter_map(|span| Some((number(span.first)?, number(span.last)?)));
    let mut runs: Vec<(u32, u32)> = runs.collect();
    runs.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::with_capacity(runs.len());
    for (first, last) in runs {
        match merged.last_mut() {
            Some(run) if first <= run.1.saturating_add(1) => run.1 = run.1.max(last),
            Some(_) | None => merged.push((first, last)),
        }
    }
    merged
}

/// How many /24s there are.
pub fn block_count(blocks: &[(u32, u32)]) -> u64 {
    blocks
        .iter()
        .map(|(first, last)| u64::from(last - first) + 1)
        .sum()
}

/// The first address of /24 number `index` (from 0).
pub fn block_at(blocks: &[(u32, u32)], mut index: u64) -> Option<Ipv4Addr> {
    for (first, last) in blocks {
        let size = u64::from(last - first) + 1;
        if index < size {
            let offset = u32::try_from(index).ok()?;
            return Some(Ipv4Addr::from_bits((first + offset) << 8));
        }
        index -= size;
    }
    None
}

/// The number of the /24 around an address, from 0; `None` where the pool has none there.
pub fn block_of(blocks: &[(u32, u32)], address: Ipv4Addr) -> Option<u64> {
    let wanted = address.to_bits() >> 8;
    let mut before = 0;
    for (first, last) in blocks {
        if (*first..=*last).contains(&wanted) {
            return Some(before + u64::from(wanted - first));
        }
        before += u64::from(last - first) + 1;
    }
    None
}

fn unheld(plan: &MapPlan<'_>, address: Ipv4Addr) -> CellKind {
    let address = address.into();
    let within = |spans: &[Span]| spans.iter().any(|span| span.contains(address));
    let PoolSpans {
        listed,
        assignable,
        withheld,
    } = plan.spans;
    if plan.gateway == Some(address) {
        CellKind::Gateway
    } else if within(assignable) {
        CellKind::Free
    } else if within(withheld) {
        CellKind::Withheld
    } else if within(listed) && within(plan.excluded) {
        CellKind::Excluded
    } else if within(listed) {
        CellKind::ReservedEnd
    } else {
        CellKind::Outside
    }
}

impl Held {
    fn kind(&self) -> CellKind {
        if self.contended {
            return CellKind::Contended;
        }
        match self.state {
            LeaseState::Allocated => CellKind::Allocated,
            LeaseState::Reserved => CellKind::Reserved,
            LeaseState::Probing => CellKind::Probing,
            LeaseState::Quarantined => CellKind::Quarantined,
            LeaseState::Orphaned => CellKind::Orphaned,
        }
    }
}

impl CellKind {
    /// In the order of the legend.
    pub const ALL: [Self; 12] = [
        Self::Free,
        Self::Allocated,
        Self::Reserved,
        Self::Probing,
        Self::Quarantined,
        Self::Orphaned,
        Self::Contended,
        Self::Gateway,
        Self::Excluded,
        Self::Withheld,
        Self::ReservedEnd,
        Self::Outside,
    ];

    /// Short class of the cell (there are 256 of them), and its name.
    fn texts(&self) -> (&'static str, &'static str) {
        match self {
            Self::Free => ("f", "free"),
            Self::Allocated => ("a", "allocated"),
            Self::Reserved => ("r", "reserved"),
            Self::Probing => ("p", "probing"),
            Self::Quarantined => ("q", "quarantined"),
            Self::Orphaned => ("o", "orphaned"),
            Self::Contended => ("c", "contended"),
            Self::Gateway => ("g", "gateway"),
            Self::Excluded => ("x", "excluded"),
            Self::Withheld => ("w", "withheld"),
            Self::ReservedEnd => ("e", "reserved end"),
            Self::Outside => ("n", "not in the pool"),
        }
    }

    pub(crate) fn class(&self) -> &'static str {
        self.texts().0
    }

    pub(crate) fn word(&self) -> &'static str {
        self.texts().1
    }
}

impl Cell {
    pub(crate) fn link(&self) -> String {
        links::lease(self.network, self.address.into())
    }

    pub(crate) fn octet(&self) -> u8 {
        self.address.octets()[3]
    }

    /// `10.0.0.7 allocated: OWNER`, cut.
    pub(crate) fn title(&self) -> String {
        let colon = if self.owner.is_empty() { "" } else { ": " };
        format!(
            "{} {}{colon}{}",
            self.address,
            self.kind.word(),
            shorten(&self.owner, 70)
        )
    }
}

impl AddressMap {
    /// The /24 as text.
    pub(crate) fn name(&self) -> String {
        self.cells
            .first()
            .map_or_else(String::new, |cell| format!("{}/24", cell.address))
    }

    /// The kinds on this page and how many of each, in the order of the legend.
    pub(crate) fn legend(&self) -> Vec<(CellKind, usize)> {
        let of = |kind: CellKind| self.cells.iter().filter(|cell| cell.kind == kind).count();
        CellKind::ALL
            .into_iter()
            .map(|kind| (kind, of(kind)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests;
