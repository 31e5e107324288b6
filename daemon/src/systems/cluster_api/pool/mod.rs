//! Pools of the in-cluster provider as sources of pools.

#[cfg(test)]
mod conformance_tests;
pub mod definition;
pub mod growth;
pub mod status;
mod vip_labels;

pub use vip_labels::VipLabels;

use growth::{PoolGrowth, PoolUsers};

use fipd_core::{Family, Pool, PoolSpec, PoolUsage, Request, System, Text};
use fipd_crds::{
    cluster_api::{
        GlobalInClusterIPPool, GlobalInClusterPrefixPool, InClusterIPPool, InClusterIPPoolSpec,
        InClusterPoolStatus, InClusterPrefixPool, InClusterPrefixPoolSpec, has_paused_annotation,
    },
    labels::NETWORK,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff};

use super::{names::PROTECT_POOL, settings::ClusterApiSettings};
use crate::{
    config::{PoolFacts, PoolLink, ReleaseWait},
    controller::{
        meta::{Meta, View},
        pool_source::{
            Leaving, OUT_OF_RANGE, PoolController, PoolReport, PoolSource, PoolState, SourceFacts,
            WAITING_FOR_ADOPTION,
        },
        site::Site,
        store::Key,
    },
    validation::{in_cluster_pool, mirror::MirrorOf},
};

/// Why the pools of all objects are closed.
pub const OFF: &str = "in-cluster-kinds is \"leave\" for this cluster";

/// A pool object, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct InClusterView {
    pub meta: Meta,
    pub spec: InClusterSpec,
    pub status: InClusterPoolStatus,
    /// It neither allocates nor releases.
    pub paused: bool,
    /// The network (routing domain) that an annotation of fipd's names.
    pub network: Option<String>,
    /// `None`: it serves no Clusters.
    pub vip: Option<VipLabels>,
}

/// What the two sorts of pools say.
#[derive(Clone, Debug, PartialEq)]
pub enum InClusterSpec {
    Addresses(InClusterIPPoolSpec),
    Prefixes(InClusterPrefixPoolSpec),
}

impl InClusterSpec {
    /// The pool that it describes, or the rule that it breaks.
    pub fn rules(&self) -> Result<PoolSpec, String> {
        match self {
            Self::Addresses(spec) => in_cluster_pool::addresses(spec),
            Self::Prefixes(spec) => in_cluster_pool::prefixes(spec),
        }
    }

    /// The family of its addresses or prefixes; `None`: it breaks a rule.
    pub fn family(&self) -> Option<Family> {
        self.rules().ok()?.family()
    }
}

impl View for InClusterView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl InClusterView {
    fn of(meta: &ObjectMeta, spec: InClusterSpec, status: Option<InClusterPoolStatus>) -> Self {
        let annotation = |key| meta.annotations.as_ref()?.get(key).cloned();
        Self {
            paused: has_paused_annotation(meta),
            network: annotation(NETWORK),
            vip: VipLabels::of(meta.labels.as_ref(), meta.annotations.as_ref()),
            meta: Meta::of(meta),
            spec,
            status: status.unwrap_or_default(),
        }
    }

    pub fn addresses(pool: InClusterIPPool) -> Self {
        Self::of(
            &pool.metadata,
            InClusterSpec::Addresses(pool.spec),
            pool.status,
        )
    }

    pub fn global_addresses(pool: GlobalInClusterIPPool) -> Self {
        let spec = InClusterSpec::Addresses(pool.spec.pool);
        Self::of(&pool.metadata, spec, pool.status)
    }

    pub fn prefixes(pool: InClusterPrefixPool) -> Self {
        Self::of(
            &pool.metadata,
            InClusterSpec::Prefixes(pool.spec),
            pool.status,
        )
    }

    pub fn global_prefixes(pool: GlobalInClusterPrefixPool) -> Self {
        let spec = InClusterSpec::Prefixes(pool.spec.pool);
        Self::of(&pool.metadata, spec, pool.status)
    }

