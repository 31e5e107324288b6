//! `ADD`.

use std::{
    io::Write as _,
    os::{fd::AsRawFd as _, unix::net::UnixListener},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use fipd_cni::{
    Answer, Ask, AskStep, CniError, Code, NEWEST, Reply, Verb,
    attachment::{
        ArpPolicy, Attachment, ContainerRoute, IpvlanFlag, IpvlanMode, LinkKind, MacvlanMode,
    },
    link::{Family, KindOfLink},
    spool::{self, Entry},
};
use nix::{
    libc::EOPNOTSUPP,
    sys::{
        socket::{
            AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt,
            socket, sockopt::ReceiveTimeout,
        },
        time::TimeVal,
    },
};
use serde_json::{Value, json};

use super::{
    MAC, address, attachment,
    site::Site,
    stand_in::{StandIn, done},
};

fn route(dst: &str, gw: Option<&str>) -> ContainerRoute {
    ContainerRoute {
        dst: dst.parse().unwrap(),
        gw: gw.map(|gw| gw.parse().unwrap()),
        ..ContainerRoute::default()
    }
}

#[test]
fn row_87_the_result_has_the_version_that_is_asked_for() {
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let site = Site::new();
        let mut wanted = attachment();
        wanted.routes = vec![route("10.43.0.0/16", Some("10.9.0.1"))];
        let daemon = StandIn::giving(&site.socket(), wanted);
        let result = site.run("ADD", &site.conf(version, json!({}))).result();
        let mut expected = json!({
            "cniVersion": version,
            "interfaces": [{"name": "eth1", "mac": MAC, "sandbox": site.netns()}],
            "ips": [{"address": "10.9.0.5/24", "gateway": "10.9.0.1", "interface": 0}],
            "routes": [{"dst": "10.43.0.0/16", "gw": "10.9.0.1"}],
            "dns": {},
        });
        match version {
            "0.4.0" => expected["ips"][0]["version"] = "4".into(),
            "1.1.0" => expected["interfaces"][0]["mtu"] = 1500.into(),
            _ => {}
        }
        assert_eq!(result, expected);
        let link = site.pod_netlink(|netlink| netlink.find("eth1").unwrap().unwrap());
        assert_eq!(
            link.kind,
            Some(KindOfLink::Macvlan(Some(MacvlanMode::Bridge)))
        );
        assert!(link.up && link.mtu == 1500 && link.parent_is_elsewhere);
        let asked = daemon.asked();
        assert_eq!(asked[0], (Verb::Add, AskStep::Begin));
        let (Verb::Add, AskStep::Made(made)) = &asked[1] else {
            panic!("{asked:?}");
        };
        assert_eq!(made.mac, MAC);
        assert_eq!(
            made.first_interface,
            ["10.42.0.5".parse::<std::net::IpAddr>().unwrap()]
        );
    }
}

#[test]
fn a_daemon_that_waits_for_nothing_is_asked_once() {
    let site = Site::new();
    let unconfirmed = Attachment {
        confirm: false,
        ..attachment()
    };
    let daemon = StandIn::giving(&site.socket(), unconfirmed);
    site.run("ADD", &site.conf("1.1.0", json!({}))).result();
    assert_eq!(daemon.asked(), [(Verb::Add, AskStep::Begin)]);
}

#[test]
fn row_77_the_hosts_namespace_is_refused_unless_it_is_meant() {
    let site = Site::new();
    let refusal = Reply::Error(CniError::new(NEWEST, Code::NotAvailable, "no", "x"));
    let daemon = StandIn::new(&site.socket(), 0, move |_| refusal.clone());
    let conf = site.conf("1.1.0", json!({}));
    let host = site.host_netns();
    let (code, text) = site.run_with("ADD", &conf, &host, &[]).error();
    assert_eq!(code, 8, "{text}");
    assert!(daemon.asked().is_empty());
    let meant = [("CNI_NETNS_OVERRIDE", "1")];
    let (code, _) = site.run_with("ADD", &conf, &host, &meant).error();
    assert_eq!(code, 50, "the daemon's word is passed on");
    let why = "who refuses keeps nothing of the call, and what an earlier boot left stays";
    assert_eq!(daemon.verbs(), [Verb::Add], "{why}");
}

