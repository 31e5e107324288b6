use serde_json::json;

use super::{
    resolve::testing::{pod, service},
    *,
};
use crate::systems::flat_network::service::testing::{AllAsked, parts};

async fn controller(
    answers: &[(&'static str, u16, &'static str)],
) -> (EndpointsController, AllAsked, impl Sized) {
    let (context, watches, asked, kept) = parts(answers).await;
    let controller = EndpointsController {
        context,
        watches,
        ips: Objects::new(),
        slices: Objects::new(),
        endpoints: Objects::new(),
    };
    (controller, asked, kept)
}

fn view(metadata: Value, spec: Value) -> FlatServiceView {
    let object = json!({ "metadata": metadata, "spec": spec });
    FlatServiceView::of(serde_json::from_value(object).unwrap())
}

/// A companion without selector, its original with one ready pod, and a slice that the stock controller left.
fn fill(controller: &EndpointsController, companion: &Key) {
    let services = &controller.context.objects;
    let selecting = json!({ "selector": { "app": "web" } });
    let web = view(json!({ "name": "web", "uid": "s" }), selecting);
    services.set(&Key::new("shop", "web"), web);
    let networks = json!({ "k8s.v1.cni.cncf.io/networks": "rancher-flat-network" });
    let metadata = json!({ "name": "web-flat-network", "uid": "c", "annotations": networks });
    services.set(companion, view(metadata, json!({ "clusterIP": "None" })));
    let (key, flat) = pod("web-0", &["10.2.3.100"], 8080, true);
    let mut flat = (*flat).clone();
    flat.labels = Arc::new([("app".to_owned(), "web".to_owned())].into());
    controller.watches.set_pod(&key, Some(flat));
    let ip = json!({
        "metadata": { "namespace": "shop", "name": "web-0", "uid": "i" },
        "spec": { "subnet": "blue", "podId": "u-web-0" }, "status": { "addr": "10.2.3.100" },
    });
    let ip = FlatIpView::of(serde_json::from_value(ip).unwrap());
    controller.ips.set(&key, ip);
    let left = SliceView {
        uid: "left".into(),
        service: "web-flat-network".into(),
        content: None,
    };
    controller
        .slices
        .set(&Key::new("shop", "web-flat-network-x"), left);
}

/// Row 62.
#[tokio::test]
async fn a_companion_leads_to_the_flat_addresses_of_its_original() {
    let answers = [
        ("PATCH", 200, "{}"),
        ("DELETE", 200, "{}"),
        ("PATCH", 200, "{}"),
    ];
    let (controller, asked, _kept) = controller(&answers).await;
    let companion = Key::new("shop", "web-flat-network");
    fill(&controller, &companion);
    let found = controller.context.objects.get(&companion);
    let next = controller.reconcile(&companion, found.clone()).await;
    assert_eq!(next.unwrap(), Next::Done);
    {
        let asked = asked.lock();
        let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
        let own = format!("{slices}/web-flat-network-flat-v4-");
        assert!(asked[0].path.starts_with(&own), "{}", asked[0].path);
        let addresses = &asked[0].body["endpoints"][0]["addresses"];
        assert_eq!(*addresses, json!(["10.2.3.100"]));
        assert_eq!(asked[1].path, format!("{slices}/web-flat-network-x"));
        let endpoints = "/api/v1/namespaces/shop/endpoints/web-flat-network";
        assert_eq!(asked[2].path, endpoints);
        let address = &asked[2].body["subsets"][0]["addresses"][0];
        assert_eq!(address["ip"], "10.2.3.100");
    }
    let next = controller.reconcile(&companion, found).await.unwrap();
    assert!(matches!(next, Next::After(_)), "once a second: {next:?}");
}

#[test]
fn endpoints_of_a_service_with_a_selector_are_those_of_kubernetes() {
    let key = Key::new("shop", "web");
    let annotated = |networks: &str, spec: Value| {
        let annotations = json!({ "k8s.v1.cni.cncf.io/networks": networks });
        view(
            json!({ "name": "web", "uid": "s", "annotations": annotations }),
            spec,
        )
    };
    let selecting = json!({ "selector": { "app": "web" }, "publishNotReadyAddresses": true });
    let user = annotated("rancher-flat-network", selecting.clone());
    let found = subject(&key, &user, None).unwrap();
    assert!(!found.has_own_endpoints && found.publishes_unready);
    assert!(subject(&key, &annotated("", selecting.clone()), None).is_none());
    let unselecting = annotated("rancher-flat-network", json!({}));
    assert!(
        subject(&key, &unselecting, None).is_none(),
        "somebody else's to lead"
    );
    assert!(
        subject(&key, &service(selecting), None).is_none(),
        "no annotation"
    );

    let companion_key = Key::new("shop", "web-flat-network");
    let companion = annotated("rancher-flat-network", json!({ "clusterIP": "None" }));
    let found = subject(&companion_key, &companion, Some((&key, &user))).unwrap();
    assert!(found.has_own_endpoints && found.publishes_unready);
    assert_eq!(found.subdomains, ["web", "web-flat-network"]);
    let mut before = companion.clone();
    before.selector = user.selector.clone();
    let found = subject(&companion_key, &before, Some((&key, &user))).unwrap();
    assert!(!found.has_own_endpoints, "the selector is still there");
}
