//! What is kept of claims, of their addresses and of the clusters that they name.

use std::net::IpAddr;

use fipd_core::{Text, Timestamp};
use fipd_crds::cluster_api::{
    IPAddress, IPAddressClaim, IPAddressClaimStatus, PoolRef, has_paused_annotation,
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
    jiff,
};

use crate::controller::meta::{Meta, View};

use crate::systems::cluster_api::names::{
    ADDRESS, CLUSTER_NAME, DELETE_FOR_MOVE, GRACE_ENDS, METAL3_ADDRESS, PROTECT_ADDRESS, READY,
    ROLE, WATCH_FILTER,
};

/// An IPAddressClaim, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct IpClaimView {
    pub meta: Meta,
    pub pool: PoolRef,
    /// Name of its Cluster: by its specification, else by its label.
    pub cluster: Option<String>,
    /// The label, which its IPAddress has too.
    pub cluster_label: Option<String>,
    /// The address that an annotation names, and the annotation.
    pub wanted: Option<(&'static str, String)>,
    pub paused: bool,
    /// `clusterctl move` deletes it here, as it is in another cluster by now.
    pub moves: bool,
    /// fipd serves it; another is only the claim of a Cluster.
    pub served: bool,
    /// UIDs of its owners.
    pub owners: Vec<String>,
    /// What it is for, where it is the claim of a Cluster.
    pub role: Option<String>,
    /// It was read in the deprecated version.
    pub is_v1beta1: bool,
    pub status: IPAddressClaimStatus,
    /// Of the form of `metav1.Condition`, wherever its version has them.
    pub conditions: Vec<Condition>,
}

impl View for IpClaimView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl IpClaimView {
    pub fn of(claim: IPAddressClaim) -> Self {
        let meta = &claim.metadata;
        let label = |key: &str| meta.labels.as_ref()?.get(key).cloned();
        let wanted = [ADDRESS, METAL3_ADDRESS].into_iter();
        let wanted = wanted.filter_map(|key| Some((key, meta.annotations.as_ref()?.get(key)?)));
        let cluster_label = label(CLUSTER_NAME);
        let named = Some(claim.spec.cluster_name.clone()).filter(|name| !name.is_empty());
        Self {
            meta: Meta::of(meta),
            cluster: named.or_else(|| cluster_label.clone()),
            cluster_label,
            wanted: wanted
                .map(|(key, text)| (key, text.clone()))
                .find(|(_, text)| !text.is_empty()),
            paused: has_paused_annotation(meta),
            moves: (meta.annotations.as_ref()).is_some_and(|all| all.contains_key(DELETE_FOR_MOVE)),
            served: true,
            role: label(ROLE),
            owners: (meta.owner_references.iter().flatten())
                .map(|owner| owner.uid.clone())
                .collect(),
            is_v1beta1: claim.is_v1beta1(),
            conditions: claim.ready_conditions(),
            pool: claim.spec.pool_ref,
            status: claim.status.unwrap_or_default(),
        }
    }

    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| owner == uid)
    }

    /// Whether it has its address. The in-cluster provider says so by the reference alone.
    pub fn is_fulfilled(&self) -> bool {
        let is_ready = |ready: &Condition| ready.status == "True";
        self.ready()
            .map_or(self.status.address_ref.is_some(), is_ready)
    }

    /// Its condition `Ready`.
    pub fn ready(&self) -> Option<&Condition> {
        self.conditions.iter().find(|one| one.type_ == READY)
    }
}

/// An IPAddress, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressView {
    pub meta: Meta,
    pub claim: Text,
    pub pool: PoolRef,
    /// `None`: it shows none.
    pub address: Option<IpAddr>,
    /// Length of the prefix that it shows, or of the subnet of its address.
    pub prefix: Option<u8>,
    /// UIDs of its owners.
    pub owners: Vec<String>,
    /// Its claim is gone, and it goes then.
    pub grace_ends: Option<Timestamp>,
    /// Value of the label that shards providers.
    pub filter: Option<String>,
}

impl View for AddressView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl AddressView {
    pub fn of(object: IPAddress) -> Self {
        let meta = &object.metadata;
        let owners = meta.owner_references.iter().flatten();
        let owners: Vec<_> = owners.map(|owner| owner.uid.clone()).collect();
        let address: Option<IpAddr> = object.spec.address.parse().ok();
        let filter = meta.labels.as_ref().and_then(|all| all.get(WATCH_FILTER));
        let filter = filter.cloned();
        let meta = Meta::of(meta);
        // A mark on one that a claim owns was written by somebody else.
        let released = owners.is_empty() && !meta.has_finalizer(PROTECT_ADDRESS);
        let marked = || grace_ends(&object.metadata);
        Self {
            grace_ends: released.then(marked).flatten(),
            owners,
            filter,
            meta,
            claim: object.spec.claim_ref.name.as_str().into(),
            address: address.map(|address| address.to_canonical()),
            prefix: object.spec.prefix.and_then(|length| length.try_into().ok()),
            pool: object.spec.pool_ref,
        }
    }

    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| owner == uid)
    }

    /// Whether it goes, and was an earlier claim's than the one of this UID: only its finalizer is in the way.
    pub fn is_left_to(&self, claim: &str) -> bool {
        self.meta.is_terminating() && !self.is_owned_by(claim)
    }

    /// Whether it is the answer to a claim of this name on this pool.
    pub fn answers(&self, claim: &str, pool: &PoolRef) -> bool {
        *self.claim == *claim && self.pool == *pool && self.grace_ends.is_none()
    }
}

fn grace_ends(meta: &ObjectMeta) -> Option<Timestamp> {
    let text = meta.annotations.as_ref()?.get(GRACE_ENDS)?;
    let ends: Option<jiff::Timestamp> = text.parse().ok();
    // A mark that cannot be read ends at once: its claim is gone.
    let ends = ends.map_or(0, jiff::Timestamp::as_millisecond);
    Some(Timestamp(ends.try_into().unwrap_or_default()))
}
