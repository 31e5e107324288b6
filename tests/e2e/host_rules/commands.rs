//! What an admin has the engine do.

use fipd::rules::{Command, CommandError, EngineState};
use fipd_core::Family;
use fipd_core::host::{Mode, Rule, RuleAction, RuleSet};

use crate::bed::{Host, SOON, become_, in_namespace, indexed, ip, many, own, rules, set};

#[test]
fn conformance_35_a_flush_tells_first_then_removes_own_rules_until_it_is_resumed() {
    in_namespace(|| async {
        ip("rule add from 10.0.0.1 lookup 100 priority 10000");
        let host = Host::expecting(&["lb"]);
        let sets = vec![set(&["10.0.0.1"], 100), many(2, 101, Mode::Indexed)];
        let engine = host.with(sets).await;
        let before = rules();
        let told = engine
            .board
            .order(Command::Flush { dry_run: true })
            .await
            .unwrap();
        assert_eq!((told.len(), rules()), (2, before.clone()));
        let done = engine
            .board
            .order(Command::Flush { dry_run: false })
            .await
            .unwrap();
        assert_eq!(done, told);
        assert!(own().is_empty() && indexed().is_empty());
        assert_eq!(engine.board.view().state, EngineState::Paused);
        let reached = engine.board.progress().borrow().clone();
        assert!(reached.flushed && reached.lingering.is_empty());
        assert!(!reached.has("10.0.0.1".parse().unwrap(), &"lb".into()));
        engine.stop().await;
        let engine = host.start();
        engine
            .until("it stays paused", |view| view.state == EngineState::Paused)
            .await;
        assert!(own().is_empty());
        engine.board.order(Command::Resume).await.unwrap();
        engine.is_active().await;
        let mut after = rules();
        let mut before = before;
        after.sort();
        before.sort();
        assert_eq!(after, before);
        assert_eq!(indexed().len(), 2);
    });
}

#[test]
fn foreign_rules_are_pruned_only_as_they_were_confirmed() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1"], 100)]).await;
        for rule in [
            "from 10.0.0.2 lookup 100 priority 500",
            "from 10.0.0.3 lookup 100 priority 600 protocol 42 ipproto tcp dport 80",
            "from 10.0.0.4 lookup 100 priority 700 protocol 0",
            "from 10.0.0.5 lookup 100 priority 40000",
            "from 10.0.0.6 lookup 101 priority 600",
        ] {
            ip(&format!("rule add {rule}"));
        }
        let prune = |confirmed| Command::PruneForeign {
            table: 100,
            priorities: Some((500, 700)),
            confirmed,
        };
        let before = rules();
        let told = engine.board.order(prune(None)).await.unwrap();
        assert_eq!((told.len(), rules()), (3, before));
        let confirmed: Vec<String> = told.iter().map(ToString::to_string).collect();
        let less = Some(confirmed[1..].to_vec());
        let changed = engine.board.order(prune(less)).await;
        assert_eq!(changed, Err(CommandError::Changed));
        engine.board.order(prune(Some(confirmed))).await.unwrap();
        let left: Vec<String> = rules()
            .into_iter()
            .filter(|rule| rule.contains("10.0.0."))
            .collect();
        let expected = [
            "600: from 10.0.0.6 lookup 101",
            "10000: from 10.0.0.1 lookup 100 proto 200",
            "40000: from 10.0.0.5 lookup 100",
        ];
        let bare = left.iter().map(|rule| {
            rule.trim_end_matches(" proto 3")
                .trim_end_matches(" proto boot")
        });
        assert!(bare.eq(expected), "{left:?}");
        // Somebody made the way of everything anew: without it no packet goes anywhere.
        ip("rule add from all lookup main priority 31000");
        let main = Command::PruneForeign {
            table: 254,
            priorities: None,
            confirmed: None,
        };
        let kernels = engine.board.order(main).await.unwrap();
        assert!(
            kernels.is_empty(),
            "the way of everything is never pruned: {kernels:?}"
        );
    });
}

#[test]
fn an_untagged_rule_is_adopted_once_its_twin_is_there_and_others_like_it_stay() {
    in_namespace(|| async {
        let legacy = "from 10.0.0.1 lookup 100 priority 1000 protocol 0";
        ip(&format!("rule add {legacy}"));
        ip("rule add from 10.0.0.1 lookup 100 priority 1000 protocol 77");
        ip("rule add from 10.0.0.2 lookup 100 priority 1000 protocol 0");
        let mut wanted = set(&["10.0.0.1", "10.0.0.3"], 100);
        wanted.priority = Some(1000);
        let host = Host::new();
        let engine = host.with(vec![wanted]).await;
        // One that was made after its twin: the kernel would take the twin first.
        ip("rule add from 10.0.0.3 lookup 100 priority 1000 protocol 0");
        let rule = |source: &str| Rule {
            priority: 1000,
            family: Family::V4,
            source: Some(source.parse().unwrap()),
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(100),
            protocol: 200,
        };
        let adopt = |dry_run| Command::AdoptUntagged {
            rules: vec![
                rule("10.0.0.1/32"),
                rule("10.0.0.3/32"),
                rule("10.0.0.9/32"),
            ],
            dry_run,
        };
        let before = rules();
        let told = engine.board.order(adopt(true)).await.unwrap();
        assert_eq!((told.len(), rules()), (2, before));
        engine.board.order(adopt(false)).await.unwrap();
        let mut left: Vec<String> = rules()
            .into_iter()
            .filter(|rule| rule.contains("10.0.0."))
            .collect();
        left.sort();
        let expected = [
            "1000: from 10.0.0.1 lookup 100 proto 200",
            "1000: from 10.0.0.1 lookup 100 proto 77",
            "1000: from 10.0.0.2 lookup 100",
            "1000: from 10.0.0.3 lookup 100 proto 200",
        ];
        assert_eq!(left, expected);
        assert!(engine.board.order(adopt(true)).await.unwrap().is_empty());
    });
}

