mod deletion;

use std::collections::BTreeMap;

use fipd_core::LeaseState;
use serde_json::{Value, json};

use super::{
    FLOATING_IP, POOL, QUOTA,
    review::Verdict,
    sample::{Rancher, fip, pool, why},
};

const PROJECT: &str = "rancher.k8s.binbash.org/project-name";

fn create(rancher: &Rancher, object: Value) -> Verdict {
    rancher.judge(&FLOATING_IP, "a", None, object)
}

fn update(rancher: &Rancher, old: Value, new: Value) -> Verdict {
    rancher.judge(&FLOATING_IP, "a", Some(old), new)
}

#[test]
fn a_floating_ip_needs_a_pool_that_gives_addresses() {
    let rancher = Rancher::new().quota("p-1", 2).broken("bad");
    assert_eq!(create(&rancher, fip("net", "")), Verdict::allowed());
    let text = why(create(&rancher, fip("other", "")));
    assert!(
        text.starts_with(
            "spec.floatingIPPool: \"other\" is not allowed: there is no FloatingIPPool"
        ),
        "{text}"
    );
    let text = why(create(&rancher, fip("bad", "")));
    assert!(text.contains("condition Ready"), "{text}");
    assert!(why(create(&rancher, fip("", ""))).starts_with("spec.floatingIPPool"));
    let gone = Rancher::new().quota("p-1", 2).without("net");
    assert!(why(create(&gone, fip("net", ""))).contains("there is no FloatingIPPool"));
    let denied = create(&rancher, fip("other", "")).denied.unwrap();
    assert_eq!(
        (denied.code, denied.reason, denied.may_pass),
        (422, "Invalid", true)
    );
}

#[test]
fn a_named_address_must_be_of_the_pool_and_free() {
    let taken = "rancher-fip/other/Service/ns/web";
    let rancher = Rancher::new()
        .quota("p-1", 9)
        .fip("10.0.0.11", "a", "p-1")
        .lease("10.0.0.12", taken, "p-2", LeaseState::Allocated)
        .lease("10.0.0.13", taken, "p-1", LeaseState::Quarantined)
        .lease("10.0.0.14", taken, "p-2", LeaseState::Quarantined)
        .lease("10.0.0.16", taken, "p-1", LeaseState::Reserved);
    for address in ["10.0.0.10", "10.0.0.20", "10.0.0.13", "10.0.0.11"] {
        assert_eq!(
            create(&rancher, fip("net", address)),
            Verdict::allowed(),
            "{address}"
        );
    }
    for (address, words) in [
        ("10.0.0.300", "must be an IP address"),
        ("10.0.1.10", "subnet 10.0.0.0/24"),
        ("2001:db8::1", "IPv4"),
        ("10.0.0.9", "range 10.0.0.10-10.0.0.20"),
        ("10.0.0.21", "range 10.0.0.10-10.0.0.20"),
        ("10.0.0.15", "excluded"),
        ("10.0.0.12", "in use or kept"),
        ("10.0.0.14", "in use or kept"),
        ("10.0.0.16", "in use or kept"),
    ] {
        let text = why(create(&rancher, fip("net", address)));
        let start = format!("spec.ipAddr: {address:?} is not allowed: ");
        assert!(text.starts_with(&start) && text.contains(words), "{text}");
    }
    let text = why(create(&rancher, fip("net", "10.0.0.12")));
    assert!(
        !text.contains("web") && !text.contains("p-2"),
        "others are not told: {text}"
    );
}

#[test]
fn an_address_in_a_leased_prefix_is_not_free() {
    let taken = "rancher-fip/other/Service/ns/web";
    let rancher = Rancher::new()
        .quota("p-1", 9)
        .lease("10.0.0.12", taken, "p-1", LeaseState::Allocated)
        .in_prefix(31)
        .lease("10.0.0.18", taken, "p-1", LeaseState::Quarantined)
        .in_prefix(31);
    for address in ["10.0.0.12", "10.0.0.13", "10.0.0.18", "10.0.0.19"] {
        let text = why(create(&rancher, fip("net", address)));
        assert!(text.contains("in use or kept"), "{text}");
    }
    for address in ["10.0.0.11", "10.0.0.14", "10.0.0.17", "10.0.0.20"] {
        assert_eq!(create(&rancher, fip("net", address)), Verdict::allowed());
    }
}

