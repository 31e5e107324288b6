//! Rules as they are wanted.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fipd::rules::EngineState;
use fipd_core::host::{Mode, RuleSet};

use crate::bed::{Engine, Host, SOON, become_, in_namespace, ip, many, own, rules, set, try_ip};

#[test]
fn conformance_14_and_defect_1_a_rule_without_priority_is_there_once_whatever_happens() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![set(&["10.96.23.17"], 100)]).await;
        let expected = ["10000: from 10.96.23.17 lookup 100 proto 200"];
        assert_eq!(own(), expected);
        for round in 0..100 {
            let name = format!("round {round}");
            let same = RuleSet {
                name: name.as_str().into(),
                ..set(&["10.96.23.17"], 100)
            };
            engine.has("lb", vec![same]).await;
        }
        assert_eq!(own(), expected);
    });
}

#[test]
fn rules_of_ipv6_and_of_the_last_table_and_priority_are_as_they_are_wanted() {
    in_namespace(|| async {
        let host = Host::new();
        let last = RuleSet {
            priority: Some(u32::MAX),
            ..set(&["10.0.0.9"], u32::MAX)
        };
        let both = set(&["10.0.0.1", "2001:db8::1"], 100);
        let engine = host.with(vec![both, last]).await;
        let expected = [
            "10000: from 10.0.0.1 lookup 100 proto 200",
            "4294967295: from 10.0.0.9 lookup 4294967295 proto 200",
            "10000: from 2001:db8::1 lookup 100 proto 200",
        ];
        assert_eq!(own(), expected);
        engine.has("lb", Vec::new()).await;
        assert!(own().is_empty());
    });
}

/// `ip monitor rule`.
pub struct Monitor(Child);

impl Monitor {
    pub async fn start() -> Self {
        let child = Command::new("ip")
            .args(["-N", "monitor", "rule"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let monitor = Self(child);
        let listens = || monitor.socket().is_some();
        become_("ip monitor listens", SOON, listens, true).await;
        monitor
    }

    /// What waits for it in its socket (netlink(7): `Rmem`), once it has joined a group.
    fn socket(&self) -> Option<String> {
        let mine = self.0.id().to_string();
        let all = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
        let mut sockets = all
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        sockets.find_map(|columns| {
            let own = columns.get(2) == Some(&mine.as_str());
            let joined = own && columns.get(3) != Some(&"00000000");
            joined.then(|| columns.get(4).unwrap_or(&"").to_string())
        })
    }

    /// What it heard.
    pub async fn end(mut self) -> Vec<String> {
        let waits = || self.socket();
        become_("ip monitor has read all", SOON, waits, Some("0".to_owned())).await;
        // And written it.
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.0.kill().unwrap();
        let mut text = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        self.0.wait().unwrap();
        let lines = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.collect()
    }
}

async fn heard(engine: &Engine, sets: Vec<RuleSet>) -> Vec<String> {
    let monitor = Monitor::start().await;
    engine.has("lb", sets).await;
    monitor.end().await
}

#[test]
fn conformance_16_and_defect_3_the_new_rule_is_there_before_the_old_one_goes() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1", "10.0.0.2"], 100)]).await;
        let table = heard(&engine, vec![set(&["10.0.0.1", "10.0.0.2"], 101)]).await;
        let expected = [
            "10000: from 10.0.0.2 lookup 101 proto 200",
            "10000: from 10.0.0.1 lookup 101 proto 200",
            "Deleted 10000: from 10.0.0.1 lookup 100 proto 200",
            "Deleted 10000: from 10.0.0.2 lookup 100 proto 200",
        ];
        assert_eq!(table, expected);
        let moved = RuleSet {
            priority: Some(12_000),
            ..set(&["10.0.0.1"], 101)
        };
        let priority = heard(&engine, vec![moved]).await;
        let expected = [
            "12000: from 10.0.0.1 lookup 101 proto 200",
            "Deleted 10000: from 10.0.0.1 lookup 101 proto 200",
            "Deleted 10000: from 10.0.0.2 lookup 101 proto 200",
        ];
        assert_eq!(priority, expected);
        assert_eq!(own(), ["12000: from 10.0.0.1 lookup 101 proto 200"]);
    });
}

#[test]
fn conformance_19_a_rule_deleted_by_hand_is_back_by_event() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host
            .with(vec![set(&["10.0.0.1", "2001:db8::1"], 100)])
            .await;
        let before = own();
        for rule in ["-4 rule del from 10.0.0.1", "-6 rule del from 2001:db8::1"] {
            for _ in 0..3 {
                ip(rule);
                // Long before a whole look at the kernel comes; how long it takes is measured by the bench of rules.
                let within = Duration::from_secs(5);
                become_("the rule is back", within, own, before.clone()).await;
            }
        }
        engine
            .until("drift is counted", |view| view.drift.removed == 6)
            .await;
        assert_eq!(engine.board.view().drift.added, 0);
    });
}

#[test]
fn conformance_20_after_a_flush_own_rules_are_back_and_those_of_the_boot_are_not() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(vec![set(&["10.0.0.1", "10.0.0.2"], 100)]).await;
        let before = own();
        ip("rule flush");
        become_("own rules are back", Duration::from_secs(1), own, before).await;
        assert!(
            !rules()
                .iter()
                .any(|rule| rule.starts_with("32766") && rule.contains("254"))
                || rules().len() > 2
        );
        let v4 = ip("-4 -N rule show");
        assert!(
            !v4.contains("32766"),
            "those of the boot are the admin's: {v4}"
        );
        engine.is_active().await;
    });
}

