//! Who waits for what in the address book, and who is to be affected by a change of it.
//!
//! A controller notes why an object could not be served; the change log of the ledger tells when that may be
//! different. Nothing is asked again without such a reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::{
    Change, ClusterId, Identity, LeaseKey, LeasePrefix, Ledger, NetworkId, PoolId, Refusal,
    RefusalClass, System, Tenant,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    controller::{confirm_absence::RECHECK_AFTER, store::Key},
    ipam::Ipam,
};

/// When an object is looked at again whose network is still to be adopted.
pub const RECHECK_HELD_AFTER: Duration = Duration::from_secs(10);

/// What an object waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A pool that appears or is edited.
    Pools,
    /// A word on which networks are two, or a pool that appears or is edited.
    Networks,
    /// An address that somebody else holds.
    Address(LeaseKey),
    /// The adoption of a network.
    Held(NetworkId),
    /// A free address; the ledger keeps the queue.
    Exhausted,
    /// Room in a quota of the tenant.
    Quota(Tenant),
    /// Another object of the cluster, by kind: whoever follows those queues what [`Waiters::waiting_on`] names.
    Object(&'static str, Key),
}

impl Cause {
    /// Whether the object keeps its place in a queue of the ledger. It does while a network or pool is held back: otherwise
    /// whoever asks first after the hold is served first, not whoever has waited longest.
    pub fn keeps_place(&self) -> bool {
        match self {
            Self::Exhausted | Self::Held(_) => true,
            Self::Pools | Self::Networks | Self::Address(_) | Self::Quota(_) | Self::Object(..) => {
                false
            }
        }
    }

    /// When the object is looked at again all the same: what it waits for may have come before the wait was noted.
    pub fn ask_again(&self) -> Duration {
        match self {
            Self::Held(_) => RECHECK_HELD_AFTER,
            Self::Pools
            | Self::Networks
            | Self::Address(_)
            | Self::Exhausted
            | Self::Quota(_)
            | Self::Object(..) => RECHECK_AFTER,
        }
    }
}

/// The objects of one controller that wait.
pub struct Waiters {
    system: System,
    cluster: ClusterId,
    kind: &'static str,
    state: Mutex<WaiterState>,
}

#[derive(Default)]
struct WaiterState {
    causes: BTreeMap<Key, Cause>,
    waiting: BTreeMap<Cause, BTreeSet<Key>>,
    generations: BTreeMap<PoolId, u64>,
}

/// What happened to the ledger since the last look.
pub enum LedgerEvent<'a> {
    Changes(&'a [Arc<Change>]),
    /// Too much to tell; everything may be different. What may have changed of pools follows as [`LedgerEvent::Changes`] that
    /// name each pool, also those that are gone.
    Everything,
}

impl Waiters {
    /// For the objects of `kind` of a system of this cluster.
    pub fn new(system: System, cluster: ClusterId, kind: &'static str) -> Self {
        Self {
            system,
            cluster,
            kind,
            state: Mutex::new(WaiterState::default()),
        }
    }

    /// Notes what `key` waits for; `None`: nothing.
    pub fn wait(&self, key: &Key, cause: Option<Cause>) {
        let mut state = self.state.lock();
        if state.causes.get(key) == cause.as_ref() {
            return;
        }
        if let Some(old) = state.causes.remove(key)
            && let Some(keys) = state.waiting.get_mut(&old)
        {
            keys.remove(key);
            if keys.is_empty() {
                state.waiting.remove(&old);
            }
        }
        if let Some(cause) = cause {
            state.causes.insert(key.clone(), cause.clone());
            state.waiting.entry(cause).or_default().insert(key.clone());
        }
    }

    /// The objects that wait for this one.
    pub fn waiting_on(&self, kind: &'static str, key: &Key) -> Vec<Key> {
        let cause = Cause::Object(kind, key.clone());
        self.state.lock().waiting_for(&cause).collect()
    }

    /// The objects to look at again.
    pub fn affected_keys(&self, ledger: &Ledger, event: &LedgerEvent<'_>) -> BTreeSet<Key> {
        self.affected(ledger, event).0
    }

