//! The CNI plugin on a host, without Kubernetes.

use super::host::Host;

const CONF: &str = r#"{"cniVersion":"1.1.0","name":"shop","type":"fipd-cni","master":"up0","ipam":{"type":"fipd","pools":["shop"]}}"#;
const SPOOL: &str = "/var/lib/fipd-cni/spool";

/// Calls it as a runtime does; what it prints.
async fn call(host: &Host, verb: &str) -> String {
    let plugin = "/usr/lib/cni/fipd-cni";
    let environment = format!(
        "CNI_COMMAND={verb} CNI_CONTAINERID=web CNI_NETNS=/run/netns/web CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni"
    );
    host.sh(&format!("echo '{CONF}' | {environment} {plugin}"))
        .await
}

/// A container has an address and is deleted while fipd is down, which releases it as soon as it is up.
pub async fn a_deletion_waits_for_fipd(host: &Host, stop: &str, start: &str) {
    let network =
        "ip netns add web && ip link add up0 type veth peer name up1 && ip link set up0 up";
    host.sh(network).await;
    host.sh("fipd pool create shop --cidr 10.21.0.0/24 --quarantine 0")
        .await;
    let result = call(host, "ADD").await;
    assert!(result.contains("10.21.0."), "{result}");
    let leases = host.sh("fipd lease list").await;
    assert!(leases.contains("shop/web"), "{leases}");

    host.sh(stop).await;
    call(host, "DEL").await;
    let links = host.sh("ip -netns web link").await;
    assert!(!links.contains("eth0"), "{links}");
    let kept = host
        .sh(&format!("stat --format='%a %U %G' {SPOOL} {SPOOL}/*.json"))
        .await;
    assert_eq!(kept, "750 root fipd\n640 root fipd");
    // As it is on a host that lacked the group, and as the package has it then.
    host.sh(&format!(
        "chgrp root {SPOOL}/*.json && systemd-tmpfiles --create fipd.conf"
    ))
    .await;
    let repaired = host
        .sh(&format!("stat --format='%a %U %G' {SPOOL}/*.json"))
        .await;
    assert_eq!(repaired, "640 root fipd");

    host.sh(start).await;
    let released = |said: &str| !said.contains("shop/web");
    host.until("the address is released", "fipd lease list", released)
        .await;
    call(host, "STATUS").await;
    host.sh(&format!("! ls {SPOOL}/*.json 2>/dev/null")).await;
    host.sh("ip netns delete web && ip link delete up0 && fipd pool delete shop")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_while_the_service_is_stopped_is_done_when_it_starts() {
    let host = Host::running().await;
    let units = "fipd.service fipd.socket fipd-cni.socket";
    let stop = format!("systemctl stop {units}");
    a_deletion_waits_for_fipd(&host, &stop, &format!("systemctl start {units}")).await;
}
