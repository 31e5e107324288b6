//! Claims, addresses and Clusters as a hostile API server has them, and questions to the hook as anybody sends them.
#![allow(clippy::unwrap_used, reason = "what fails here is a finding")]

use fipd_core::Timestamp;
use fipd_crds::cluster_api::{Cluster, Endpoint, IPAddress, IPAddressClaim};
use k8s_openapi::jiff;
use serde_json::Value;

use super::{
    claim::{
        observe::{AddressView, IpClaimView},
        status, wish,
    },
    conversion,
    hook::{self, BlockedClusters},
    names::{DEFAULT_PORT, HOOKS_GROUP, HOOKS_VERSION},
    settings::ClusterApiSettings,
    vip::{
        CapiClusterView, ClassView,
        plan::{ClaimState, VipApply, VipFacts, is_label_value, plan},
        second::SecondFacts,
    },
};
use crate::controller::{
    address_user::outcome::{AddressOutcome, ShownLease, testing::shown},
    unserved::Unserved,
};

const NOW: Timestamp = Timestamp(1_700_000_100_000);
/// Far more than a message needs, in bytes: an answer does not grow with its question.
const LARGEST_ANSWER: usize = 4_096;

/// Reads an object, and asserts that what fipd writes for it is not written over and over.
pub fn objects(bytes: &[u8]) {
    if let Ok(object) = serde_json::from_slice(bytes) {
        claim(&object);
    }
    if let Ok(object) = serde_json::from_slice(bytes) {
        address(object);
    }
    if let Ok(object) = serde_json::from_slice(bytes) {
        cluster(object);
    }
}

fn claim(object: &IPAddressClaim) {
    let view = IpClaimView::of(object.clone());
    let settings = ClusterApiSettings::default();
    let _ = (
        wish::sort_of(&view.pool, &settings),
        wish::fixed(&view).pool,
    );
    if let Err(why) = wish::address(&view) {
        let length = why.message.len();
        assert!((1..LARGEST_ANSWER).contains(&length), "{length} bytes");
    }
    for outcome in outcomes() {
        let written = |before: &IPAddressClaim, second| {
            let now = jiff::Timestamp::from_second(second).unwrap();
            let status = status::desired(&IpClaimView::of(before.clone()), &outcome, now);
            let stored = serde_json::to_value(status).unwrap();
            IPAddressClaim {
                status: serde_json::from_value(stored).unwrap(),
                ..object.clone()
            }
        };
        // A time that no API server stores may cost a second write.
        let second = written(&written(object, 1_000), 2_000);
        assert_eq!(written(&second, 3_000), second);
    }
}

/// What may become of a claim.
fn outcomes() -> [AddressOutcome; 4] {
    let contended = ShownLease {
        contenders: vec!["cluster-api/c/IPAddressClaim/ns/other".into()],
        ..shown()
    };
    let refused = shown().staying(&Unserved::new("AddressTaken", "it is taken", None));
    let full = Unserved::new("PoolExhausted", "the pool is full", None);
    [Ok(shown()), Ok(contended), Ok(refused), Err(full)]
}

fn address(object: IPAddress) {
    let (name, pool) = (
        object.spec.claim_ref.name.clone(),
        object.spec.pool_ref.clone(),
    );
    let view = AddressView::of(object);
    assert_eq!(view.answers(&name, &pool), view.grace_ends.is_none());
    assert_eq!(view.address.map(|one| one.to_canonical()), view.address);
}

fn cluster(object: Cluster) {
    let view = CapiClusterView::of(object);
    let class = ClassView {
        meta: view.meta.clone(),
        declares_vip: true,
        reads_vip: true,
        reads_annotation: true,
        declares_second_vip: true,
    };
    let states = [
        ClaimState::Absent(Ok(())),
        ClaimState::Underway,
        ClaimState::Absent(Err("there is no pool".into())),
        ClaimState::Pending("it waits".into()),
        ClaimState::Fulfilled([10, 0, 0, 5].into()),
        ClaimState::Fulfilled("fd00::5".parse().unwrap()),
    ];
    for state in states {
        for class in [None, Some(&class)] {
            let planned = |cluster: &CapiClusterView| {
                plan(&VipFacts {
                    cluster,
                    class,
                    control_plane: state.clone(),
                    ingress: state.clone(),
                    replaced: None,
                    second: view.families.map(|_| SecondFacts {
                        control_plane: state.clone(),
                        ingress: state.clone(),
                    }),
                    default_port: DEFAULT_PORT,
                })
            };
            let first = planned(&view);
            let after = planned(&applied(view.clone(), &first.apply));
            assert!(!after.differs, "{first:?} is written again: {after:?}");
            // A host that somebody else chose lacks its port only once.
            let endpoint = first
                .apply
                .endpoint
                .filter(|_| after.apply.endpoint.is_some());
            let once = VipApply {
                endpoint,
                ..first.apply
            };
            assert_eq!(after.apply, once);
            assert!(after.conditions.iter().all(|one| !one.message.is_empty()));
        }
    }
}

/// The Cluster once that is written.
fn applied(mut cluster: CapiClusterView, apply: &VipApply) -> CapiClusterView {
    if let Some((host, port)) = &apply.endpoint {
        cluster.endpoint = Some(Endpoint {
            host: host.clone(),
            port: *port,
        });
        cluster.port = Some(*port);
    }
    if let Some(address) = apply.variable {
        cluster.variable = Some(address.to_string());
    }
    if let Some(address) = apply.annotation {
        cluster.annotated = Some(address.to_string());
    }
    if let Some(address) = apply.ingress.map(|one| one.to_string()) {
        cluster.ingress.label = is_label_value(&address).then(|| address.clone());
        cluster.ingress.address = Some(address);
    }
    cluster
}

/// Asks each hook this, and the one that the first line names the rest.
pub fn hooks(bytes: &[u8]) {
    let version = format!("{HOOKS_GROUP}/{HOOKS_VERSION}");
    for (call, hook) in [
        ("discovery", "Discovery"),
        ("beforeclustercreate/fipd-vip", "BeforeClusterCreate"),
    ] {
        let answer = ask(&format!("/{version}/{call}?timeout=5s"), bytes).unwrap();
        assert_eq!(answer["kind"], format!("{hook}Response"));
        assert_eq!(answer["apiVersion"], version);
    }
    let answer = conversion::answer(bytes);
    let result = &answer["response"]["result"];
    assert!(
        result["status"] == "Success" || result["message"].is_string(),
        "{answer}"
    );
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let path = String::from_utf8_lossy(parts.next().unwrap_or_default());
    ask(&path, parts.next().unwrap_or_default());
}

/// The answer, of which Cluster API understands each.
fn ask(path: &str, body: &[u8]) -> Option<Value> {
    let settings = ClusterApiSettings::default();
    let blocked = BlockedClusters::default();
    let answer = hook::answer(&settings, &blocked, path, body, NOW)?;
    let again = hook::answer(&settings, &blocked, path, body, NOW);
    assert_eq!(again.as_ref(), Some(&answer), "two answers to one question");
    let length = answer.to_string().len();
    assert!(length < LARGEST_ANSWER, "{length} bytes: {path}");
    let retries = answer["retryAfterSeconds"].as_u64().unwrap_or_default();
    let silent = answer["message"].as_str().unwrap_or_default().is_empty();
    let failed = answer["status"] == "Failure";
    assert!(failed || answer["status"] == "Success", "{answer}");
    assert!(retries == 0 || !failed, "{answer}");
    assert!(!silent || retries == 0 && !failed, "not a word: {answer}");
    Some(answer)
}