    /// The objects to look at again, and whether a pool is new, gone or has another specification than before.
    pub fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) -> (BTreeSet<Key>, bool) {
        let mut state = self.state.lock();
        let (mut keys, mut edited) = (BTreeSet::new(), true);
        match event {
            LedgerEvent::Everything => {
                keys.extend(state.causes.keys().cloned());
                // Who uses their addresses too may have come while nobody listened.
                let contended = ledger.contentions().take(Ledger::SCAN);
                let holders = contended.flat_map(|lease| &lease.members);
                keys.extend(holders.filter_map(|member| self.key(&member.holder.identity)));
            }
            LedgerEvent::Changes(changes) => {
                let pools: BTreeSet<PoolId> = changes
                    .iter()
                    .flat_map(|change| change.pools.iter().copied())
                    .collect();
                edited = state.pools_edited(ledger, &pools);
                let other = changes.iter().any(|change| change.other);
                if edited {
                    keys.extend(state.waiting_for(&Cause::Pools));
                    // A pool may require a quota no more.
                    keys.extend(state.waiting_for_quotas());
                }
                if edited || other {
                    keys.extend(state.waiting_for(&Cause::Networks));
                }
                let mut most = WOKEN;
                for pool in &pools {
                    let ready = ledger.ready_waiters(*pool, most);
                    most -= ready.len();
                    keys.extend(ready.iter().filter_map(|identity| self.key(identity)));
                }
                for change in *changes {
                    for lease in &change.leases {
                        keys.extend(state.waiting_in(*lease));
                    }
                    for tenant in &change.tenants {
                        keys.extend(state.waiting_for(&Cause::Quota(tenant.clone())));
                    }
                    let named = change.identities.iter();
                    keys.extend(named.filter_map(|identity| self.key(identity)));
                }
                if other {
                    keys.extend(state.lifted(ledger));
                }
            }
        }
        (keys, edited)
    }

    /// The key of the object with this identity, if it is one of this controller's.
    fn key(&self, identity: &Identity) -> Option<Key> {
        let ours = identity.system == self.system
            && identity.cluster.as_ref() == Some(&self.cluster)
            && &*identity.kind == self.kind;
        ours.then(|| Key::of_identity(identity))
    }
}

impl WaiterState {
    fn waiting_for<'a>(&'a self, cause: &Cause) -> impl Iterator<Item = Key> + use<'a> {
        self.waiting.get(cause).into_iter().flatten().cloned()
    }

    /// For an address of the prefix.
    fn waiting_in(&self, prefix: LeasePrefix) -> impl Iterator<Item = Key> {
        let (first, last) = LeaseKey::within(prefix.key.network, prefix.span()).into_inner();
        let waiting = self
            .waiting
            .range(Cause::Address(first)..=Cause::Address(last));
        waiting.flat_map(|(_, keys)| keys.iter().cloned())
    }

    fn waiting_for_quotas(&self) -> impl Iterator<Item = Key> {
        let quotas = self.waiting.iter();
        let quotas = quotas.filter(|(cause, _)| matches!(cause, Cause::Quota(_)));
        quotas.flat_map(|(_, keys)| keys.iter().cloned())
    }

    /// Whether one of `pools` is new, gone or has another specification than before.
    fn pools_edited(&mut self, ledger: &Ledger, pools: &BTreeSet<PoolId>) -> bool {
        let mut edited = false;
        for id in pools {
            let now = ledger.pool(*id).map(|pool| pool.generation);
            let before = match now {
                Some(generation) => self.generations.insert(*id, generation),
                None => self.generations.remove(id),
            };
            edited |= before != now;
        }
        edited
    }

    /// Who waited for the adoption of a network that gives addresses, unless a hold after a restore goes on.
    fn lifted(&self, ledger: &Ledger) -> Vec<Key> {
        let gives = |cause: &Cause| matches!(cause, Cause::Held(network) if ledger.holds(*network).is_empty());
        let lifted = self.waiting.iter().filter(|(cause, _)| gives(cause));
        lifted.flat_map(|(_, keys)| keys.iter().cloned()).collect()
    }
}

