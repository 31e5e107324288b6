//! The rules of the host, where it is told to have none.

use fipd_tests::testbed::{Browser, BrowserOptions, Fipd, FipdOptions};

use super::{fits, initial_admin, no_complaints, sign_in};

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
    fits(&script, 1280, "light").await;
    no_complaints(&script).await;
    let shown = fipd.cli(["rules", "show", "-o", "json"]).await.unwrap();
    let shown = shown.success().unwrap();
    assert!(shown.contains("\"state\": \"off\""), "{shown}");
    let flush = fipd.cli(["rules", "flush"]).await.unwrap();
    assert_eq!(flush.code, 2, "{flush:?}");
    assert_eq!(flush.stderr.lines().count(), 1, "{flush:?}");
}
