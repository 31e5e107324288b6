//! What the manifests of `packaging/rbac` may grant.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::testbed::documents;

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    let all = rule[field].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).collect()
}

/// Each rule of each role, with the name of its role.
fn rules() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/rbac");
    let mut rules = Vec::new();
    for entry in fs::read_dir(folder).expect("the manifests") {
        let path = entry.expect("an entry").path();
        let yaml = fs::read_to_string(&path).expect("a manifest");
        for role in documents(&yaml).expect("YAML") {
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            let own = role["rules"].as_array().cloned().unwrap_or_default();
            rules.extend(own.into_iter().map(|rule| (name.to_owned(), rule)));
        }
    }
    assert!(rules.len() > 30, "{} rules", rules.len());
    rules
}

#[test]
fn defect_30_no_role_has_wildcards_or_signs_certificates() {
    for (role, rule) in rules() {
        for field in ["apiGroups", "resources", "verbs", "nonResourceURLs"] {
            assert!(!texts(&rule, field).contains(&"*"), "{role}: {rule}");
        }
        let verbs = texts(&rule, "verbs");
        let grants = ["approve", "sign", "impersonate", "escalate", "bind"];
        assert!(
            !verbs.iter().any(|verb| grants.contains(verb)),
            "{role}: {rule}"
        );
        let groups = texts(&rule, "apiGroups");
        assert!(!groups.contains(&"certificates.k8s.io"), "{role}: {rule}");
    }
}

/// The roles whose rules on Secrets are to be bound in the namespaces that they are about, as their comments say, and of
/// which the first file that everybody needs has none.
#[test]
fn defect_30_the_secrets_of_a_cluster_are_for_roles_of_their_own() {
    for (role, rule) in rules() {
        let secrets = texts(&rule, "resources").contains(&"secrets");
        let everybodys = ["fipd-rancher-fip-management", "fipd-rancher-fip-downstream"];
        assert!(!secrets || !everybodys.contains(&&*role), "{role}: {rule}");
    }
}
