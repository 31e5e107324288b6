//! Sets whose sources are in the packet filter.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fipd_core::host::Mode;

use crate::bed::{Host, SOON, become_, in_namespace, indexed, ip, many, nft, own, rules};

const ONE_RULE: &str = "10000: from all fwmark 0x1/0xfff lookup 100 proto 200";

#[test]
fn an_indexed_set_is_one_rule_and_a_map_that_follows_it() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![many(3, 100, Mode::Indexed)]).await;
        assert_eq!(own(), [ONE_RULE]);
        let sent = |count: u16| -> Vec<String> {
            (0..count)
                .map(|number| format!("10.96.0.{number} mark-0x1"))
                .collect()
        };
        assert_eq!(indexed(), sent(3));
        engine.has("lb", vec![many(5, 100, Mode::Indexed)]).await;
        assert_eq!(indexed(), sent(5));
        // More than the map was made for.
        engine
            .has("lb", vec![many(1_500, 100, Mode::Indexed)])
            .await;
        assert_eq!(indexed().len(), 1_500);
        engine.has("lb", vec![many(2, 100, Mode::Indexed)]).await;
        assert_eq!(indexed(), sent(2));
        assert_eq!(
            engine.board.view().drift.index,
            0,
            "own changes are none of others"
        );
    });
}

#[test]
fn many_sources_at_once_leave_it_hearing_what_others_do() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![many(3, 100, Mode::Indexed)]).await;
        for count in [3_000, 3, 4_000] {
            engine
                .has("lb", vec![many(count, 100, Mode::Indexed)])
                .await;
            assert_eq!(indexed().len(), usize::from(count));
            assert_eq!(engine.board.view().drift.index, 0, "own changes");
        }
        nft("delete element inet fipd v4 { 10.96.0.1 }").unwrap();
        become_("it is back", SOON, || indexed().len(), 4_000).await;
        engine
            .until("it is counted", |view| view.drift.index == 1)
            .await;
    });
}

/// A way out by `main`, and a table 100 that goes nowhere. Answers what sends from the first indexed source with a mark.
fn ways() -> impl Fn(u32) -> std::io::Result<()> {
    ip("link add up0 type veth peer name up1");
    ip("link set up0 up");
    ip("link set up1 up");
    ip("addr add 198.51.100.1/24 dev up0");
    ip("addr add 10.96.0.1/32 dev lo");
    ip("route add default via 198.51.100.2");
    ip("route add unreachable default table 100");
    |mark| {
        let socket = std::net::UdpSocket::bind("10.96.0.1:0")?;
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Mark, &mark)?;
        socket.send_to(b"x", "203.0.113.9:9").map(drop)
    }
}

#[test]
fn packets_with_a_mark_of_ciliums_are_neither_marked_nor_routed_by_it() {
    in_namespace(|| async {
        let send = ways();
        let host = Host::new();
        let engine = host.with(vec![many(3, 100, Mode::Indexed)]).await;
        assert_eq!(own(), [ONE_RULE]);
        assert!(
            send(0).is_err() && send(0xc000).is_err(),
            "these are fipd's"
        );
        for magic in (0x100..=0xf00_u32).step_by(0x100) {
            assert!(send(magic).is_ok(), "{magic:#x}: it is not marked");
            let of_cluster_one = 0x1234_0001 | magic;
            assert!(send(of_cluster_one).is_ok(), "{of_cluster_one:#x}");
        }
        // That the mark is as it was is seen where only this very mark finds a way.
        ip("route add unreachable default table 101");
        ip("rule add fwmark 0x12340f00 lookup 101 priority 9000");
        assert!(send(0x1234_0f00).is_err(), "the mark is whole");
        assert!(send(0x1234_0f01).is_ok());
        engine.stop().await;
    });
}

#[test]
fn packets_of_indexed_sources_go_by_their_table_and_keep_the_other_bits_of_their_mark() {
    in_namespace(|| async {
        let send = ways();
        let host = Host::new();
        let engine = host.with(vec![many(3, 100, Mode::Indexed)]).await;
        assert!(send(0).is_err(), "the table says unreachable");
        ip("rule add fwmark 0x10000/0x10000 lookup 101 priority 9000");
        ip("route add default via 198.51.100.2 table 101");
        assert!(send(0x10000).is_ok(), "a bit of another is as it was");
        engine.has("lb", Vec::new()).await;
        assert!(send(0).is_ok(), "by main again");
    });
}