#[test]
fn conformance_30_a_closed_set_goes_nowhere_where_its_table_is_empty() {
    in_namespace(|| async {
        ip("link add up0 type veth peer name up1");
        ip("link set up0 up");
        ip("link set up1 up");
        ip("addr add 198.51.100.1/24 dev up0");
        ip("addr add 10.0.0.1/32 dev lo");
        ip("route add default via 198.51.100.2");
        let get = || try_ip("route get 203.0.113.9 from 10.0.0.1");
        assert!(get().is_ok());
        let host = Host::new();
        let open = set(&["10.0.0.1"], 100);
        let engine = host.with(vec![open.clone()]).await;
        assert!(get().is_ok(), "an empty table is passed over");
        engine
            .until("the empty table is told", |view| {
                view.warnings
                    .iter()
                    .any(|warning| warning.code == "table-empty")
            })
            .await;
        let closed = RuleSet {
            fail_closed: true,
            ..open
        };
        engine.has("lb", vec![closed]).await;
        assert!(get().is_err(), "{:?}", rules());
        ip("route add default via 198.51.100.2 table 100");
        assert!(get().unwrap().contains("table 100"));
    });
}

#[test]
fn conformance_31_a_rule_for_a_missing_device_is_told_and_recovers() {
    in_namespace(|| async {
        let host = Host::new();
        ip("rule add iif eth9 lookup 100 priority 500");
        let engine = host.with(Vec::new()).await;
        let detached = |view: &fipd::rules::View| {
            let mut all = view
                .kernel
                .iter()
                .filter(|one| one.rule.input.as_deref() == Some("eth9"));
            all.any(|one| one.more.as_deref() == Some("[iif detached]"))
        };
        assert!(
            detached(&engine.board.view()),
            "{:?}",
            engine.board.view().kernel
        );
        ip("link add eth9 type veth peer name peer9");
        engine.until("it is attached", |view| !detached(view)).await;
    });
}

#[test]
fn conformance_33_without_the_capability_the_state_says_what_is_missing() {
    in_namespace(|| async {
        let host = Host::new();
        let folder = host.folder();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder, everybody).unwrap();
        // SAFETY: sets numbers of this thread only, not through libc, which would set those of all threads.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(done, 0);
        let engine = host.start();
        engine
            .board
            .want(&"lb".into(), vec![set(&["10.0.0.1"], 100)]);
        let told = |view: &fipd::rules::View| matches!(&view.state, EngineState::Degraded(why) if why.contains("CAP_NET_ADMIN"));
        engine.until("degraded", told).await;
        let mut views = engine.board.views();
        views.borrow_and_update();
        let mut changes = 0;
        let watching = async {
            while views.changed().await.is_ok() {
                changes += 1;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(3), watching).await;
        assert!(changes < 20, "{changes} views in 3 s");
        engine.stop().await;
    });
}

#[test]
fn conformance_28_ten_thousand_flat_rules_are_there_and_what_they_cost_is_told() {
    in_namespace(|| async {
        let host = Host::new();
        let engine = host.with(Vec::new()).await;
        // How long that takes is for the benches to say.
        engine.has("lb", vec![many(10_000, 100, Mode::Flat)]).await;
        assert_eq!(own().len(), 10_000);
        let warned = |view: &fipd::rules::View| {
            view.warnings
                .iter()
                .any(|warning| warning.code == "many-flat-rules")
        };
        engine.until("it is told what that costs", warned).await;
        engine.has("lb", vec![many(5_000, 100, Mode::Flat)]).await;
        assert_eq!(own().len(), 5_000);
    });
}

#[test]
fn a_rule_that_the_kernel_refuses_holds_nothing_else_back() {
    in_namespace(|| async {
        let host = Host::new();
        // The kernel has no table 0 of IPv6; what is refused for want of the whole family is refused in the same way.
        let refused = set(&["2001:db8::1"], 0);
        let engine = host.start();
        let both = vec![refused.clone(), set(&["10.0.0.1", "10.0.0.2"], 100)];
        let revision = engine.board.want(&"lb".into(), both);
        let reached = engine.reached(revision).await;
        let has = |reached: &fipd::rules::Reached, source: &str| {
            reached.has(source.parse().unwrap(), &"lb".into())
        };
        assert!(has(&reached, "10.0.0.1") && !has(&reached, "2001:db8::1"));
        engine
            .until("it says so", |view| {
                matches!(&view.state, EngineState::Degraded(why) if why.contains("2001:db8::1"))
            })
            .await;
        let less = vec![refused, set(&["10.0.0.2"], 100)];
        let revision = engine.board.want(&"lb".into(), less);
        let reached = engine.reached(revision).await;
        assert!(reached.is_rid_of("10.0.0.1".parse().unwrap()));
        assert!(has(&reached, "10.0.0.2"));
        assert_eq!(own(), ["10000: from 10.0.0.2 lookup 100 proto 200"]);
        engine.has("lb", Vec::new()).await;
    });
}
