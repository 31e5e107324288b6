//! The machine for objects that use an address: one flow from the object and the ledger to a lease, the object's status
//! and its end, for every kind.
//!
//! ```text
//!  object --wish--> settle --request--> ledger --outcome--> finalizer and spec --> status --> Event
//!  gone without its finalizer --> the sweep of the cluster      deleted --> released --> finalizer dropped
//! ```
//!
//! No error is final: whatever an object waits for in the ledger queues it again.

pub mod claim_status;
#[cfg(test)]
pub mod conformance_tests;
mod controller;
pub mod inventory;
mod last_writes;
mod marking;
pub mod outcome;
pub mod recent_uids;
pub mod refusal;
mod release;
pub mod request;
pub mod settle;

use std::{collections::BTreeSet, fmt::Debug, net::IpAddr};

use fipd_core::{Holder, Lease, LeaseKey, Ledger, NetworkId, Tenant};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
    jiff,
};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    ReconcileError, Reconciled, kind::Kind, meta::View, queue::Next, site::Site, store::Key,
    waiters::LedgerEvent,
};
use crate::clusters::adoption::Sighting;
pub use controller::AddressController;
use outcome::{AddressOutcome, ShownLease};
use refusal::FixedFields;
use settle::{Inheritance, Wished};

/// A kind whose objects use an address each. Pure: what an object asks for, shows and is told.
///
/// What is written comes in two steps, since the status is about the generation that a write of the specification makes:
/// [`Self::spec`] first, then [`Self::status`] of the object as it is by then. What no function of object and ledger can
/// say is in [`AddressHooks`].
pub trait AddressUser: Sized + Send + Sync + 'static {
    type Raw: Resource<DynamicType = ()>
        + Clone
        + Debug
        + Default
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    type View: View;
    type Status: Serialize + PartialEq + Send + Sync;

    const KIND: Kind;
    /// The label `controller` of `fipd_reconcile_*`.
    const METRIC: &'static str;
    const FINALIZER: &'static str;
    /// The finalizer is written before the address is asked for, so that no object goes without releasing it. Where it
    /// is written together with the address, one that goes in between is found missing by the sweep of the cluster.
    const FINALIZER_FIRST: bool;
    /// The write of the finalizer begins while the address is asked for, where that is likely to be granted. For kinds with nothing
    /// else to write with it.
    const FINALIZER_BESIDE: bool = false;
    /// The specification shows the address to those who wait for it: where many ask at once each gets its address before anyone
    /// gets its status.
    const SPEC_FIRST: bool = false;
    const INHERITS: Inheritance;
    /// Other programs may allocate what objects show, so what an object without a lease shows counts even after the adoption of
    /// the network.
    const OTHERS_ALLOCATE: bool = false;
    const EDITS: Edits<Self::View>;
    /// The status shows details of the pool: an edit of a pool may change it.
    const SHOWS_POOL: bool;
    /// Pools of prefixes serve the objects as well: each gets a prefix of the length that its pool gives.
    const PREFIXES: bool = false;
    /// What a tenant is called in messages.
    const TENANT: &'static str;
    /// What the audit log says where another tenant is charged.
    const CHARGE_REASON: &'static str;

    /// Whether a new address is checked on the wire before an object shows it: [`AddressHooks::probe`].
    fn probes(_: &Site) -> bool {
        false
    }

    /// Keeps what matters of an object.
    fn view(raw: Self::Raw) -> Self::View;

    /// The same of one of which only the metadata is known.
    fn bare_view(metadata: ObjectMeta) -> Self::View {
        let mut raw = Self::Raw::default();
        *raw.meta_mut() = metadata;
        Self::view(raw)
    }

    /// Who is charged, where the object says it.
    fn tenant(site: &Site, key: &Key, object: &Self::View) -> Option<Tenant>;

    fn wish(&self, ledger: &Ledger, site: &Site, key: &Key, object: &Self::View) -> Wished;

    fn conditions(object: &Self::View) -> &[Condition];

    /// Whether the status shows an address: an object that has none yet was not edited.
    fn shows_address(object: &Self::View) -> bool;

    /// What adoption believes.
    fn shown(
        &self,
        ledger: &Ledger,
        site: &Site,
        key: &Key,
        object: &Self::View,
    ) -> Option<ShownAddress>;

    fn last_status(object: &Self::View) -> &Self::Status;

    /// The status to write.
    fn status(object: &Self::View, outcome: &AddressOutcome, now: jiff::Timestamp) -> Self::Status;

    /// What is to be written of the specification, where the object does not have the address in it.
    fn spec(_: &Self::View, _: &ShownLease) -> Option<SpecWrite> {
        None
    }

    /// The Event of an object that gets its address; `None`: it shows it already, or its kind has none, as each Event is a write.
    fn news(_: &Self::View, _: &ShownLease) -> Option<String> {
        None
    }
}