#[test]
fn a_table_of_the_packet_filter_that_vanishes_or_changes_is_rebuilt() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![many(50, 100, Mode::Indexed)]).await;
        let before = indexed();
        assert_eq!(before.len(), 50);
        let hurts = [
            "delete table inet fipd",
            "flush ruleset",
            "flush table inet fipd",
            "flush map inet fipd v4",
            "add element inet fipd v4 { 10.1.1.1 : jump mark-0x1 }",
        ];
        for (count, hurt) in (1..).zip(hurts) {
            let shape = nft("list table inet fipd").unwrap();
            nft(hurt).unwrap();
            let look = || nft("list table inet fipd").unwrap_or_default();
            // Long before a whole look at the kernel comes.
            become_(hurt, Duration::from_secs(5), look, shape).await;
            engine
                .until("it is counted", |view| view.drift.index == count)
                .await;
        }
        assert_eq!(indexed(), before);
        nft("add table inet kube-proxy").unwrap();
        engine.has("lb", vec![many(51, 100, Mode::Indexed)]).await;
        assert_eq!(
            engine.board.view().drift.index,
            5,
            "tables of others are theirs"
        );
    });
}

#[test]
fn a_foreign_table_of_that_name_is_left_alone_and_sets_are_flat() {
    in_namespace(|| async {
        nft("add table inet fipd").unwrap();
        nft("add chain inet fipd mine").unwrap();
        let theirs = nft("list ruleset").unwrap();
        let host = Host::new();
        let engine = host.with(vec![many(3, 100, Mode::Indexed)]).await;
        assert_eq!(own().len(), 3);
        assert_eq!(nft("list ruleset").unwrap(), theirs);
        engine
            .until("it is told", |view| {
                let codes: BTreeSet<_> = view.warnings.iter().map(|warning| warning.code).collect();
                codes.contains("packet-filter") && codes.contains("not-indexed")
            })
            .await;
        let mut views = engine.board.views();
        views.borrow_and_update();
        let changed = tokio::time::timeout(Duration::from_millis(500), views.changed()).await;
        assert!(changed.is_err(), "it waits for something to happen");
    });
}

#[test]
fn without_nft_sets_are_flat_and_it_is_told() {
    in_namespace(|| async {
        let mut host = Host::new();
        host.options.nft = Some("/nowhere/nft".into());
        let engine = host.with(vec![many(3, 100, Mode::Indexed)]).await;
        assert_eq!(own().len(), 3);
        engine
            .until("it is told", |view| {
                view.warnings
                    .iter()
                    .any(|warning| warning.code == "not-indexed")
            })
            .await;
    });
}

/// Looks without end whether each source goes by a rule of its own or through the map. What is looked at first is what the
/// change takes away, so that one that is in neither was in neither at some moment.
fn watch(stop: &Arc<AtomicBool>, count: u16, flat_first: bool) -> std::thread::JoinHandle<u32> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let sources: Vec<String> = (0..count)
            .map(|number| {
                let [high, low] = number.to_be_bytes();
                format!("10.96.{high}.{low}")
            })
            .collect();
        let flat = || -> BTreeSet<String> {
            let all = rules();
            let from = all.iter().filter_map(|rule| rule.split(' ').nth(2));
            from.map(str::to_owned).collect()
        };
        let mapped = || -> BTreeSet<String> {
            let all = indexed();
            all.iter()
                .filter_map(|one| one.split(' ').next())
                .map(str::to_owned)
                .collect()
        };
        let mut looks = 0;
        while !stop.load(Ordering::Relaxed) {
            let (first, second) = match flat_first {
                true => (flat(), mapped()),
                false => (mapped(), flat()),
            };
            for source in &sources {
                let found = first.contains(source) || second.contains(source);
                assert!(found, "{source} has neither a rule nor an entry");
            }
            looks += 1;
        }
        looks
    })
}

#[test]
fn between_flat_and_indexed_no_source_is_ever_without_a_rule() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![many(400, 100, Mode::Flat)]).await;
        let modes = [Mode::Indexed, Mode::Flat, Mode::Indexed, Mode::Flat];
        for mode in modes {
            let stop = Arc::new(AtomicBool::new(false));
            let watching = watch(&stop, 400, mode == Mode::Indexed);
            tokio::time::sleep(Duration::from_millis(30)).await;
            engine.has("lb", vec![many(400, 100, mode)]).await;
            tokio::time::sleep(Duration::from_millis(30)).await;
            stop.store(true, Ordering::Relaxed);
            let looks = tokio::task::spawn_blocking(|| watching.join())
                .await
                .unwrap();
            assert!(looks.is_ok_and(|looks| looks > 0));
        }
    });
}

#[test]
fn above_the_threshold_a_set_is_indexed_by_itself() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![many(1000, 100, Mode::Auto)]).await;
        assert_eq!(own().len(), 1000);
        engine.has("lb", vec![many(1001, 100, Mode::Auto)]).await;
        assert_eq!(own(), [ONE_RULE]);
        become_("all are in the map", SOON, || indexed().len(), 1001).await;
    });
}
