//! What may be deleted, and by whom.

use std::sync::Arc;

use fipd_core::{Adopt, ClusterId, Holder, LeaseState, Request, Timestamp, testing};
use serde_json::{Value, json};

use super::super::{
    FLOATING_IP, FamilyJudge, Judge as _, Management as _, POOL, QUOTA,
    review::{Question, Verdict},
    sample::{Rancher, fip, why},
};
use crate::{clock, ipam::Ipam};

const USER: &str = "alice";
const SERVICE: &str = "rancher-fip/guest/Service/shop/web";

/// The FloatingIP of Service `shop/web` of the cluster `c-m-g`.
fn used(address: &str) -> Value {
    let mut object = fip("net", address);
    for (key, value) in [
        ("cluster-name", "c-m-g"),
        ("service-0-namespace", "shop"),
        ("service-0-name", "web"),
    ] {
        object["metadata"]["labels"][format!("rancher.k8s.binbash.org/{key}")] = json!(value);
    }
    object["status"] = json!({ "ipAddr": address });
    object
}

fn forced(mut object: Value, value: &str) -> Value {
    object["metadata"]["annotations"]["fipd.io/force-delete"] = json!(value);
    object
}

fn delete(rancher: &Rancher, object: Value) -> Verdict {
    rancher.delete(&FLOATING_IP, "a", USER, object)
}

#[test]
fn a_floating_ip_that_a_service_uses_is_not_deleted_and_the_service_is_named() {
    let rancher = Rancher::new().fip("10.0.0.11", "a", "p-1");
    let text = why(delete(&rancher, used("10.0.0.11")));
    assert!(
        text.starts_with("10.0.0.11 is in use by Service shop/web of cluster c-m-g:")
            && text.contains("fipd.io/force-delete=true"),
        "{text}"
    );
    let denied = delete(&rancher, used("10.0.0.11")).denied.unwrap();
    assert_eq!((denied.code, denied.may_pass), (403, false));
    let mut more = used("10.0.0.11");
    more["metadata"]["labels"]["rancher.k8s.binbash.org/service-1-namespace"] = json!("shop");
    more["metadata"]["labels"]["rancher.k8s.binbash.org/service-1-name"] = json!("api");
    let text = why(delete(&rancher, more));
    assert!(text.contains("of cluster c-m-g and 1 more"), "{text}");
    let by_force = forced(used("10.0.0.11"), "true");
    assert_eq!(delete(&rancher, by_force), Verdict::allowed());
    let not_quite = forced(used("10.0.0.11"), "yes");
    assert!(delete(&rancher, not_quite).denied.is_some());
}

#[test]
fn a_floating_ip_that_shows_the_lease_of_a_service_is_not_deleted_before_that_gives_it_up() {
    let held = Rancher::new().lease("10.0.0.12", SERVICE, "p-1", LeaseState::Allocated);
    let mut object = used("10.0.0.12");
    object["metadata"]["annotations"]["fipd.io/holder"] = json!("Service/guest/shop/web/u-1");
    let text = why(delete(&held, object.clone()));
    assert!(
        text.contains("10.0.0.12 is in use by Service shop/web of cluster guest"),
        "{text}"
    );
    assert_eq!(delete(&Rancher::new(), object.clone()), Verdict::allowed());
    let given_up = Rancher::new().fip("10.0.0.12", "a", "p-1");
    assert_eq!(delete(&given_up, object), Verdict::allowed());
}

#[test]
fn an_address_that_nobody_uses_may_be_deleted() {
    let mut rancher = Rancher::new().fip("10.0.0.11", "a", "p-1");
    assert_eq!(
        delete(&rancher, fip("net", "10.0.0.11")),
        Verdict::allowed()
    );
    assert_eq!(
        delete(&Rancher::new(), used("10.0.0.11")),
        Verdict::allowed(),
        "it has none"
    );
    rancher.idle = vec!["c-m-g"];
    let shown_nowhere = delete(&rancher, used("10.0.0.11"));
    assert_eq!(shown_nowhere, Verdict::allowed(), "its cluster says so");
}

