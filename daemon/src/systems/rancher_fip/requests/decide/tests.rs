use fipd_core::Tenant;
use fipd_crds::floating_ip::FloatingIP;
use serde_json::json;

use super::*;
use crate::systems::rancher_fip::floating_ip::observe::view;

fn asker(cluster: &str) -> Asker {
    Asker {
        management: "rancher".into(),
        project: "p-a".to_owned(),
        namespace: "c-m-a".to_owned(),
        cluster: cluster.to_owned(),
    }
}

fn service(name: &str) -> Service {
    Service {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    }
}

/// One of pool `net`; `labels` are those after the prefix of the family.
fn known(name: &str, address: &str, labels: &[(&str, &str)]) -> Known {
    let prefix = "rancher.k8s.binbash.org/";
    let labels: BTreeMap<String, String> = labels
        .iter()
        .map(|(key, value)| (format!("{prefix}{key}"), (*value).to_owned()))
        .collect();
    let object: FloatingIP = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "floatingIPPool": "net", "ipAddr": address },
    }))
    .unwrap();
    Known {
        name: name.into(),
        labels,
        fip: view(object),
        address: address.parse().ok(),
        held: true,
        contended: false,
        network: None,
        left: String::new(),
    }
}

fn used(name: &str, address: &str, cluster: &str, service: &str) -> Known {
    let labels = [
        ("cluster-name", cluster),
        ("service-0-name", service),
        ("service-0-namespace", "shop"),
    ];
    known(name, address, &labels)
}

fn grouped(name: &str, address: &str, cluster: &str, service: &str) -> Known {
    let mut one = used(name, address, cluster, service);
    one.fip.group = Some("g".to_owned());
    one
}

struct Case {
    service: &'static str,
    pool: &'static str,
    address: Option<&'static str>,
    group: Option<&'static str>,
}

const PLAIN: Case = Case {
    service: "web",
    pool: "net",
    address: None,
    group: None,
};

fn decided(case: &Case, known: &[Known]) -> Decision {
    decided_beside(case, known, &[])
}

/// `taken`: names of objects that are not the project's.
fn decided_beside(case: &Case, known: &[Known], taken: &[String]) -> Decision {
    decide(
        &AddressRequest {
            asker: &asker("c-m-a"),
            service: &service(case.service),
            pool: case.pool,
            network: Some(NetworkId::DEFAULT),
            address: case.address.map(|address| address.parse().unwrap()),
            group: case.group,
        },
        known,
        &taken.iter().cloned().collect(),
    )
}

fn message(decision: Decision) -> (u16, String) {
    let Decision::Refuse(denied) = decision else {
        panic!("{decision:?}");
    };
    (denied.code.as_u16(), denied.message)
}

#[test]
fn defect_05_asking_again_is_the_same_question() {
    let one = used("fip-1", "10.0.0.5", "c-m-a", "web");
    let has = Decision::Has("fip-1".into());
    assert_eq!(decided(&PLAIN, std::slice::from_ref(&one)), has);
    let fixed = Case {
        address: Some("10.0.0.5"),
        ..PLAIN
    };
    assert_eq!(decided(&fixed, std::slice::from_ref(&one)), has, "no 409");
    let first = decided(&PLAIN, &[]);
    assert!(matches!(&first, Decision::Create(name) if name.len() == 20));
    assert_eq!(
        decided(&PLAIN, &[]),
        first,
        "the name follows from the question"
    );
    let old = known(
        "fip-old",
        "10.0.0.6",
        &[
            ("cluster-name", "c-m-a"),
            ("service-name", "web"),
            ("service-namespace", "shop"),
        ],
    );
    assert_eq!(decided(&PLAIN, &[old]), Decision::Has("fip-old".into()));
}

#[test]
fn defect_06_an_unused_address_of_another_pool_is_not_taken() {
    let kept = known("fip-1", "10.0.0.5", &[]);
    let attach = Decision::Attach("fip-1".into());
    assert_eq!(decided(&PLAIN, std::slice::from_ref(&kept)), attach);
    let other = Case {
        pool: "other",
        ..PLAIN
    };
    assert!(matches!(
        decided(&other, std::slice::from_ref(&kept)),
        Decision::Create(_)
    ));
    let fixed = Case {
        pool: "other",
        address: Some("10.0.0.5"),
        ..PLAIN
    };
    let (code, text) = message(decided(&fixed, std::slice::from_ref(&kept)));
    assert!(code == 500 && text.contains("denied the request") && text.contains("in pool net"));
    let mut going = kept.clone();
    going.fip.meta.deleted = Some(fipd_core::Timestamp(1));
    let mut waits = kept;
    // It shows an address, but the address book has given it none.
    waits.held = false;
    assert!(matches!(
        decided(&PLAIN, &[going, waits]),
        Decision::Create(_)
    ));
}