#[test]
fn a_namespace_that_is_gone_or_none_is_refused_by_code() {
    let site = Site::new();
    let conf = site.conf("1.1.0", json!({}));
    let gone = site.dir.path().join("gone");
    assert_eq!(site.run_with("ADD", &conf, &gone, &[]).error().0, 3);
    std::fs::write(&gone, "").unwrap();
    assert_eq!(site.run_with("ADD", &conf, &gone, &[]).error().0, 8);
}

#[test]
fn row_79_an_interface_that_is_there_is_left_alone_and_the_daemon_not_asked() {
    let site = Site::new();
    site.in_pod("link add eth1 type veth peer name other");
    let daemon = StandIn::giving(&site.socket(), attachment());
    let (code, text) = site.run("ADD", &site.conf("1.1.0", json!({}))).error();
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("eth1"), "{text}");
    assert!(daemon.asked().is_empty());
    assert_eq!(daemon.reported(), [(Verb::Add, 4)]);
    assert!(site.has_link("eth1"));
}

#[test]
fn the_daemon_hears_of_a_call_that_makes_no_sense() {
    let site = Site::new();
    let daemon = StandIn::giving(&site.socket(), attachment());
    let run = |fields: Value| site.run("ADD", &site.conf("1.1.0", fields)).error().0;
    assert_eq!(run(json!({ "mtu": 3 })), 7);
    assert_eq!(run(json!({ "mtu": "much" })), 6);
    assert_eq!(run(json!({ "ipam": { "type": "host-local" } })), 2);
    let conf = site.conf("1.1.0", json!({}));
    let netns = site.netns();
    for name in ["", "net%d"] {
        let named = [("CNI_IFNAME", name)];
        assert_eq!(site.run_with("ADD", &conf, &netns, &named).error().0, 4);
    }
    let codes: Vec<u32> = daemon
        .reported()
        .into_iter()
        .map(|(_, code)| code)
        .collect();
    assert_eq!(codes, [7, 6, 2, 4, 4]);
    assert!(daemon.asked().is_empty());
}

/// A daemon that was killed may have done what its successor refuses.
#[test]
fn an_add_that_is_refused_after_a_lost_answer_is_taken_back() {
    let site = Site::new();
    let listener = UnixListener::bind(site.socket()).unwrap();
    let daemon = thread::spawn(move || {
        let refusal = CniError::new(NEWEST, Code::TryAgain, "no cluster yet", "x");
        let replies = [None, Some(Reply::Error(refusal)), Some(done())];
        replies.map(|reply| {
            let (mut stream, _) = listener.accept().unwrap();
            let asked: Ask = serde_json::from_reader(&stream).unwrap();
            if let Some(reply) = reply {
                let answer = Answer { reply, replayed: 0 };
                let answer = serde_json::to_vec(&answer).unwrap();
                stream.write_all(&answer).unwrap();
            }
            (asked.command, asked.step)
        })
    });
    let (code, text) = site.run("ADD", &site.conf("1.1.0", json!({}))).error();
    assert_eq!((code, &*text), (11, "no cluster yet: x"));
    let asked = daemon.join().unwrap();
    let steps = [Verb::Add, Verb::Add, Verb::Del].map(|verb| (verb, AskStep::Begin));
    assert_eq!(asked, steps);
}

#[test]
fn a_daemon_that_is_not_there_is_told_and_nothing_made() {
    let site = Site::new();
    let (code, text) = site.run("ADD", &site.conf("1.1.0", json!({}))).error();
    assert_eq!(code, 11, "{text}");
    assert!(!site.has_link("eth1"));
    assert!(!site.spool().exists(), "nothing was begun");
    let status = site.run("STATUS", &site.conf("1.1.0", json!({})));
    assert_eq!(status.error().0, 50);
    let gc = json!({"cni.dev/valid-attachments": []});
    assert_eq!(site.run("GC", &site.conf("1.1.0", gc)).error().0, 11);
}

/// Who was asked and gives no answer may have done it.
#[test]
fn an_add_without_an_answer_is_taken_back_by_the_spool() {
    let site = Site::new();
    let socket = site.socket();
    let listener = UnixListener::bind(&socket).unwrap();
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let asked: Ask = serde_json::from_reader(&stream).unwrap();
        std::fs::remove_file(socket).unwrap();
        stream.write_all(b"x").unwrap();
        asked.command
    });
    let (code, text) = site.run("ADD", &site.conf("1.1.0", json!({}))).error();
    assert_eq!(code, 11, "{text}");
    assert_eq!(daemon.join().unwrap(), Verb::Add);
    let kept = spool::entries_after(&site.spool(), 0).unwrap();
    let [(_, Entry::Ask(kept))] = &kept[..] else {
        panic!("{kept:?}");
    };
    assert_eq!((kept.command, &kept.step), (Verb::Del, &AskStep::Begin));
}