    fn grace(&self) -> Option<i64> {
        match &self.spec {
            InClusterSpec::Addresses(spec) => spec.address_reuse_grace_period_seconds,
            InClusterSpec::Prefixes(spec) => spec.address_reuse_grace_period_seconds,
        }
    }
}

/// The controller of the pools of one kind.
pub type InClusterPools<const PREFIXES: bool> = PoolController<InClusterSource<PREFIXES>>;

/// What pools of addresses, or of prefixes, say.
pub struct InClusterSource<const PREFIXES: bool> {
    pub settings: ClusterApiSettings,
    pub users: PoolUsers,
}

/// Before the names of pools of prefixes in the address book: pools of addresses have such names as well.
const PREFIX_TAG: &str = "prefix_";

/// Whether the pools of the kind with this plural are of prefixes.
pub fn holds_prefixes(plural: &str) -> bool {
    plural.ends_with("prefixpools")
}

/// What the address book calls an object of the kind with this plural.
pub fn object_of(plural: &str, key: &Key) -> String {
    let tag = if holds_prefixes(plural) {
        PREFIX_TAG
    } else {
        ""
    };
    format!("{tag}{key}")
}

impl<const PREFIXES: bool> PoolSource for InClusterSource<PREFIXES> {
    type View = InClusterView;
    type Status = InClusterPoolStatus;

    const METRIC: &'static str = "inclusterpool";
    const FINALIZER: Option<&'static str> = Some(PROTECT_POOL);
    const LEAVING: Leaving = Leaving::Marked;
    const AMBIGUOUS_IS_UNREADY: bool = true;
    const TAG: &'static str = if PREFIXES { PREFIX_TAG } else { "" };

    fn covers(&self, namespace: &str) -> bool {
        self.settings.looks_at_pools_of(namespace)
    }

    fn facts<'a>(&'a self, pool: &'a InClusterView) -> SourceFacts<'a> {
        SourceFacts {
            network: pool.network.as_deref(),
            ..SourceFacts::default()
        }
    }

    fn spec(&self, mirror: &MirrorOf<'_>, pool: &InClusterView) -> Result<PoolSpec, String> {
        let system = System::cluster_api();
        in_cluster_pool::named(
            pool.spec.rules()?,
            mirror.pool_name(&system),
            mirror.origin(system),
        )
    }

    fn written(&self, pool: &InClusterView) -> InClusterPoolStatus {
        pool.status.clone()
    }

    fn status(
        &self,
        pool: &InClusterView,
        report: &PoolReport,
        now: jiff::Timestamp,
    ) -> InClusterPoolStatus {
        status::desired(&pool.status, pool.meta.generation, report, now)
    }

    fn shown_already(
        &self,
        site: &Site,
        (key, _): (&Key, &InClusterView),
        existing: Option<&Pool>,
        wanted: &PoolSpec,
    ) -> Vec<Request> {
        let growth = PoolGrowth {
            pool: key,
            existing,
            wanted,
            has_prefixes: PREFIXES,
        };
        self.users.shown_in(site, &growth)
    }

    fn own_network(&self, site: &Site, key: &Key) -> Option<String> {
        own_network_name(&self.settings, site, &key.namespace)
    }

    /// It stays for as long as an address of it is in use, as with the original.
    fn release_wait(&self) -> Option<ReleaseWait> {
        None
    }

    fn remark(&self, pool: &InClusterView) -> Option<(&'static str, String)> {
        if pool.paused {
            let says = "it is paused: claims on it wait, and what they have stays; remove the annotation cluster.x-k8s.io/paused to go on";
            return Some(("PoolPaused", says.to_owned()));
        }
        in_cluster_pool::remark(pool.grace()).map(|text| ("GraceShortened", text))
    }

    fn warnings(&self, state: &PoolState) -> Vec<(&'static str, String)> {
        let exhausted = state.usage.free == 0 && state.usage.size > 0;
        let exhausted = exhausted.then(|| full(&state.usage).to_owned());
        // The condition names what is waited for, which changes while it is.
        let held = || {
            "no new address is given until what is in use is known; the condition Ready says what is waited for".to_owned()
        };
        let held = (!state.waiting.is_empty()).then(held);
        [
            (OUT_OF_RANGE, state.out_of_range()),
            ("Overlapping", state.overlap.clone()),
            ("PoolExhausted", exhausted),
            (WAITING_FOR_ADOPTION, held),
        ]
        .into_iter()
        .filter_map(|(reason, text)| Some((reason, text?)))
        .collect()
    }
}