#[test]
fn ipv6_is_compared_by_value_and_never_by_text() {
    let rancher = Rancher::new().pool(
        "six",
        "2001:db8::/64",
        ("2001:db8::10", "2001:db8::ffff"),
        &["2001:db8::20"],
    );
    let text = |address| why(create(&rancher, fip("six", address)));
    assert!(text("2001:DB8:0:0::0020").contains("excluded"));
    assert!(text("2001:db8:1::10").contains("subnet"));
    assert!(
        text("2001:DB8::0011").starts_with("quota exceeded"),
        "only the quota is in the way"
    );
}

#[test]
fn quotas_are_decided_by_the_book_at_once() {
    let full = Rancher::new()
        .quota("p-1", 2)
        .fip("10.0.0.10", "x", "p-1")
        .fip("10.0.0.11", "y", "p-1");
    for address in ["", "10.0.0.12"] {
        let denied = create(&full, fip("net", address)).denied.unwrap();
        assert!(
            denied.message.starts_with(
                "quota exceeded: project \"p-1\" has 2 addresses of FloatingIPPool \"net\", its quota is 2; delete a"
            ),
            "{}",
            denied.message
        );
        assert_eq!((denied.code, denied.reason), (403, "Forbidden"));
    }
    let none = Rancher::new();
    let text = why(create(&none, fip("net", "")));
    assert!(
        text.starts_with("quota exceeded: project \"p-1\" has 0 addresses")
            && text.contains("let FloatingIPProjectQuota \"p-1\""),
        "{text}"
    );
    let mut optional = Rancher::new();
    optional.required = false;
    let optional = optional.pool("free", "10.1.0.0/24", ("10.1.0.1", "10.1.0.9"), &[]);
    assert_eq!(create(&optional, fip("free", "")), Verdict::allowed());
    let mut nobody = fip("net", "");
    nobody["metadata"]["labels"] = json!({});
    assert!(why(create(&full, nobody)).contains(PROJECT));
}

#[test]
fn a_full_pool_is_told_before_the_quota() {
    let mut rancher = Rancher::new().quota("p-1", 100);
    for last in (10..=20).filter(|last| *last != 15) {
        rancher = rancher.fip(&format!("10.0.0.{last}"), &format!("f{last}"), "p-2");
    }
    let text = why(create(&rancher, fip("net", "")));
    assert!(
        text.contains("no free address: 10 of 10 are in use"),
        "{text}"
    );
}

#[test]
fn an_update_is_judged_by_what_it_changes() {
    let rancher = Rancher::new()
        .quota("p-1", 1)
        .fip("10.0.0.10", "a", "p-1")
        .fip("10.0.0.11", "b", "p-2");
    let mut with_status = fip("net", "");
    with_status["status"] = json!({ "ipAddr": "10.0.0.10" });
    let mut relabelled = fip("net", "10.0.0.10");
    relabelled["metadata"]["labels"]["rancher.k8s.binbash.org/cluster-name"] = json!("c-m-b");
    let held = fip("net", "10.0.0.10");
    assert_eq!(
        update(&rancher, held.clone(), relabelled.clone()),
        Verdict::allowed()
    );
    assert_eq!(
        update(&rancher, with_status.clone(), held.clone()),
        Verdict::allowed()
    );
    assert_eq!(
        update(&rancher, held.clone(), fip("net", "")),
        Verdict::allowed()
    );
    let text = why(update(&rancher, held.clone(), fip("net", "10.0.0.12")));
    assert!(
        text.contains("the object has 10.0.0.10 and keeps it"),
        "{text}"
    );
    let text = why(update(
        &rancher,
        with_status.clone(),
        fip("net", "10.0.0.11"),
    ));
    assert!(text.contains("keeps it"), "{text}");
    // Nothing of the pool is asked for, so it need not be there.
    let gone = Rancher::new().fip("10.0.0.10", "a", "p-1").without("net");
    assert_eq!(update(&gone, held.clone(), relabelled), Verdict::allowed());
    assert_eq!(
        update(&gone, held.clone(), fip("net", "")),
        Verdict::allowed()
    );
    // A request that waits may be corrected, within the rules.
    let waits = Rancher::new().quota("p-1", 1);
    assert_eq!(
        update(&waits, fip("net", "10.0.0.9"), fip("net", "10.0.0.10")),
        Verdict::allowed()
    );
    assert!(
        why(update(
            &waits,
            fip("net", "10.0.0.10"),
            fip("net", "10.0.0.9")
        ))
        .contains("range")
    );
    let full = Rancher::new().quota("p-1", 0);
    assert!(
        why(update(
            &full,
            fip("net", "10.0.0.10"),
            fip("net", "10.0.0.11")
        ))
        .starts_with("quota exceeded")
    );
}

