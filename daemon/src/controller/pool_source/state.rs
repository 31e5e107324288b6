//! What the ledger knows of the pool of an object, and what the object's status says of it.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Lease, Ledger, Pool, PoolId, PoolUsage};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};

use crate::{
    clusters::ranges::{OTHER_LOAD_BALANCER, SHARED_RANGE},
    controller::conditions::{ConditionUpdate, note_condition, set},
    ipam::Ipam,
};

pub use crate::controller::conditions::READY;

/// The network of a Harvester cluster that the object names cannot be read.
pub const VLAN_UNKNOWN: &str = "VlanUnknown";

/// Leases lie outside the pool's addresses.
pub const OUT_OF_RANGE: &str = "OutOfRange";

/// The network of the pool gives nothing yet.
pub const WAITING_FOR_ADOPTION: &str = "WaitingForAdoption";

/// Overlaps with other pools that are named.
const OVERLAPS: usize = 3;

/// What the ledger knows of a pool.
#[derive(Clone, Debug)]
pub struct PoolState {
    pub pool: Arc<Pool>,
    pub usage: PoolUsage,
    /// Name of its network.
    pub network: String,
    /// Why its network gives nothing yet.
    pub waiting: Vec<String>,
    /// Why some of its addresses are not given.
    pub doubt: Option<String>,
    /// Which other pools may give addresses of it.
    pub overlap: Option<String>,
    /// Which load balancers may allocate addresses of it.
    pub shared: Option<String>,
    /// Reason and text of why its VLAN is not known.
    pub unread: Option<(&'static str, String)>,
    /// Address and text of its leases, ascending; up to one more than the status lists.
    pub entries: Vec<(IpAddr, String)>,
    /// How many of all its leases have a text, where `entries` are not all and the kind counts them.
    pub texts: Option<usize>,
}

/// What a status shows.
#[derive(Clone, Debug)]
pub struct PoolReport {
    pub ready: ConditionUpdate,
    /// `None`: the object has no pool.
    pub state: Option<PoolState>,
}

impl PoolState {
    /// Without entries, load balancers and VLAN.
    pub fn read(ledger: &Ledger, pool: &Arc<Pool>) -> Option<Self> {
        Some(Self {
            usage: ledger.usage(pool.id)?,
            network: (ledger.network(pool.spec.network))
                .map_or_else(String::new, |network| network.name.to_string()),
            waiting: (ledger.holds(pool.spec.network).iter())
                .map(ToString::to_string)
                .collect(),
            doubt: ledger.ambiguity(pool.id),
            overlap: overlap(ledger, pool.id),
            shared: None,
            unread: None,
            entries: Vec::new(),
            texts: None,
            pool: Arc::clone(pool),
        })
    }

    /// What [`OUT_OF_RANGE`] says.
    pub fn out_of_range(&self) -> Option<String> {
        let leases = self.usage.out_of_range;
        (leases > 0).then(|| {
            format!(
                "{leases} leases lie outside the pool's addresses; they are kept until their holders give them back"
            )
        })
    }

    /// The verdict on an object whose pool is as it describes it; `remark` counts where the pool gives addresses.
    pub fn ready(&self, remark: Option<String>) -> ConditionUpdate {
        if !self.waiting.is_empty() {
            let message = format!(
                "no new address is given until what is in use is known; waiting for {}",
                self.waiting.join(", ")
            );
            return not_ready(WAITING_FOR_ADOPTION, message);
        }
        if self.pool.spec.closed {
            return not_ready("Closed", "the pool is closed and gives no new address");
        }
        let gives = || "the pool gives addresses".into();
        ConditionUpdate::ready(true, "Mirrored", remark.unwrap_or_else(gives))
    }
}

impl PoolReport {
    /// Sets the conditions that all kinds have.
    pub fn set_conditions(
        &self,
        conditions: &mut Vec<Condition>,
        generation: Option<i64>,
        now: jiff::Timestamp,
    ) {
        set(conditions, &self.ready, generation, now);
        let shared = self.state.as_ref().and_then(|state| state.shared.clone());
        let kind = (SHARED_RANGE, OTHER_LOAD_BALANCER);
        note_condition(conditions, kind, shared, generation, now);
        let unread = self.state.as_ref().and_then(|state| state.unread.clone());
        let (reason, unread) = unread.unzip();
        let kind = (VLAN_UNKNOWN, reason.unwrap_or_default());
        note_condition(conditions, kind, unread, generation, now);
    }
}

/// Why a pool gives nothing.
pub fn not_ready(reason: &'static str, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate::ready(false, reason, message)
}

/// All leases of a pool in address order, a page of the ledger at a time.
pub fn leases_of(ipam: &Ipam, pool: PoolId) -> impl Iterator<Item = Arc<Lease>> {
    let mut next = Some(None);
    let page = move || {
        let after = next?;
        let page = ipam.read(|ledger| ledger.pool_leases(pool, after, Ledger::SCAN));
        next = (page.len() == Ledger::SCAN).then(|| page.last().map(|lease| lease.key.address));
        Some(page)
    };
    std::iter::from_fn(page).flatten()
}

/// The first leases of a pool with their texts, one more than `most`.
pub fn entries(
    ipam: &Ipam,
    pool: PoolId,
    most: usize,
    text: impl Fn(&Lease) -> String,
) -> Vec<(IpAddr, String)> {
    let entries = leases_of(ipam, pool).map(|lease| (lease.key.address, text(&lease)));
    entries.take(most.saturating_add(1)).collect()
}

fn overlap(ledger: &Ledger, pool: PoolId) -> Option<String> {
    let overlaps = ledger.overlaps(pool, OVERLAPS);
    let texts = overlaps.iter().filter_map(|overlap| {
        let other = ledger.pool(overlap.pool)?;
        let (first, last, name) = (overlap.first, overlap.last, &other.spec.name);
        (!other.spec.closed).then(|| format!("{first}-{last} are addresses of pool {name} as well"))
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