#[test]
fn an_address_of_another_network_is_another_address() {
    let mut other = used("fip-1", "10.0.0.5", "c-m-a", "web");
    other.fip.pool = "other".to_owned();
    other.network = Some(NetworkId(7));
    let fixed = Case {
        address: Some("10.0.0.5"),
        ..PLAIN
    };
    let made = decided(&fixed, std::slice::from_ref(&other));
    assert!(matches!(made, Decision::Create(_)), "{made:?}");
    let own = known("fip-2", "10.0.0.5", &[]);
    let both = [other, own];
    assert_eq!(decided(&fixed, &both), Decision::Attach("fip-2".into()));
    let [mut near, own] = both;
    near.network = Some(NetworkId::DEFAULT);
    let has = Decision::Has("fip-1".into());
    assert_eq!(decided(&fixed, &[near.clone()]), has, "one network");
    let mut web = used("fip-2", "10.0.0.5", "c-m-a", "web");
    web.network = own.network;
    let has = Decision::Has("fip-2".into());
    assert_eq!(decided(&fixed, &[near, web]), has, "of the pool first");
}

#[test]
fn a_kept_address_that_somebody_else_was_found_using_is_given_to_no_third() {
    let mut kept = known("fip-1", "10.0.0.5", &[]);
    kept.contended = true;
    let free = known("fip-2", "10.0.0.6", &[]);
    let all = [kept, free];
    assert_eq!(decided(&PLAIN, &all), Decision::Attach("fip-2".into()));
    assert!(matches!(decided(&PLAIN, &all[..1]), Decision::Create(_)));
    let fixed = Case {
        address: Some("10.0.0.5"),
        ..PLAIN
    };
    assert_eq!(message(decided(&fixed, &all)), (409, TAKEN.to_owned()));
}

#[test]
fn an_address_that_is_used_is_joined_by_its_group_alone() {
    let fixed = Case {
        address: Some("10.0.0.5"),
        service: "api",
        ..PLAIN
    };
    let in_group = Case {
        group: Some("g"),
        ..fixed
    };
    let alone = [used("fip-1", "10.0.0.5", "c-m-a", "web")];
    assert_eq!(message(decided(&fixed, &alone)), (409, TAKEN.to_owned()));
    let shared = [grouped("fip-1", "10.0.0.5", "c-m-a", "web")];
    let attach = Decision::Attach("fip-1".into());
    assert_eq!(
        decided(&fixed, &shared),
        attach,
        "without a group of its own"
    );
    assert_eq!(decided(&in_group, &shared), attach);
    let elsewhere = Case {
        group: Some("h"),
        ..fixed
    };
    let (code, text) = message(decided(&elsewhere, &shared));
    assert_eq!(
        (code, &*text),
        (
            409,
            "FloatingIPGroup does not match the assigned FloatingIPGroup"
        )
    );
    let theirs = [grouped("fip-1", "10.0.0.5", "c-m-b", "web")];
    let (code, text) = message(decided(&in_group, &theirs));
    assert_eq!(
        (code, &*text),
        (409, "FloatingIP is already in use by another cluster")
    );
}

#[test]
fn a_group_shares_one_object_from_the_first_on() {
    let case = |service| Case {
        service,
        group: Some("g"),
        ..PLAIN
    };
    assert_eq!(decided(&case("web"), &[]), decided(&case("api"), &[]));
    let known = [
        known("fip-0", "10.0.0.4", &[]),
        grouped("fip-1", "10.0.0.5", "c-m-a", "web"),
    ];
    assert_eq!(
        decided(&case("api"), &known),
        Decision::Attach("fip-1".into())
    );
    assert_eq!(decided(&case("web"), &known), Decision::Has("fip-1".into()));
}

#[test]
fn a_name_that_another_has_is_passed_over() {
    let Decision::Create(first) = decided(&PLAIN, &[]) else {
        panic!("none is there");
    };
    let taken = used(&first, "10.0.0.5", "c-m-a", "api");
    let Decision::Create(second) = decided(&PLAIN, &[taken]) else {
        panic!("it is another's");
    };
    assert_ne!(first, second);
}

#[test]
fn names_that_objects_of_other_projects_have_are_passed_over() {
    let mut taken = Vec::new();
    for _ in 0..3 {
        let Decision::Create(name) = decided_beside(&PLAIN, &[], &taken) else {
            panic!("none is there");
        };
        assert!(!taken.contains(&name), "{name}");
        taken.push(name);
    }
    let again = decided_beside(&PLAIN, &[], &taken[..1]);
    assert_eq!(again, Decision::Create(taken[1].clone()), "in one order");
}