/// What an object whose request was refused waits for; `None`: for a change of itself.
pub fn cause(refusal: &Refusal, network: NetworkId) -> Option<Cause> {
    match refusal.decisive().class() {
        RefusalClass::Exhausted => Some(Cause::Exhausted),
        RefusalClass::OverQuota(tenant) => Some(Cause::Quota(tenant.clone())),
        RefusalClass::AddressTaken(address) => Some(Cause::Address(LeaseKey { network, address })),
        RefusalClass::Held | RefusalClass::RestoreHeld => Some(Cause::Held(network)),
        RefusalClass::NotAssignable
        | RefusalClass::PoolClosed
        | RefusalClass::PoolNotFound
        | RefusalClass::InvalidPool => Some(Cause::Pools),
        RefusalClass::Ambiguous => Some(Cause::Networks),
        RefusalClass::Invalid
        | RefusalClass::NotFound
        | RefusalClass::Exists
        | RefusalClass::PoolInUse
        | RefusalClass::WouldOrphan
        | RefusalClass::Collision
        | RefusalClass::Stale
        | RefusalClass::ChangedHands
        | RefusalClass::Conflict => None,
    }
}

/// Those in queues who are affected in one step at most; the others ask again by themselves.
const WOKEN: usize = 500;
/// Changes that are looked at in one step, and pools where everything may have changed.
const STEP: u16 = 250;

/// Calls `on_change` with what changes in the ledger until cancelled; first with [`LedgerEvent::Everything`]. Each call holds the
/// ledger.
pub async fn listen(
    ipam: Ipam,
    cancel: CancellationToken,
    mut on_change: impl FnMut(&Ledger, &LedgerEvent<'_>),
) {
    let mut revisions = ipam.revisions();
    let mut last = None;
    loop {
        revisions.borrow_and_update();
        let Some(since) = last else {
            // What changes meanwhile is looked at once more.
            last = Some(ipam.read(|ledger| {
                on_change(ledger, &LedgerEvent::Everything);
                ledger.revision()
            }));
            tell_pools(&ipam, &mut on_change).await;
            continue;
        };
        let changes = ipam.read(|ledger| ledger.changes_page(since, STEP.into()));
        last = changes.ok().map(|changes| {
            for step in steps(&changes) {
                ipam.read(|ledger| on_change(ledger, &LedgerEvent::Changes(&step)));
            }
            changes.last().map_or(since, |change| change.revision)
        });
        if last != Some(since) {
            if cancel.is_cancelled() {
                return;
            }
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            changed = revisions.changed() => if changed.is_err() { return },
        }
    }
}

/// The changes, as many at once as may be looked at in one step; a large one comes in parts.
fn steps(changes: &[Arc<Change>]) -> Vec<Vec<Arc<Change>>> {
    let (mut steps, mut rows) = (Vec::<Vec<_>>::new(), 0);
    for part in changes.iter().flat_map(|change| change.parts(STEP.into())) {
        rows += part.rows();
        match steps.last_mut() {
            Some(step) if rows <= Ledger::SCAN => step.push(part),
            Some(_) | None => {
                rows = part.rows();
                steps.push(vec![part]);
            }
        }
    }
    steps
}

async fn tell_pools(ipam: &Ipam, on_change: &mut impl FnMut(&Ledger, &LedgerEvent<'_>)) {
    // Numbers begin with 1.
    let mut first = 1_u32;
    loop {
        let end = ipam.read(|ledger| {
            let end = ledger.next_pool().0.min(first.saturating_add(STEP.into()));
            if end <= first {
                return None;
            }
            let pools = (first..end).map(PoolId).collect();
            let change = Arc::new(Change {
                revision: ledger.revision(),
                pools,
                ..Change::default()
            });
            on_change(ledger, &LedgerEvent::Changes(&[change]));
            Some(end)
        });
        match end {
            Some(end) => first = end,
            None => return,
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests;
