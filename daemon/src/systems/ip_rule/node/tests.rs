//! What this host says on an IPRuleConfig, over an API server in memory.

use std::convert::Infallible;

use fipd_core::System;
use fipd_crds::ip_rule::{ABSENT, ABSENT_SINCE, APPLIED_PREFIX, PRESENT};
use kube::{Client, client::Body};
use serde_json::json;

use super::{
    super::{
        config_change::echo,
        names::{of_node, spec_hash},
    },
    *,
};
use crate::{clock, clusters::testing, ipam::Ipam};

const NODE: &str = "n1";

fn key() -> Key {
    Key::new("", "iprc-10-96-0-1")
}

/// The object as an API server shows it.
fn object(state: &str, annotations: &Value) -> Value {
    let generation = if state == PRESENT { 1 } else { 2 };
    json!({
        "apiVersion": CONFIG.api_version(), "kind": CONFIG.kind,
        "metadata": {
            "name": &*key().name, "uid": "u", "generation": generation, "resourceVersion": "7",
            "labels": { "managed-by": "ip-rule-operator" }, "annotations": annotations,
        },
        "spec": { "serviceIP": "10.96.0.1", "table": 100, "state": state },
    })
}

fn view(object: &Value) -> Config {
    let object = serde_json::from_value(object.clone()).expect("an IPRuleConfig");
    observe::config_on(object, NODE)
}

/// Reports the rule of a config that was present. `meanwhile` is what the watch tells before the answer to that comes; what is
/// kept then.
async fn report(answer: Value, meanwhile: Option<Config>) -> Arc<Config> {
    let part = Arc::<Mutex<Option<Arc<NodePart>>>>::default();
    let at_server = Arc::clone(&part);
    let serve = move |_: http::Request<Body>| {
        if let (Some(part), Some(told)) = (&*at_server.lock(), &meanwhile) {
            part.configs.set(&key(), told.clone());
        }
        let answer = http::Response::new(Body::from(answer.to_string().into_bytes()));
        std::future::ready(Ok::<_, Infallible>(answer))
    };
    let client = Client::new(tower::service_fn(serve), "default");
    let dir = tempfile::tempdir().expect("a directory");
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
    let session = testing::session(client, &ipam).await;
    let site = Arc::new(Site::new(session, System::ip_rule()));
    let means = HostMeans {
        node: NODE.into(),
        agent: None,
        leaving: None,
    };
    let node = NodePart::new(site, RuleBoard::default(), &means, Arc::default());
    let config = view(&object(PRESENT, &json!({})));
    let present = news::Present {
        hash: spec_hash(&config.spec),
        source: config.source().expect("an address"),
        set: "c/lb".into(),
        astray: false,
    };
    let said = Said {
        present: BTreeMap::from([(key().name, present)]),
        ..Said::default()
    };
    *node.told.lock() = Some((Arc::new(said), Arc::new(Reached::whole(1))));
    node.configs.set(&key(), config);
    *part.lock() = Some(Arc::clone(&node));
    assert_eq!(Arc::clone(&node).report(key()).await, Next::Done);
    part.lock().take();
    node.configs.get(&key()).expect("a config")
}

/// With the word that the rule is here.
fn applied(state: &str, mut annotations: Value) -> Value {
    let hash = spec_hash(&view(&object(PRESENT, &json!({}))).spec);
    annotations[of_node(APPLIED_PREFIX, NODE)] = json!(echo(&hash));
    object(state, &annotations)
}

#[tokio::test]
async fn what_was_reported_is_kept_so_that_it_is_not_reported_again() {
    let answer = applied(PRESENT, json!({}));
    assert_eq!(*report(answer.clone(), None).await, view(&answer));
}

#[tokio::test]
async fn an_answer_that_comes_late_hides_nothing_that_the_watch_told_meanwhile() {
    let absent = view(&object(ABSENT, &json!({ ABSENT_SINCE: "x" })));
    let kept = report(applied(PRESENT, json!({})), Some(absent.clone())).await;
    assert_eq!(*kept, absent);
}

#[tokio::test]
async fn what_others_changed_is_the_watchs_to_tell() {
    let kept = report(applied(ABSENT, json!({ ABSENT_SINCE: "x" })), None).await;
    assert_eq!(*kept, view(&object(PRESENT, &json!({}))));
}
