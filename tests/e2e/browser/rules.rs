//! The rules of the host: where it is told to have none, and where it has some.

use std::time::Duration;

use fipd_tests::namespace::in_namespace;
use fipd_tests::netlink::{Netlink, RawRule};
use fipd_tests::testbed::{Browser, BrowserOptions, Fipd, FipdOptions, wait_until};
use fipd_tests::toolchain::{debian, npm};

use super::pages::{checked_browser, look};
use super::{initial_admin, no_complaints, sign_in};

const RULES: &str =
    "[host]\n[[host.rules]]\nname = \"uplink\"\npool = \"vips\"\ntable = 100\nfail-closed = true\n";
const TAG: u8 = 200;

#[tokio::test]
async fn a_host_without_rules_says_how_to_have_them() {
    let fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    let script = Browser::start(BrowserOptions::default()).await.unwrap();
    sign_in(&script, &fipd, &initial_admin(&fipd)).await;
    script.follow("nav a[href='/ui/rules']").await.unwrap();
    assert_eq!(script.title().await.unwrap(), "Rules – fipd");
    let text = script.text("main").await.unwrap();
    assert!(text.contains("[[host.rules]]"), "{text}");
    let current = script.text("nav [aria-current=page]").await.unwrap();
    assert_eq!(current, "Rules");
    no_complaints(&script).await;
    let shown = fipd.cli(["rules", "show", "-o", "json"]).await.unwrap();
    let shown = shown.success().unwrap();
    assert!(shown.contains("\"state\": \"off\""), "{shown}");
    let flush = fipd.cli(["rules", "flush"]).await.unwrap();
    assert_eq!(flush.code, 2, "{flush:?}");
    assert_eq!(flush.stderr.lines().count(), 1, "{flush:?}");
}

/// With a pool, and rules for three addresses of it in the kernel.
async fn with_rules() -> Fipd {
    let options = FipdOptions {
        config: Some(RULES.to_owned()),
        ..FipdOptions::default()
    };
    let fipd = Fipd::start(options).await.unwrap();
    let pool = "pool create vips --cidr 203.0.113.0/24";
    let lease = "lease allocate --pool vips --count 3 --owner fipd/Host/lab/a-rather-long-name-of-a-machine";
    for call in [pool, lease] {
        let done = fipd.cli(call.split(' ')).await.unwrap();
        done.success().unwrap();
    }
    fipd
}

async fn shows(browser: &Browser, what: &str, css: &str, words: &[&str]) {
    wait_until(what, Duration::from_secs(20), || async {
        let text = browser.text(css).await.map_err(|error| error.to_string())?;
        match words.iter().all(|word| text.contains(word)) {
            true => Ok(()),
            false => Err(text),
        }
    })
    .await
    .unwrap();
}

/// In a namespace of their own: the daemon, the browser, and another that has rules there.
#[test]
fn conformance_21_rules_of_fipd_and_of_others_are_shown_apart_with_what_was_mended() {
    debian::ensure(&["iproute2", "nftables"]).unwrap();
    // Fetched while there is a network.
    npm::axe_core().unwrap();
    let run = async || {
        let fipd = with_rules().await;
        let admin = initial_admin(&fipd);
        let mut kernel = Netlink::open()?;
        let theirs = RawRule {
            mark: Some(0x20),
            ..RawRule::new("10.0.0.9".parse()?, 254, 150, 4)
        };
        kernel.add(&[theirs])?;
        let script = checked_browser().await;
        sign_in(&script, &fipd, &admin).await;
        script.follow("nav a[href='/ui/rules']").await?;
        let own = "#live-rules";
        let rule = "from 203.0.113.1 lookup 100";
        shows(&script, "its rules", own, &[rule, "uplink", "unreachable"]).await;
        let others = "#live-rules-foreign";
        shows(&script, "those of others", others, &["from 10.0.0.9"]).await;
        assert!(!script.text(own).await?.contains("10.0.0.9"));
        assert!(!script.text(others).await?.contains("203.0.113"));

        // Without a reload: it is mended, and counted.
        let mine = RawRule::new("203.0.113.1".parse()?, 100, 10_000, TAG);
        kernel.delete(&[mine])?;
        let state = "#live-rules-state";
        shows(&script, "what was mended", state, &["Removed by others\n1"]).await;
        shows(&script, "its rules again", own, &[rule]).await;
        let shown = fipd.cli(["audit", "-o", "json"]).await?.success()?;
        assert!(shown.contains("rules-changed"), "{shown}");

        // Nothing on it changes anything, whoever looks.
        assert_eq!(script.count("main form[method=post]").await?, 0);
        let mut wrong = Vec::new();
        for (place, name) in [
            ("rules", "rules-some"),
            ("", "dashboard-with-rules"),
            ("hosts", "hosts-with-rules"),
        ] {
            script.open(&format!("{}/ui/{place}", fipd.url())).await?;
            look(&script, name, &mut wrong).await;
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        no_complaints(&script).await;
        Ok(())
    };
    in_namespace(2, run).unwrap();
}
