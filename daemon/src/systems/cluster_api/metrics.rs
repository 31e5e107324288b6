//! The series of capi-vip-allocator, by its names and labels, all of them fed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::{claim::IpClaimController, names::READY, sites::IpamSites, vip::choose::VipRole};
use crate::metrics::series::{Labels, Series, Values, encode_connected, live, with};

/// Upper bounds in seconds: an address comes within milliseconds, or once somebody made room.
const BUCKETS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

type Of<const N: usize> = [(&'static str, String); N];

/// What is counted of Clusters. Cheap to share.
#[derive(Clone)]
pub struct VipCounts {
    allocations: Family<Of<2>, Counter>,
    errors: Family<Of<3>, Counter>,
    durations: Family<Of<2>, Histogram, fn() -> Histogram>,
    reconciles: Family<Of<2>, Counter>,
    reconcile_durations: Family<Of<1>, Histogram, fn() -> Histogram>,
}

/// What failed, as the original names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VipFailure {
    Claim,
    Patch,
}

/// How a reconcile ended, as the original names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VipReconcile {
    Success,
    Error,
    Skipped,
    Requeued,
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Default for VipCounts {
    fn default() -> Self {
        Self {
            allocations: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(histogram),
            reconciles: Family::default(),
            reconcile_durations: Family::new_with_constructor(histogram),
        }
    }
}

impl VipCounts {
    /// A Cluster got the address of a role, so long after its claim was made.
    pub fn allocated(&self, role: VipRole, class: &str, after: Duration) {
        let labels = [
            ("role", role.name().to_owned()),
            ("cluster_class", class.to_owned()),
        ];
        self.durations
            .get_or_create(&labels)
            .observe(after.as_secs_f64());
        self.allocations.get_or_create(&labels).inc();
    }

    /// One failure counts once.
    pub fn failed(&self, role: VipRole, class: &str, failure: VipFailure) {
        let reason = match (role, failure) {
            (VipRole::Ingress, VipFailure::Claim) => "ingress_vip_allocation_failed",
            (VipRole::ControlPlane, VipFailure::Claim) => "claim_creation_failed",
            (_, VipFailure::Patch) => "cluster_patch_failed",
        };
        let labels = [
            ("role", role.name().to_owned()),
            ("cluster_class", class.to_owned()),
            ("reason", reason.to_owned()),
        ];
        self.errors.get_or_create(&labels).inc();
    }

    pub fn reconciled(&self, class: &str, ended: VipReconcile, took: Duration) {
        let result = match ended {
            VipReconcile::Success => "success",
            VipReconcile::Error => "error",
            VipReconcile::Skipped => "skipped",
            VipReconcile::Requeued => "requeued",
        };
        let labels = [
            ("cluster_class", class.to_owned()),
            ("result", result.to_owned()),
        ];
        self.reconciles.get_or_create(&labels).inc();
        let labels = [("cluster_class", class.to_owned())];
        self.reconcile_durations
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }
}

/// Adds the series of the original.
pub fn register(registry: &mut Registry, sites: IpamSites, counts: &VipCounts) {
    let family = registry.sub_registry_with_prefix("capi_vip_allocator");
    family.register(
        "allocations",
        "Addresses that Clusters got",
        counts.allocations.clone(),
    );
    family.register(
        "allocation_errors",
        "Failures to give a Cluster its address",
        counts.errors.clone(),
    );
    family.register_with_unit(
        "allocation_duration",
        "From the creation of a claim to the address in its Cluster",
        Unit::Seconds,
        counts.durations.clone(),
    );
    family.register("reconcile", "Looks at Clusters", counts.reconciles.clone());
    family.register_with_unit(
        "reconcile_duration",
        "How long a look at a Cluster took",
        Unit::Seconds,
        counts.reconcile_durations.clone(),
    );
    let add = |figures: &mut VipFigures, claims: &Arc<IpClaimController>, more: &_| {
        figures.add(claims, more);
    };
    family.register_collector(live(move |encoder| {
        encode_connected(encoder, &sites.connected(), add, VipFigures::series)
    }));
}

/// The values of the gauges.
#[derive(Debug, Default, PartialEq)]
struct VipFigures {
    available: Values<'static>,
    addresses: [Values<'static>; 3],
    claims: [Values<'static>; 3],
}

impl VipFigures {
    fn add(&mut self, claims: &IpClaimController, more: &Labels<'static>) {
        self.add_pools(claims, more);
        let mut counts: BTreeMap<(String, String), [u64; 3]> = BTreeMap::new();
        for (key, claim) in claims.context.objects.all() {
            let Some(role) = claim.role.clone() else {
                continue;
            };
            let ready = claim.conditions.iter();
            let ready = ready
                .filter(|one| one.type_ == READY)
                .any(|one| one.status == "True");
            let count = counts.entry((role, key.namespace.to_string())).or_default();
            count[0] += 1;
            count[if ready { 1 } else { 2 }] += 1;
        }
        for ((role, namespace), count) in counts {
            for (values, count) in self.claims.iter_mut().zip(count) {
                let labels = with(
                    more,
                    [("role", role.as_str()), ("namespace", namespace.as_str())],
                );
                values.push((labels, count as f64));
            }
        }
    }

    fn add_pools(&mut self, claims: &IpClaimController, more: &Labels<'static>) {
        let mut available: BTreeMap<(String, String), u64> = BTreeMap::new();
        let mut named = BTreeSet::new();
        for (_, pools) in &claims.user.pools {
            for (key, pool) in pools.all() {
                let Some(vip) = &pool.vip else {
                    continue;
                };
                let counts = pool.status.ip_addresses.unwrap_or_default();
                for pair in vip.pairs() {
                    *available.entry(pair).or_default() += u64::from(counts.free > 0);
                }
                let name = key.to_string();
                if !named.insert(name.clone()) {
                    continue;
                }
                let counts = [counts.total, counts.free, counts.used];
                for (values, count) in self.addresses.iter_mut().zip(counts) {
                    values.push((with(more, [("pool_name", name.as_str())]), count as f64));
                }
            }
        }
        for ((class, role), count) in available {
            let labels = [("cluster_class", class.as_str()), ("role", role.as_str())];
            self.available.push((with(more, labels), count as f64));
        }
    }

    fn series(self) -> [Series<'static>; 7] {
        let [total, free, used] = self.addresses;
        let [claims, ready, pending] = self.claims;
        [
            Series::new(
                "pools_available",
                "Pools with a free address, by class and role",
                self.available,
            ),
            Series::new("pool_addresses_total", "Addresses of a pool", total),
            Series::new("pool_addresses_free", "Free addresses of a pool", free),
            Series::new("pool_addresses_used", "Addresses of a pool in use", used),
            Series::new("claims_total", "Claims of Clusters", claims),
            Series::new(
                "claims_ready",
                "Claims of Clusters that have an address",
                ready,
            ),
            Series::new("claims_pending", "Claims of Clusters that wait", pending),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_13_every_series_of_the_original_is_fed_and_a_failure_counts_once() {
        let counts = VipCounts::default();
        counts.allocated(VipRole::ControlPlane, "rke2", Duration::from_millis(20));
        counts.failed(VipRole::Ingress, "rke2", VipFailure::Claim);
        counts.reconciled("rke2", VipReconcile::Success, Duration::from_millis(3));
        let mut registry = Registry::default();
        register(&mut registry, IpamSites::default(), &counts);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for line in [
            "capi_vip_allocator_allocations_total{role=\"control-plane\",cluster_class=\"rke2\"} 1",
            "capi_vip_allocator_allocation_errors_total{role=\"ingress\",cluster_class=\"rke2\",reason=\"ingress_vip_allocation_failed\"} 1",
            "capi_vip_allocator_allocation_duration_seconds_bucket{le=\"300.0\",role=\"control-plane\",cluster_class=\"rke2\"} 1",
            "capi_vip_allocator_reconcile_total{cluster_class=\"rke2\",result=\"success\"} 1",
            "capi_vip_allocator_reconcile_duration_seconds_count{cluster_class=\"rke2\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("allocation_errors_total{").count(), 1);
    }
}
