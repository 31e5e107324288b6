//! The series of capi-vip-allocator, by its names and labels, all of them fed, and fipd's own of the system.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::{
    claim::{IpClaimController, observe::IpClaimView},
    hook::{BEFORE_CREATE, HookAnswer},
    pool::VipLabels,
    sites::IpamSites,
    vip::{
        VipController,
        choose::VipRole,
        report::{endpoint_differs, report},
    },
};
use crate::metrics::series::{Labels, Series, Values, encode_connected, live, with};

/// Upper bounds in seconds: an address comes within milliseconds, or once somebody made room.
const BUCKETS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

type Of<const N: usize> = [(&'static str, String); N];
type FixedLabel = (&'static str, &'static str);

/// What is counted of Clusters. Cheap to share.
#[derive(Clone)]
pub struct VipCounts {
    classes: ClassLabels,
    allocations: Family<Of<2>, Counter>,
    errors: Family<Of<3>, Counter>,
    durations: Family<Of<2>, Histogram, fn() -> Histogram>,
    reconciles: Family<Of<2>, Counter>,
    reconcile_durations: Family<Of<1>, Histogram, fn() -> Histogram>,
    hook_answers: Family<[FixedLabel; 2], Counter>,
    hook_durations: Family<[FixedLabel; 1], Histogram, fn() -> Histogram>,
}

/// The classes that have series of their own: users name them, and each has a dozen of them.
#[derive(Clone, Default)]
struct ClassLabels(Arc<Mutex<BTreeSet<String>>>);

/// Classes with series of their own at most.
const CLASSES: usize = 100;
/// Bytes of the name of such a class at most.
const CLASS_LENGTH: usize = 253;
/// The label of all other classes, and of roles that nobody serves.
const OTHER: &str = "other";

impl ClassLabels {
    /// The label that counts for the class.
    fn of(&self, class: &str) -> String {
        let mut known = self.0.lock();
        let fits = class.len() <= CLASS_LENGTH && known.len() < CLASSES;
        if !known.contains(class) && !fits {
            return OTHER.to_owned();
        }
        known.insert(class.to_owned());
        class.to_owned()
    }

    /// Classes and roles that a pool serves, as they count.
    fn pairs_of(&self, pool: &VipLabels) -> BTreeSet<(String, String)> {
        let pairs = pool.pairs();
        pairs.map(|(class, role)| (self.of(&class), role)).collect()
    }
}

/// The label that counts for the role of a claim, which whoever makes the claim may write.
fn role_label(role: &str) -> &'static str {
    let mut known = VipRole::ALL.map(VipRole::name).into_iter();
    known.find(|known| *known == role).unwrap_or(OTHER)
}

/// What failed, as the original names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VipFailure {
    /// No claim was made, or no pool was there for one.
    Claim,
    /// What is the Cluster's already could not be reserved.
    Resolution,
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
            classes: ClassLabels::default(),
            allocations: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(histogram),
            reconciles: Family::default(),
            reconcile_durations: Family::new_with_constructor(histogram),
            hook_answers: Family::default(),
            hook_durations: Family::new_with_constructor(histogram),
        }
    }
}

impl VipCounts {
    /// A Cluster got the address of a role, so long after its claim was made.
    pub fn allocated(&self, role: VipRole, class: &str, after: Duration) {
        let labels = [
            ("role", role.name().to_owned()),
            ("cluster_class", self.classes.of(class)),
        ];
        self.durations
            .get_or_create(&labels)
            .observe(after.as_secs_f64());
        self.allocations.get_or_create(&labels).inc();
    }

