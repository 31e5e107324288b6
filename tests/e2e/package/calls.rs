//! What callers see while the service is reloaded and started anew.

use fipd_tests::testbed::{Method, UnixConnection};
use serde_json::Value;

use super::host::{Host, KUBECONFIG};

const CONFIG: &str = "/etc/fipd/fipd.toml";
const SOCKET: &str = "/run/fipd/fipd.sock";
const JOURNAL: &str = "journalctl --no-pager --unit=fipd.service";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_keeps_process_and_connections_and_says_what_is_wrong() {
    let host = Host::running().await;
    let pid = host.property("MainPID").await;
    let mut open = UnixConnection::open(&host.path(SOCKET)).await.unwrap();
    assert_eq!(
        open.call(Method::GET, "/readyz", None)
            .await
            .unwrap()
            .status,
        200
    );

    host.sh(&format!(
        "sed -i 's/^keep = 7$/keep = 9/' {CONFIG} && systemctl reload fipd.service"
    ))
    .await;
    // The journal may be behind those who write to it.
    let in_force = |line: &str| line.contains("In force:") && line.contains("backup");
    host.until("it says what is in force", JOURNAL, |said| {
        said.lines().any(in_force)
    })
    .await;
    host.sh(&format!("echo 'nonsense = 1' >>{CONFIG}")).await;
    let said = host
        .said("systemctl reload fipd.service || echo refused")
        .await;
    assert!(said.ends_with("refused"), "{said}");
    // By the daemon itself, where an admin looks: without the fields of the record.
    let of_daemon = format!("journalctl --no-pager _PID={pid}");
    host.until("it says what is wrong", &of_daemon, |said| {
        let why = |line: &str| line.contains("stays as it was") && line.contains("nonsense");
        said.lines().any(why)
    })
    .await;
    let section = "\\n[[cluster]]\\nname = \"alpha\"\\nkubeconfig = \"alpha.kubeconfig\"\\nsystems = [\"claims\"]\\n";
    host.sh(&format!(
        "sed -i '/^nonsense/d' {CONFIG} && printf '{section}' >>{CONFIG}"
    ))
    .await;
    for server in ["127.0.0.1:9", "127.0.0.1:10"] {
        let kubeconfig = KUBECONFIG.replace("127.0.0.1:9", server);
        std::fs::write(host.path("/etc/fipd/alpha.kubeconfig"), kubeconfig).unwrap();
        host.sh("chmod 0640 /etc/fipd/alpha.kubeconfig && chgrp fipd /etc/fipd/alpha.kubeconfig && systemctl reload fipd.service")
            .await;
        host.until("the kubeconfig counts", "fipd clusters list", |said| {
            said.contains("alpha") && said.contains(server)
        })
        .await;
    }

    assert_eq!(host.property("ActiveState").await, "active");
    assert_eq!(host.property("MainPID").await, pid);
    assert_eq!(
        open.call(Method::GET, "/readyz", None)
            .await
            .unwrap()
            .status,
        200,
        "on the same connection"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_loses_no_call() {
    let host = Host::running().await;
    let restarts = "for i in 1 2 3; do systemctl restart fipd.service; done";
    let allocate = "fipd lease allocate --pool lab --owner fipd/vm/lab/x >/tmp/lease 2>&1 && echo done || cat /tmp/lease";
    let delete = "echo '{\"cniVersion\":\"1.1.0\",\"name\":\"n\",\"type\":\"fipd-cni\"}' | CNI_COMMAND=DEL CNI_CONTAINERID=c CNI_IFNAME=eth0 \
                  /usr/lib/cni/fipd-cni && echo done";
    let said = host
        .sh(&format!(
            "({restarts}) & while kill -0 $! 2>/dev/null; do {allocate}; {delete}; done"
        ))
        .await;
    assert!(said.lines().count() > 1, "{said}");
    assert!(said.lines().all(|line| line == "done"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_whose_file_is_gone_comes_back_by_what_the_journal_says() {
    let host = Host::running().await;
    host.sh(&format!("rm {SOCKET} && systemctl restart fipd.service"))
        .await;
    let journal = host
        .until(
            "the file is missed",
            "journalctl --no-pager --unit=fipd.service",
            |said| said.contains("made anew: "),
        )
        .await;
    let (_, advice) = journal.split_once("made anew: ").unwrap();
    let advice = advice.lines().next().unwrap();
    let (units, _) = advice.rsplit_once("fipd.service").unwrap();
    host.sh(&format!("{units}fipd.service && test -S {SOCKET}"))
        .await;
    host.active().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_socket_of_plugins_can_be_masked_where_there_are_none() {
    let host = Host::running().await;
    host.sh(
        "systemctl mask --now fipd-cni.socket && systemctl restart fipd.service && fipd pool list && \
         systemctl is-active fipd.service",
    )
    .await;
    host.until(
        "it is told",
        "journalctl --no-pager --unit=fipd.service",
        |said| said.contains("no socket for CNI plugins"),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_is_searched_by_pool() {
    let host = Host::running().await;
    host.sh("fipd pool create other --cidr 10.30.0.0/24").await;
    host.sh("fipd lease allocate --pool lab --owner fipd/vm/lab/web")
        .await;
    host.sh("fipd lease allocate --pool other --owner fipd/vm/lab/db")
        .await;
    let records = host
        .until(
            "the record of the lease is there",
            "journalctl --no-pager --output=json FIPD_POOL=lab",
            |said| said.contains("10.20.0.1"),
        )
        .await;
    for record in records.lines() {
        let record: Value = serde_json::from_str(record).unwrap();
        assert_eq!(record["FIPD_POOL"], "lab");
        assert_eq!(record["_SYSTEMD_UNIT"], "fipd.service");
        assert!(!record.to_string().contains("10.30.0."), "{record}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_only_root_may_read_are_given_as_credentials() {
    let host = Host::running().await;
    std::fs::write(host.path("/root/alpha.kubeconfig"), KUBECONFIG).unwrap();
    let unit = "[Service]\\nLoadCredential=alpha:/root/alpha.kubeconfig\\n";
    let section = "\\n[[cluster]]\\nname = \"alpha\"\\nkubeconfig = \"credential:alpha\"\\nsystems = [\"claims\"]\\n";
    host.sh(&format!(
        "chmod 0600 /root/alpha.kubeconfig && mkdir -p /etc/systemd/system/fipd.service.d && \
         printf '{unit}' >/etc/systemd/system/fipd.service.d/cluster.conf && printf '{section}' >>{CONFIG} && \
         systemctl daemon-reload && systemctl restart fipd.service"
    ))
    .await;
    // It has read the address there.
    host.until("the cluster is tried", "fipd clusters list", |said| {
        said.contains("alpha") && said.contains("127.0.0.1:9")
    })
    .await;

    let own = "/var/lib/fipd/tls/server";
    let unit = "[Service]\\nLoadCredential=tls-cert:/root/tls.crt\\nLoadCredential=tls-key:/root/tls.key\\n";
    let keys = "cert = \"credential:tls-cert\"\\nkey = \"credential:tls-key\"";
    host.sh(&format!(
        "mv {own}.crt /root/tls.crt && mv {own}.key /root/tls.key && chown root: /root/tls.* && chmod 0600 /root/tls.* && \
         printf '{unit}' >/etc/systemd/system/fipd.service.d/tls.conf && \
         sed -i 's/^\\[api\\]$/[api]\\n{keys}/' {CONFIG} && systemctl daemon-reload && systemctl restart fipd.service"
    ))
    .await;
    host.active().await;
    // It made none of its own: the pair is the one that only root may read.
    host.sh(&format!("test ! -e {own}.crt")).await;
}
