//! Stops, kills, restarts and reboots.

use std::time::Duration;

use fipd::rules::EngineState;
use fipd_core::host::Mode;

use crate::bed::{Host, SOON, become_, in_namespace, indexed, ip, many, own, set, tagged};

#[test]
fn a_restart_while_nobody_says_anything_neither_loses_nor_deletes_rules() {
    in_namespace(|| async {
        let host = Host::expecting(&["lb"]);
        let engine = host
            .with(vec![set(&["10.0.0.1", "2001:db8::1"], 100)])
            .await;
        let before = own();
        assert_eq!(before.len(), 2);
        engine.stop().await;
        assert_eq!(own(), before, "rules outlive the daemon");
        let engine = host.start();
        engine.is_active().await;
        assert_eq!(own(), before);
        engine.kill().await;
        ip("-4 rule flush");
        ip("-6 rule flush");
        let engine = host.start();
        become_("they are back after a reboot", SOON, own, before).await;
        engine.has("lb", Vec::new()).await;
        assert!(own().is_empty(), "what is said counts");
    });
}

#[test]
fn without_a_journal_nothing_is_removed_until_everybody_spoke() {
    in_namespace(|| async {
        ip("rule add from 10.0.0.9 lookup 100 priority 10000 protocol 200");
        let host = Host::expecting(&["lb", "cluster/a"]);
        let engine = host.start();
        engine
            .board
            .want(&"lb".into(), vec![set(&["10.0.0.1"], 100)]);
        let both = vec![
            "10000: from 10.0.0.9 lookup 100 proto 200".to_owned(),
            "10000: from 10.0.0.1 lookup 100 proto 200".to_owned(),
        ];
        become_("what is known is added", SOON, own, both).await;
        engine
            .until("it says who is awaited", |view| matches!(&view.state, EngineState::Starting(why) if why.contains("cluster/a") && !why.contains("lb,")))
            .await;
        engine.has("cluster/a", Vec::new()).await;
        assert_eq!(own(), ["10000: from 10.0.0.1 lookup 100 proto 200"]);
    });
}

#[test]
fn a_silent_cluster_holds_back_only_what_may_be_its_own() {
    in_namespace(|| async {
        let mut host = Host::expecting(&["a"]);
        let before = vec![
            set(&["10.0.0.1", "10.0.0.2"], 100),
            many(3, 101, Mode::Indexed),
        ];
        host.with_as("a", before).await.stop().await;
        // Of nobody that is on record, so that it may be the new one's.
        ip("rule add from 10.0.0.9 lookup 100 priority 10000 protocol 200");
        host.options.expected.insert("new".into());
        let engine = host.start();
        let revision = engine
            .board
            .want(&"a".into(), vec![set(&["10.0.0.2"], 100)]);
        let left = vec![
            "10000: from 10.0.0.2 lookup 100 proto 200".to_owned(),
            "10000: from 10.0.0.9 lookup 100 proto 200".to_owned(),
        ];
        become_("what a had goes", SOON, own, left).await;
        assert!(indexed().is_empty());
        let reached = engine.reached(revision).await;
        assert!(reached.is_rid_of("10.0.0.1".parse().unwrap()));
        assert!(!reached.is_rid_of("10.0.0.9".parse().unwrap()));
        assert!(reached.has("10.0.0.2".parse().unwrap(), &"lb".into()));
        assert!(matches!(
            engine.board.view().state,
            EngineState::Starting(_)
        ));
        // What came since is known, too.
        let revision = engine.board.want(&"a".into(), Vec::new());
        let reached = engine.reached(revision).await;
        assert!(reached.is_rid_of("10.0.0.2".parse().unwrap()));
        assert_eq!(own(), ["10000: from 10.0.0.9 lookup 100 proto 200"]);
        engine.has("new", Vec::new()).await;
        assert!(own().is_empty());
    });
}

#[test]
fn conformance_23_and_defect_4_what_an_earlier_run_left_is_removed_by_its_tag() {
    in_namespace(|| async {
        ip("rule add from 10.0.0.9 lookup 100 priority 10000 protocol 200");
        ip("rule add from 10.0.0.9 lookup 100 priority 10000 protocol 77");
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1"], 100)]).await;
        assert_eq!(own(), ["10000: from 10.0.0.1 lookup 100 proto 200"]);
        assert_eq!(tagged(77).len(), 1);
        assert_eq!(
            engine.board.view().drift,
            Default::default(),
            "a leftover is no drift"
        );
    });
}

