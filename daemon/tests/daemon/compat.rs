//! Arguments and variables of the original programs.

use std::sync::Arc;

use crate::{
    harness::{Daemon, free_port, program, run, serve},
    roles::plain_get,
};

#[test]
fn a_deployment_keeps_the_arguments_of_the_original() {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let (manager, api) = (free_port(), free_port());
    let mut command = serve(home.path());
    command
        .args(["--compat", "rancher-fip", "-kubeconfig=/nowhere/at/all"])
        .args([
            "--leader-elect=false",
            "--lease-lock-name=rancher-fip-manager-lock",
        ])
        .args(["--http-service-port", &manager.to_string()])
        .args([
            "-listen-address",
            &format!("127.0.0.1:{api}"),
            "-tls-enabled=false",
        ])
        .env("LOGLEVEL", "DEBUG")
        .env("KUBECONFIG", "/elsewhere");
    let fipd = Daemon::start_as(home, command);
    let ipam = plain_get(manager, "/ipam");
    assert!(
        ipam.contains("\r\n") && !ipam.starts_with("HTTP/1.1 404"),
        "{ipam}"
    );
    assert!(plain_get(manager, "/metrics").starts_with("HTTP/1.1 200"));
    assert!(plain_get(manager, "/healthz").starts_with("HTTP/1.1 404"));
    let asked = plain_get(api, "/v1/fip/list");
    assert!(
        asked.starts_with("HTTP/1.1 405"),
        "it is to be posted: {asked}"
    );
    let clusters = fipd.json("clusters list");
    let cluster = &clusters["clusters"][0];
    assert_eq!(
        (&cluster["name"], &cluster["systems"][0]),
        (&"rancher-fip".into(), &"rancher-fip".into())
    );
    let log = fipd.logged("/nowhere/at/all");
    assert!(!log.contains("ignored: "), "{log}");
}

#[test]
fn without_compat_a_flag_is_refused_and_a_variable_ignored() {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let refused = run(serve(home.path()).args(["--kubeconfig", "/nowhere"]));
    refused.fails(2, &["--kubeconfig", "--compat rancher-fip or ip-rule"]);
    let unknown = run(serve(home.path()).args(["--compat", "claims"]));
    unknown.fails(2, &["compat = \"claims\"", "rancher-fip"]);
    let wrong = run(serve(home.path()).args(["--compat", "ip-rule", "--metrics-bind-address=x"]));
    wrong.fails(2, &["--metrics-bind-address = \"x\"", ":PORT"]);
    let mut command = serve(home.path());
    command.env("KUBECONFIG", "/nowhere");
    let fipd = Daemon::start_as(home, command);
    fipd.logged(
        "ignored: KUBECONFIG. Variables of the original programs count with --compat SYSTEM",
    );
    let help = run(program().args(["serve", "--help"]));
    assert!(help.out.contains("--http-service-port"), "{help:?}");
}