/// Steps of a kind around the common flow that need more than an object and the ledger. Most kinds need none.
pub trait AddressHooks: AddressUser {
    /// Before anything is asked for; `Some`: nothing is.
    fn before(
        _: &AddressController<Self>,
        _: &Key,
        _: &Self::View,
    ) -> impl Future<Output = Reconciled<Option<Next>>> + Send {
        std::future::ready(Ok(None))
    }

    /// Sees to the check of a lease on the wire, where [`AddressUser::probes`] says so: it ends with a report to the ledger. What
    /// is to be shown meanwhile.
    fn probe(
        _: &AddressController<Self>,
        _: &Key,
        _: &Self::View,
        lease: &Lease,
    ) -> impl Future<Output = Reconciled<AddressOutcome>> + Send {
        let error = format!("nobody checks {} on the wire", lease.key.address);
        std::future::ready(Err(ReconcileError::internal(error)))
    }

    /// Why an address that is about to be shown for the first time was not checked on the wire, though it was to be.
    fn unchecked(_: &AddressController<Self>, _: &ShownLease) -> Option<String> {
        None
    }

    /// Runs before the lease of an object that is deleted is released, and may transfer it to whoever uses the address; `Some`:
    /// nothing is released yet. Of an object that does not fit its schema only the metadata is known.
    fn before_release(
        _: &AddressController<Self>,
        _: &Key,
        _: &Self::View,
    ) -> impl Future<Output = Reconciled<Option<Next>>> + Send {
        std::future::ready(Ok(None))
    }

    /// The finalizer is about to be written into an object.
    fn marks(_: &AddressController<Self>, _: &Key, _: &Self::View) {}

    /// Writes the other objects that show the address, beside finalizer and specification and before the status refers to
    /// them; `Some`: nothing is shown yet.
    fn publish(
        _: &AddressController<Self>,
        _: &Key,
        _: &Self::View,
        _: &ShownLease,
    ) -> impl Future<Output = Reconciled<Option<Next>>> + Send {
        std::future::ready(Ok(None))
    }

    /// Who keeps an address that the object gives up, as it may be in use still; `None`: it is free.
    fn keeper(_: &AddressController<Self>, _: &Key, _: &Self::View) -> Option<Holder> {
        None
    }

    /// There is no such object: what else to look at.
    fn absent(_: &AddressController<Self>, _: &Key) -> impl Future<Output = Reconciled> + Send {
        std::future::ready(Ok(Next::Done))
    }

    /// There is no such object any more, and the object that it is in another cluster gets its leases: what else goes first.
    fn moved_away(
        _: &AddressController<Self>,
        _: &Key,
    ) -> impl Future<Output = Reconciled<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Queues objects that a change of the ledger concerns, beside those that wait for it.
    fn affected(_: &AddressController<Self>, _: &Ledger, _: &LedgerEvent<'_>) {}

    /// Addresses that are in use by what is known of the cluster, and that none of its objects shows; those that some show are
    /// given. Only for networks that have not adopted the cluster yet: then the sweep finds their owners missing.
    fn unshown(_: &AddressController<Self>, _: &BTreeSet<LeaseKey>) -> Vec<Sighting> {
        Vec::new()
    }

    /// Who gets the lease of an object that went without its finalizer; `None`: it is free.
    fn heir(_: &AddressController<Self>, _: LeaseKey) -> Option<Holder> {
        None
    }
}

/// An address that an object shows.
#[derive(Debug)]
pub struct ShownAddress {
    pub address: IpAddr,
    /// Bits of the prefix that begins there; `None`: the address alone.
    pub length: Option<u8>,
    pub network: ShownNetwork,
    /// Who uses it in place of the object.
    pub user: Option<Holder>,
}

#[derive(Debug)]
pub enum ShownNetwork {
    Known(NetworkId),
    /// By its name, which may be of an earlier store.
    Named(String),
}

/// What becomes of an edit by which an object that has an address asks for another one.
#[derive(Debug)]
pub enum Edits<V> {
    /// It is refused: these fields may not be changed.
    Refused(fn(&V) -> FixedFields<'_>),
    /// The other address is allocated before the one that it has is released, which stays where that fails.
    Followed,
}

/// What is written of a specification.
pub struct SpecWrite {
    pub spec: Value,
    /// Says that the object asked for another address in vain.
    pub overrules: Option<String>,
}
