//! Probes of addresses on a real wire: a veth pair between two network namespaces.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fipd::host::probe::{AddressUse, ProbeError};
use fipd_tests::toolchain::debian;

use super::bed::{
    self, Helper, OWN, SQUATTER, V4, V6, Wire, helper_program, in_namespace, ip, run,
    wait_until_running,
};

const DEADLINE: Duration = Duration::from_secs(4);
/// What the helper has of it.
const PROBING: Duration = Duration::from_secs(3);

const USED: AddressUse = AddressUse::InUse { mac: SQUATTER };

#[test]
fn a_held_address_is_in_use_and_another_is_free() {
    in_namespace(async || {
        let wire = Wire::new();
        wire.squat();
        let helper = Helper::start();
        for (address, expected) in [
            (V4, USED),
            (V6, USED),
            ("10.0.0.6", AddressUse::Free),
            // Of the same solicited-node group.
            ("2001:db8:1::5", AddressUse::Free),
        ] {
            let start = Instant::now();
            let found = helper.probe("probe", address, DEADLINE).await.unwrap();
            let took = start.elapsed();
            println!("{address}: {found:?} after {} ms", took.as_millis());
            assert_eq!(found, expected, "{address}");
            assert!(took < PROBING + Duration::from_millis(300), "{took:?}");
        }
    });
}

#[test]
fn it_agrees_with_arping_and_with_the_kernels_own_detection() {
    debian::ensure(&["iputils-arping"]).unwrap();
    in_namespace(async || {
        let wire = Wire::new();
        wire.squat();
        let helper = Helper::start();
        for (address, used) in [(V4, true), ("10.0.0.6", false)] {
            let arping = format!("-D -c 2 -w 3 -I probe {address}");
            let start = Instant::now();
            let said = run("arping", &arping);
            println!("arping: {said:?} after {} ms", start.elapsed().as_millis());
            assert_eq!(said.is_err(), used, "{said:?}");
            if let Err(said) = said {
                assert!(
                    said.contains(&SQUATTER.to_string().to_uppercase()),
                    "{said}"
                );
            }
            let found = helper.probe("probe", address, DEADLINE).await.unwrap();
            assert_eq!(found == USED, used);
        }
        for (address, used) in [(V6, true), ("2001:db8::6", false)] {
            let found = helper.probe("probe", address, DEADLINE).await.unwrap();
            assert_eq!(found == USED, used);
            ip(&format!("-6 address add {address}/64 dev probe"));
            tokio::time::sleep(Duration::from_secs(3)).await;
            let shown = ip("-6 address show dev probe");
            let line = shown.lines().find(|line| line.contains(address)).unwrap();
            println!("kernel: {}", line.trim());
            assert_eq!(line.contains("dadfailed"), used, "{line}");
            assert_eq!(line.contains("tentative"), used, "{line}");
        }
    });
}

#[test]
fn two_who_probe_for_one_address_never_both_find_it_free() {
    in_namespace(async || {
        let wire = Wire::new();
        for address in [V4, V6] {
            let theirs = wire.peer.probe(address, PROBING);
            let ours = Helper::start()
                .probe("probe", address, DEADLINE)
                .await
                .unwrap();
            let theirs = theirs.join().unwrap();
            println!("{address}: {ours:?} {theirs}");
            let theirs_used = theirs.contains(&OWN.to_string());
            assert!(theirs_used || theirs.contains("free"), "{theirs}");
            assert!(theirs_used || ours == USED);
        }
    });
}

#[test]
fn an_announcement_during_the_probe_is_a_conflict() {
    in_namespace(async || {
        let wire = Wire::new();
        let helper = Helper::start();
        let flood = wire
            .peer
            .send_often(bed::gratuitous_arp(), Duration::from_millis(50));
        let found = helper.probe("probe", V4, DEADLINE).await;
        assert_eq!(found.unwrap(), USED);
        drop(flood);
    });
}

#[test]
fn a_flood_does_not_extend_the_probe_nor_hide_who_answers() {
    in_namespace(async || {
        let wire = Wire::new();
        let helper = Helper::start();
        // About the address, so that the kernel's filter lets them pass.
        for (name, address, frame) in [
            ("ARP", V4, bed::malformed_arp()),
            ("ND", V6, bed::advertisement_of_bad_checksum()),
        ] {
            let flood = wire.peer.send_often(frame, Duration::ZERO);
            for timeout in [500, 3000].map(Duration::from_millis) {
                let start = Instant::now();
                let found = helper
                    .probe("probe", address, timeout + Duration::from_secs(1))
                    .await;
                let took = start.elapsed();
                println!(
                    "{name}: {found:?} after {} ms of {}, {} frames",
                    took.as_millis(),
                    timeout.as_millis(),
                    flood.count()
                );
                assert_eq!(found.unwrap(), AddressUse::Free);
                assert!(took < timeout + Duration::from_millis(400), "{took:?}");
            }
            assert!(flood.count() > 10_000, "{}", flood.count());
        }
        wire.squat();
        for (address, frame) in [
            (V4, bed::malformed_arp()),
            (V6, bed::advertisement_of_bad_checksum()),
        ] {
            let flood = wire.peer.send_often(frame, Duration::ZERO);
            let found = helper.probe("probe", address, DEADLINE).await;
            assert_eq!(found.unwrap(), USED, "{address}, {} frames", flood.count());
        }
    });
}

