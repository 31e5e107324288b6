//! How full pools are.

use super::space::free::PoolRoom;

/// How full a pool is. Counts saturate at `u128::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Assignable addresses.
    pub size: u128,
    /// Of these, leased, through whatever pool.
    pub used: u128,
    /// `size - used`.
    pub free: u128,
    /// Leases attributed to the pool that cool after a release; `used` counts those on assignable addresses.
    pub quarantined: u128,
    /// Listed addresses that exclusions take away.
    pub excluded: u128,
    /// Listed addresses that are the gateway or reserved ends.
    pub reserved: u128,
    /// Addresses that pools of other networks may mean as well, see [`crate::Ledger::ambiguities`]; no part of `size`.
    pub withheld: u128,
    /// Leases attributed to the pool on withheld addresses.
    pub withheld_in_use: u128,
    /// Leases attributed to the pool on other addresses than these.
    pub out_of_range: u128,
    /// All leases attributed to the pool, and to no other one that gives the same addresses.
    pub attributed: u128,
}

impl PoolUsage {
    /// Of a pool that has so many leases, of which so many cool.
    pub(super) fn of(room: &PoolRoom, attributed: usize, cooling: u64) -> Self {
        let (size, attributed) = (room.layout.size, attributed as u128);
        Self {
            size: size.assignable,
            used: room.used,
            free: room.unleased(),
            quarantined: cooling.into(),
            excluded: size.excluded,
            reserved: size.reserved,
            withheld: room.layout.withheld_count(),
            withheld_in_use: room.aside,
            out_of_range: attributed.saturating_sub(room.own + room.aside),
            attributed,
        }
    }

    /// All leases on the pool's addresses, through whatever pool, and those that it has elsewhere.
    pub fn leased(&self) -> u128 {
        let elsewhere = self.withheld_in_use.saturating_add(self.out_of_range);
        self.used.saturating_add(elsewhere)
    }

    /// Leases attributed to the pool that somebody has: what cools has no holder.
    pub fn held(&self) -> u128 {
        self.attributed.saturating_sub(self.quarantined)
    }

    /// Whether any of it is leased, through whatever pool: it leaves its network only when none is.
    pub fn in_use(&self) -> bool {
        self.leased() > 0
    }
}
