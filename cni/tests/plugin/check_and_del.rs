//! `CHECK` and `DEL`.

use std::{fs, net::IpAddr, os::unix::fs::PermissionsExt as _, path::Path, sync::mpsc};

use fipd_cni::{
    AskStep, CniError, Code, NEWEST, Reply, Verb,
    attachment::{Attachment, ContainerRoute},
    link::Netlink,
    namespace::Namespace,
    spool::{self, Entry},
};
use serde_json::json;

use super::{
    address, attachment,
    site::Site,
    stand_in::{StandIn, done},
};

#[test]
fn row_80_check_finds_an_address_that_is_gone_and_tolerates_what_others_added() {
    let site = Site::new();
    let daemon = StandIn::giving(&site.socket(), attachment());
    let made = site.run("ADD", &site.conf("1.1.0", json!({}))).result();
    let conf = site.conf("1.1.0", json!({"prevResult": made}));
    site.run("CHECK", &conf).result();
    assert_eq!(daemon.verbs().last(), Some(&Verb::Check));
    site.in_pod("address add 10.9.0.99/24 dev eth1");
    site.in_pod("route add 10.50.0.0/16 dev eth1");
    site.run("CHECK", &conf).result();
    site.in_pod("address delete 10.9.0.5/24 dev eth1");
    let (code, text) = site.run("CHECK", &conf).error();
    assert_eq!(code, 100);
    assert!(text.contains("address 10.9.0.5/24 is missing"), "{text}");
    site.in_pod("link set eth1 address 02:00:00:00:00:0b");
    let (_, text) = site.run("CHECK", &conf).error();
    assert!(text.contains("02:00:00:00:00:0b"), "{text}");
    site.in_pod("link delete eth1");
    let (_, text) = site.run("CHECK", &conf).error();
    assert!(text.contains("eth1 is missing"), "{text}");
}

/// A result of these versions cannot say in which table a route is.
#[test]
fn row_80_check_below_1_1_0_finds_a_route_that_is_gone_in_any_table() {
    let site = Site::new();
    let route = |dst: &str, table: Option<u32>| ContainerRoute {
        dst: dst.parse().unwrap(),
        table,
        ..ContainerRoute::default()
    };
    let routed = Attachment {
        routes: vec![
            route("10.50.0.0/16", None),
            route("10.60.0.0/16", Some(100)),
        ],
        ..attachment()
    };
    let _daemon = StandIn::giving(&site.socket(), routed);
    let routes = json!([{"dst": "10.50.0.0/16"}, {"dst": "10.60.0.0/16", "table": 100}]);
    let more = json!({"master": "up0", "ipam": {"pools": ["a"], "routes": routes}});
    let mut conf = site.conf("1.0.0", more);
    conf["prevResult"] = site.run("ADD", &conf).result();
    assert!(conf["prevResult"]["routes"][1]["table"].is_null());
    site.run("CHECK", &conf).result();
    for route in ["10.50.0.0/16", "10.60.0.0/16 table 100"] {
        site.in_pod(&format!("route delete {route} dev eth1"));
        let (code, text) = site.run("CHECK", &conf).error();
        assert_eq!(code, 100);
        let dst = route.split(' ').next().unwrap();
        assert!(text.contains(&format!("route to {dst}")), "{text}");
        site.in_pod(&format!("route add {route} dev eth1"));
        site.run("CHECK", &conf).result();
    }
}

#[test]
fn check_needs_the_result_of_this_container_and_the_daemons_word() {
    let site = Site::new();
    let daemon = StandIn::giving(&site.socket(), attachment());
    let mut made = site.run("ADD", &site.conf("1.1.0", json!({}))).result();
    let (code, text) = site.run("CHECK", &site.conf("1.1.0", json!({}))).error();
    assert_eq!(code, 7);
    assert!(text.contains("prevResult"), "{text}");
    drop(daemon);
    let conf = site.conf("1.1.0", json!({"prevResult": made}));
    assert_eq!(site.run("CHECK", &conf).error().0, 11);
    let refusal = CniError::new(NEWEST, Code::NotAsMade, "no reservation", "x");
    let _daemon = StandIn::new(&site.socket(), 0, move |_| Reply::Error(refusal.clone()));
    let (_, text) = site.run("CHECK", &conf).error();
    assert_eq!(text, "no reservation: x");
    made["interfaces"][0]["sandbox"] = "/elsewhere".into();
    made["routes"] = json!([{"dst": "10.77.0.0/16"}]);
    let conf = site.conf("1.1.0", json!({"prevResult": made}));
    let (code, text) = site.run("CHECK", &conf).error();
    assert_eq!(code, 100);
    assert!(
        text.contains("/elsewhere") && text.contains("10.77.0.0/16"),
        "{text}"
    );
}

