//! The service under a real systemd.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use super::host::{Host, SOON};

/// Of systemd's scale from 0 to 10, in tenths.
const EXPOSURE: &str = "21";
/// CAP_NET_ADMIN, the twelfth bit.
const NET_ADMIN: &str = "0000000000001000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_may_do_what_it_must_and_nothing_else() {
    let host = Host::running().await;
    let said = host
        .sh(&format!(
            "systemd-analyze security --no-pager --threshold={EXPOSURE} fipd.service"
        ))
        .await;
    assert!(
        said.contains("Overall exposure level for fipd.service"),
        "{said}"
    );

    let pid = host.property("MainPID").await;
    let status = host.sh(&format!("cat /proc/{pid}/status")).await;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    for set in ["CapEff:", "CapPrm:", "CapBnd:", "CapAmb:"] {
        assert_eq!(of(set), NET_ADMIN, "{set}");
    }
    assert_eq!(of("NoNewPrivs:"), "1");
    // It may ask the kernel about its clock, and cannot set it: that takes CAP_SYS_TIME.
    let clock = host.sh("fipd clock show -o json").await;
    assert!(
        clock.contains("synchronised\"") && !clock.contains("\"unknown\""),
        "{clock}"
    );
    let (user, group) = (host.sh("id -u fipd").await, host.sh("id -g fipd").await);
    assert_ne!(user, "0");
    assert_eq!(of("Uid:"), [user.as_str(); 4].join(" "));
    assert_eq!(of("Gid:"), [group.as_str(); 4].join(" "));
    // It sees the system read-only, and nothing of people.
    host.sh("touch /home/x /root/x").await;
    let seen = host
        .sh(&format!("nsenter --target {pid} --mount -- sh -c 'test -w /etc || echo etc; test -e /home/x || ls -A /root | wc -l; touch /var/lib/fipd/x && rm /var/lib/fipd/x && echo data'"))
        .await;
    assert_eq!(seen, "etc\n0\ndata");
}

