//! Clusters that admins take in and out while the daemon runs.

use std::sync::Arc;

use serde_json::json;

use crate::harness::{Daemon, PATIENCE};

/// Nobody is there.
pub const KUBECONFIG: &str = r#"apiVersion: v1
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
    add("east", &program).fails(2, &["exec", "refused"]);
    let file = KUBECONFIG.replace("{ token: t-o-p-s-e-c-r-e-t }", "{ tokenFile: /etc/shadow }");
    add("east", &file).fails(2, &["tokenFile", "refused"]);
    // No YAML, and of the wrong kind: neither the line is told nor the one beside it.
    let broken = KUBECONFIG.replace("clusters: [{", "clusters: t-o-p-s [{");
    let wrong = KUBECONFIG.replace("{ name: a, cluster: {", "{ name: a, cluster: t-o-p-s, x: {");
    for text in [&broken, &wrong] {
        let refused = add("east", text);
        refused.fails(2, &["kubeconfig", "line "]);
        assert!(!refused.err.contains("t-o-p-s"), "{refused:?}");
    }
    add("EAST", KUBECONFIG).fails(2, &["EAST"]);
    let admin = fipd.rest(Some(&fipd.token("adds", "admin")));
    let body = json!({ "kubeconfig": KUBECONFIG });
    let refused = admin.json(http::Method::PUT, "/api/v1/clusters/EAST", &[], body);
    assert_eq!(refused.problem(422, "invalid")["field"], "name");
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
fn a_broken_kubeconfig_is_told_by_its_place_wherever_and_its_token_nowhere() {
    let (fipd, _) = start();
    let broken = KUBECONFIG.replace("contexts: [", "contexts: t-o-p-s [");
    std::fs::write(fipd.home().path().join("own.kubeconfig"), broken).unwrap();
    let viewer = fipd.rest(Some(&fipd.token("looks", "viewer")));
    let begun = std::time::Instant::now();
    loop {
        let clusters = viewer.get("/api/v1/clusters").json().to_string();
        assert!(!clusters.contains("t-o-p-s"), "{clusters}");
        if clusters.contains("own.kubeconfig: is no ") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{clusters}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let log = fipd.logged("own.kubeconfig: is no ");
    assert!(!log.contains("t-o-p-s"), "{log}");
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

#[test]
fn a_cluster_that_was_left_stays_off_until_it_is_attached_whatever_it_is_added_or_removed_as() {
    let (fipd, config) = start();
    let add = |name: &str| {
        fipd.fed(
            &format!("clusters add {name} --systems claims --kubeconfig -"),
            KUBECONFIG,
        )
    };
    assert_eq!(add("east").code, 0);
    assert_eq!(add("west").code, 0);
    for name in ["east", "west"] {
        assert_eq!(fipd.cli(&format!("clusters detach {name}")).code, 1);
    }
    let again = add("east");
    assert!(
        again.out.contains("stays detached") && again.out.contains("fipd clusters attach east"),
        "{again:?}"
    );
    let east = fipd.json("clusters show east");
    assert_eq!(
        (&east["detached"], &east["systems"]),
        (&json!(true), &json!([]))
    );
    assert_eq!(fipd.cli("clusters attach east").code, 0);
    assert_eq!(
        fipd.json("clusters show east")["systems"],
        json!(["claims"])
    );
    let home = fipd.home();
    drop(fipd);

    // West is in the file by now as well.
    let mut text = std::fs::read_to_string(&config).unwrap();
    text.push_str(
        "[[cluster]]\nname = \"west\"\nkubeconfig = \"own.kubeconfig\"\nsystems = [\"claims\"]\n",
    );
    std::fs::write(&config, text).unwrap();
    let fipd = Daemon::start_in(home, &["--config", &config]);
    assert_eq!(fipd.cli("clusters remove west").code, 0);
    let west = fipd.json("clusters show west");
    assert_eq!(
        (&west["detached"], &west["systems"]),
        (&json!(true), &json!([]))
    );
}

#[test]
fn a_cluster_that_was_not_left_cleanly_stays_on_the_list_until_it_is_forgotten() {
    let (fipd, config) = start();
    let list = fipd.data_dir().join("attached-clusters");
    let home = fipd.home();
    drop(fipd);
    // As it is once the clusters were reached; no API server is here.
    std::fs::write(&list, "gone\nown\n").unwrap();
    let read = || std::fs::read_to_string(&list).unwrap();
    let fipd = Daemon::start_in(home.clone(), &["--config", &config]);
    assert_eq!(fipd.cli("clusters detach own").code, 1);
    assert_eq!(read(), "gone\nown\n");
    assert_eq!(fipd.cli("clusters forget gone").code, 0);
    assert_eq!(read(), "own\n");
    let audit = fipd.json("audit").to_string();
    assert!(audit.contains("clusters gone: what is left"), "{audit}");
    fipd.cli("clusters forget gone").fails(3, &["gone"]);
    drop(fipd);
    let fipd = Daemon::start_in(home, &["--config", &config]);
    assert_eq!(fipd.json("clusters show own")["detached"], true);
    assert_eq!(read(), "own\n");
}

#[test]
fn removing_a_cluster_that_was_not_left_says_what_stays_and_keeps_it_on_the_list() {
    let (fipd, config) = start();
    let add = "clusters add east --systems claims --kubeconfig -";
    assert_eq!(fipd.fed(add, KUBECONFIG).code, 0);
    let list = fipd.data_dir().join("attached-clusters");
    let home = fipd.home();
    drop(fipd);
    std::fs::write(&list, "east\n").unwrap();
    let fipd = Daemon::start_in(home, &["--config", &config]);
    let removed = fipd.cli("clusters remove east");
    assert!(
        removed.code == 0 && removed.out.contains("fipd clusters detach east"),
        "{removed:?}"
    );
    assert_eq!(std::fs::read_to_string(&list).unwrap(), "east\n");
    assert_eq!(fipd.cli("clusters forget east").code, 0);
    assert_eq!(std::fs::read_to_string(&list).unwrap(), "");
}

#[test]
fn nobody_attaches_removes_or_adds_a_cluster_while_it_is_left() {
    let (fipd, _) = start();
    let add = "clusters add east --systems claims --kubeconfig -";
    assert_eq!(fipd.fed(add, KUBECONFIG).code, 0);
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| fipd.cli("clusters detach east"));
        let begun = std::time::Instant::now();
        while fipd.json("clusters show east")["detached"] != true {
            assert!(begun.elapsed() < PATIENCE);
        }
        let busy = ["east", "ask again when that is done"];
        fipd.cli("clusters attach east").fails(1, &busy);
        fipd.cli("clusters remove east").fails(1, &busy);
        fipd.cli("clusters detach east").fails(1, &busy);
        fipd.fed(add, KUBECONFIG).fails(1, &busy);
        assert_eq!(fipd.cli("clusters attach own").code, 0, "others are free");
        assert_eq!(leaving.join().unwrap().code, 1);
    });
    assert_eq!(fipd.json("clusters show east")["systems"], json!([]));
    assert_eq!(fipd.cli("clusters attach east").code, 0);
}

