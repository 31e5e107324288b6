//! Which pool an address of a Cluster comes from. Pure.

use std::cmp::Reverse;

use crate::{
    controller::{kind::Kind, store::Key},
    systems::cluster_api::{
        names::{CONTROL_PLANE, INGRESS},
        pool::VipLabels,
    },
};

/// What an address of a Cluster is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VipRole {
    ControlPlane,
    Ingress,
}

impl VipRole {
    pub const ALL: [Self; 2] = [Self::ControlPlane, Self::Ingress];

    /// As labels name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => CONTROL_PLANE,
            Self::Ingress => INGRESS,
        }
    }
}

/// A pool that may serve Clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipPool {
    pub kind: Kind,
    pub key: Key,
    pub labels: VipLabels,
    /// Whether it has an address to give; `None`: that is not known.
    pub has_room: Option<bool>,
}

/// The pools of a class and role for a namespace, the best first: by priority, those of the namespace before those of the
/// whole cluster, then by name.
pub fn candidates<'a>(
    pools: &'a [VipPool],
    class: &str,
    role: VipRole,
    namespace: &str,
) -> Vec<&'a VipPool> {
    let mut fit: Vec<_> = pools
        .iter()
        .filter(|pool| pool.key.namespace.is_empty() || *pool.key.namespace == *namespace)
        .filter(|pool| pool.labels.serves(class, role.name()))
        .collect();
    fit.sort_by_key(|pool| {
        let priority = Reverse(pool.labels.priority);
        (priority, !pool.kind.namespaced, pool.key.name.clone())
    });
    fit
}

/// The first of them with room; the first at all where none has, and its claim waits.
pub fn best<'a>(candidates: &[&'a VipPool]) -> Option<&'a VipPool> {
    let mut with_room = candidates
        .iter()
        .filter(|pool| pool.has_room != Some(false));
    with_room.next().or(candidates.first()).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::systems::cluster_api::names::{GLOBAL_POOL, POOL};

    fn pool(path: &str, labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> VipPool {
        let map = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = all.iter().map(|(key, value)| {
                let prefix = if *key == "priority" {
                    "fipd.io"
                } else {
                    "vip.capi.gorizond.io"
                };
                (format!("{prefix}/{key}"), (*value).to_owned())
            });
            owned.collect()
        };
        let (labels, annotations) = (map(labels), map(annotations));
        let (namespace, name) = path.split_once('/').unwrap_or(("", path));
        VipPool {
            kind: if namespace.is_empty() {
                GLOBAL_POOL
            } else {
                POOL
            },
            key: Key::new(namespace, name),
            labels: VipLabels::of(Some(&labels), Some(&annotations)).expect("labels"),
            has_room: Some(true),
        }
    }

    fn names(pools: &[VipPool], class: &str, role: VipRole) -> Vec<String> {
        let found = candidates(pools, class, role, "ns");
        found.iter().map(|pool| pool.key.to_string()).collect()
    }

    /// Row 74, E-1, E-14 and E-23.
    #[test]
    fn e_1_14_23_pools_are_tried_in_a_stated_order() {
        let plane = ("role", "control-plane");
        let pools = [
            pool("b", &[("cluster-class", "rke2"), plane], &[]),
            pool("a", &[("cluster-class", "rke2"), plane], &[]),
            pool("ns/z", &[("cluster-class", "rke2"), plane], &[]),
            pool("other/z", &[("cluster-class", "rke2"), plane], &[]),
            pool(
                "first",
                &[("cluster-class", "rke2"), plane],
                &[("priority", "10")],
            ),
            pool("k3s", &[("cluster-class", "k3s"), plane], &[]),
            pool("in", &[("cluster-class", "rke2"), ("role", "ingress")], &[]),
            pool(
                "listed",
                &[("cluster-class", "true"), plane],
                &[("cluster-class", "k3s, talos")],
            ),
            pool(
                "both",
                &[("cluster-class", "k0s"), ("role", "true")],
                &[("role", "control-plane,ingress")],
            ),
        ];
        let all = ["first", "ns/z", "a", "b"];
        assert_eq!(names(&pools, "rke2", VipRole::ControlPlane), all);
        assert_eq!(names(&pools, "rke2", VipRole::Ingress), ["in"]);
        assert_eq!(names(&pools, "talos", VipRole::ControlPlane), ["listed"]);
        assert_eq!(
            names(&pools, "k3s", VipRole::ControlPlane),
            ["k3s", "listed"]
        );
        for role in VipRole::ALL {
            assert_eq!(names(&pools, "k0s", role), ["both"], "e_1: a shared pool");
        }
        assert_eq!(
            names(&pools, "rke", VipRole::ControlPlane),
            [""; 0],
            "no substrings"
        );
    }

    #[test]
    fn e_14_a_full_pool_is_passed_over_while_another_has_room() {
        let labels = [("cluster-class", "c"), ("role", "control-plane")];
        let mut pools = [pool("a", &labels, &[]), pool("b", &labels, &[])];
        let chosen = |pools: &[VipPool]| {
            let all = candidates(pools, "c", VipRole::ControlPlane, "ns");
            best(&all).map(|pool| pool.key.to_string())
        };
        assert_eq!(chosen(&pools).as_deref(), Some("a"));
        pools[0].has_room = Some(false);
        assert_eq!(chosen(&pools).as_deref(), Some("b"));
        pools[1].has_room = Some(false);
        assert_eq!(
            chosen(&pools).as_deref(),
            Some("a"),
            "its claim waits there"
        );
        pools[1].has_room = None;
        assert_eq!(chosen(&pools).as_deref(), Some("b"), "it may have room");
        assert_eq!(chosen(&[]), None);
    }
}