#[test]
fn a_failure_in_the_middle_takes_everything_back_and_is_what_is_printed() {
    let site = Site::new();
    site.in_pod("address add fd42::5/64 dev eth0 nodad");
    site.in_pod("route add default via fd42::1 metric 77");
    let before = (site.routes(), site.routes_of(Family::V6));
    let after = || (site.routes(), site.routes_of(Family::V6));
    let mut wanted = attachment();
    wanted
        .addresses
        .push(address("2001:db8::5/64", Some("2001:db8::1")));
    wanted.extras.takes_default_route = true;
    wanted.extras.via_default_gateway = vec![
        "10.96.0.0/12".parse().unwrap(),
        "fd96::/112".parse().unwrap(),
    ];
    let given = wanted.clone();
    let daemon = StandIn::new(&site.socket(), 0, move |ask| {
        match (ask.command, &ask.step) {
            (Verb::Add, AskStep::Begin) => Reply::Attachment(Box::new(given.clone())),
            (Verb::Add, _) => Reply::Error(CniError::new(NEWEST, Code::NotAsMade, "late", "x")),
            _ => Reply::Error(CniError::new(NEWEST, Code::IoFailure, "clean-up", "x")),
        }
    });
    let answer = site.run("ADD", &site.conf("1.0.0", json!({})));
    assert!(answer.notes.contains("clean-up"), "{answer:?}");
    let (code, text) = answer.error();
    assert_eq!((code, &*text), (100, "late: x"));
    assert!(!site.has_link("eth1"));
    assert_eq!(after(), before);
    assert_eq!(daemon.verbs(), [Verb::Add, Verb::Add, Verb::Del]);
    drop(daemon);
    // The same where the kernel refuses: nobody has the source.
    let source = ContainerRoute {
        src: Some("10.9.0.77".parse().unwrap()),
        ..route("10.43.0.0/16", None)
    };
    wanted.routes = vec![source];
    let daemon = StandIn::giving(&site.socket(), wanted);
    let (code, text) = site.run("ADD", &site.conf("1.0.0", json!({}))).error();
    assert_eq!(code, 5, "{text}");
    assert!(
        text.contains("10.43.0.0/16") && text.contains("os error 22"),
        "{text}"
    );
    assert!(!site.has_link("eth1"));
    assert_eq!(after(), before);
    assert_eq!(daemon.verbs(), [Verb::Add, Verb::Del]);
}

#[test]
fn a_parent_that_is_missing_is_named_and_the_daemon_releases() {
    let site = Site::new();
    let mut wanted = attachment();
    wanted.link.parent = "up9".into();
    let daemon = StandIn::giving(&site.socket(), wanted);
    let (code, text) = site.run("ADD", &site.conf("1.1.0", json!({}))).error();
    assert_eq!(code, 5);
    assert!(text.contains("up9"), "{text}");
    assert_eq!(daemon.verbs(), [Verb::Add, Verb::Del]);
}

#[test]
fn default_routes_are_replaced_and_pod_networks_stay_behind_the_old_gateway() {
    let site = Site::new();
    site.in_host("address add 192.0.2.2/24 dev up0");
    site.in_host("route add default via 192.0.2.1");
    let mut wanted = attachment();
    wanted.extras.takes_default_route = true;
    wanted.extras.node_networks = true;
    wanted.extras.via_default_gateway = vec![
        "10.96.0.0/12".parse().unwrap(),
        "fd00::/48".parse().unwrap(),
    ];
    wanted.routes = vec![
        ContainerRoute {
            dev: Some("eth7".into()),
            ..route("10.70.0.0/16", None)
        },
        ContainerRoute {
            dev: Some("eth0".into()),
            ..route("10.71.0.0/16", Some("172.16.0.1"))
        },
        route("0.0.0.0/0", Some("10.9.0.1")),
        route("10.42.0.0/24", None),
    ];
    let _daemon = StandIn::giving(&site.socket(), wanted);
    let answer = site.run("ADD", &site.conf("1.1.0", json!({})));
    assert!(answer.notes.contains("another route to 10.42.0.0/24"));
    assert!(!answer.notes.contains("0.0.0.0/0"), "{answer:?}");
    let result = answer.result();
    let expected = [
        "0.0.0.0/0 via 10.9.0.1 dev eth1",
        "10.42.0.0/24 dev eth0",
        "10.71.0.0/16 via 172.16.0.1 dev eth0",
        "10.9.0.0/24 dev eth1",
        "10.96.0.0/12 via 10.42.0.1 dev eth0",
        "192.0.2.0/24 via 10.42.0.1 dev eth0",
    ];
    assert_eq!(site.routes(), expected);
    assert_eq!(result["routes"].as_array().unwrap().len(), 4);
}

