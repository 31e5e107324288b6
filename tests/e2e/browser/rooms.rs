//! The rooms of admins, and what a stranger finds without help.

use std::time::Duration;

use fipd_tests::testbed::{Browser, BrowserOptions, Fipd, FipdOptions};

use super::pages::{checked_browser, look};
use super::{ALERT, NOTICE, daemon, initial_admin, no_complaints, sign_in};

/// Follows the link of that text, as a reader does.
async fn follow_link(browser: &Browser, text: &str) {
    let mark = format!(
        "const link = [...document.querySelectorAll('a, button')].find(one => one.innerText.trim() === {text:?}); \
         if (link) link.id = 'wanted'; return !!link"
    );
    let found = browser.script(&mark).await.unwrap();
    assert_eq!(found, true, "no link says {text:?}");
    browser.follow("#wanted").await.unwrap();
}

async fn main_text(browser: &Browser) -> String {
    browser.text("main").await.unwrap()
}

/// What no keyboard of a test types in the same way everywhere: a day and a time.
async fn set_time(browser: &Browser, id: &str, time: &str) {
    let set = format!("document.getElementById({id:?}).value = {time:?}");
    browser.script(&set).await.unwrap();
}

#[tokio::test]
async fn a_stranger_finds_the_way() {
    let fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    for call in [
        "pool create offices --cidr 10.1.2.0/24",
        "pool create nearly-full --cidr 10.7.0.0/29",
        "pool create spare --cidr 10.8.0.0/24",
        "lease allocate --pool offices --owner fipd/host/lab/printer-7 --address 10.1.2.3",
    ] {
        fipd.cli(call.split(' ')).await.unwrap().success().unwrap();
    }
    for number in 1..=5 {
        let owner = format!("fipd/host/lab/m-{number}");
        let call = [
            "lease",
            "allocate",
            "--pool",
            "nearly-full",
            "--owner",
            &owner,
        ];
        fipd.cli(call).await.unwrap().success().unwrap();
    }
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    browser.screenshot("stranger-front").await.unwrap();

    // Which pool runs out next: the front page says it.
    let heading = browser.text("#pools-title").await.unwrap();
    assert_eq!(heading, "Pools, the next to run out first");
    let first = browser.text("main tbody tr th").await.unwrap();
    assert_eq!(first.trim(), "nearly-full");

    // Who has 10.1.2.3: the one box of the page.
    browser.fill("#find", "10.1.2.3").await.unwrap();
    browser.follow(".find button").await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "10.1.2.3 – fipd");
    assert!(
        main_text(&browser)
            .await
            .contains("fipd/host/lab/printer-7")
    );

    // An address for a service that comes tomorrow.
    follow_link(&browser, "Leases").await;
    follow_link(&browser, "Reserve an address").await;
    browser.screenshot("reserve").await.unwrap();
    browser.fill("#pool", "offices").await.unwrap();
    browser
        .fill("#owner", "fipd/host/lab/comes-tomorrow")
        .await
        .unwrap();
    set_time(&browser, "until", "2999-03-01T12:00").await;
    follow_link(&browser, "Reserve").await;
    let notice = browser.text(NOTICE).await.unwrap();
    assert!(notice.contains("10.1.2.1 is reserved."), "{notice}");
    let text = main_text(&browser).await;
    assert!(text.contains("2999-03-01 12:00:00 UTC"), "{text}");
    browser.screenshot("reserved").await.unwrap();

    // The other way: the page of a free address offers both.
    browser.fill("#find", "10.8.0.9").await.unwrap();
    browser.follow(".find button").await.unwrap();
    follow_link(&browser, "Reserve it for later").await;
    assert_eq!(
        browser
            .attribute("#address", "value")
            .await
            .unwrap()
            .unwrap(),
        "10.8.0.9"
    );
    no_complaints(&browser).await;
}