    /// One failure counts once.
    pub fn failed(&self, role: VipRole, class: &str, failure: VipFailure) {
        let reason = match (role, failure) {
            (VipRole::Ingress, VipFailure::Claim | VipFailure::Resolution) => {
                "ingress_vip_allocation_failed"
            }
            (VipRole::ControlPlane, VipFailure::Claim) => "claim_creation_failed",
            (VipRole::ControlPlane, VipFailure::Resolution) => "ip_resolution_failed",
            (_, VipFailure::Patch) => "cluster_patch_failed",
        };
        let labels = [
            ("role", role.name().to_owned()),
            ("cluster_class", self.classes.of(class)),
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
            ("cluster_class", self.classes.of(class)),
            ("result", result.to_owned()),
        ];
        self.reconciles.get_or_create(&labels).inc();
        let labels = [("cluster_class", self.classes.of(class))];
        self.reconcile_durations
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    pub fn answered(&self, hook: &'static str, answer: HookAnswer, took: Duration) {
        let labels = [("hook", hook), ("result", answer.as_str())];
        self.hook_answers.get_or_create(&labels).inc();
        let labels = [("hook", hook)];
        self.hook_durations
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }
}

/// Adds fipd's own series of the system.
pub fn register_own(registry: &mut Registry, sites: IpamSites, counts: &VipCounts) {
    // A rate counts the first answer only where there was a value before it.
    for answer in HookAnswer::ALL {
        let labels = [("hook", BEFORE_CREATE), ("result", answer.as_str())];
        drop(counts.hook_answers.get_or_create(&labels));
    }
    let own = registry.sub_registry_with_prefix("cluster_api");
    own.register(
        "hook_answers",
        "Answers to hooks of Cluster API: go on, wait, go on without an address, failure",
        counts.hook_answers.clone(),
    );
    own.register_with_unit(
        "hook_duration",
        "How long an answer to a hook took",
        Unit::Seconds,
        counts.hook_durations.clone(),
    );
    let leading = sites.clone();
    own.register_collector(live(move |encoder| {
        let held = leading.leading().into_iter();
        let held = held.map(|(cluster, held)| {
            let labels = vec![("cluster", cluster.to_string())];
            (labels, f64::from(u8::from(held)))
        });
        let what = "1 while fipd holds the Leases of the programs that it stands in for";
        Series::new("leases_held", what, held.collect()).encode(encoder)
    }));
    let add = |figures: &mut OwnFigures, vips: &Arc<VipController>, more: &_| {
        figures.add(vips, more);
    };
    own.register_collector(live(move |encoder| {
        encode_connected(encoder, &sites.vips.all(), add, OwnFigures::series)
    }));
}

/// The values of fipd's own gauges.
#[derive(Debug, Default, PartialEq)]
struct OwnFigures {
    claims: Values<'static>,
    clusters: Values<'static>,
    differ: Values<'static>,
    grace: Values<'static>,
}

impl OwnFigures {
    fn add(&mut self, vips: &VipController, more: &Labels<'static>) {
        let mut claims: BTreeMap<(&str, String), u64> = BTreeMap::new();
        for (_, claim) in vips.claims.context.objects.all() {
            if claim.served {
                let reason = claim.ready().map_or("New", |ready| &*ready.reason);
                let of = (phase(&claim), reason.to_owned());
                *claims.entry(of).or_default() += 1;
            }
        }
        for ((phase, reason), count) in claims {
            let labels = [("phase", phase), ("reason", &*reason)];
            self.claims.push((with(more, labels), count as f64));
        }
        let mut states: BTreeMap<_, u64> = BTreeMap::new();
        for (key, cluster) in vips.context.objects.all() {
            let state = report(vips.context.site.settings(), &key, &cluster).state;
            *states.entry(state).or_default() += 1;
            if endpoint_differs(&cluster) {
                let labels = [("namespace", &*key.namespace), ("name", &*key.name)];
                self.differ.push((with(more, labels), 1.0));
            }
        }
        for (state, count) in states {
            let labels = with(more, [("state", state.as_str())]);
            self.clusters.push((labels, count as f64));
        }
        let addresses = vips.claims.user.addresses.values().into_iter();
        let grace = addresses.filter(|one| one.grace_ends.is_some()).count();
        self.grace.push((more.clone(), grace as f64));
    }