#[test]
fn an_address_goes_to_another_pool_only_if_that_has_it() {
    let rancher = Rancher::new()
        .fip("10.0.0.10", "a", "p-1")
        .pool("wide", "10.0.0.0/16", ("10.0.0.1", "10.0.9.9"), &[])
        .pool("far", "10.9.0.0/24", ("10.9.0.1", "10.9.0.9"), &[]);
    let held = fip("net", "10.0.0.10");
    assert_eq!(
        update(&rancher, held.clone(), fip("wide", "10.0.0.10")),
        Verdict::allowed()
    );
    let text = why(update(&rancher, held, fip("far", "10.0.0.10")));
    assert!(
        text.starts_with("spec.floatingIPPool: \"far\"") && text.contains("10.0.0.10"),
        "{text}"
    );
}

#[test]
fn defect_11_another_project_is_told_when_its_quota_does_not_allow_the_address() {
    let rancher = Rancher::new().quota("p-1", 1).fip("10.0.0.10", "a", "p-2");
    let mut before = fip("net", "10.0.0.10");
    before["metadata"]["labels"][PROJECT] = json!("p-2");
    let after = fip("net", "10.0.0.10");
    assert_eq!(
        update(&rancher, before.clone(), after.clone()),
        Verdict::allowed()
    );
    let full = Rancher::new().quota("p-1", 0).fip("10.0.0.10", "a", "p-2");
    let verdict = update(&full, before.clone(), after);
    assert!(verdict.denied.is_none());
    assert!(
        verdict
            .warnings
            .iter()
            .any(|text| text.contains("stays charged") && text.contains("quota exceeded")),
        "{verdict:?}"
    );
    let mut nobody = before.clone();
    nobody["metadata"]["labels"] = json!({});
    assert!(why(update(&full, before, nobody)).contains(PROJECT));
}

#[test]
fn what_shows_the_lease_of_a_service_may_be_restored() {
    let service = "rancher-fip/cluster-9/Service/ns/web";
    let rancher = Rancher::new().lease("10.0.0.12", service, "p-1", LeaseState::Allocated);
    let mut shown = fip("net", "10.0.0.12");
    shown["metadata"]["annotations"] = json!({ "fipd.io/holder": "Service/cluster-9/ns/web/u-1" });
    assert_eq!(create(&rancher, shown.clone()), Verdict::allowed());
    shown["metadata"]["annotations"] = json!({ "fipd.io/holder": "Service/cluster-9/ns/api/u-1" });
    assert!(create(&rancher, shown).denied.is_some());
}

fn pools(rancher: &Rancher, name: &str, old: Option<Value>, new: Value) -> Verdict {
    rancher.judge(&POOL, name, old, new)
}

#[test]
fn a_pool_is_checked_field_by_field() {
    let rancher = Rancher::new();
    let good = pool("10.5.0.0/24", "10.5.0.1", "10.5.0.254", &["10.5.0.7"]);
    assert_eq!(pools(&rancher, "new", None, good), Verdict::allowed());
    for (object, field) in [
        (json!({ "metadata": {} }), "spec.ipConfig: "),
        (
            json!({ "metadata": {}, "spec": { "ipConfig": null } }),
            "spec.ipConfig: ",
        ),
        (
            pool("10.5.0.0/33", "10.5.0.1", "10.5.0.9", &[]),
            "spec.ipConfig.subnet: ",
        ),
        (
            pool("10.5.0.0/24", "10.5.1.1", "10.5.0.9", &[]),
            "spec.ipConfig.pool.start: ",
        ),
        (
            pool("10.5.0.0/24", "10.5.0.1", "x", &[]),
            "spec.ipConfig.pool.end: ",
        ),
        (
            pool("10.5.0.0/24", "10.5.0.9", "10.5.0.1", &[]),
            "spec.ipConfig.pool.start: ",
        ),
        (
            pool("10.5.0.0/24", "10.5.0.1", "10.5.0.255", &[]),
            "spec.ipConfig.pool.end: ",
        ),
        (
            pool("10.5.0.0/24", "10.5.0.1", "2001:db8::1", &[]),
            "spec.ipConfig.pool.end: ",
        ),
        (
            pool("10.5.0.0/24", "10.5.0.1", "10.5.0.9", &["10.5.0.10"]),
            "spec.ipConfig.pool.exclude[0]: ",
        ),
        (
            pool("10.5.0.0/24", "10.5.0.1", "10.5.0.9", &["10.5.0.2", "a"]),
            "spec.ipConfig.pool.exclude[1]: ",
        ),
    ] {
        let text = why(pools(&rancher, "new", None, object));
        assert!(
            text.starts_with(field) && text.contains("is not allowed: "),
            "{text}"
        );
    }
    let twice = pool(
        "10.5.0.0/24",
        "10.5.0.1",
        "10.5.0.9",
        &["10.5.0.2", "10.5.0.2"],
    );
    let verdict = pools(&rancher, "new", None, twice);
    assert!(
        verdict.denied.is_none() && verdict.warnings.len() == 1,
        "{verdict:?}"
    );
}