#[test]
fn the_default_route_of_ipv6_comes_before_those_of_routers() {
    let site = Site::new();
    site.in_pod("address add fd42::5/64 dev eth0 nodad");
    site.in_pod("route add default via fd42::1 metric 1024");
    let mut wanted = attachment();
    wanted.addresses = vec![address("2001:db8::5/64", Some("2001:db8::1"))];
    wanted.extras.takes_default_route = true;
    let _daemon = StandIn::giving(&site.socket(), wanted);
    let result = site.run("ADD", &site.conf("1.1.0", json!({}))).result();
    let route = json!({"dst": "::/0", "gw": "2001:db8::1", "priority": 1023});
    assert_eq!(result["routes"], json!([route]));
    let routes = site.routes_of(Family::V6);
    let defaults = routes.iter().filter(|one| one.starts_with("::/0"));
    assert_eq!(
        defaults.collect::<Vec<_>>(),
        ["::/0 via 2001:db8::1 dev eth1"]
    );
    let ours = site.routes();
    assert_eq!(ours[0], "0.0.0.0/0 via 10.42.0.1 dev eth0", "not of IPv4");
}

#[test]
fn without_a_default_route_none_is_made() {
    let site = Site::new();
    site.in_pod("route delete default");
    let mut wanted = attachment();
    wanted.extras.takes_default_route = true;
    let _daemon = StandIn::giving(&site.socket(), wanted);
    let answer = site.run("ADD", &site.conf("1.1.0", json!({})));
    assert!(
        answer.notes.contains("no default route of IPv4"),
        "{answer:?}"
    );
    answer.result();
    assert_eq!(
        site.routes(),
        ["10.42.0.0/24 dev eth0", "10.9.0.0/24 dev eth1"]
    );
}

#[test]
fn the_only_interface_has_the_default_route() {
    let site = Site::new();
    site.in_pod("link delete eth0");
    let mut wanted = attachment();
    wanted.extras.takes_default_route = true;
    let _daemon = StandIn::giving(&site.socket(), wanted);
    let (conf, netns) = (site.conf("1.1.0", json!({})), site.netns());
    let first = [("CNI_IFNAME", "eth0")];
    site.run_with("ADD", &conf, &netns, &first).result();
    let expected = ["0.0.0.0/0 via 10.9.0.1 dev eth0", "10.9.0.0/24 dev eth0"];
    assert_eq!(site.routes(), expected);
}

