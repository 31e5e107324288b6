//! A host of role agent: no address book, and the rules of this host all the same.

use std::sync::Arc;

use crate::harness::Daemon;

const CONFIG: &str = r#"role = "agent"

[host]
node = "n1"

[[cluster]]
name = "a"
kubeconfig = "kubeconfig"
systems = ["ip-rule"]
"#;

/// Nobody is there.
const KUBECONFIG: &str = r#"apiVersion: v1
kind: Config
current-context: a
clusters: [{ name: a, cluster: { server: "https://127.0.0.1:1" } }]
users: [{ name: a, user: { token: t } }]
contexts: [{ name: a, context: { cluster: a, user: a } }]
"#;

#[test]
fn an_admin_sees_the_rules_of_a_host_that_decides_nothing_and_nothing_else() {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let config = home.path().join("fipd.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
    std::fs::set_permissions(
        &kubeconfig,
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    let fipd = Daemon::start_in(home, &["--config", config.to_str().unwrap()]);
    let plan = fipd.json("rules plan");
    assert!(
        ["starting", "degraded"].contains(&plan["state"].as_str().unwrap()),
        "the cluster has said nothing yet: {plan}"
    );
    assert_eq!(fipd.json("rules show")["node"], "n1");
    let adopted = fipd.cli("adopt ip-rule --cluster a --dry-run");
    assert_ne!(adopted.code, 0, "the cluster does not answer: {adopted:?}");
    assert!(adopted.err.contains("cluster a"), "{adopted:?}");
    let leases = fipd.cli("lease list");
    assert!(leases.err.contains("no such path"), "{leases:?}");
}