#[test]
fn a_pool_with_leases_is_not_deleted_and_its_holders_are_named() {
    let pool = || json!({ "metadata": {}, "spec": {} });
    let rancher = Rancher::new().fip("10.0.0.11", "a", "p-1").lease(
        "10.0.0.12",
        SERVICE,
        "p-1",
        LeaseState::Allocated,
    );
    let delete = |rancher: &Rancher, object| rancher.delete(&POOL, "net", USER, object);
    let text = why(delete(&rancher, pool()));
    assert!(
        text.contains("10.0.0.11 by rancher-fip/cluster-1/FloatingIP/c-m-a/a, 10.0.0.12 by")
            && text.contains("fipd.io/force-delete=true"),
        "{text}"
    );
    assert_eq!(delete(&rancher, forced(pool(), "true")), Verdict::allowed());
    assert_eq!(delete(&Rancher::new(), pool()), Verdict::allowed());
    let cooling = Rancher::new().lease("10.0.0.13", SERVICE, "p-1", LeaseState::Quarantined);
    assert_eq!(
        delete(&cooling, pool()),
        Verdict::allowed(),
        "nobody holds it"
    );
    let unknown = rancher.delete(&POOL, "other", USER, pool());
    assert_eq!(unknown, Verdict::allowed());
}

#[test]
fn what_the_cluster_clears_away_is_never_held_up() {
    let rancher = Rancher::new().fip("10.0.0.11", "a", "p-1");
    for user in [
        "system:serviceaccount:kube-system:namespace-controller",
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:kube-controller-manager",
    ] {
        let verdict = rancher.delete(&FLOATING_IP, "a", user, used("10.0.0.11"));
        assert_eq!(verdict, Verdict::allowed(), "{user}");
    }
    let mut ending = used("10.0.0.11");
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(delete(&rancher, ending), Verdict::allowed());
    let quota = json!({ "metadata": {}, "spec": {} });
    let verdict = rancher.delete(&QUOTA, "p-1", USER, quota);
    assert_eq!(verdict, Verdict::allowed());
}

/// What the API server is told of a delete by `user`, where `c-m-a/a` has 10.0.0.11.
async fn judged(rancher: Rancher, user: &str, options: Value) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
    let identity = "rancher-fip/cluster-1/FloatingIP/c-m-a/a".parse().unwrap();
    let adopt = Request::Adopt(Adopt {
        length: None,
        key: testing::key([10, 0, 0, 11]),
        holder: Holder {
            identity,
            instance: "u".into(),
        },
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    });
    ipam.submit(adopt).await.unwrap();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "DELETE", "name": "a", "namespace": "c-m-a",
            "resource": { "group": "rancher.k8s.binbash.org", "resource": "floatingips" },
            "userInfo": { "username": user }, "options": options,
            "object": null, "oldObject": used("10.0.0.11"),
        },
    });
    let question = Question::read(review.to_string().as_bytes(), &FLOATING_IP).unwrap();
    assert_eq!(rancher.id(), &ClusterId("cluster-1".into()));
    let rancher = Arc::new(rancher);
    let admission = FamilyJudge::new(
        Box::new(move |_: &str| Some(Arc::clone(&rancher) as _)),
        ipam,
    );
    let judged = admission.judge("rancher", &FLOATING_IP, &question).await;
    judged.verdict.denied.is_none()
}

#[tokio::test]
async fn fipd_deletes_what_it_likes_and_an_admin_with_the_same_user_does_not() {
    let by_uid = json!({ "kind": "DeleteOptions", "preconditions": { "uid": "u" } });
    assert!(judged(Rancher::new(), "fipd", by_uid.clone()).await);
    assert!(!judged(Rancher::new(), "fipd", json!({ "kind": "DeleteOptions" })).await);
    assert!(!judged(Rancher::new(), USER, by_uid).await);
}

#[tokio::test]
async fn nothing_is_kept_in_a_namespace_that_is_being_deleted() {
    let mut rancher = Rancher::new();
    rancher.ending = true;
    assert!(judged(rancher, USER, Value::Null).await);
    assert!(!judged(Rancher::new(), USER, Value::Null).await);
}