#[test]
fn a_chained_result_keeps_what_earlier_plugins_made() {
    let site = Site::new();
    let mut wanted = attachment();
    wanted.extras.takes_default_route = true;
    let _daemon = StandIn::giving(&site.socket(), wanted);
    let previous = json!({
        "cniVersion": "0.4.0",
        "interfaces": [{"name": "pod0"}, {"name": "eth0", "sandbox": site.netns()}],
        "ips": [{"version": "4", "address": "10.42.0.5/24", "interface": 1}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.42.0.1"}],
        "dns": {"nameservers": ["10.43.0.10"]},
    });
    let conf = site.conf("0.4.0", json!({"prevResult": previous}));
    let result = site.run("ADD", &conf).result();
    assert_eq!(result["interfaces"][2]["name"], "eth1");
    assert_eq!(result["ips"][0]["interface"], 1);
    assert_eq!(result["ips"][1]["interface"], 2);
    assert_eq!(result["ips"][1]["version"], "4");
    assert_eq!(
        result["routes"],
        json!([{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}])
    );
    assert_eq!(result["dns"]["nameservers"][0], "10.43.0.10");
    let check = site.conf("0.4.0", json!({"prevResult": result}));
    site.run("CHECK", &check).result();
}

#[test]
fn addresses_of_ipv6_are_usable_when_add_returns() {
    let site = Site::new();
    let mut wanted = attachment();
    wanted
        .addresses
        .push(address("2001:db8::5/64", Some("2001:db8::1")));
    wanted.routes = vec![route("fd00::/48", Some("2001:db8:9::1"))];
    wanted.routes[0].src = Some("2001:db8::5".parse().unwrap());
    let _daemon = StandIn::giving(&site.socket(), wanted);
    site.run("ADD", &site.conf("1.1.0", json!({}))).result();
    let found = site.pod_netlink(|netlink| netlink.addresses().unwrap());
    let ours = found
        .iter()
        .find(|one| one.address == "2001:db8::5/64".parse().unwrap());
    assert!(!ours.unwrap().tentative);
}

#[test]
fn an_address_of_ipv6_is_waited_for_as_long_as_the_kernel_probes_it() {
    let site = Site::new();
    site.pod_netlink(|_| {
        let probes = "/proc/sys/net/ipv6/conf/default/dad_transmits";
        std::fs::write(probes, "3").unwrap();
    });
    let mut wanted = attachment();
    wanted.addresses.push(address("2001:db8::5/64", None));
    let _daemon = StandIn::giving(&site.socket(), wanted);
    site.run("ADD", &site.conf("1.1.0", json!({}))).result();
}

#[test]
fn an_address_of_ipv6_that_another_host_has_is_a_conflict() {
    let site = Site::new();
    site.on_wire("address add 2001:db8::5/64 dev wire0 nodad");
    let mut wanted = attachment();
    wanted.addresses.push(address("2001:db8::5/64", None));
    let daemon = StandIn::giving(&site.socket(), wanted);
    let (code, text) = site.run("ADD", &site.conf("1.1.0", json!({}))).error();
    assert_eq!(code, 101, "{text}");
    assert!(text.contains("2001:db8::5"), "{text}");
    assert!(!site.has_link("eth1"));
    assert_eq!(daemon.verbs(), [Verb::Add, Verb::Del]);
}

/// Frames from our MAC that arrive on the wire while `work` runs, and a little longer.
fn frames(site: &Site, work: impl FnOnce()) -> Vec<Vec<u8>> {
    let wire = site.wire();
    let (ready, is_ready) = mpsc::channel();
    let (end, has_ended) = mpsc::channel();
    thread::scope(|scope| {
        let seen = scope.spawn(move || {
            wire.run(move || {
                let flags = SockFlag::SOCK_CLOEXEC;
                let protocol = SockProtocol::EthAll;
                let fd = socket(AddressFamily::Packet, SockType::Raw, flags, protocol).unwrap();
                setsockopt(&fd, ReceiveTimeout, &TimeVal::new(0, 20_000)).unwrap();
                ready.send(()).unwrap();
                let mut seen = Vec::new();
                let mut until = None;
                while until.is_none_or(|until| Instant::now() < until) {
                    let mut frame = vec![0; 2048];
                    if let Ok((length, _)) = recvfrom::<LinkAddr>(fd.as_raw_fd(), &mut frame) {
                        frame.truncate(length);
                        seen.push(frame);
                    }
                    if until.is_none() && has_ended.try_recv().is_ok() {
                        until = Some(Instant::now() + Duration::from_millis(200));
                    }
                }
                seen
            })
            .unwrap()
        });
        is_ready.recv().unwrap();
        work();
        end.send(()).unwrap();
        let mut seen = seen.join().unwrap();
        seen.retain(|frame| frame[6..12] == [2, 0, 0, 0, 0, 0x0a]);
        seen
    })
}

#[test]
fn neighbors_hear_of_the_addresses() {
    for policy in [ArpPolicy::Arping, ArpPolicy::ArpNotify] {
        let site = Site::new();
        let mut wanted = attachment();
        wanted.extras.arp_policy = policy;
        wanted.extras.proxy_arp = true;
        wanted.addresses.push(address("2001:db8::5/64", None));
        let _daemon = StandIn::giving(&site.socket(), wanted);
        let conf = site.conf("1.1.0", json!({}));
        let seen = frames(&site, || drop(site.run("ADD", &conf).result()));
        let setting = |name: &str| {
            let path = format!("/proc/sys/net/ipv4/conf/eth1/{name}");
            site.pod_netlink(|_| std::fs::read_to_string(path).unwrap())
        };
        assert_eq!(setting("proxy_arp"), "1\n");
        let notify = if policy == ArpPolicy::ArpNotify {
            "1\n"
        } else {
            "0\n"
        };
        assert_eq!(setting("arp_notify"), notify);
        let ip = [10, 9, 0, 5];
        let target = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5).octets();
        let is_arp = |frame: &&Vec<u8>| {
            frame[12..14] == [8, 6] && frame[28..32] == ip && frame[38..42] == ip
        };
        let is_advertisement = |frame: &&Vec<u8>| {
            frame[12..14] == [0x86, 0xdd] && frame[54] == 136 && frame[62..78] == target
        };
        let arps = seen.iter().filter(is_arp).count();
        let advertisements = seen.iter().filter(is_advertisement).count();
        let least = if policy == ArpPolicy::Arping { 3 } else { 1 };
        assert!(arps >= least, "{policy:?}: {arps} of ARP");
        assert!(
            advertisements >= least,
            "{policy:?}: {advertisements} of IPv6"
        );
    }
}