/// Asks through the socket of probes for an address on loopback, and gives back the answer.
fn probe_answer(host: &Host) -> String {
    let mut helper = UnixStream::connect(host.path("/run/fipd/probe.sock")).unwrap();
    let ask = "{\"interface\":\"lo\",\"address\":\"10.0.0.5\",\"timeout_ms\":500}\n";
    helper.write_all(ask.as_bytes()).unwrap();
    helper.set_read_timeout(Some(SOON)).unwrap();
    let mut answer = String::new();
    helper.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_probe_helper_is_off_until_an_admin_enables_it_and_has_packets_alone() {
    let host = Host::running().await;
    let enabled = "systemctl is-enabled fipd-probe.socket";
    assert_eq!(host.said(enabled).await, "disabled");
    host.sh("systemctl enable --now fipd-probe.socket").await;
    let seen = host
        .sh("stat --format='%A %U %G' /run/fipd/probe.sock")
        .await;
    assert_eq!(seen, "srw------- fipd fipd");
    // It has opened a socket for packets by then.
    let answer = probe_answer(&host);
    assert!(
        answer.contains("interface lo is not Ethernet"),
        "{answer}{}",
        host.said("journalctl --no-pager --lines=20 --unit='fipd-probe*'")
            .await
    );
    let said = host
        .sh("systemd-analyze security --no-pager --threshold=21 fipd-probe@x.service")
        .await;
    assert!(said.contains("Overall exposure level"), "{said}");
    host.remove().await;
    let left = "ls /run/fipd/probe.sock 2>/dev/null || true";
    assert_eq!(host.sh(left).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_book_that_is_ahead_goes_back_to_the_clock_and_the_service_goes_on() {
    const STOP: &str = "systemctl stop fipd.socket fipd-cni.socket fipd.service";
    const START: &str = "systemctl start fipd.socket fipd-cni.socket fipd.service";
    let host = Host::running().await;
    let lease = "fipd lease allocate --pool lab --owner fipd/vm/lab/web";
    host.sh(&format!("fipd pool update lab --quarantine 30d && {lease} && fipd lease release --owner fipd/vm/lab/web"))
        .await;
    let refused = host.said("fipd clock reset --reason x; echo code $?").await;
    assert!(
        refused.contains("in use by another fipd") && refused.contains("code 1"),
        "{refused}"
    );
    // Twelve days pass for the boot clock alone, as for a book that was taken ahead by a wrong clock. In a /proc of its own as
    // the service has: on that of the machine is another boot id.
    let socket = "--socket /run/ahead/fipd.sock";
    host.sh(&format!(
        "{STOP} && install -d -o fipd -g fipd /run/ahead && \
         {{ unshare --mount --mount-proc --time --boottime 1036800 setpriv --reuid=fipd --regid=fipd --clear-groups \
            fipd {socket} serve --config /etc/fipd/fipd.toml >/tmp/ahead.log 2>&1 & }} && \
         for n in $(seq 100); do fipd {socket} pool list >/dev/null 2>&1 && break; sleep 0.2; done && \
         fipd {socket} pool create ahead --cidr 10.31.0.0/24 >/dev/null && \
         pkill --exact fipd && while pgrep --exact fipd >/dev/null; do sleep 0.1; done && {START}"
    ))
    .await;
    host.active().await;
    let check = host.said("fipd check; fipd clock show").await;
    assert!(
        check.contains("days and")
            && check.contains("hours ahead")
            && check.contains("fipd clock reset"),
        "{check}"
    );
    let until = "fipd lease list --pool lab -o json";
    let before = host.sh(until).await;
    let done = host
        .sh(&format!(
            "{STOP} && fipd clock reset --reason 'it was wrong' && {START}"
        ))
        .await;
    assert!(done.contains("Address book now"), "{done}");
    host.active().await;
    let clock = host.sh("fipd clock show -o json").await;
    assert!(clock.contains("\"ahead_seconds\": 0"), "{clock}");
    // It cools as long as it would have.
    assert_eq!(host.sh(until).await, before);
    let owners = host
        .sh("stat -c %U /var/lib/fipd/fipd.redb /var/lib/fipd/fipd.redb.high-water")
        .await;
    assert_eq!(owners, "fipd\nfipd");
    let audit = host.sh("fipd audit --action clock-reset").await;
    assert!(audit.contains("it was wrong"), "{audit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_writes_rules_and_the_packet_filter_of_its_host() {
    let host = Host::running().await;
    host.sh("fipd pool create marked --cidr 10.30.0.0/24").await;
    for pool in ["lab", "marked"] {
        host.sh(&format!(
            "fipd lease allocate --pool {pool} --owner fipd/vm/{pool}/web"
        ))
        .await;
    }
    let rules = "\\n[host]\\n\
                 [[host.rules]]\\nname = \"flat\"\\npool = \"lab\"\\ntable = 100\\nmode = \"flat\"\\n\
                 [[host.rules]]\\nname = \"marked\"\\npool = \"marked\"\\ntable = 101\\nmode = \"indexed\"\\n";
    host.sh(&format!(
        "printf '{rules}' >>/etc/fipd/fipd.toml && systemctl restart fipd.service"
    ))
    .await;
    host.until("the rules are there", "ip -N rule show", |said| {
        said.contains("from 10.20.0.1 lookup 100 proto 200")
            && said.contains(" lookup 101 proto 200")
    })
    .await;
    host.until("the map is there", "nft list table inet fipd", |said| {
        said.contains("10.30.0.1 ")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_hangs_is_started_again_by_the_watchdog() {
    let host = Host::running().await;
    host.sh("mkdir -p /etc/systemd/system/fipd.service.d").await;
    let shorter = "[Service]\\nWatchdogSec=3s\\nTimeoutAbortSec=1s\\n";
    host.sh(&format!(
        "printf '{shorter}' >/etc/systemd/system/fipd.service.d/soon.conf"
    ))
    .await;
    host.sh("systemctl daemon-reload && systemctl restart fipd.service")
        .await;
    host.active().await;
    let pid = host.property("MainPID").await;
    host.sh(&format!("kill -STOP {pid}")).await;
    host.until(
        "another one runs",
        "systemctl show --property=NRestarts,MainPID,Result fipd.service",
        |said| {
            // On a busy machine it may be too slow for three seconds more than once.
            !said.contains("NRestarts=0")
                && !said.contains(&format!("MainPID={pid}\n"))
                && !said.contains("MainPID=0")
        },
    )
    .await;
    host.active().await;
    let journal = host.sh("journalctl --no-pager --unit=fipd.service").await;
    assert!(journal.contains("Watchdog timeout"), "{journal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lease_is_lost_where_the_daemon_is_killed_while_it_gives_them() {
    let host = Host::running().await;
    let pid = host.property("MainPID").await;
    // Calls one after the other, over the death and until the next one has answered some.
    let said = host
        .sh(&format!(
            "(sleep 1; kill -KILL {pid}) & \
             after=0; n=0; while [ $after -lt 10 ] && [ $n -lt 900 ]; do n=$((n+1)); \
             if fipd lease allocate --pool lab --owner fipd/vm/lab/m$n -o json >/tmp/answer 2>/dev/null; then \
             tr -d ' \\n' </tmp/answer; echo; kill -0 {pid} 2>/dev/null || after=$((after+1)); else echo refused; sleep 0.2; fi; done; wait"
        ))
        .await;
    let given = said
        .lines()
        .filter(|line| *line != "refused")
        .map(address)
        .collect::<Vec<_>>();
    assert!(given.len() > 10, "{said}");
    assert_eq!(
        given.iter().collect::<BTreeSet<_>>().len(),
        given.len(),
        "{given:?}"
    );
    assert_eq!(host.property("NRestarts").await, "1");
    let leases = host.sh("fipd lease list --limit 1000 -o json").await;
    for address in &given {
        assert!(
            leases.contains(&format!("\"{address}\"")),
            "{address} is lost: {leases}"
        );
    }
    host.sh("fipd check").await;
}

/// Of a lease as JSON without blanks.
fn address(lease: &str) -> String {
    let (_, rest) = lease.split_once("\"address\":\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}
