//! Whether a pool of the in-cluster provider may be stored or deleted, by the rules of its own webhook.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{ClusterId, Family, Ledger, Origin, Pool, PoolSpec, System};
use fipd_crds::cluster_api::{InClusterIPPoolSpec, InClusterPrefixPoolSpec};
use futures::future::BoxFuture;
use parking_lot::RwLock;
use serde_json::Value;

use super::{
    names::{DELETE_FOR_MOVE, IPAM_GROUP, SKIP_VALIDATE_DELETE},
    pool::{holds_prefixes, object_of},
};
use crate::{
    admission::{
        Asks, Judge, Judged, ReviewedKind, Sample,
        review::{Operation, Question, Verdict},
        spec,
    },
    controller::{pool_source::leases_of, store::Key},
    ipam::Ipam,
    validation::in_cluster_pool::{self, outside},
};

/// The name of fipd's object.
pub const VALIDATOR: &str = "fipd-cluster-api-validator";

const WRITES: &[&str] = &["CREATE", "UPDATE", "DELETE"];

const fn kind(plural: &'static str, namespaced: bool, names: [&'static str; 2]) -> ReviewedKind {
    let [path, webhook] = names;
    ReviewedKind {
        group: IPAM_GROUP,
        plural,
        operations: WRITES,
        path,
        namespaced,
        webhook,
        conditions: &[],
    }
}

const POOLS: [ReviewedKind; 4] = [
    kind(
        "inclusterippools",
        true,
        ["validate-inclusterippool", "vinclusterippool.fipd.io"],
    ),
    kind(
        "globalinclusterippools",
        false,
        [
            "validate-globalinclusterippool",
            "vglobalinclusterippool.fipd.io",
        ],
    ),
    kind(
        "inclusterprefixpools",
        true,
        [
            "validate-inclusterprefixpool",
            "vinclusterprefixpool.fipd.io",
        ],
    ),
    kind(
        "globalinclusterprefixpools",
        false,
        [
            "validate-globalinclusterprefixpool",
            "vglobalinclusterprefixpool.fipd.io",
        ],
    ),
];

/// What API servers ask about.
pub static ASKS: Asks = Asks {
    system: "cluster-api",
    name: VALIDATOR,
    kinds: &POOLS,
    versions: &["v1alpha2"],
    sample: Sample {
        api: "apis/ipam.cluster.x-k8s.io/v1alpha2",
        kind: "GlobalInClusterIPPool",
        plural: "globalinclusterippools",
        namespace: "",
        spec: r#"{ "addresses": ["192.0.2.1"], "prefix": 24 }"#,
        role: "packaging/rbac/cluster-api.yaml",
    },
    original: None,
};

/// The clusters whose pools are known, by the names that they are asked under. `None`: another provider serves them.
#[derive(Clone, Default)]
pub struct KnownClusters(Arc<RwLock<BTreeMap<String, Option<ClusterId>>>>);

impl KnownClusters {
    pub fn add(&self, name: &str, id: &ClusterId) {
        self.0.write().insert(name.to_owned(), Some(id.clone()));
    }

    /// fipd does not judge the pools of this cluster.
    pub fn leave(&self, name: &str) {
        self.0.write().insert(name.to_owned(), None);
    }

    fn is_left(&self, name: &str) -> bool {
        self.0.read().get(name).is_some_and(Option::is_none)
    }

    fn of(&self, name: &str) -> Option<ClusterId> {
        self.0.read().get(name).cloned().flatten()
    }
}

/// Judges pools by the address book.
pub struct PoolJudge {
    pub ipam: Ipam,
    pub clusters: KnownClusters,
}

impl Judge for PoolJudge {
    fn judge<'a>(
        &'a self,
        cluster: &'a str,
        kind: &'static ReviewedKind,
        question: &'a Question,
    ) -> BoxFuture<'a, Judged> {
        Box::pin(std::future::ready(self.verdict(cluster, kind, question)))
    }
}

impl PoolJudge {
    fn verdict(&self, cluster: &str, kind: &ReviewedKind, question: &Question) -> Judged {
        let passes = question.operation != Operation::Delete && question.passes();
        if passes || self.clusters.is_left(cluster) {
            return Judged::checked(Verdict::allowed());
        }
        if question.operation == Operation::Create {
            return Judged::checked(judge(kind, question));
        }
        let wanted = match wanted(kind, question) {
            Ok(wanted) => wanted,
            Err(verdict) => return Judged::checked(verdict),
        };
        let Some(id) = self.clusters.of(cluster) else {
            return Judged::unchecked();
        };
        let object = object_of(kind.plural, &Key::new(&question.namespace, &question.name));
        let pool = |ledger: &Ledger| ledger.mirror(&System::cluster_api(), &id, &object).cloned();
        let verdict = match self.ipam.read(pool) {
            Some(pool) => used(&self.ipam, &pool, wanted.as_ref(), question),
            None => allowed(wanted.as_ref()),
        };
        Judged::checked(verdict)
    }
}