/// What helps a pool that has nothing left. An Event with a new text is a new Event, so it has no numbers, which change with each
/// release: the status has those.
fn full(usage: &PoolUsage) -> &'static str {
    match usage.quarantined {
        0 => "everything is in use: new claims wait; add addresses or delete claims",
        _ => {
            "nothing is free, and some of it is in quarantine after a release: new claims wait; add addresses, delete claims or wait for the end of the quarantine"
        }
    }
}

/// The network of a pool object that has no pool in the address book, by the rules.
pub fn network_by_rules(site: &Site, key: &Key, annotation: Option<&str>) -> Text {
    let own = own_network_name(site.settings(), site, &key.namespace);
    let facts = PoolFacts {
        cluster: &site.session.names,
        system: &site.system,
        namespace: Some(&*key.namespace).filter(|namespace| !namespace.is_empty()),
        interface: None,
        link: &PoolLink::NONE,
        pool: &key.name,
        annotation,
        own_network: own.as_deref(),
    };
    site.session.network_choice(&facts, None).network
}

/// The network that the pools of a namespace have to themselves.
pub fn own_network_name(
    settings: &ClusterApiSettings,
    site: &Site,
    namespace: &str,
) -> Option<String> {
    let own = settings.network_per_namespace && !namespace.is_empty();
    own.then(|| network_name(&site.id.0, &site.name, namespace))
}

/// The network of a namespace: readable as far as its length allows, and unlike that of any other namespace.
fn network_name(id: &str, cluster: &str, namespace: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(format!("{id}/{namespace}"));
    let tail: String = digest
        .iter()
        .take(5)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let head: String = format!("{cluster}-{namespace}").chars().take(50).collect();
    let head = head
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-")
        .to_lowercase();
    format!("{}-{tail}", head.trim_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::kind::Kind;

    #[test]
    fn objects_of_two_kinds_with_one_name_have_two_in_the_address_book() {
        use super::super::names::{GLOBAL_POOL, GLOBAL_PREFIX_POOL, POOL, PREFIX_POOL};
        let name = |kind: Kind, namespace| object_of(kind.plural, &Key::new(namespace, "a"));
        assert_eq!(name(POOL, "ns"), "ns/a");
        assert_eq!(name(GLOBAL_POOL, ""), "a");
        assert_eq!(name(PREFIX_POOL, "ns"), "prefix_ns/a");
        assert_eq!(name(GLOBAL_PREFIX_POOL, ""), "prefix_a");
        let key = Key::new("ns", "a");
        let of_source = PoolController::<InClusterSource<true>>::object_of(&key);
        assert_eq!(object_of(PREFIX_POOL.plural, &key), of_source);
    }

    #[test]
    fn a_full_pool_has_one_event_however_much_of_it_cools() {
        let says = |used, quarantined| {
            full(&PoolUsage {
                size: 4,
                used,
                quarantined,
                ..PoolUsage::default()
            })
        };
        assert!(says(4, 0).starts_with("everything is in use: new claims wait"));
        assert!(says(4, 1).contains("in quarantine"));
        assert_eq!(says(4, 1), says(4, 3));
    }

    #[test]
    fn each_namespace_of_each_cluster_has_a_network_of_its_own() {
        let names = [
            network_name("1", "a-b", "c"),
            network_name("1", "a", "b-c"),
            network_name("2", "a", "b-c"),
            network_name("1", "m.example", &"n".repeat(63)),
        ];
        for (index, name) in names.iter().enumerate() {
            assert!(
                name.len() <= 63 && fipd_crds::names::is_label(name),
                "{name}"
            );
            assert!(!names[..index].contains(name), "{name}");
        }
        assert!(names[0].starts_with("a-b-c-"), "{}", names[0]);
        assert_eq!(
            names[0],
            network_name("1", "a-b", "c"),
            "and always the same"
        );
    }
}
