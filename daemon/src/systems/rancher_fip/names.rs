//! Names that the rancher-fip family and fipd write on objects, and the identities behind them.

use std::fmt;

use data_encoding::HEXLOWER;
use fipd_core::{ClusterId, Family, Holder, Identity, System, Text};
use sha2::{Digest, Sha256};

use crate::controller::store::Key;

pub use fipd_crds::labels::{
    CLUSTER_NAME as CLUSTER, DEFAULT_NETWORK, FLOATINGIP as FLOATING_IP,
    FLOATINGIP_CLEANUP as FINALIZER, FLOATINGIP_GROUP as GROUP, HOLDER,
    LOAD_BALANCER_CLASS as CLASS, MANAGED_BY, NETWORK, PARTNER_POOL, PROJECT_ID as RANCHER_PROJECT,
    PROJECT_NAME as PROJECT, PURELB_SERVICE_GROUP as PURELB_GROUP, RETURN_AFTER,
    SERVICE as SERVICE_LABEL, SERVICE_NAMESPACE_SELECTOR as SERVICE_NAMESPACE_LABEL,
    SERVICE_PREFIX, STATIC_IP, STATIC_NETWORK,
};

/// On a Service: the addresses that kube-vip is to announce.
pub const KUBE_VIP_ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";
/// On objects for announcers: the UID of the Service they are for.
pub const FOR_SERVICE: &str = "fipd.io/service-uid";

pub const KIND_SERVICE: &str = "Service";
pub const KIND_FLOATING_IP: &str = "FloatingIP";

/// One Service, for good: its name and its UID, in one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceRef {
    pub cluster: ClusterId,
    pub key: Key,
    pub uid: Text,
}

impl ServiceRef {
    /// Whose leases the Service's are.
    pub fn holder(&self) -> Holder {
        let uid = Text::clone(&self.uid);
        holder(&self.cluster, KIND_SERVICE, &self.key, uid)
    }

    /// The Service that is this holder.
    pub fn of(holder: &Holder) -> Option<Self> {
        let Holder { identity, instance } = holder;
        (&*identity.kind == KIND_SERVICE).then_some(Self {
            cluster: identity.cluster.clone()?,
            key: key(identity),
            uid: Text::clone(instance),
        })
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let [KIND_SERVICE, cluster, namespace, name, uid] = parts.as_slice() else {
            return None;
        };
        let all_there = [cluster, namespace, name, uid]
            .iter()
            .all(|part| !part.is_empty());
        all_there.then(|| Self {
            cluster: ClusterId((*cluster).into()),
            key: Key::new(namespace, name),
            uid: (*uid).into(),
        })
    }

    /// Whether fipd made the FloatingIP of this name for the Service.
    pub fn made(&self, floating_ip: &str) -> bool {
        let mut families = [Family::V4, Family::V6].into_iter();
        families.any(|family| self.floating_ip_name(family) == floating_ip)
    }

    /// The name of the FloatingIP that shows the Service's lease of this family: always the same, so that
    /// writing it twice makes no second one.
    pub fn floating_ip_name(&self, family: Family) -> String {
        let mut hash = Sha256::new();
        for part in [
            &*self.cluster.0,
            &*self.key.namespace,
            &*self.key.name,
            &*self.uid,
            &family.to_string(),
        ] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        format!("fip-{}", hex(hash, 8))
    }
}

/// The first bytes of the hash as text.
pub fn hex(hash: Sha256, bytes: usize) -> String {
    let digest = hash.finalize();
    HEXLOWER.encode(digest.get(..bytes).unwrap_or(&digest))
}

/// `Service/CLUSTER-ID/NAMESPACE/NAME/UID`.
impl fmt::Display for ServiceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, key, uid } = self;
        write!(
            f,
            "{KIND_SERVICE}/{cluster}/{}/{}/{uid}",
            key.namespace, key.name
        )
    }
}

/// The identity of an object of this system.
pub fn identity(cluster: &ClusterId, kind: &str, key: &Key) -> Identity {
    key.identity(System::rancher_fip(), cluster, kind)
}

/// The same of the instance with this UID.
pub fn holder(cluster: &ClusterId, kind: &str, key: &Key, uid: Text) -> Holder {
    Holder {
        identity: identity(cluster, kind, key),
        instance: uid,
    }
}

/// A Service that only Rancher's objects tell of, since fipd is not connected to its cluster: it keeps the address of a
/// FloatingIP that was deleted while it used it. In place of an interface the identity has Rancher's id of the cluster.
pub fn reported_service(management: &ClusterId, cluster: &str, service: &Key) -> Holder {
    let mut holder = holder(management, KIND_SERVICE, service, "".into());
    holder.identity.interface = cluster.into();
    holder
}

/// Whether a holder is such a Service of the cluster that Rancher calls so.
pub fn is_reported(holder: &Holder, cluster: &str) -> bool {
    &*holder.identity.kind == KIND_SERVICE && &*holder.identity.interface == cluster
}

/// The key of the object behind an identity.
pub fn key(identity: &Identity) -> Key {
    Key::of_identity(identity)
}

/// The project in a value of [`RANCHER_PROJECT`], and the Rancher cluster where it names one.
pub fn rancher_project(value: &str) -> (Option<&str>, &str) {
    match value.split_once(':') {
        Some((cluster, project)) => (Some(cluster), project),
        None => (None, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, uid: &str) -> ServiceRef {
        ServiceRef {
            cluster: ClusterId("c".into()),
            key: Key::new("ns", name),
            uid: uid.into(),
        }
    }

    #[test]
    fn a_service_is_read_as_it_was_written() {
        let one = service("web", "u-1");
        assert_eq!(one.to_string(), "Service/c/ns/web/u-1");
        assert_eq!(ServiceRef::parse(&one.to_string()), Some(one));
        for wrong in [
            "",
            "Service/c/ns/web",
            "Pod/c/ns/web/u",
            "Service/c//web/u",
            "Service/c/ns/web/u/x",
        ] {
            assert_eq!(ServiceRef::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn floating_ip_names_differ_by_instance_and_family_and_stay() {
        let name = service("web", "u-1").floating_ip_name(Family::V4);
        assert_eq!(name, service("web", "u-1").floating_ip_name(Family::V4));
        assert_eq!(name.len(), "fip-".len() + 16);
        assert_ne!(name, service("web", "u-2").floating_ip_name(Family::V4));
        assert_ne!(name, service("web", "u-1").floating_ip_name(Family::V6));
    }

    #[test]
    fn projects_come_with_and_without_cluster() {
        assert_eq!(rancher_project("c-m-1:p-2"), (Some("c-m-1"), "p-2"));
        assert_eq!(rancher_project("p-2"), (None, "p-2"));
    }
}
