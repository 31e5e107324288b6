use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::*;
use crate::systems::flat_network::endpoints::{
    observe,
    resolve::testing::{pod, resolved, service, subject},
};
use crate::systems::flat_network::service::observe::{FlatPodView, FlatServiceView};

fn web() -> FlatServiceView {
    let ports = json!([{ "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP" }]);
    service(json!({ "clusterIP": "None", "ports": ports }))
}

/// The slices as the API server has them after what was planned.
fn after(mut found: BTreeMap<String, SliceView>, plan: SlicePlan) -> BTreeMap<String, SliceView> {
    for (key, _) in plan.delete {
        found.remove(&*key.name).unwrap();
    }
    for (name, mut body) in plan.apply {
        body["metadata"]["uid"] = json!(format!("u-{name}"));
        let slice: EndpointSlice = serde_json::from_value(body).unwrap();
        found.insert(name, observe::slice(slice).unwrap());
    }
    found
}

fn planned(
    pods: &[(Key, Arc<FlatPodView>)],
    found: &BTreeMap<String, SliceView>,
    has_own_endpoints: bool,
) -> SlicePlan {
    let (key, service) = (Key::new("shop", "web"), web());
    let mut subject = subject(&key, &service);
    subject.has_own_endpoints = has_own_endpoints;
    let found = found.iter();
    let found: Vec<_> = found
        .map(|(name, slice)| (Key::new("shop", name), Arc::new(slice.clone())))
        .collect();
    plan(&subject, &resolved(&subject, pods), &found)
}

fn many(numbers: impl Iterator<Item = usize>) -> Vec<(Key, Arc<FlatPodView>)> {
    let one = |number: usize| {
        let address = format!("10.2.{}.{}", number / 200, number % 200);
        pod(&format!("web-{number}"), &[&address], 8080, true)
    };
    numbers.map(one).collect()
}

fn sizes(found: &BTreeMap<String, SliceView>) -> Vec<usize> {
    let content = |slice: &SliceView| slice.content.as_ref().unwrap().endpoints.len();
    found.values().map(content).collect()
}

/// Row 62: each family in slices of its own, with what is known of the pod.
#[test]
fn families_have_slices_of_their_own() {
    let pods = [pod("web-0", &["10.2.3.100", "fd00::1"], 8080, true)];
    let plan = planned(&pods, &BTreeMap::new(), true);
    let bodies: Vec<&Value> = plan.apply.values().collect();
    let [v4, v6] = bodies[..] else {
        panic!("{bodies:?}");
    };
    assert_eq!(
        (&v4["addressType"], &v6["addressType"]),
        (&json!("IPv4"), &json!("IPv6"))
    );
    assert_eq!(v6["endpoints"][0]["addresses"], json!(["fd00::1"]));
    assert_eq!(
        v4["endpoints"],
        json!([{
            "addresses": ["10.2.3.100"],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "hostname": "web-0",
            "nodeName": "n1",
            "targetRef": { "kind": "Pod", "namespace": "shop", "name": "web-0", "uid": "u-web-0" },
        }])
    );
    assert_eq!(
        v4["ports"],
        json!([{ "name": "http", "port": 8080, "protocol": "TCP" }])
    );
    assert_eq!(
        v4["metadata"]["labels"],
        json!({
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "rancher-flat-network-controller",
            "app.kubernetes.io/managed-by": "fipd",
            "service.kubernetes.io/headless": "",
        })
    );
    assert_eq!(v4["metadata"]["ownerReferences"][0]["uid"], "s");
    let name = plan.apply.keys().next().unwrap();
    assert!(name.starts_with("web-flat-v4-"), "{name}");
    assert_eq!(
        service_of(&Key::new("shop", name)),
        Some(Key::new("shop", "web"))
    );
    let found = after(BTreeMap::new(), plan);
    assert_eq!(
        planned(&pods, &found, true),
        SlicePlan::default(),
        "once is enough"
    );
}

#[test]
fn endpoints_stay_in_their_slice_and_free_room_is_filled() {
    let mut found = after(
        BTreeMap::new(),
        planned(&many(0..250), &BTreeMap::new(), true),
    );
    assert_eq!(sizes(&found), [100, 100, 50]);
    let plan = planned(&many((0..250).filter(|one| *one != 7)), &found, true);
    assert_eq!(
        (plan.apply.len(), plan.delete.len()),
        (1, 0),
        "one slice is written"
    );
    found = after(found, plan);
    assert_eq!(sizes(&found), [99, 100, 50]);
    let plan = planned(&many(0..260), &found, true);
    assert_eq!(plan.apply.len(), 2);
    found = after(found, plan);
    assert_eq!(sizes(&found), [100, 100, 60]);
    found = after(found.clone(), planned(&many(200..260), &found, true));
    assert_eq!(sizes(&found), [60], "slices without endpoints go");
    let first = found.keys().next().unwrap().clone();
    found = after(found.clone(), planned(&many(0..260), &found, true));
    assert_eq!(found.len(), 3);
    assert!(found.contains_key(&first));
}

/// Defect g1-16: slices of others are not fipd's, but for what the controllers of Kubernetes leave of a companion's selector.
#[test]
fn what_is_not_wanted_goes_and_what_is_of_others_stays() {
    let slice = |name: &str, service: &str, keeper: &str| {
        let labels = json!({
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": keeper,
        });
        let metadata = json!({ "name": name, "uid": format!("u-{name}"), "labels": labels });
        let object = json!({ "metadata": metadata, "addressType": "IPv4", "endpoints": [] });
        observe::slice(serde_json::from_value(object).unwrap())
    };
    let stock = "endpointslice-controller.k8s.io";
    assert_eq!(slice("web-x", "web", stock), None);
    assert_eq!(slice("web-x", "web", "admin"), None);
    let left = slice("a", "web-flat-network", stock).unwrap();
    let taken = slice("b", "web", "rancher-flat-network-controller").unwrap();
    let found = BTreeMap::from([("a".to_owned(), left), ("b".to_owned(), taken)]);
    let gone = |plan: SlicePlan| -> Vec<String> {
        plan.delete
            .iter()
            .map(|(key, uid)| format!("{} {uid}", key.name))
            .collect()
    };
    assert_eq!(gone(planned(&[], &found, true)), ["a u-a", "b u-b"]);
    assert_eq!(gone(planned(&[], &found, false)), ["b u-b"]);
}
