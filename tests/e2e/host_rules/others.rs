//! Others who have rules, and take those of fipd.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use fipd::rules::EngineState;

use crate::bed::{Host, SOON, become_, in_namespace, ip, own, rules, set, tagged, try_ip};

#[test]
fn conformance_21_and_defect_7_foreign_rules_are_shown_and_left_alone_even_where_they_look_alike() {
    in_namespace(|| async {
        let alike = "from 10.0.0.1 lookup 100 priority 10000";
        ip(&format!("rule add {alike}"));
        ip(&format!("rule add {alike} protocol 42"));
        ip("rule add from 10.0.0.5 lookup 100 priority 10000 protocol 200 ipproto tcp dport 80");
        ip("rule add not from 10.0.0.3 lookup 100 priority 10000 protocol 77");
        let foreign = rules();
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1", "10.0.0.2"], 100)]).await;
        let both = [
            "10000: from 10.0.0.1 lookup 100 proto 200",
            "10000: from 10.0.0.2 lookup 100 proto 200",
        ];
        for rule in both {
            assert!(rules().contains(&rule.to_owned()), "{:?}", rules());
        }
        ip("rule add from 192.0.2.1 lookup 55 priority 7");
        engine
            .until("a foreign rule is shown", |view| {
                view.kernel.iter().any(|one| one.rule.priority == 7)
            })
            .await;
        ip("rule del from 192.0.2.1 lookup 55 priority 7");
        engine
            .until("and that it went", |view| {
                !view.kernel.iter().any(|one| one.rule.priority == 7)
            })
            .await;
        engine.has("lb", Vec::new()).await;
        assert_eq!(rules(), foreign);
        assert_eq!(engine.board.view().drift, Default::default());
    });
}

#[test]
fn a_rule_whose_deletion_would_take_anothers_stays_and_is_told() {
    in_namespace(|| async {
        ip("rule add from 10.0.0.1 lookup 100 priority 10000 protocol 200 ipproto tcp dport 80");
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1"], 100)]).await;
        let before = own();
        let revision = engine.board.want(&"lb".into(), Vec::new());
        let reached = engine.reached(revision).await;
        assert!(!reached.is_rid_of("10.0.0.1".parse().unwrap()));
        assert_eq!(
            own(),
            before,
            "the first of them has ports, which are not fipd's"
        );
        let stuck = |one: &fipd::rules::Warning| one.code == "stuck";
        assert!(engine.board.view().warnings.iter().any(stuck));
    });
}

/// Adds rules as fast as `ip` can.
fn batch(lines: impl Iterator<Item = String>) {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let text: String = lines.map(|line| line + "\n").collect();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_burst_of_3000_foreign_rules_is_no_busy_loop_and_own_rules_are_still_mended() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1"], 100)]).await;
        let mut views = engine.board.views();
        views.borrow_and_update();
        let start = std::time::Instant::now();
        let burst = tokio::task::spawn_blocking(|| {
            let lines = (0..3000).map(|number| {
                let (high, low) = (number / 250, number % 250);
                format!(
                    "rule add from 172.16.{high}.{low} lookup 7 priority {}",
                    20_000 + number
                )
            });
            batch(lines);
        });
        let mut passes = 0;
        let all = async {
            loop {
                views.changed().await.unwrap();
                passes += 1;
                if views.borrow().kernel.len() >= 3000 {
                    return;
                }
            }
        };
        tokio::time::timeout(SOON, all).await.unwrap();
        burst.await.unwrap();
        let most = 10 + start.elapsed().as_millis() / 50;
        assert!(passes < most, "{passes} passes in {:?}", start.elapsed());
        let before = own();
        ip("rule del from 10.0.0.1");
        become_("the rule is back", Duration::from_secs(1), own, before).await;
        engine.has("lb", vec![set(&["10.0.0.2"], 100)]).await;
        assert_eq!(own(), ["10000: from 10.0.0.2 lookup 100 proto 200"]);
    });
}

#[test]
fn rules_of_the_tag_that_are_not_wanted_and_twins_go() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1"], 100)]).await;
        let before = own();
        ip("rule add from 10.0.0.9 lookup 100 priority 10000 protocol 200");
        become_("a stranger goes", SOON, own, before.clone()).await;
        // `ip` asks the kernel not to make a twin; a rule that is one but for the tag is changed to one by no command.
        batch(std::iter::once(
            "rule add from 10.0.0.8 lookup 9 priority 4 protocol 200".to_owned(),
        ));
        become_("another stranger goes", SOON, own, before).await;
        engine
            .until("both are counted", |view| view.drift.added == 2)
            .await;
    });
}

#[test]
fn another_that_deletes_without_end_is_warned_of_and_makes_no_busy_loop() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1"], 100)]).await;
        let fight = async {
            loop {
                let _ = try_ip("rule del from 10.0.0.1 protocol 200");
                let warned = |one: &fipd::rules::Warning| one.code == "fight";
                if engine.board.view().warnings.iter().any(warned) {
                    return;
                }
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, fight).await.unwrap();
        let removed = engine.board.view().drift.removed;
        let still = async {
            loop {
                let _ = try_ip("rule del from 10.0.0.1 protocol 200");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(3), still).await;
        let more = engine.board.view().drift.removed - removed;
        assert!(more < 40, "{more} times put back in 3 s");
        become_(
            "it is put back when the other stops",
            SOON * 2,
            own,
            vec!["10000: from 10.0.0.1 lookup 100 proto 200".to_owned()],
        )
        .await;
    });
}

#[test]
fn the_second_engine_of_a_namespace_and_tag_is_degraded_and_names_the_first() {
    in_namespace(|| async {
        let (one, two) = (Host::new(), Host::new());
        let first = one.with(vec![set(&["10.0.0.1"], 100)]).await;
        let second = two.start();
        let names = format!("process {}", std::process::id());
        second
            .until("it names the first", |view| matches!(&view.state, EngineState::Degraded(why) if why.contains(&names) && why.contains("200")))
            .await;
        let mut other = Host::new();
        other.options.settings.protocol = 201;
        let third = other.with(vec![set(&["10.0.0.2"], 100)]).await;
        assert_eq!(
            (own().len(), tagged(201).len()),
            (1, 1),
            "another tag is another engine"
        );
        second
            .board
            .want(&"lb".into(), vec![set(&["10.0.0.7"], 100)]);
        first.stop().await;
        become_(
            "it takes over",
            SOON,
            own,
            vec!["10000: from 10.0.0.7 lookup 100 proto 200".to_owned()],
        )
        .await;
        third.stop().await;
    });
}