#[test]
fn row_84_an_mtu_above_the_parents_is_refused() {
    let site = Site::new();
    let mut wanted = attachment();
    wanted.link.mtu = Some(1_501);
    let daemon = StandIn::giving(&site.socket(), wanted);
    let pools = json!({"master": "up0", "ipam": {"pools": ["a"]}});
    for (more, field) in [(pools, "mtu of"), (json!({}), "flatNetwork.mtu of")] {
        let (code, text) = site.run("ADD", &site.conf("1.1.0", more)).error();
        assert_eq!(code, 7, "{text}");
        assert!(text.starts_with(field), "{text}");
        assert!(text.contains("1501; allowed: at most 1500"), "{text}");
        assert!(text.contains("up0"), "{text}");
        assert!(!site.has_link("eth1"));
    }
    assert_eq!(
        daemon.verbs(),
        [Verb::Add, Verb::Del, Verb::Add, Verb::Del],
        "the address is released"
    );
}

#[test]
fn an_mtu_up_to_the_parents_is_used_and_one_too_small_for_ipv6_refused() {
    let site = Site::new();
    let conf = site.conf("1.1.0", json!({}));
    for mtu in [1_400, 1_500] {
        let mut wanted = attachment();
        wanted.link.mtu = Some(mtu);
        let _daemon = StandIn::giving(&site.socket(), wanted);
        let result = site.run("ADD", &conf).result();
        assert_eq!(result["interfaces"][0]["mtu"], mtu);
        site.run("DEL", &conf).result();
    }
    let mut wanted = attachment();
    wanted.addresses.push(address("2001:db8::5/64", None));
    let parents = wanted.clone();
    wanted.link.mtu = Some(1_279);
    let daemon = StandIn::giving(&site.socket(), wanted);
    let pools = json!({"master": "up0", "ipam": {"pools": ["a"]}});
    for (more, field) in [(pools, "mtu of"), (json!({}), "flatNetwork.mtu of")] {
        let (code, text) = site.run("ADD", &site.conf("1.1.0", more)).error();
        assert_eq!(code, 7, "{text}");
        assert!(text.starts_with(field) && text.contains("1280"), "{text}");
        assert!(!site.has_link("eth1"));
    }
    drop(daemon);
    let _daemon = StandIn::giving(&site.socket(), parents);
    site.in_host("link set up0 mtu 1000");
    let (_, text) = site.run("ADD", &conf).error();
    assert!(text.starts_with("the MTU of up0 is wrong: 1000"), "{text}");
}

/// The kernel takes it, so that pods of the original have such interfaces.
#[test]
fn an_ipvlan_of_a_pod_gets_the_parents_mtu_where_more_is_asked_for() {
    let site = Site::new();
    let mut wanted = attachment();
    wanted.link.kind = LinkKind::Ipvlan(IpvlanMode::L2, IpvlanFlag::Bridge);
    wanted.link.mtu = Some(9_000);
    let _daemon = StandIn::giving(&site.socket(), wanted);
    let answer = site.run("ADD", &site.conf("1.1.0", json!({})));
    assert!(answer.notes.contains("9000") && answer.notes.contains("1500"));
    if !answer.ok {
        let (code, text) = answer.error();
        assert_eq!(code, 5, "this kernel may have no ipvlan: {text}");
        return;
    }
    assert_eq!(answer.result()["interfaces"][0]["mtu"], 1_500);
}