#[test]
fn pools_that_overlap_are_told_and_let_through() {
    let rancher = Rancher::new();
    let same = pool("10.0.0.0/16", "10.0.0.1", "10.0.0.12", &[]);
    let verdict = pools(&rancher, "new", None, same.clone());
    assert!(verdict.denied.is_none());
    assert!(
        verdict
            .warnings
            .iter()
            .any(|text| text.contains("10.0.0.1-10.0.0.12") && text.contains("net")),
        "{verdict:?}"
    );
    let mut elsewhere = Rancher::new();
    elsewhere.network = None;
    assert_eq!(pools(&elsewhere, "new", None, same), Verdict::allowed());
}

#[test]
fn defect_10_a_pool_is_not_shrunk_below_what_is_in_use() {
    let mut rancher = Rancher::new().lease(
        "10.0.0.18",
        "rancher-fip/x/Service/ns/w",
        "p-1",
        LeaseState::Quarantined,
    );
    for last in [10, 11, 12, 13, 14, 16, 17] {
        rancher = rancher.fip(&format!("10.0.0.{last}"), &format!("f{last}"), "p-1");
    }
    let old = pool("10.0.0.0/24", "10.0.0.10", "10.0.0.20", &["10.0.0.15"]);
    let change = |new: Value| pools(&rancher, "net", Some(old.clone()), new);
    let same = |start, exclude: &[&str]| change(pool("10.0.0.0/24", start, "10.0.0.17", exclude));
    assert_eq!(
        same("10.0.0.10", &[]),
        Verdict::allowed(),
        "what cools is nobody's"
    );
    let text = why(same("10.0.0.17", &[]));
    assert!(text.contains("6 addresses in use would be outside the pool: 10.0.0.10, 10.0.0.11, 10.0.0.12, 10.0.0.13, 10.0.0.14, ...;"), "{text}");
    let text = why(same("10.0.0.10", &["10.0.0.16"]));
    assert!(
        text.contains("1 addresses in use") && text.contains("10.0.0.16"),
        "{text}"
    );
    let verdict = pools(
        &rancher,
        "net",
        None,
        pool("10.0.0.0/24", "10.0.0.17", "10.0.0.20", &[]),
    );
    assert!(
        verdict.denied.is_none() && !verdict.warnings.is_empty(),
        "a pool made anew: {verdict:?}"
    );
    let mut retarget = old.clone();
    retarget["spec"]["targetNetwork"] = json!("n");
    assert_eq!(change(retarget), Verdict::allowed());
}

#[test]
fn quota_objects_hold_whole_numbers_for_pools_that_are_there() {
    let rancher = Rancher::new()
        .fip("10.0.0.10", "a", "p-1")
        .fip("10.0.0.11", "b", "p-1");
    let object = |limits: Value| json!({ "metadata": {}, "spec": { "displayName": "P", "floatingIPQuota": limits } });
    let judge = |limits: Value| rancher.judge(&QUOTA, "p-1", None, object(limits));
    assert_eq!(judge(json!({ "net": 2 })), Verdict::allowed());
    assert_eq!(judge(json!({ "dc--net": 2 })), Verdict::allowed());
    assert_eq!(judge(json!(null)), Verdict::allowed());
    let text = why(judge(json!({ "net": -1, "other": 1.5 })));
    assert!(
        text.contains("spec.floatingIPQuota[\"net\"]: -1 is not allowed"),
        "{text}"
    );
    assert!(
        text.contains("spec.floatingIPQuota[\"other\"]: 1.5 is not allowed"),
        "{text}"
    );
    assert!(why(judge(json!({ "net": 1, "dc--net": 2 }))).contains("same pool"));
    let warned = |limits: Value, words: &str| {
        let verdict = judge(limits);
        assert!(verdict.denied.is_none());
        assert!(
            verdict.warnings.iter().any(|text| text.contains(words)),
            "{verdict:?}"
        );
    };
    warned(
        json!({ "nett": 1 }),
        "spec.floatingIPQuota[\"nett\"]: no usable FloatingIPPool",
    );
    warned(
        json!({ "net": 1 }),
        "the project has 2 addresses, more than 1",
    );
    let mut renamed = object(json!({ "net": -1 }));
    let old = renamed.clone();
    renamed["spec"]["displayName"] = json!("Q");
    let verdict = rancher.judge(&QUOTA, "p-1", Some(old), renamed);
    assert_eq!(verdict, Verdict::allowed());
}