/// Whether the specification describes a pool.
pub fn judge(kind: &ReviewedKind, question: &Question) -> Verdict {
    match wanted(kind, question) {
        Ok(wanted) => allowed(wanted.as_ref()),
        Err(wrong) => wrong,
    }
}

/// The pool that the specification describes; `None`: it is deleted.
fn wanted(kind: &ReviewedKind, question: &Question) -> Result<Option<PoolSpec>, Verdict> {
    let deleted = question.operation == Operation::Delete;
    let read = (!deleted).then(|| read(kind, &question.object.spec));
    read.transpose()
}

/// The pool that the specification describes.
fn read(kind: &ReviewedKind, value: &Value) -> Result<PoolSpec, Verdict> {
    let read = match holds_prefixes(kind.plural) {
        true => in_cluster_pool::prefixes(&spec::<InClusterPrefixPoolSpec>(value)?),
        false => in_cluster_pool::addresses(&spec::<InClusterIPPoolSpec>(value)?),
    };
    let named = read.and_then(|spec| {
        let origin = Origin::Mirror {
            system: System::cluster_api(),
            cluster: ClusterId("x".into()),
            object: "x".into(),
            uid: "x".into(),
        };
        in_cluster_pool::named(spec, "cluster-api/x/x".into(), origin)
    });
    named.map_err(Verdict::invalid)
}

/// A pool is not deleted, and gives up no address, while that is allocated. `None`: it is deleted.
fn used(ipam: &Ipam, pool: &Pool, wanted: Option<&PoolSpec>, question: &Question) -> Verdict {
    let mut held = leases_of(ipam, pool.id).filter(|lease| lease.owner().is_some());
    let Some(wanted) = wanted else {
        let old = question
            .old
            .as_ref()
            .and_then(|old| old.metadata.annotations.as_ref());
        let skips = [SKIP_VALIDATE_DELETE, DELETE_FOR_MOVE];
        let skipped = old.is_some_and(|all| skips.iter().any(|one| all.contains_key(*one)));
        return match !skipped && held.next().is_some() {
            true => Verdict::bad_request(format!(
                "the pool has allocated addresses; delete their claims first, or write the annotation {SKIP_VALIDATE_DELETE}: then the pool stays until the last is free"
            )),
            false => Verdict::allowed(),
        };
    };
    if wanted.allocation_length != pool.spec.allocation_length {
        return Verdict::invalid(
            "spec.allocationPrefixLength is immutable; make another pool".to_owned(),
        );
    }
    match outside(wanted, held.map(|lease| lease.prefix())) {
        Some(text) => Verdict::bad_request(format!(
            "spec: the pool has allocated addresses that it would not have any more: {text}; keep them, or delete their claims first"
        )),
        None => allowed(Some(wanted)),
    }
}

/// Allowed; with a warning where each prefix is a single address.
fn allowed(wanted: Option<&PoolSpec>) -> Verdict {
    let whole = Some(Family::V6.bits());
    match wanted.is_some_and(|spec| spec.allocation_length == whole) {
        true => Verdict::warned(vec![
            "spec.allocationPrefixLength: 128 gives each claim a single address; InClusterIPPool and GlobalInClusterIPPool are for those".to_owned(),
        ]),
        false => Verdict::allowed(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock;

    /// Whether this may be a new pool of prefixes.
    fn question(spec: &Value) -> Question {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "name": "a", "namespace": "ns",
                "resource": { "group": IPAM_GROUP, "version": "v1alpha2", "resource": "inclusterprefixpools" },
                "object": { "metadata": { "name": "a" }, "spec": spec },
            },
        });
        Question::read(review.to_string().as_bytes(), &POOLS[2]).expect("a review")
    }

    /// The warnings about a new pool of prefixes of this length.
    fn warnings(length: u8) -> Vec<String> {
        let spec = json!({ "prefixes": ["fd00::/120"], "allocationPrefixLength": length });
        let verdict = judge(&POOLS[2], &question(&spec));
        assert!(verdict.denied.is_none(), "{verdict:?}");
        verdict.warnings
    }

    #[tokio::test]
    async fn pools_that_another_provider_serves_are_not_judged() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let judge = PoolJudge {
            ipam,
            clusters: KnownClusters::default(),
        };
        let wrong = question(&json!({ "prefixes": [], "allocationPrefixLength": 200 }));
        let is_denied = || {
            let judged = judge.verdict("m", &POOLS[2], &wrong);
            judged.verdict.denied.is_some()
        };
        judge.clusters.leave("other");
        assert!(is_denied());
        judge.clusters.leave("m");
        assert!(!is_denied());
        judge.clusters.add("m", &ClusterId("x".into()));
        assert!(is_denied());
    }

    #[test]
    fn prefixes_of_a_single_address_are_stored_with_a_warning() {
        assert!(warnings(127).is_empty());
        let [warning] = &warnings(128)[..] else {
            panic!("one warning");
        };
        assert!(warning.contains("allocationPrefixLength") && warning.contains("single address"));
    }
}
