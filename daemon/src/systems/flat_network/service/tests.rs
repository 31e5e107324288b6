use serde_json::json;

use super::{
    observe::FlatPodView,
    testing::{AllAsked, parts},
    *,
};

/// A controller over a server of canned answers.
async fn controller(
    answers: &[(&'static str, u16, &'static str)],
) -> (CompanionController, AllAsked, impl Sized) {
    let (context, watches, asked, kept) = parts(answers).await;
    let controller = CompanionController { context, watches };
    (controller, asked, kept)
}

fn service(name: &str) -> FlatServiceView {
    let object = json!({
        "metadata": { "name": name, "uid": "s" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP" }] },
    });
    FlatServiceView::of(serde_json::from_value(object).unwrap())
}

fn add_pod(controller: &CompanionController, service: &FlatServiceView) {
    let pod = FlatPodView {
        labels: Arc::new(service.selector.clone()),
        is_flat: true,
        is_alive: true,
        ..FlatPodView::default()
    };
    controller
        .watches
        .set_pod(&Key::new("shop", "web-0"), Some(pod));
}

async fn look(controller: &CompanionController, key: &Key) -> Reconciled {
    let service = controller.context.objects.get(key);
    controller.reconcile(key, service).await
}

/// Row 59: it appears with the first flat pod, and a name that is too long is told of.
#[tokio::test]
async fn a_companion_is_made_once_a_flat_pod_is_selected() {
    let (controller, asked, _kept) = controller(&[("POST", 200, "{}")]).await;
    let key = Key::new("shop", &"w".repeat(60));
    let original = service(&key.name);
    controller.context.objects.set(&key, original.clone());
    assert_eq!(look(&controller, &key).await.unwrap(), Next::Done);
    assert!(asked.lock().is_empty(), "no pod is selected");
    add_pod(&controller, &original);
    assert_eq!(look(&controller, &key).await.unwrap(), Next::Done);
    let asked = asked.lock();
    assert_eq!(asked[0].path, "/api/v1/namespaces/shop/services");
    assert_eq!(asked[0].body["metadata"]["name"], *companion_key(&key).name);
    let said = controller.context.events.said();
    assert_eq!(said, [("s".to_owned(), NAME_SHORTENED)]);
}

#[tokio::test]
async fn drift_is_put_right_and_a_taken_name_is_told_of() {
    let (controller, asked, _kept) = controller(&[("PATCH", 200, "{}")]).await;
    let key = Key::new("shop", "web");
    let original = service("web");
    controller.context.objects.set(&key, original.clone());
    add_pod(&controller, &original);
    let companion = json!({
        "metadata": {
            "name": "web-flat-network", "uid": "c", "resourceVersion": "7",
            "annotations": { "k8s.v1.cni.cncf.io/networks": "rancher-flat-network" },
        },
        "spec": { "clusterIP": "None", "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP" }] },
    });
    let companion = FlatServiceView::of(serde_json::from_value(companion).unwrap());
    controller
        .context
        .objects
        .set(&companion_key(&key), companion);
    look(&controller, &key).await.unwrap();
    {
        let asked = asked.lock();
        assert_eq!(
            asked[0].path,
            "/api/v1/namespaces/shop/services/web-flat-network"
        );
        assert_eq!(asked[0].body["spec"], json!({ "selector": null }));
    }
    controller
        .context
        .objects
        .set(&companion_key(&key), service("web-flat-network"));
    look(&controller, &key).await.unwrap();
    assert_eq!(
        controller.context.events.said(),
        [("s".to_owned(), NAME_TAKEN)]
    );
}
