//! What the report says of the Service of the original API server.

use k8s_openapi::api::core::v1::Service;

use super::*;
use crate::systems::rancher_fip::api_service::plan::Unreachable;

/// As the original's manifests make it.
fn api_service(selector: Value, taken_off: Value) -> Service {
    let notes = json!({ "fipd.io/selector": taken_off });
    object(json!({
        "metadata": {
            "name": "rancher-fip-api-server",
            "annotations": if taken_off.is_null() { json!({}) } else { notes },
        },
        "spec": { "selector": selector, "ports": [
            { "name": "tls", "port": 8443, "protocol": "TCP", "targetPort": 8443, "nodePort": 30001 },
        ] },
    }))
}

fn want_at(port: u16, plain: Option<u16>) -> ServiceTarget {
    let addresses = BTreeSet::from(["192.0.2.7".parse().expect("an address")]);
    want("fipd", addresses, port, plain).expect("it is reachable")
}

#[test]
fn a_service_that_nobody_keeps_is_named_with_what_clients_need() {
    let mut found = site();
    let mut seen = |service: Option<Service>| {
        found.service = Some(Ok(ApiService {
            found: service,
            want: None,
        }));
        report(&found)
    };
    assert!(seen(None).changes.is_empty());
    let abandoned = seen(Some(api_service(json!({ "app": "x" }), json!(null))));
    assert_eq!(
        wrongs(&abandoned, FindingKind::Leftover),
        [
            "Service rancher-fip-manager/rancher-fip-api-server: selector {\"app\":\"x\"}, 8443 to 8443 (node port 30001); \
             leads nowhere once the original is stopped, and with it every Ingress and node port on it"
        ]
    );
    let does = &abandoned.changes[0].does;
    assert!(
        does.contains("api-service = true") && does.ends_with("https://fipd.example.net/v1"),
        "{does}"
    );
    let taken = seen(Some(api_service(json!({}), json!("{\"app\":\"x\"}"))));
    let said = wrongs(&taken, FindingKind::Leftover);
    assert!(
        said[0].contains("no selector ({\"app\":\"x\"} was taken off)"),
        "{said:?}"
    );
    assert!(said[0].contains("leads where fipd last let it"), "{said:?}");
    let does = &taken.changes[0].does;
    let back = "patch service rancher-fip-api-server --type merge -p '{\"spec\":{\"selector\":{\"app\":\"x\"}}}'`";
    assert!(does.contains(back), "{does}");
}

#[test]
fn of_a_service_that_fipd_keeps_it_is_said_what_there_is_and_what_it_is_to_be() {
    let mut found = site();
    let mut seen = |service: Option<Service>, want: Result<ServiceTarget, Unreachable>| {
        found.service = Some(Ok(ApiService {
            found: service,
            want: Some(want),
        }));
        report(&found)
    };
    let says = |report: &SiteReport| report.findings.last().map(|one| one.says.clone());
    let does = |report: &SiteReport| {
        let changes = report.changes.iter();
        changes.map(|one| one.does.clone()).collect::<Vec<_>>()
    };
    let original = api_service(json!({ "app": "x" }), json!(null));
    let wrong = seen(Some(original.clone()), Err(Unreachable::NoUrl));
    let said = wrongs(&wrong, FindingKind::Leftover);
    assert!(
        said[0].contains("8443 to 8443 (node port 30001); it stays so: [api] advertise is not set"),
        "{said:?}"
    );
    assert!(does(&wrong).is_empty());
    let circle = Unreachable::Circle {
        host: "api.example.com".into(),
        how: "Ingress fip/api leads api.example.com to it".into(),
    };
    let said = wrongs(&seen(None, Err(circle)), FindingKind::Leftover);
    assert!(said[0].contains("leads back to the Service"), "{said:?}");

    let missing = seen(None, Ok(want_at(9443, Some(9080))));
    let expected = "is not there; is to lead to 192.0.2.7, 8080 to 9080, 8443 to 9443";
    assert_eq!(says(&missing).as_deref(), Some(expected));
    assert_eq!(does(&missing), ["makes it and keeps its EndpointSlices"]);
    let before = seen(Some(original), Ok(want_at(9443, None)));
    assert!(wrongs(&before, FindingKind::Leftover).is_empty());
    let said = says(&before).expect("it is said");
    assert!(
        said.starts_with("selector {\"app\":\"x\"}, 8443 to 8443 (node port 30001); is to lead to 192.0.2.7, 8443 to 9443; \
             8080 leads nowhere"),
        "{said}"
    );
    assert!(does(&before)[0].contains("annotation fipd.io/selector"));
    let after = api_service(json!({}), json!("{}"));
    let after = seen(Some(after), Ok(want_at(9443, None)));
    assert_eq!(
        does(&after),
        ["sets its ports and keeps its EndpointSlices"]
    );
}

#[test]
fn a_service_that_is_as_it_is_to_be_changes_nothing_and_what_is_in_its_way_is_said() {
    let mut found = site();
    let mut service = api_service(json!({}), json!(null));
    let want = want_at(30_001, None);
    let ports = service.spec.as_mut().and_then(|spec| spec.ports.as_mut());
    ports.expect("ports")[0].target_port = Some(object(json!(30_001)));
    found.service = Some(Ok(ApiService {
        found: Some(service),
        want: Some(Ok(want)),
    }));
    found.strangers = Some(Ok(vec!["EndpointSlice x".into()]));
    found.duties.closed = "127.0.0.1:8443".parse().ok();
    found.unseen_ingresses = Some("forbidden".into());
    let seen = report(&found);
    let said = wrongs(&seen, FindingKind::Leftover);
    for part in [
        "leads to 192.0.2.7, 8443 to 30001",
        "leads also where others say: EndpointSlice x",
        "fipd listens at 127.0.0.1:8443 only",
        "30001 is a node port of it, too",
    ] {
        assert!(
            said.len() == 1 && said[0].contains(part),
            "{part}: {said:?}"
        );
    }
    assert!(
        seen.changes.iter().all(|one| one.by == ChangeBy::You),
        "{:?}",
        seen.changes
    );
    assert_eq!(seen.unseen.len(), 1);
}
