//! Clusters that admins take in and out while the daemon runs.

use std::sync::Arc;

use serde_json::json;

use crate::harness::Daemon;

/// Nobody is there.
const KUBECONFIG: &str = r#"apiVersion: v1
kind: Config
current-context: a
clusters: [{ name: a, cluster: { server: "https://127.0.0.1:1" } }]
users: [{ name: a, user: { token: t-o-p-s-e-c-r-e-t } }]
contexts: [{ name: a, context: { cluster: a, user: a } }]
"#;

fn start() -> (Daemon, String) {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let config = home.path().join("fipd.toml");
    let text =
        "[[cluster]]\nname = \"own\"\nkubeconfig = \"own.kubeconfig\"\nsystems = [\"claims\"]\n";
    std::fs::write(&config, text).unwrap();
    std::fs::write(home.path().join("own.kubeconfig"), KUBECONFIG).unwrap();
    let config = config.to_str().unwrap().to_owned();
    (Daemon::start_in(home, &["--config", &config]), config)
}

#[test]
fn a_cluster_that_was_added_is_there_after_a_restart_until_it_is_removed() {
    let (fipd, config) = start();
    let add = "clusters add east --systems claims --kubeconfig -";
    let added = fipd.fed(add, KUBECONFIG);
    assert_eq!(added.code, 0, "{added:?}");
    let east = fipd.json("clusters show east");
    assert_eq!(
        (&east["found"], &east["systems"]),
        (&json!("uploaded"), &json!(["claims"]))
    );
    let home = fipd.home();
    drop(fipd);
    let fipd = Daemon::start_in(home, &["--config", &config]);
    assert_eq!(fipd.json("clusters show east")["found"], "uploaded");
    let file = fipd.data_dir().join("clusters.json");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(&file).unwrap().contains("t-o-p-s"));
    assert_eq!(fipd.cli("clusters remove east").code, 0);
    assert_eq!(fipd.cli("clusters show east").code, 3);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("t-o-p-s"));
    let audit = fipd.json("audit").to_string();
    assert!(
        audit.contains("cluster east added") && audit.contains("cluster east removed"),
        "{audit}"
    );
    assert!(!audit.contains("t-o-p-s") && !fipd.log().contains("t-o-p-s"));
}

#[test]
fn what_is_not_self_contained_or_belongs_to_the_file_is_refused() {
    let (fipd, _) = start();
    let add =
        |name: &str, text: &str| fipd.fed(&format!("clusters add {name} --kubeconfig -"), text);
    let program = KUBECONFIG.replace("{ token: t-o-p-s-e-c-r-e-t }", "{ exec: { command: sh } }");
    add("east", &program).fails(2, &["exec", "sh", "refused"]);
    let file = KUBECONFIG.replace("{ token: t-o-p-s-e-c-r-e-t }", "{ tokenFile: /etc/shadow }");
    add("east", &file).fails(2, &["tokenFile", "/etc/shadow"]);
    add("EAST", KUBECONFIG).fails(2, &["EAST"]);
    add("own", KUBECONFIG).fails(1, &["own", "the configuration file"]);
    fipd.cli("clusters remove own")
        .fails(1, &["own", "the configuration file"]);
    fipd.cli("clusters remove west").fails(3, &["west"]);
    let systems = fipd.fed(
        "clusters add east --systems flat --kubeconfig -",
        KUBECONFIG,
    );
    systems.fails(2, &["flat", "claims"]);
}

#[test]
fn a_cluster_that_does_not_answer_is_left_with_a_word_on_what_stays_and_can_be_attached_again() {
    let (fipd, config) = start();
    let left = fipd.cli("clusters detach own");
    assert_eq!(left.code, 1, "{left:?}");
    assert!(
        left.out.contains("run it again when the cluster answers"),
        "{left:?}"
    );
    let own = fipd.json("clusters show own");
    assert_eq!(
        (&own["detached"], &own["systems"]),
        (&json!(true), &json!([]))
    );
    let home = fipd.home();
    drop(fipd);
    let fipd = Daemon::start_in(home, &["--config", &config]);
    assert_eq!(fipd.json("clusters show own")["systems"], json!([]));
    assert_eq!(fipd.cli("clusters attach own").code, 0);
    assert_eq!(fipd.json("clusters show own")["systems"], json!(["claims"]));
    assert_eq!(
        std::fs::read_to_string(fipd.data_dir().join("attached-clusters")).unwrap(),
        "",
        "it was never reached"
    );
}