    fn series(self) -> [Series<'static>; 4] {
        [
            Series::new("claims", "Claims that fipd serves", self.claims),
            Series::new("clusters", "Clusters, by what they get", self.clusters),
            Series::new(
                "endpoint_differs",
                "1 while the endpoint of the Cluster differs from its lease",
                self.differ,
            ),
            Series::new(
                "addresses_in_grace",
                "IPAddresses whose claim is gone, which nobody else gets yet",
                self.grace,
            ),
        ]
    }
}

/// What a claim has.
pub fn phase(claim: &IpClaimView) -> &'static str {
    match claim.is_fulfilled() {
        _ if claim.meta.is_terminating() => "deleting",
        true => "allocated",
        false => "waiting",
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
    let classes = counts.classes.clone();
    let add = move |figures: &mut VipFigures, vips: &Arc<VipController>, more: &_| {
        figures.add(&vips.claims, &classes, more);
    };
    family.register_collector(live(move |encoder| {
        encode_connected(encoder, &sites.vips.all(), &add, VipFigures::series)
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
    fn add(&mut self, claims: &IpClaimController, classes: &ClassLabels, more: &Labels<'static>) {
        self.add_pools(claims, classes, more);
        let mut counts: BTreeMap<(&str, String), [u64; 3]> = BTreeMap::new();
        for (key, claim) in claims.context.objects.all() {
            let Some(role) = claim.role.as_deref().map(role_label) else {
                continue;
            };
            let ready = claim.is_fulfilled();
            let count = counts.entry((role, key.namespace.to_string())).or_default();
            count[0] += 1;
            count[if ready { 1 } else { 2 }] += 1;
        }
        for ((role, namespace), count) in counts {
            for (values, count) in self.claims.iter_mut().zip(count) {
                let labels = with(more, [("role", role), ("namespace", namespace.as_str())]);
                values.push((labels, count as f64));
            }
        }
    }

    fn add_pools(
        &mut self,
        claims: &IpClaimController,
        classes: &ClassLabels,
        more: &Labels<'static>,
    ) {
        let mut available: BTreeMap<(String, String), u64> = BTreeMap::new();
        let mut named = BTreeSet::new();
        for (_, pools) in &claims.user.pools {
            for (key, pool) in pools.all() {
                let Some(vip) = &pool.vip else {
                    continue;
                };
                let counts = pool.status.ip_addresses.unwrap_or_default();
                for pair in classes.pairs_of(vip) {
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
    use serde_json::json;

    use super::*;
    use crate::systems::cluster_api::names::{CLUSTER_CLASS, ROLE};

    #[test]
    fn a_claim_that_another_provider_answered_waits_for_nothing() {
        let reference = json!({ "name": "a" });
        let unready = json!([{
            "type": "Ready", "status": "False", "reason": "PoolPaused", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        for (status, expected) in [
            (json!({}), "waiting"),
            (json!({ "addressRef": reference }), "allocated"),
            (
                json!({ "addressRef": reference, "conditions": unready }),
                "waiting",
            ),
        ] {
            let claim = json!({
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
                "metadata": { "name": "a", "namespace": "ns" }, "status": status,
                "spec": { "poolRef": { "kind": "InClusterIPPool", "name": "net" } },
            });
            let claim = serde_json::from_value(claim).expect("a claim");
            assert_eq!(phase(&IpClaimView::of(claim)), expected, "{status}");
        }
    }

    #[test]
    fn classes_that_users_think_of_do_not_fill_the_memory() {
        let labels = ClassLabels::default();
        for index in 0..CLASSES {
            let class = format!("class-{index}");
            assert_eq!(labels.of(&class), class);
        }
        assert_eq!(labels.of("class-0"), "class-0");
        assert_eq!(labels.of("one-more"), OTHER);
        let long = "x".repeat(CLASS_LENGTH + 1);
        assert_eq!(ClassLabels::default().of(&long), OTHER);
    }

    #[test]
    fn nor_do_pools_and_roles_that_users_write() {
        let labels = ClassLabels::default();
        let mut all = BTreeSet::new();
        for pool in ["a", "b"] {
            let classes: Vec<_> = (0..CLASSES).map(|one| format!("{pool}-{one}")).collect();
            let annotations = BTreeMap::from([
                (CLUSTER_CLASS.to_owned(), classes.join(",")),
                (ROLE.to_owned(), "control-plane,ingress".to_owned()),
            ]);
            let pool = VipLabels::of(None, Some(&annotations)).expect("it serves some");
            all.extend(labels.pairs_of(&pool));
        }
        assert_eq!(all.len(), 2 * (CLASSES + 1));
        assert!(all.contains(&(OTHER.to_owned(), "ingress".to_owned())));
        assert_eq!(
            ["control-plane", "ingress", "x-1"].map(role_label),
            ["control-plane", "ingress", OTHER]
        );
    }

    #[test]
    fn e_13_every_series_of_the_original_is_fed_and_a_failure_counts_once() {
        let counts = VipCounts::default();
        counts.allocated(VipRole::ControlPlane, "rke2", Duration::from_millis(20));
        counts.failed(VipRole::Ingress, "rke2", VipFailure::Claim);
        counts.answered(BEFORE_CREATE, HookAnswer::Wait, Duration::from_micros(80));
        counts.reconciled("rke2", VipReconcile::Success, Duration::from_millis(3));
        let mut registry = Registry::default();
        let sites = IpamSites::default();
        sites.lead(&"management".into(), Some(false));
        register(&mut registry, sites.clone(), &counts);
        register_own(&mut registry, sites, &counts);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for line in [
            "capi_vip_allocator_allocations_total{role=\"control-plane\",cluster_class=\"rke2\"} 1",
            "capi_vip_allocator_allocation_errors_total{role=\"ingress\",cluster_class=\"rke2\",reason=\"ingress_vip_allocation_failed\"} 1",
            "capi_vip_allocator_allocation_duration_seconds_bucket{le=\"300.0\",role=\"control-plane\",cluster_class=\"rke2\"} 1",
            "capi_vip_allocator_reconcile_total{cluster_class=\"rke2\",result=\"success\"} 1",
            "capi_vip_allocator_reconcile_duration_seconds_count{cluster_class=\"rke2\"} 1",
            "cluster_api_hook_answers_total{hook=\"BeforeClusterCreate\",result=\"wait\"} 1",
            "cluster_api_hook_answers_total{hook=\"BeforeClusterCreate\",result=\"failure\"} 0",
            "cluster_api_hook_duration_seconds_count{hook=\"BeforeClusterCreate\"} 1",
            "cluster_api_leases_held{cluster=\"management\"} 0",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("allocation_errors_total{").count(), 1);
    }
}