/// `fipd cni` tells the program by it from others.
#[test]
fn the_program_has_its_mark() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_fipd-cni")).unwrap();
    let has = |text: &str| {
        let text = text.as_bytes();
        program.windows(text.len()).any(|part| part == text)
    };
    assert!(has(&fipd_cni::MARK.to_ascii_lowercase()));
    let site = Site::new();
    let answer = site.run("", &site.conf("1.1.0", json!({})));
    assert!(answer.notes.contains("container runtimes"), "{answer:?}");
    assert_eq!(answer.error().0, 4);
}

#[test]
fn status_names_a_master_that_the_host_lacks_and_an_mtu_beyond_it() {
    let site = Site::new();
    let _daemon = StandIn::giving(&site.socket(), attachment());
    let status = |master: &str| {
        let more = json!({"master": master, "ipam": {"pools": ["a"]}});
        site.run("STATUS", &site.conf("1.1.0", more))
    };
    status("up0").result();
    let (code, text) = status("up9").error();
    assert_eq!(code, 50, "{text}");
    assert!(text.contains("up9"), "{text}");
    let large = json!({"master": "up0", "mtu": 1_501, "ipam": {"pools": ["a"]}});
    let (code, text) = site.run("STATUS", &site.conf("1.1.0", large)).error();
    assert_eq!(code, 50, "{text}");
    assert!(text.starts_with("mtu of"), "{text}");
}

/// A VLAN may have a smaller MTU than its master.
#[test]
fn status_judges_the_mtu_by_the_interface_of_the_vlan() {
    let site = Site::new();
    let made = site.host_netlink(|netlink| {
        let master = netlink.find("up0").unwrap().unwrap();
        netlink.create_vlan("lan", master.index, 100)
    });
    match made {
        Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => {
            eprintln!("skipped: this kernel has no VLANs");
            return;
        }
        made => assert!(made.unwrap()),
    }
    site.in_host("link set lan mtu 1400");
    let _daemon = StandIn::giving(&site.socket(), attachment());
    let status = |vlan: u16, mtu: u32| {
        let more = json!({"master": "up0", "vlan": vlan, "mtu": mtu, "ipam": {"pools": ["a"]}});
        site.run("STATUS", &site.conf("1.1.0", more))
    };
    // VLAN 101 has no interface yet.
    for (vlan, mtu) in [(0, 1_500), (100, 0), (100, 1_400), (101, 1_500)] {
        status(vlan, mtu).result();
    }
    for (vlan, mtu, most) in [
        (100, 1_401, "1400 bytes, the MTU of lan"),
        (101, 1_501, "up0"),
    ] {
        let (code, text) = status(vlan, mtu).error();
        assert_eq!(code, 50, "{text}");
        assert!(text.contains(most), "{text}");
    }
}

/// The runtime would know neither the address nor that it has to be deleted.
#[test]
fn a_result_that_nobody_hears_is_taken_back() {
    let site = Site::new();
    let daemon = StandIn::giving(&site.socket(), attachment());
    let answer = site.run_unheard("ADD", &site.conf("1.1.0", json!({})));
    assert!(!answer.ok, "{answer:?}");
    assert!(!site.has_link("eth1"));
    let asked = daemon.asked();
    let Some((Verb::Del, AskStep::Failed(error))) = asked.last() else {
        panic!("{asked:?}")
    };
    assert!(error.msg.contains("standard output"), "{error}");
}

#[test]
fn a_mac_that_is_none_is_refused() {
    let site = Site::new();
    let mut wanted = attachment();
    wanted.link.kind = LinkKind::Macvlan(MacvlanMode::Private);
    wanted.link.mac = Some("01:00:00:00:00:01".into());
    let daemon = StandIn::new(&site.socket(), 0, move |ask| match ask.command {
        Verb::Add => Reply::Attachment(Box::new(wanted.clone())),
        _ => done(),
    });
    let (code, text) = site.run("ADD", &site.conf("1.1.0", json!({}))).error();
    assert_eq!(code, 5, "{text}");
    assert_eq!(daemon.verbs(), [Verb::Add, Verb::Del]);
}