#[test]
fn who_answers_in_another_vlan_does_not_count() {
    in_namespace(async || {
        let wire = Wire::new();
        let helper = Helper::start();
        for (vlan, expected) in [(7, AddressUse::Free), (0, USED)] {
            for (address, frame) in [(V4, bed::gratuitous_arp()), (V6, bed::advertisement())] {
                let tagged = bed::tagged(frame, vlan);
                let flood = wire.peer.send_often(tagged, Duration::from_millis(20));
                let found = helper.probe("probe", address, Duration::from_secs(2)).await;
                assert_eq!(found.unwrap(), expected, "{address} in VLAN {vlan}");
                assert!(expected == USED || flood.count() > 2);
            }
        }
    });
}

#[test]
fn it_works_on_bridges_and_their_ports() {
    in_namespace(async || {
        let wire = Wire::new();
        wire.squat();
        ip("link add bridge type bridge");
        ip("link set bridge up");
        ip("link set probe master bridge");
        wait_until_running("bridge");
        let helper = Helper::start();
        for interface in ["probe", "bridge"] {
            for address in [V4, V6] {
                let found = helper.probe(interface, address, DEADLINE).await;
                assert_eq!(found.unwrap(), USED, "{address} on {interface}");
            }
            let found = helper.probe(interface, "10.0.0.6", DEADLINE).await;
            assert_eq!(found.unwrap(), AddressUse::Free, "{interface}");
        }
    });
}

#[test]
fn an_interface_that_reaches_nobody_fails_and_is_not_free() {
    in_namespace(async || {
        let wire = Wire::new();
        let helper = Helper::start();
        let failed = async |interface: &str, part: &str| {
            let found = helper.probe(interface, V4, DEADLINE).await;
            let Err(ProbeError::Failed(error)) = found else {
                panic!("{interface}: {found:?}")
            };
            println!("{error}");
            assert!(error.contains(part), "{error}");
        };
        failed("nowhere", "there is no interface nowhere").await;
        failed("lo", "interface lo is not Ethernet").await;
        ip("link set probe down");
        failed("probe", "interface probe is down or has no carrier").await;
        ip("link set probe up arp off");
        wait_until_running("probe");
        failed("probe", "interface probe does not resolve addresses").await;
        ip("link set probe arp on");
        wire.peer.run(|| ip("link set squat down"));
        failed("probe", "has no carrier").await;
    });
}

#[test]
fn a_link_that_goes_down_during_the_probe_is_a_failure() {
    in_namespace(async || {
        let _wire = Wire::new();
        let helper = Helper::start();
        let start = Instant::now();
        let (found, ()) = tokio::join!(helper.probe("probe", V6, DEADLINE), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            ip("link set probe down");
            ip("link set probe up");
        });
        let error = found.unwrap_err().to_string();
        println!("{error} after {} ms", start.elapsed().as_millis());
        assert!(error.contains("is down or has no carrier"), "{error}");

        wait_until_running("probe");
        let (found, ()) = tokio::join!(helper.probe("probe", V4, DEADLINE), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            ip("link delete probe");
        });
        let error = found.unwrap_err().to_string();
        println!("{error}");
        assert!(start.elapsed() < Duration::from_secs(6));
    });
}

#[test]
fn the_program_needs_cap_net_raw_and_no_more() {
    in_namespace(async || {
        let wire = Wire::new();
        wire.squat();
        let program = helper_program().await;
        for (address, part) in [
            (V4, SQUATTER.to_string()),
            (V6, SQUATTER.to_string()),
            ("2001:db8::6", "free".to_owned()),
        ] {
            let said = bed::as_nobody(&program, ("-all,+net_raw", "+net_raw"), address);
            assert!(said.contains(&part), "{said}");
        }
        let said = bed::as_nobody(&program, ("-all", "-all"), V4);
        assert!(
            said.contains("cannot open a packet socket: Operation not permitted"),
            "{said}"
        );
        let mut by_hand = Command::new(program.path());
        by_hand.arg("probe-helper").stdin(Stdio::null());
        let done = by_hand.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains("fipd-probe.socket starts"), "{said}");
    });
}

#[test]
fn the_groups_of_the_address_are_joined_while_it_is_probed() {
    in_namespace(async || {
        let _wire = Wire::new();
        let helper = Helper::start();
        // The kernel itself leaves the groups of IPv6.
        std::fs::write("/proc/sys/net/ipv6/conf/probe/disable_ipv6", "1").unwrap();
        let groups = || {
            let all = ip("maddress show dev probe");
            ["33:33:00:00:00:01", "33:33:ff:00:00:77"].map(|group| all.contains(group))
        };
        let (found, during) =
            tokio::join!(helper.probe("probe", "2001:db8::77", DEADLINE), async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                groups()
            });
        assert_eq!(found.unwrap(), AddressUse::Free);
        assert_eq!(during, [true, true]);
        assert_eq!(groups(), [false, false], "and left");
    });
}