#[test]
fn defect_07_only_what_was_made_for_the_request_is_deleted_when_it_is_refused() {
    let ask = AddressRequest {
        asker: &asker("c-m-a"),
        service: &service("web"),
        pool: "net",
        network: None,
        address: None,
        group: None,
    };
    let Decision::Create(name) = decided(&PLAIN, &[]) else {
        panic!("none is there");
    };
    let mut made = used(&name, "", "c-m-a", "web");
    assert_eq!(ask.undo(&made, false, true), Undo::Delete);
    assert_eq!(ask.undo(&made, false, false), Undo::Nothing);
    made.address = "10.0.0.5".parse().ok();
    assert_eq!(ask.undo(&made, false, true), Undo::Nothing);
    let theirs = used("fip-1", "", "c-m-a", "web");
    assert_eq!(ask.undo(&theirs, false, true), Undo::Nothing);
    assert_eq!(ask.undo(&theirs, true, true), Undo::Restore);
    assert_eq!(ask.undo(&theirs, true, false), Undo::Nothing);
}

#[test]
fn labels_name_the_service_beside_others() {
    let ask = AddressRequest {
        asker: &asker("c-m-a"),
        service: &service("api"),
        pool: "net",
        network: None,
        address: None,
        group: Some("g"),
    };
    let one = used("fip-1", "10.0.0.5", "c-m-a", "web");
    let labels = ask.labels(one.labels);
    let label = |key: &str| labels.get(&format!("rancher.k8s.binbash.org/{key}"));
    assert_eq!(label("service-1-name").map(String::as_str), Some("api"));
    assert_eq!(label("service-0-name").map(String::as_str), Some("web"));
    assert_eq!(label("floatingip-group").map(String::as_str), Some("g"));
    assert_eq!(label("project-name").map(String::as_str), Some("p-a"));
    assert_eq!(ask.labels(labels.clone()), labels);
}

#[test]
fn defect_18_what_the_last_user_left_behind_is_not_shared_with_the_next() {
    let labels = [
        ("service-0-name", "api"),
        ("service-0-namespace", "shop"),
        ("service-name", "api"),
        ("service-namespace", "shop"),
        ("floatingip-group", "g"),
    ];
    let left = known("fip-1", "10.0.0.1", &labels);
    let (asker, web) = (asker("c-m-a"), service("web"));
    let ask = AddressRequest {
        asker: &asker,
        service: &web,
        pool: "net",
        network: None,
        address: None,
        group: None,
    };
    let after = ask.labels(left.labels);
    assert!(!after.values().any(|value| value == "api"), "{after:?}");
    assert!(!after.contains_key(GROUP), "{after:?}");
    let named = after.values().filter(|value| *value == "web").count();
    assert_eq!(named, 1, "{after:?}");
}

#[test]
fn what_passes_by_itself_is_asked_again() {
    let heard = |refusal| refused(&refusal);
    let quota = heard(Refusal::QuotaExceeded {
        tenant: Tenant("p-a".into()),
        pool: "net".into(),
        used: 2,
        limit: 2,
    });
    assert_eq!(quota.code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        quota.message.contains("denied the request: quota exceeded"),
        "{quota}"
    );
    let full = heard(Refusal::Exhausted {
        pool: "net".into(),
        used: 2,
        size: 2,
        of_prefixes: false,
        cooling: None,
    });
    assert!(!full.message.contains("denied the request"), "{full}");
    let taken = heard(Refusal::AddressTaken {
        address: fipd_core::testing::key([10, 0, 0, 5]).whole(),
        owner: "FloatingIP of another project".into(),
    });
    assert_eq!(taken, Denied::new(StatusCode::CONFLICT, TAKEN));
    let held = heard(Refusal::NetworkHeld {
        network: "default".into(),
        waiting: vec![],
    });
    assert_eq!(held, Denied::late());
}

#[test]
fn a_refusal_is_certain_though_the_client_is_told_to_ask_later() {
    let held = IpamError::Refused(Refusal::NetworkHeld {
        network: "default".into(),
        waiting: vec![],
    });
    let said = Denied::late();
    let no = |certain| No {
        said: said.clone(),
        certain,
    };
    assert_eq!(No::from(&held), no(true));
    assert_eq!(No::from(&IpamError::Stopping), no(false));
    assert_eq!(No::from(Denied::late()), no(false));
    assert!(!No::from(Denied::elsewhere()).certain);
    assert!(No::from(denied("quota exceeded")).certain);
}
