mod subnets;
mod workloads;

use serde_json::{Value, json};

use super::{sample::Lab, *};

fn why(verdict: Verdict) -> String {
    verdict.denied.expect("a refusal").message
}

#[track_caller]
fn refused(verdict: Verdict, words: &[&str]) {
    let text = why(verdict);
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

fn create(lab: &Lab, kind: &ReviewedKind, name: &str, object: Value) -> Verdict {
    lab.ask(kind, "CREATE", &json!({ "name": name, "object": object }))
}

fn update(lab: &Lab, kind: &ReviewedKind, name: &str, old: &Value, new: &Value) -> Verdict {
    lab.ask(
        kind,
        "UPDATE",
        &json!({ "name": name, "object": new, "oldObject": old }),
    )
}

#[test]
fn a_cluster_that_is_not_known_is_not_judged() {
    let clusters = FlatClusters::default();
    assert!(clusters.of("lab").is_none());
    clusters.add("lab", Arc::new(Lab::new()));
    let facts = clusters.of("lab").unwrap();
    assert_eq!(facts.id(), &ClusterId("cluster-1".into()));
}