#[test]
fn row_78_del_succeeds_twice_and_with_whatever_is_gone() {
    let site = Site::new();
    let daemon = StandIn::giving(&site.socket(), attachment());
    let conf = site.conf("1.1.0", json!({}));
    site.run("ADD", &conf).result();
    site.run("DEL", &conf).result();
    assert!(!site.has_link("eth1"));
    site.run("DEL", &conf).result();
    site.run_with("DEL", &conf, &site.dir.path().join("gone"), &[])
        .result();
    site.run_with("DEL", &conf, Path::new(""), &[]).result();
    let plain = site.dir.path().join("plain");
    fs::write(&plain, "").unwrap();
    site.run_with("DEL", &conf, &plain, &[]).result();
    let dels = daemon.verbs().into_iter().filter(|verb| *verb == Verb::Del);
    assert_eq!(dels.count(), 5);
}

/// With an address of each family.
fn dual_stack() -> Attachment {
    Attachment {
        addresses: vec![address("10.9.0.5/24", None), address("fd09::5/64", None)],
        ..attachment()
    }
}

#[test]
fn no_address_is_released_that_the_container_still_has() {
    let site = Site::new();
    let (tell, told) = mpsc::channel();
    let pod = site.netns();
    let both = dual_stack();
    let _daemon = StandIn::new(&site.socket(), 0, move |ask| match ask.command {
        Verb::Add if ask.step == AskStep::Begin => Reply::Attachment(Box::new(both.clone())),
        Verb::Del => {
            let pod = Namespace::open(&pod).unwrap();
            let addresses = pod.run(|| Netlink::open().unwrap().addresses().unwrap());
            let addresses = addresses.unwrap().into_iter();
            let ips: Vec<_> = addresses.map(|one| one.address.addr()).collect();
            tell.send(ips).unwrap();
            done()
        }
        _ => done(),
    });
    let conf = site.conf("1.1.0", json!({}));
    site.run("ADD", &conf).result();
    site.run("DEL", &conf).result();
    assert!(!site.has_link("eth1"));
    let left = told.recv().unwrap();
    let of_the_first: IpAddr = "10.42.0.5".parse().unwrap();
    assert!(left.contains(&of_the_first), "{left:?}");
    for released in ["10.9.0.5", "fd09::5"] {
        assert!(!left.contains(&released.parse().unwrap()), "{left:?}");
    }
}

/// By them the daemon finds the host's routes to a pod that the original's plugin attached.
#[test]
fn del_of_a_pod_says_which_addresses_its_interface_had() {
    let site = Site::new();
    let (tell, told) = mpsc::channel();
    let both = dual_stack();
    let _daemon = StandIn::new(&site.socket(), 0, move |ask| match ask.command {
        Verb::Add if ask.step == AskStep::Begin => Reply::Attachment(Box::new(both.clone())),
        Verb::Del => {
            tell.send(ask.addresses.clone()).unwrap();
            done()
        }
        _ => done(),
    });
    let of_pod = site.conf("1.1.0", json!({}));
    let pools = json!({"master": "up0", "ipam": {"pools": ["a"]}});
    let of_pools = site.conf("1.1.0", pools);
    let deleted = |conf| {
        site.run("DEL", conf).result();
        let said: Vec<String> = told.recv().unwrap().iter().map(IpAddr::to_string).collect();
        said
    };
    for (conf, expected) in [
        (&of_pod, &["10.9.0.5", "fd09::5"][..]),
        (&of_pools, &[][..]),
    ] {
        site.run("ADD", conf).result();
        assert_eq!(deleted(conf), expected);
        assert_eq!(deleted(conf), [""; 0], "it is gone");
    }
    site.in_pod("link add eth1 type veth peer name other");
    site.in_pod("address add 10.9.0.7/24 dev eth1");
    assert_eq!(deleted(&of_pod), [""; 0], "it is another plugin's");
}