#[tokio::test]
async fn a_pool_is_made_changed_and_deleted() {
    let fipd = daemon().await;
    let browser = checked_browser().await;
    let mut wrong = Vec::new();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    follow_link(&browser, "Pools").await;
    follow_link(&browser, "New pool").await;
    browser.screenshot("pool-new").await.unwrap();
    browser.fill("#name", "lab").await.unwrap();
    browser.fill("#addresses", "10.20.2.0/33").await.unwrap();
    follow_link(&browser, "Preview").await;
    let error = browser.text("#addresses-error").await.unwrap();
    assert!(error.contains("10.20.2.0/33"), "{error}");
    look(&browser, "pool-new-wrong", &mut wrong).await;
    browser.fill("#addresses", "10.20.2.0/24").await.unwrap();
    follow_link(&browser, "Preview").await;
    let text = main_text(&browser).await;
    assert!(text.contains("Shares addresses with other pools"), "{text}");
    look(&browser, "pool-new-preview", &mut wrong).await;
    follow_link(&browser, "Make the pool").await;
    assert!(
        browser
            .text(NOTICE)
            .await
            .unwrap()
            .contains("Pool lab was made.")
    );

    let give = "lease allocate --pool lab --owner fipd/host/lab/a --address 10.20.2.9";
    fipd.cli(give.split(' ')).await.unwrap().success().unwrap();
    follow_link(&browser, "Change the pool").await;
    browser.fill("#addresses", "10.20.2.128/25").await.unwrap();
    follow_link(&browser, "Preview").await;
    let text = main_text(&browser).await;
    assert!(text.contains("1 lease would be out of range"), "{text}");
    look(&browser, "pool-preview", &mut wrong).await;
    follow_link(&browser, "Change something").await;
    assert_eq!(
        browser.attribute("#name", "value").await.unwrap().unwrap(),
        "lab"
    );
    follow_link(&browser, "Preview").await;
    browser
        .fill("#reason", "moved to the upper half")
        .await
        .unwrap();
    follow_link(&browser, "Change it and leave them out of range").await;
    assert!(main_text(&browser).await.contains("out of range"));

    // Somebody else is faster.
    follow_link(&browser, "Change the pool").await;
    let edit = "pool update lab --gateway 10.20.2.254";
    fipd.cli(edit.split(' ')).await.unwrap().success().unwrap();
    browser.fill("#quarantine", "2h").await.unwrap();
    follow_link(&browser, "Preview").await;
    let alert = browser.text(ALERT).await.unwrap();
    assert!(alert.contains("Somebody else changed the pool"), "{alert}");
    look(&browser, "pool-stale", &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    follow_link(&browser, "Cancel").await;
    follow_link(&browser, "Delete it").await;
    assert!(
        browser
            .text(ALERT)
            .await
            .unwrap()
            .contains("still has a lease")
    );
    let free = "lease release 10.20.2.9";
    fipd.cli(free.split(' ')).await.unwrap().success().unwrap();
    browser.open(&browser.url().await.unwrap()).await.unwrap();
    follow_link(&browser, "Delete the pool").await;
    assert!(
        browser
            .text(NOTICE)
            .await
            .unwrap()
            .contains("Pool lab was deleted.")
    );
    no_complaints(&browser).await;
}

#[tokio::test]
async fn users_tokens_and_passwords_have_their_rooms() {
    let fipd = daemon().await;
    let browser = checked_browser().await;
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    follow_link(&browser, "Users").await;
    follow_link(&browser, "New user").await;
    browser.fill("#name", "ann").await.unwrap();
    for field in ["#password", "#again"] {
        browser.fill(field, "a long password").await.unwrap();
    }
    follow_link(&browser, "Make the user").await;
    assert!(main_text(&browser).await.contains("ann"));
    browser.screenshot("users-list").await.unwrap();
    follow_link(&browser, "tokens").await;
    follow_link(&browser, "New token").await;
    browser.fill("#name", "ci").await.unwrap();
    follow_link(&browser, "Make the token").await;
    let token = browser.text("#token").await.unwrap();
    assert!(token.starts_with("fipd_"), "{token}");
    let mut wrong = Vec::new();
    look(&browser, "token-made", &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    follow_link(&browser, "I have it").await;
    assert!(!browser.source().await.unwrap().contains(&token));
    no_complaints(&browser).await;

    browser.follow("header .who button").await.unwrap();
    let ann = ("ann".to_owned(), "a long password".to_owned());
    sign_in(&browser, &fipd, &ann).await;
    let text = browser.text("header").await.unwrap();
    assert!(
        !text.contains("Users") && !text.contains("Backup"),
        "{text}"
    );
    browser.follow("header .who a").await.unwrap();
    browser.fill("#present", "a long password").await.unwrap();
    for field in ["#password", "#again"] {
        browser.fill(field, "an even longer one").await.unwrap();
    }
    follow_link(&browser, "Change the password").await;
    assert_eq!(browser.title().await.unwrap(), "Sign in – fipd");
    sign_in(&browser, &fipd, &(ann.0, "an even longer one".to_owned())).await;
}

#[tokio::test]
async fn copies_are_made_offered_and_brought_back() {
    let mut fipd = daemon().await;
    let browser = checked_browser().await;
    let admin = initial_admin(&fipd);
    sign_in(&browser, &fipd, &admin).await;
    follow_link(&browser, "Backup").await;
    follow_link(&browser, "Make a copy now").await;
    let notice = browser.text(NOTICE).await.unwrap();
    assert!(notice.contains("was made and checked."), "{notice}");
    let fetch = "return fetch(document.querySelector('main tbody a').href)
        .then(answer => answer.arrayBuffer())
        .then(body => body.byteLength)";
    let size = browser.script(fetch).await.unwrap().as_u64().unwrap();
    assert!(size > 10_000, "{size} bytes");
    let text = main_text(&browser).await;
    assert!(text.contains("sudo fipd restore"), "{text}");
    browser.screenshot("backup-made").await.unwrap();
    browser
        .follow("main form[action='/ui/backup/drill'] button")
        .await
        .unwrap();
    let notice = browser.text(NOTICE).await.unwrap();
    assert!(notice.contains("restored on trial"), "{notice}");
    let row = browser.text("main tbody tr").await.unwrap();
    assert!(!row.contains("never"), "{row}");
    browser.screenshot("backup-drilled").await.unwrap();
    no_complaints(&browser).await;

    // Once one was brought back, free addresses are held.
    let copy = fipd.data_dir().join("copy");
    let copy = copy.to_str().unwrap();
    let taken = fipd.cli(["backup", copy]).await.unwrap();
    taken.success().unwrap();
    fipd.terminate(Duration::from_secs(10)).await.unwrap();
    let data_dir = fipd.data_dir();
    let restore = ["restore", copy, "--data-dir", data_dir.to_str().unwrap()];
    fipd.cli(restore).await.unwrap().success().unwrap();
    fipd.restart().await.unwrap();
    sign_in(&browser, &fipd, &admin).await;
    let place = format!("{}/ui/backup", fipd.url());
    browser.open(&place).await.unwrap();
    let held = browser.text("#hold-title").await.unwrap();
    assert_eq!(held, "Free addresses are held");
    let mut wrong = Vec::new();
    look(&browser, "backup-held", &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn lists_sort_and_filter_and_the_audit_log_is_downloaded() {
    let fipd = daemon().await;
    for number in [9, 17, 30] {
        let owner = format!("fipd/host/lab/m-{number}");
        let address = format!("10.20.0.{number}");
        let call = [
            "lease",
            "allocate",
            "--pool",
            "dmz",
            "--owner",
            &owner,
            "--address",
            &address,
        ];
        fipd.cli(call).await.unwrap().success().unwrap();
    }
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    follow_link(&browser, "Leases").await;
    follow_link(&browser, "Since").await;
    assert_eq!(browser.text("main tbody th").await.unwrap(), "10.20.0.30");
    browser.fill("#q", "m-17").await.unwrap();
    follow_link(&browser, "Apply").await;
    assert_eq!(browser.count("main tbody tr").await.unwrap(), 1);
    assert!(browser.url().await.unwrap().contains("q=m-17"));
    follow_link(&browser, "Audit").await;
    browser.fill("#address", "10.20.0.9").await.unwrap();
    follow_link(&browser, "Apply").await;
    assert_eq!(browser.count("main tbody tr").await.unwrap(), 1);
    let csv =
        "return fetch(document.querySelector('a[download]').href).then(answer => answer.text())";
    let csv = browser.script(csv).await.unwrap();
    let csv = csv.as_str().unwrap();
    assert_eq!(csv.lines().count(), 2, "{csv}");
    assert!(csv.contains("fipd/host/lab/m-9"), "{csv}");
    no_complaints(&browser).await;
}

#[tokio::test]
async fn rows_are_imported_after_a_look_at_each() {
    let fipd = daemon().await;
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    follow_link(&browser, "Leases").await;
    follow_link(&browser, "Import rows").await;
    browser.screenshot("import").await.unwrap();
    let text =
        "address,owner,pool\n10.20.0.20,fipd/host/lab/a,dmz\n10.20.0.300,fipd/host/lab/b,dmz";
    browser.fill("#rows", text).await.unwrap();
    follow_link(&browser, "Preview").await;
    let alert = browser.text(ALERT).await.unwrap();
    assert!(alert.contains("Nothing is written while"), "{alert}");
    let first = browser.text("main tbody tr").await.unwrap();
    assert!(first.contains("lease 10.20.0.300"), "{first}");
    browser.screenshot("import-wrong").await.unwrap();
    let kept = browser.script("return document.getElementById('rows').value");
    assert_eq!(kept.await.unwrap(), text, "what was typed stays");

    let right = text.replace("300", "30");
    browser.fill("#rows", &right).await.unwrap();
    follow_link(&browser, "Preview").await;
    assert_eq!(
        browser.title().await.unwrap(),
        "Import 2 rows? – fipd",
        "{}",
        main_text(&browser).await
    );
    browser.screenshot("import-preview").await.unwrap();
    follow_link(&browser, "Change something").await;
    follow_link(&browser, "Preview").await;
    follow_link(&browser, "Import 2 rows").await;
    let notice = browser.text(NOTICE).await.unwrap();
    assert!(notice.contains("2 made, 0 changed"), "{notice}");
    assert!(main_text(&browser).await.contains("10.20.0.30"));
    no_complaints(&browser).await;
}
