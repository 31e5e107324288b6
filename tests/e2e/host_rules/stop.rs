//! Stops with `cleanup-on-stop`: nothing of fipd's stays, whatever state the engine was in.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use fipd::rules::{EngineState, View};
use fipd_core::host::Mode;

use crate::bed::{Host, SOON, become_, in_namespace, indexed, ip, many, nft, own, set, tagged};

fn degraded(view: &View) -> bool {
    matches!(view.state, EngineState::Degraded(_))
}

#[test]
fn a_stop_between_two_tries_removes_own_rules_too() {
    in_namespace(|| async {
        let first = Host::new();
        let sets = vec![set(&["10.0.0.1"], 100), many(3, 101, Mode::Indexed)];
        let running = first.with(sets).await;
        let mut second = Host::new();
        second.options.cleanup_on_stop = true;
        let waiting = second.start();
        waiting.until("it waits", degraded).await;
        // The pauses grow, so that it is between two tries when it is stopped.
        tokio::time::sleep(Duration::from_secs(2)).await;
        running.kill().await;
        assert_eq!((own().len(), indexed().len()), (2, 3));
        waiting.stop().await;
        assert!(own().is_empty(), "{:?}", own());
        assert!(!nft("list tables").unwrap().contains("fipd"));
    });
}

#[test]
fn a_stop_beside_another_engine_leaves_its_rules_alone() {
    in_namespace(|| async {
        let first = Host::new();
        let running = first.with(vec![set(&["10.0.0.1"], 100)]).await;
        let mut second = Host::new();
        second.options.cleanup_on_stop = true;
        let waiting = second.start();
        waiting.until("it waits", degraded).await;
        waiting.stop().await;
        assert_eq!(own().len(), 1, "they are the other's");
        running.stop().await;
    });
}

#[test]
fn a_table_of_the_packet_filter_goes_at_the_stop_also_after_nft_failed() {
    in_namespace(|| async {
        let mut host = Host::new();
        host.options.cleanup_on_stop = true;
        let (script, broken) = (host.folder().join("nft"), host.folder().join("broken"));
        let text = format!(
            "#!/bin/sh\n[ -e {} ] && {{ echo broken >&2; exit 1; }}\nexec /usr/sbin/nft \"$@\"\n",
            broken.display()
        );
        std::fs::write(&script, text).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&script, executable).unwrap();
        host.options.nft = Some(script);
        let engine = host.with(vec![many(3, 101, Mode::Indexed)]).await;
        assert_eq!(indexed().len(), 3);
        std::fs::write(&broken, "").unwrap();
        engine
            .board
            .want(&"lb".into(), vec![many(4, 101, Mode::Indexed)]);
        become_("they are flat", SOON, || own().len(), 4).await;
        assert_eq!(indexed().len(), 3, "the table is as it was");
        std::fs::remove_file(&broken).unwrap();
        engine.stop().await;
        assert!(own().is_empty(), "{:?}", own());
        let tables = nft("list tables").unwrap();
        assert!(!tables.contains("fipd"), "{tables}");
    });
}

#[test]
fn rules_of_an_earlier_tag_go_at_a_stop_before_the_first_look() {
    in_namespace(|| async {
        let mut host = Host::expecting(&["lb"]);
        let both = vec![set(&["10.0.0.1", "2001:db8::1"], 100)];
        host.with(both).await.stop().await;
        ip("rule add from 10.0.0.9 lookup 100 priority 10000 protocol 200");
        host.options.settings.protocol = 201;
        host.options.cleanup_on_stop = true;
        let mut other = Host::new();
        other.options.settings.protocol = 201;
        let running = other.with(vec![set(&["10.0.0.1"], 100)]).await;
        let waiting = host.start();
        waiting.until("it waits", degraded).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        running.kill().await;
        assert_eq!((own().len(), tagged(201).len()), (3, 1));
        waiting.stop().await;
        assert!(tagged(201).is_empty(), "{:?}", tagged(201));
        let foreign = ["10000: from 10.0.0.9 lookup 100 proto 200"];
        assert_eq!(own(), foreign, "only that of another is left");
    });
}

#[test]
fn a_rule_that_cannot_be_deleted_does_not_keep_the_stop_from_ending() {
    in_namespace(|| async {
        let mut host = Host::new();
        host.options.cleanup_on_stop = true;
        // Before the own one, and the kernel would take it for that.
        ip("rule add from 10.0.0.1 ipproto tcp lookup 100 priority 10000 protocol 200");
        let anothers = own();
        let engine = host.with(vec![set(&["10.0.0.1", "10.0.0.2"], 100)]).await;
        assert_eq!(own().len(), 3);
        let start = std::time::Instant::now();
        engine.stop().await;
        let took = start.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        let mut left = own();
        left.retain(|rule| !anothers.contains(rule));
        assert_eq!(left, ["10000: from 10.0.0.1 lookup 100 proto 200"]);
        assert_eq!(own().len(), 2, "that of another is there");
    });
}
