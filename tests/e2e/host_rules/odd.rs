//! What is in the kernel and is not understood, and disks that fail.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::time::Duration;

use fipd::rules::View;
use fipd_core::host::Mode;

use crate::bed::{Host, SOON, become_, in_namespace, ip, many, own, rules, set, tagged};
use crate::kernel::Monitor;

/// `ip` with arguments that need not be text.
fn odd_ip(arguments: &[&[u8]]) {
    let arguments = arguments.iter().map(|argument| OsStr::from_bytes(argument));
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn names_that_are_no_text_stop_nothing_and_a_rule_with_one_is_anothers() {
    in_namespace(|| async {
        odd_ip(&[
            b"link", b"add", b"\xfe0", b"type", b"veth", b"peer", b"name", b"up1",
        ]);
        ip("link add up2 type veth peer name up3");
        odd_ip(&[b"link", b"set", b"up2", b"alias", b"\xff\xfe"]);
        let odd: &[&[u8]] = &[
            b"rule",
            b"add",
            b"from",
            b"10.0.0.9",
            b"iif",
            b"\xfe0",
            b"lookup",
            b"100",
            b"priority",
            b"500",
            b"protocol",
            b"200",
        ];
        odd_ip(odd);
        let mut host = Host::new();
        host.options.cleanup_on_stop = true;
        let engine = host.with(vec![set(&["10.0.0.1"], 100)]).await;
        let told = |view: &View| {
            let mut all = view.kernel.iter();
            all.any(|one| one.more.as_deref() == Some("iif \\xfe0") && one.rule.priority == 500)
        };
        engine.until("it is told as it is", told).await;
        engine.is_active().await;
        let count = rules().len();
        engine.has("lb", vec![set(&["10.0.0.2"], 100)]).await;
        assert_eq!(rules().len(), count);
        // News of such is read, too.
        odd_ip(&[
            b"link", b"add", b"\xfe2", b"type", b"veth", b"peer", b"name", b"up5",
        ]);
        odd_ip(&[
            b"rule",
            b"add",
            b"oif",
            b"\xfe2",
            b"lookup",
            b"7",
            b"priority",
            b"600",
        ]);
        let told = |view: &View| view.kernel.iter().any(|one| one.rule.priority == 600);
        engine.until("the new one is told", told).await;
        let before = tagged(200);
        ip("rule del from 10.0.0.2 protocol 200");
        become_("the own rule is mended", SOON, || tagged(200), before).await;
        engine.stop().await;
        let left: Vec<String> = rules()
            .into_iter()
            .filter(|rule| rule.starts_with("500:") || rule.starts_with("600:"))
            .collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert_eq!(own().len(), 1, "that of another");
    });
}

fn warns(view: &View, code: &str) -> bool {
    view.warnings.iter().any(|warning| warning.code == code)
}

#[test]
fn a_journal_that_cannot_be_read_stops_no_healing_and_keeps_leftovers_until_it_can() {
    in_namespace(|| async {
        ip("rule add from 10.0.0.9 lookup 100 priority 10000 protocol 200");
        let host = Host::new();
        std::fs::write(&host.options.journal, [7; 5000]).unwrap();
        let engine = host.start();
        let wants = |sources: &[&str]| engine.board.want(&"lb".into(), vec![set(sources, 100)]);
        wants(&["10.0.0.1", "10.0.0.2"]);
        let line = |last: u8| format!("10000: from 10.0.0.{last} lookup 100 proto 200");
        let sorted = || {
            let mut own = own();
            own.sort();
            own
        };
        become_(
            "they are added",
            SOON,
            sorted,
            vec![line(1), line(2), line(9)],
        )
        .await;
        let told = |view: &View| {
            let all = view.warnings.iter();
            all.filter(|one| one.code == "journal")
                .any(|one| one.text.contains("host.redb") && one.text.contains("tried again"))
        };
        engine.until("it is told", told).await;
        ip("rule del from 10.0.0.1");
        become_("and mended", SOON, sorted, vec![line(1), line(2), line(9)]).await;
        wants(&["10.0.0.2"]);
        become_(
            "what was added in this life goes",
            SOON,
            sorted,
            vec![line(2), line(9)],
        )
        .await;
        let mut views = engine.board.views();
        views.borrow_and_update();
        let mut passes = 0;
        let quiet = async {
            while views.changed().await.is_ok() {
                passes += 1;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), quiet).await;
        assert!(passes < 10, "{passes} passes in 2 s while nothing happens");
        let flush = fipd::rules::Command::Flush { dry_run: false };
        let refused = engine.board.order(flush).await.unwrap_err();
        assert!(refused.to_string().contains("host.redb"), "{refused}");
        std::fs::remove_file(&host.options.journal).unwrap();
        become_("it recovers", SOON, sorted, vec![line(2)]).await;
        engine
            .until("the warning ends", |view| !warns(view, "journal"))
            .await;
        engine.stop().await;
    });
}

#[test]
fn a_disk_that_fills_up_stops_no_healing_and_what_was_added_meanwhile_is_journaled_later() {
    in_namespace(|| async {
        // SAFETY: gives this thread, and those it starts, mounts of its own; no memory is touched.
        let done = unsafe { libc::unshare(libc::CLONE_NEWNS) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        let mut host = Host::expecting(&["lb"]);
        let folder = host.folder();
        let mount = |arguments: &[&str]| {
            let done = Command::new("mount").args(arguments).arg(&folder).status();
            assert!(done.unwrap().success());
        };
        let private = Command::new("mount")
            .args(["--make-rprivate", "/"])
            .status();
        assert!(private.unwrap().success());
        mount(&["-t", "tmpfs", "-o", "size=16m", "none"]);
        let engine = host.with(vec![set(&["10.0.0.1"], 100)]).await;
        let full = folder.join("full");
        let filled = std::fs::write(&full, vec![1; 16 << 20]);
        assert!(filled.is_err(), "the disk is full");
        engine
            .board
            .want(&"lb".into(), vec![many(3000, 101, Mode::Flat)]);
        become_("they are added", SOON, || own().len(), 3000).await;
        engine
            .until("it is told", |view| warns(view, "journal"))
            .await;
        std::fs::remove_file(&full).unwrap();
        engine
            .until("it recovers", |view| !warns(view, "journal"))
            .await;
        engine.kill().await;
        // What was added meanwhile is known by the journal alone once the tag is another.
        host.options.settings.protocol = 201;
        let engine = host.start();
        engine.is_active().await;
        become_(
            "none is left",
            SOON,
            || (own().len(), tagged(201).len()),
            (0, 3000),
        )
        .await;
        engine.stop().await;
    });
}

#[test]
fn a_rule_that_the_kernel_takes_and_changes_is_given_up_and_told_and_tried_again_later() {
    in_namespace(|| async {
        let mut host = Host::new();
        host.options.resync = Duration::from_secs(3);
        let monitor = Monitor::start().await;
        let engine = host.start();
        // The kernel takes table 0 for one of its own choice.
        let odd = set(&["10.0.0.1"], 0);
        engine
            .board
            .want(&"lb".into(), vec![odd, set(&["10.0.0.2"], 100)]);
        let named = |view: &View| {
            let all = view.warnings.iter().filter(|one| one.code == "not-kept");
            all.into_iter()
                .any(|one| one.text.contains("from 10.0.0.1 lookup 0"))
        };
        engine.until("it is told", named).await;
        become_(
            "the other is there",
            SOON,
            own,
            vec!["10000: from 10.0.0.2 lookup 100 proto 200".to_owned()],
        )
        .await;
        tokio::time::sleep(Duration::from_secs(8)).await;
        let heard = monitor.end().await;
        let added = heard
            .iter()
            .filter(|line| line.starts_with("10000: from 10.0.0.1 "));
        let added = added.count();
        assert!((4..=6).contains(&added), "{added} times: {heard:?}");
        engine.has("lb", vec![set(&["10.0.0.2"], 100)]).await;
        assert!(!named(&engine.board.view()));
    });
}
