//! `ADD` that looks for other users of its addresses.

use std::time::Instant;

use fipd_cni::{AskStep, Reply, Verb, attachment::ProbeResult};
use serde_json::json;

use super::{
    address, attachment,
    site::Site,
    stand_in::{StandIn, done},
};

const SQUATTER: &str = "02:00:00:00:00:99";

#[test]
fn addresses_that_others_use_are_reported_and_others_come() {
    let site = Site::new();
    site.on_wire(&format!("link set wire0 address {SQUATTER}"));
    site.on_wire("address add 10.9.0.5/24 dev wire0");
    site.on_wire("address add 2001:db8::5/64 dev wire0 nodad");
    let addresses = |last: u8| {
        vec![
            address(&format!("10.9.0.{last}/24"), None),
            address(&format!("2001:db8::{last}/64"), None),
        ]
    };
    let mut given = attachment();
    given.probe = true;
    given.addresses = addresses(5);
    let daemon = StandIn::new(&site.socket(), 0, move |ask| match &ask.step {
        AskStep::Begin if ask.command == Verb::Add => Reply::Attachment(Box::new(given.clone())),
        AskStep::Probed(results) => {
            given.probe = results.iter().any(|one| one.user.is_some());
            if given.probe {
                given.addresses = addresses(6);
            }
            Reply::Attachment(Box::new(given.clone()))
        }
        AskStep::Begin | AskStep::Made(_) | AskStep::Failed(_) | AskStep::Report(_) => done(),
    });
    let start = Instant::now();
    let result = site.run("ADD", &site.conf("1.1.0", json!({}))).result();
    assert!(start.elapsed().as_secs() < 10, "two rounds of a second");
    assert_eq!(result["ips"][0]["address"], "10.9.0.6/24");
    assert_eq!(result["ips"][1]["address"], "2001:db8::6/64");
    let probed = daemon
        .asked()
        .into_iter()
        .filter_map(|(_, step)| match step {
            AskStep::Probed(results) => Some(results),
            AskStep::Begin | AskStep::Made(_) | AskStep::Failed(_) | AskStep::Report(_) => None,
        });
    let probed: Vec<_> = probed.collect();
    let of = |address: &str, user: Option<&str>| ProbeResult {
        address: address.parse().unwrap(),
        user: user.map(str::to_owned),
    };
    let taken = [
        of("10.9.0.5", Some(SQUATTER)),
        of("2001:db8::5", Some(SQUATTER)),
    ];
    let free = [of("10.9.0.6", None), of("2001:db8::6", None)];
    assert_eq!(probed, [taken, free]);
}

#[test]
fn a_daemon_that_never_finds_a_free_address_ends_in_a_conflict() {
    let site = Site::new();
    site.on_wire("address add 10.9.0.5/24 dev wire0");
    let mut given = attachment();
    given.probe = true;
    let daemon = StandIn::new(&site.socket(), 0, move |ask| match ask.command {
        Verb::Add => Reply::Attachment(Box::new(given.clone())),
        _ => done(),
    });
    let (code, text) = site.run("ADD", &site.conf("1.1.0", json!({}))).error();
    assert_eq!(code, 101, "{text}");
    assert!(!site.has_link("eth1"));
    let verbs = daemon.verbs();
    assert_eq!((verbs.len(), verbs.last()), (10, Some(&Verb::Del)));
}

/// The kernel lets no macvlan reach its parent: nobody answers on the wire.
#[test]
fn an_address_of_this_host_is_used() {
    const OF_HOST: &str = "02:00:00:00:00:77";
    let site = Site::new();
    site.in_host(&format!("link set up0 address {OF_HOST}"));
    site.in_host("address add 10.9.0.5/24 dev up0");
    site.in_host("address add 10.9.0.6/32 dev lo");
    let mut given = attachment();
    given.probe = true;
    given.addresses = ["10.9.0.5/24", "10.9.0.6/24", "10.9.0.7/24"]
        .map(|one| address(one, None))
        .into();
    let daemon = StandIn::new(&site.socket(), 0, move |ask| match &ask.step {
        AskStep::Begin if ask.command == Verb::Add => Reply::Attachment(Box::new(given.clone())),
        AskStep::Probed(_) => {
            given.probe = false;
            given.addresses = vec![address("10.9.0.7/24", None)];
            Reply::Attachment(Box::new(given.clone()))
        }
        AskStep::Begin | AskStep::Made(_) | AskStep::Failed(_) | AskStep::Report(_) => done(),
    });
    site.run("ADD", &site.conf("1.1.0", json!({}))).result();
    let users = daemon.asked().into_iter().find_map(|(_, step)| match step {
        AskStep::Probed(results) => Some(results),
        AskStep::Begin | AskStep::Made(_) | AskStep::Failed(_) | AskStep::Report(_) => None,
    });
    let users: Vec<_> = users.unwrap().into_iter().map(|one| one.user).collect();
    let expected = [Some(OF_HOST), Some("lo"), None];
    assert_eq!(users, expected.map(|user| user.map(str::to_owned)));
}
