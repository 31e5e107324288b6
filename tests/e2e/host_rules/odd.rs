//! What is in the kernel and is not understood, and disks that fail.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use fipd::rules::View;

use crate::bed::{Host, SOON, become_, in_namespace, ip, own, rules, set, tagged};

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