#[test]
fn settings_that_name_files_of_the_host_are_refused() {
    let (fipd, _) = start();
    let settings = fipd.data_dir().join("east.toml");
    std::fs::write(&settings, "[ip-rule.webhook]\nca-file = \"/etc/shadow\"\n").unwrap();
    let add = format!(
        "clusters add east --systems ip-rule --kubeconfig - --settings {}",
        settings.display()
    );
    let refused = fipd.fed(&add, KUBECONFIG);
    refused.fails(
        2,
        &[
            "[ip-rule.webhook] ca-file",
            "/etc/shadow",
            "the configuration file",
        ],
    );
}

#[test]
fn a_cluster_that_cannot_be_kept_is_not_served_and_the_audit_log_says_so() {
    let (fipd, _) = start();
    let add = "clusters add east --systems claims --kubeconfig -";
    // The file cannot be written in its place.
    let blocked = fipd.data_dir().join("clusters.json.new");
    std::fs::create_dir(&blocked).unwrap();
    let refused = fipd.fed(add, KUBECONFIG);
    assert!(
        refused.code != 0 && refused.err.contains("cannot be kept"),
        "{refused:?}"
    );
    assert_eq!(fipd.cli("clusters show east").code, 3);
    let audit = fipd.json("audit").to_string();
    assert!(audit.contains("not done: cluster east added"), "{audit}");
    std::fs::remove_dir(&blocked).unwrap();
    assert_eq!(fipd.fed(add, KUBECONFIG).code, 0);
}