#[test]
fn who_is_not_expected_any_more_loses_its_rules() {
    in_namespace(|| async {
        let mut host = Host::expecting(&["a", "b"]);
        let engine = host.start();
        engine
            .board
            .want(&"a".into(), vec![set(&["10.0.0.1"], 100)]);
        engine.has("b", vec![set(&["10.0.0.2"], 100)]).await;
        assert_eq!(own().len(), 2);
        engine.stop().await;
        host.options.expected.remove("b");
        let engine = host.start();
        let left = vec!["10000: from 10.0.0.1 lookup 100 proto 200".to_owned()];
        become_("those of b go", SOON, own, left).await;
        engine.board.forget(&"a".into());
        become_("and those of a", SOON, own, Vec::new()).await;
    });
}

#[test]
fn who_may_be_found_later_keeps_its_rules_until_it_is_said_who_there_is() {
    in_namespace(|| async {
        let mut host = Host::new();
        let engine = host.start();
        let who = "ip-rule/found".into();
        engine.board.want(&who, vec![set(&["10.0.0.2"], 100)]);
        let rules = vec!["10000: from 10.0.0.2 lookup 100 proto 200".to_owned()];
        become_("it has its rule", SOON, own, rules.clone()).await;
        engine.stop().await;
        host.options.found_later = vec!["ip-rule/"];
        let engine = host.start();
        engine.is_active().await;
        assert_eq!(own(), rules, "nobody looked for it yet");
        engine.board.set_expectations("ip-rule/", [who].into());
        engine.has("ip-rule/other", Vec::new()).await;
        assert_eq!(own(), rules, "it is there and says nothing yet");
        engine.board.set_expectations("ip-rule/", [].into());
        become_("it is gone", SOON, own, Vec::new()).await;
    });
}

#[test]
fn after_a_change_of_the_tag_exactly_the_rules_of_the_old_one_go() {
    in_namespace(|| async {
        let mut host = Host::expecting(&["lb"]);
        let engine = host
            .with(vec![set(&["10.0.0.1"], 100), many(5, 101, Mode::Indexed)])
            .await;
        let indexed_before = indexed();
        assert_eq!((own().len(), indexed_before.len()), (2, 5));
        engine.stop().await;
        ip("rule add from 10.0.0.9 lookup 100 priority 10000 protocol 200");
        host.options.settings.protocol = 201;
        let engine = host.start();
        let foreign = vec!["10000: from 10.0.0.9 lookup 100 proto 200".to_owned()];
        become_("only that of another is left", SOON, own, foreign).await;
        engine.is_active().await;
        assert_eq!(tagged(201).len(), 2);
        assert_eq!(indexed(), indexed_before);
    });
}

#[test]
fn conformance_34_with_cleanup_own_rules_go_at_the_stop_and_come_back() {
    in_namespace(|| async {
        ip("rule add from 10.0.0.9 lookup 100 priority 10000 protocol 77");
        let mut host = Host::expecting(&["lb"]);
        host.options.cleanup_on_stop = true;
        let engine = host
            .with(vec![set(&["10.0.0.1"], 100), many(3, 101, Mode::Indexed)])
            .await;
        assert_eq!(indexed().len(), 3);
        let progress = engine.board.progress();
        engine.stop().await;
        assert!(own().is_empty() && indexed().is_empty());
        let last = progress.borrow().clone();
        assert!(last.flushed && last.lingering.is_empty());
        assert_eq!(tagged(77).len(), 1);
        let tables = crate::bed::nft("list tables").unwrap();
        assert!(!tables.contains("fipd"), "{tables}");
        let engine = host.start();
        engine.is_active().await;
        assert_eq!((own().len(), indexed().len()), (2, 3));
    });
}

#[test]
fn kills_at_any_point_leave_neither_twins_nor_leaks() {
    in_namespace(|| async {
        let host = Host::expecting(&["lb"]);
        for round in 0_u32..40 {
            let engine = host.start();
            let table = 100 + round % 3;
            let mode = if round % 4 == 0 {
                Mode::Indexed
            } else {
                Mode::Flat
            };
            let count = u16::try_from(300 + 37 * (round % 5)).unwrap();
            engine
                .board
                .want(&"lb".into(), vec![many(count, table, mode)]);
            // Somewhere between the start and the end of it all.
            tokio::time::sleep(Duration::from_micros(u64::from(round) * 700)).await;
            engine.kill().await;
        }
        let engine = host.with(vec![many(200, 100, Mode::Flat)]).await;
        let all = own();
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), different.len()), (200, 200));
        assert!(all.iter().all(|rule| rule.contains("lookup 100 ")));
        assert!(indexed().is_empty());
        engine.stop().await;
    });
}