/// The way of a packet from there, by the kernel's word.
fn table_of(source: &str, destination: &str) -> String {
    let route = ip(&format!("-N route get {destination} from {source}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "table");
    words.nth(1).unwrap_or("254").to_owned()
}

#[test]
fn after_an_adoption_every_packet_takes_the_table_it_took_before_also_past_foreign_rules() {
    in_namespace(|| async {
        ip("link add up0 type veth peer name up1");
        ip("link set up0 up");
        ip("link set up1 up");
        ip("addr add 198.51.100.1/24 dev up0");
        for source in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
            ip(&format!("addr add {source}/32 dev lo"));
        }
        for table in ["table main", "table 55", "table 100"] {
            ip(&format!("route add default via 198.51.100.2 {table}"));
        }
        // The kernel chooses 4999, and once there is a foreign rule at 1000, 999 and 998.
        ip("rule add to 192.0.2.0/24 lookup 55 priority 5000 protocol 4");
        ip("rule add from 10.0.0.3 lookup 100 protocol 0");
        ip("rule add to 203.0.113.0/24 lookup 55 priority 1000 protocol 4");
        ip("rule add from 10.0.0.1 lookup 100 protocol 0");
        ip("rule add from 10.0.0.2 lookup 100 protocol 0");
        ip("rule add to 192.0.2.128/25 lookup 55 priority 9999 protocol 4");
        let ways = || {
            let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
                .into_iter()
                .flat_map(|source| {
                    let to = ["192.0.2.9", "192.0.2.200", "203.0.113.9", "198.18.0.9"];
                    to.map(|destination| {
                        format!("{source} {destination} {}", table_of(source, destination))
                    })
                });
            all.collect::<Vec<_>>()
        };
        let host = Host::expecting(&["lb"]);
        let sources = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        let engine = host.with(vec![set(&sources, 100)]).await;
        let before = ways();
        assert!(before.iter().any(|way| way.ends_with(" 55")), "{before:?}");
        let legacy: Vec<Rule> = engine
            .board
            .view()
            .kernel
            .iter()
            .map(|one| one.rule.clone())
            .filter(|rule| rule.protocol == 0)
            .collect();
        assert_eq!(legacy.len(), 3);
        let adopt = Command::AdoptUntagged {
            rules: legacy,
            dry_run: false,
        };
        assert_eq!(engine.board.order(adopt).await.unwrap().len(), 3);
        let placed = [
            "999: from 10.0.0.1 lookup 100 proto 200",
            "999: from 10.0.0.2 lookup 100 proto 200",
            "4999: from 10.0.0.3 lookup 100 proto 200",
        ];
        let sorted = || {
            let mut all = own();
            all.sort();
            all
        };
        let mut placed = placed.map(str::to_owned).to_vec();
        placed.sort();
        assert_eq!((sorted(), ways()), (placed.clone(), before.clone()));
        // After a boot there is nothing in the kernel, and before somebody speaks.
        engine.stop().await;
        for rule in &placed {
            let rule = rule.split_once(": ").unwrap();
            ip(&format!(
                "rule del {} priority {}",
                rule.1.replace("proto", "protocol"),
                rule.0
            ));
        }
        let engine = host.start();
        become_("the same places", SOON, sorted, placed).await;
        assert_eq!(ways(), before);
        engine.has("lb", Vec::new()).await;
        engine.has("lb", vec![set(&["10.0.0.1"], 100)]).await;
        assert_eq!(
            own(),
            ["10000: from 10.0.0.1 lookup 100 proto 200"],
            "a new one"
        );
        engine.stop().await;
    });
}

#[test]
fn a_rule_that_cannot_be_adopted_without_another_way_for_packets_stays() {
    in_namespace(|| async {
        ip("rule add from 10.0.0.1 lookup 100 priority 998 protocol 0");
        ip("rule add to 203.0.113.0/24 lookup 55 priority 1000 protocol 4");
        let stated = RuleSet {
            priority: Some(3_000),
            ..set(&["10.0.0.1"], 100)
        };
        let host = Host::new();
        let engine = host.with(vec![stated]).await;
        let before = rules();
        let legacy = engine
            .board
            .view()
            .kernel
            .iter()
            .map(|one| one.rule.clone())
            .filter(|rule| rule.protocol == 0)
            .collect();
        let adopt = Command::AdoptUntagged {
            rules: legacy,
            dry_run: false,
        };
        assert!(engine.board.order(adopt).await.unwrap().is_empty());
        assert_eq!(rules(), before);
    });
}

#[test]
fn a_rule_of_the_tag_with_host_bits_goes_and_a_foreign_one_like_it_stays() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1"], 100)]).await;
        let before = own();
        ip("rule add from 10.7.7.0/24 lookup 100 priority 10050 protocol 4");
        ip("rule add from 10.7.7.7/24 lookup 100 priority 10050 protocol 200");
        become_("it goes", SOON, own, before).await;
        engine.is_active().await;
        let left = rules();
        let is_foreign = |rule: &String| rule.starts_with("10050: from 10.7.7.0/24 lookup 100");
        assert!(left.iter().any(is_foreign), "{left:?}");
        engine.stop().await;
    });
}
