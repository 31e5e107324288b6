//! Which pool an address of a Cluster comes from. Pure.

use std::cmp::Reverse;

use fipd_core::Family;

use crate::{
    controller::{kind::Kind, store::Key},
    systems::cluster_api::{
        names::{CLUSTER_CLASS, CONTROL_PLANE, INGRESS, ROLE},
        pool::VipLabels,
    },
};

/// How many pools of the other family a message names.
const NAMED: usize = 3;

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

/// One of the addresses of a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VipSlot {
    pub role: VipRole,
    /// It is the one of the second family of a dual-stack Cluster.
    pub second: bool,
}

impl VipSlot {
    pub const ENDPOINT: Self = Self::first(VipRole::ControlPlane);
    pub const INGRESS: Self = Self::first(VipRole::Ingress);
    pub const SECOND_ENDPOINT: Self = Self::second(VipRole::ControlPlane);
    pub const SECOND_INGRESS: Self = Self::second(VipRole::Ingress);

    pub const ALL: [Self; 4] = [
        Self::ENDPOINT,
        Self::INGRESS,
        Self::SECOND_ENDPOINT,
        Self::SECOND_INGRESS,
    ];

    const fn first(role: VipRole) -> Self {
        Self {
            role,
            second: false,
        }
    }

    const fn second(role: VipRole) -> Self {
        Self { role, second: true }
    }
}

/// A pool that may serve Clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipPool {
    pub kind: Kind,
    pub key: Key,
    pub labels: VipLabels,
    /// `None`: that is not known.
    pub family: Option<Family>,
    /// Whether it has an address to give; `None`: that is not known.
    pub has_room: Option<bool>,
}

/// Which pools one of the addresses may come from.
#[derive(Clone, Copy, Debug)]
pub struct VipWish<'a> {
    pub slot: VipSlot,
    pub class: &'a str,
    pub namespace: &'a str,
    /// `None`: of either.
    pub family: Option<Family>,
}

impl VipWish<'_> {
    /// The same of either family.
    pub fn of_either(self) -> Self {
        Self {
            family: None,
            ..self
        }
    }

    /// The pools that it may come from, the best first: by priority, those of the namespace before those of the whole
    /// cluster, then by name.
    pub fn candidates(self, pools: &[VipPool]) -> Vec<&VipPool> {
        let mut fit: Vec<_> = pools
            .iter()
            .filter(|pool| pool.key.namespace.is_empty() || *pool.key.namespace == *self.namespace)
            .filter(|pool| pool.labels.serves(self.class, self.slot.role.name()))
            .filter(|pool| self.family.is_none() || pool.family == self.family)
            .collect();
        fit.sort_by_key(|pool| {
            let priority = Reverse(pool.labels.priority);
            (priority, !pool.kind.namespaced, pool.key.name.clone())
        });
        fit
    }

    /// What there is to say where there is no such pool.
    pub fn missing(self, pools: &[VipPool]) -> String {
        let (class, role) = (self.class, self.slot.role.name());
        let (of_family, with_family) = match self.family {
            Some(family) => (
                format!(" of family {family}"),
                format!("with {family} addresses "),
            ),
            None => (String::new(), String::new()),
        };
        let mut says = vec![format!(
            "no matching ip pool for class {class:?} and role {role:?}{of_family}"
        )];
        let others = self.of_either().candidates(pools).into_iter();
        let others = others.filter_map(|pool| Some((&pool.key, pool.family?)));
        let others = others.map(|(key, family)| format!("pool {key} is of {family}"));
        says.extend(others.take(NAMED));
        format!(
            "{}: label an InClusterIPPool of this namespace or a GlobalInClusterIPPool {with_family}{CLUSTER_CLASS}={class} and {ROLE}={role}",
            says.join("; ")
        )
    }
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
            family: Some(Family::V4),
            has_room: Some(true),
        }
    }

    fn wish(class: &str, role: VipRole, family: Option<Family>) -> VipWish<'_> {
        VipWish {
            slot: VipSlot::first(role),
            class,
            namespace: "ns",
            family,
        }
    }

    fn names(pools: &[VipPool], class: &str, role: VipRole) -> Vec<String> {
        named(pools, wish(class, role, None))
    }

    fn named(pools: &[VipPool], wish: VipWish<'_>) -> Vec<String> {
        let found = wish.candidates(pools).into_iter();
        found.map(|pool| pool.key.to_string()).collect()
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
            let all = wish("c", VipRole::ControlPlane, None).candidates(pools);
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

    /// Priority, then name, and both within the family.
    #[test]
    fn e_14_15_pools_are_those_of_the_family_and_what_is_there_of_the_other_is_said() {
        let labels = [("cluster-class", "c"), ("role", "control-plane")];
        let of = |path: &str, priority: &str, family| VipPool {
            family,
            ..pool(path, &labels, &[("priority", priority)])
        };
        let pools = [
            of("four-b", "0", Some(Family::V4)),
            of("four-a", "0", Some(Family::V4)),
            of("six", "9", Some(Family::V6)),
            of("four-first", "3", Some(Family::V4)),
            of("unknown", "5", None),
        ];
        let role = VipRole::ControlPlane;
        let cases: [(Option<Family>, &[&str]); 3] = [
            (Some(Family::V4), &["four-first", "four-a", "four-b"]),
            (Some(Family::V6), &["six"]),
            (None, &["six", "unknown", "four-first", "four-a", "four-b"]),
        ];
        for (family, expected) in cases {
            assert_eq!(
                named(&pools, wish("c", role, family)),
                expected,
                "{family:?}"
            );
        }
        let six = wish("c", role, Some(Family::V6));
        assert_eq!(named(&pools[..2], six), [""; 0]);
        let says = six.missing(&pools[..2]);
        let start = "no matching ip pool for class \"c\" and role \"control-plane\" of family IPv6; pool four-a is of IPv4; pool four-b is of IPv4: ";
        assert!(says.starts_with(start), "{says}");
        assert!(says.contains("with IPv6 addresses vip.capi"), "{says}");
        let says = six.of_either().missing(&[]);
        assert_eq!(
            says,
            "no matching ip pool for class \"c\" and role \"control-plane\": label an InClusterIPPool of this namespace or a GlobalInClusterIPPool vip.capi.gorizond.io/cluster-class=c and vip.capi.gorizond.io/role=control-plane"
        );
    }
}