/// They do not go with the link.
#[test]
fn del_removes_the_routes_that_add_made_over_other_interfaces() {
    let site = Site::new();
    site.in_pod("route add 10.97.0.0/16 via 10.42.0.1 proto static");
    let before = site.routes();
    let mut wanted = attachment();
    wanted.extras.via_default_gateway = vec!["10.43.0.0/16".parse().unwrap()];
    wanted.routes = vec![ContainerRoute {
        dst: "10.71.0.0/16".parse().unwrap(),
        gw: Some("172.16.0.1".parse().unwrap()),
        dev: Some("eth0".into()),
        ..ContainerRoute::default()
    }];
    let _daemon = StandIn::giving(&site.socket(), wanted);
    let conf = site.conf("1.1.0", json!({}));
    for gone in [Some("eth1"), None] {
        site.run("ADD", &conf).result();
        assert_eq!(site.routes().len(), before.len() + 3);
        if let Some(gone) = gone {
            site.in_pod(&format!("link delete {gone}"));
        }
        for _ in 0..2 {
            site.run("DEL", &conf).result();
            assert_eq!(site.routes(), before);
        }
    }
    site.run("ADD", &conf).result();
    site.in_pod("link add eth2 link eth0 type macvlan mode bridge");
    site.run("DEL", &conf).result();
    let kept = site.routes().len();
    assert_eq!(kept, before.len() + 2, "another interface may need them");
    site.in_pod("link delete eth2");
    site.run("DEL", &conf).result();
    assert_eq!(site.routes(), before);
}

#[test]
fn del_leaves_alone_what_it_did_not_make() {
    let site = Site::new();
    let daemon = StandIn::giving(&site.socket(), attachment());
    let conf = site.conf("1.1.0", json!({}));
    site.in_pod("link add eth1 type veth peer name other");
    site.run("DEL", &conf).result();
    assert!(site.has_link("eth1"));
    site.in_host("link add eth1 link up0 type macvlan mode bridge");
    site.run_with("DEL", &conf, &site.host_netns(), &[])
        .result();
    let there = site.host_netlink(|netlink| netlink.find("eth1").unwrap());
    assert!(there.is_some(), "an interface of the host");
    assert_eq!(daemon.verbs(), [Verb::Del, Verb::Del]);
}

#[test]
fn del_without_a_daemon_is_kept_until_the_daemon_has_replayed_it() {
    let site = Site::new();
    let daemon = StandIn::giving(&site.socket(), attachment());
    let conf = site.conf("1.1.0", json!({}));
    site.run("ADD", &conf).result();
    drop(daemon);
    site.run("DEL", &conf).result();
    site.run("DEL", &conf).result();
    assert!(!site.has_link("eth1"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&site.spool()), 0o750);
    let kept = spool::entries_after(&site.spool(), 0).unwrap();
    let [(number, Entry::Ask(first)), (next, Entry::Ask(_))] = &kept[..] else {
        panic!("{kept:?}");
    };
    let file = site.spool().join(format!("{number:020}.json"));
    assert_eq!((mode(&file), *next), (0o640, number + 1));
    assert_eq!((first.command, &*first.ifname), (Verb::Del, "eth1"));
    assert!(first.config.get().contains("\"flat\""));
    assert_eq!(first.addresses, ["10.9.0.5".parse::<IpAddr>().unwrap()]);
    let _daemon = StandIn::new(&site.socket(), *number, |_| done());
    site.run("STATUS", &conf).result();
    let left = spool::entries_after(&site.spool(), 0).unwrap();
    assert_eq!((left.len(), left[0].0), (1, *next));
}

/// Whoever may write a network configuration may name a socket of their own in it.
#[test]
fn a_daemon_that_has_replayed_what_was_never_kept_empties_no_spool() {
    let site = Site::new();
    let conf = site.conf("1.1.0", json!({}));
    let kept = || {
        let kept = spool::entries_after(&site.spool(), 0).unwrap().into_iter();
        kept.map(|(number, _)| number).collect::<Vec<_>>()
    };
    site.run("DEL", &conf).result();
    let first = kept();
    let daemon = StandIn::new(&site.socket(), u64::MAX, |_| done());
    let answer = site.run("STATUS", &conf);
    assert!(answer.notes.contains("never given"), "{answer:?}");
    answer.result();
    assert_eq!(kept(), first);
    drop(daemon);
    site.run("DEL", &conf).result();
    assert_eq!(kept(), [first[0], first[0] + 1]);
}

#[test]
fn del_with_a_full_spool_asks_the_runtime_to_come_back() {
    let site = Site::new();
    fs::create_dir(site.spool()).unwrap();
    for number in 1..=spool::MOST {
        fs::write(site.spool().join(format!("{number:020}.json")), "{}").unwrap();
    }
    let (code, text) = site.run("DEL", &site.conf("1.1.0", json!({}))).error();
    assert_eq!(code, 11);
    assert!(text.contains("10000"), "{text}");
}