#[test]
fn warnings_have_an_end() {
    let exclude: Vec<String> = (0..20).map(|_| "10.5.0.2".to_owned()).collect();
    let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
    let twice = pool("10.5.0.0/24", "10.5.0.1", "10.5.0.9", &exclude);
    let warnings = pools(&Rancher::new(), "new", None, twice).warnings;
    assert_eq!(
        (warnings.len(), warnings.last().map(String::as_str)),
        (6, Some("and 14 more"))
    );
}

#[test]
fn taking_the_label_away_is_judged_whatever_else_changes() {
    let rancher = Rancher::new().quota("p-1", 1).fip("10.0.0.10", "a", "p-1");
    let held = fip("net", "10.0.0.10");
    let bare = json!({ "metadata": {}, "spec": { "floatingIPPool": "net" } });
    let text = why(update(&rancher, held.clone(), bare));
    assert!(text.contains("project-name"), "{text}");
    let mut moved = fip("net", "");
    moved["metadata"]["labels"][PROJECT] = json!("p-2");
    let verdict = update(&rancher, held, moved);
    assert!(verdict.denied.is_none() && verdict.warnings.len() == 1);
}

#[test]
fn mapped_addresses_are_ipv4_in_pools_too() {
    let rancher = Rancher::new();
    let mapped = pool(
        "::ffff:10.5.0.0/120",
        "::ffff:10.5.0.1",
        "10.5.0.9",
        &["::ffff:10.5.0.7"],
    );
    assert_eq!(pools(&rancher, "new", None, mapped), Verdict::allowed());
    let nothing = pool("10.5.0.0/24", "10.5.0.1", "10.5.0.1", &["10.5.0.1"]);
    let warnings = pools(&rancher, "new", None, nothing).warnings;
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("no address to give")),
        "{warnings:?}"
    );
}

#[test]
fn what_is_too_much_to_look_at_is_let_through_and_what_is_repeated_is_short() {
    let rancher = Rancher::new();
    let exclude: Vec<String> = (0..10_001)
        .map(|number| format!("10.5.{}.{}", number / 250, number % 250))
        .collect();
    let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
    let large = pool("10.5.0.0/16", "10.5.0.0", "10.5.250.0", &exclude);
    let verdict = pools(&rancher, "new", None, large);
    assert!(verdict.denied.is_none() && verdict.warnings.concat().contains("10001"));

    let quota = |limit: i64| {
        let limits: BTreeMap<String, i64> = (0..1001)
            .map(|number| (format!("p{number}"), limit))
            .collect();
        let object = json!({ "metadata": {}, "spec": { "floatingIPQuota": limits } });
        rancher.judge(&QUOTA, "p-1", None, object)
    };
    assert!(quota(1).warnings.concat().contains("1001 pools"));
    let text = why(quota(-1));
    assert!(text.len() < 1000 && text.ends_with("..."), "{text}");
    let long = why(create(&rancher, fip("net", &"x".repeat(100_000))));
    assert!(long.len() < 400, "{}", long.len());
    let long = why(create(&rancher, fip(&"x".repeat(100_000), "")));
    assert!(long.len() < 2100, "{}", long.len());
}

#[test]
fn a_spec_that_fits_no_schema_is_refused() {
    let verdict = create(
        &Rancher::new(),
        json!({ "metadata": {}, "spec": { "floatingIPPool": 7 } }),
    );
    assert!(why(verdict).starts_with("spec: it does not fit its schema"));
}
