//! Signing in by a provider, in a browser: cookies and the way back across two sites are its matter, too.

use fipd_tests::testbed::{Browser, BrowserOptions, Fipd, FipdOptions};
use serde_json::json;

use super::pages::{checked_browser, look};
use super::{initial_admin, no_complaints, sign_in};
use crate::provider::{CLIENT, Flaw, Provider, SECRET};

async fn daemon(provider: &Provider) -> Fipd {
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    let (url, issuer) = (fipd.url(), &provider.url);
    fipd.write_file("secret", SECRET).unwrap();
    fipd.write_config(&format!(
        "[api]\nadvertise = \"{url}\"\n\n[oidc]\nissuer = \"{issuer}\"\nclient-id = \"{CLIENT}\"\n\
         client-secret-file = \"secret\"\nlabel = \"Example ID\"\n\n\
         [oidc.roles]\nviewer = [\"lookers\"]\noperator = [\"ops\"]\nadmin = [\"root\"]\n"
    ))
    .unwrap();
    fipd.restart().await.unwrap();
    fipd
}

const BY_PROVIDER: &str = "a[href^='/ui/login/oidc']";

async fn ask(browser: &Browser, fipd: &Fipd, path: &str) {
    browser
        .open(&format!("{}{path}", fipd.url()))
        .await
        .unwrap();
    assert_eq!(browser.title().await.unwrap(), "Sign in – fipd");
    browser.follow(BY_PROVIDER).await.unwrap();
}

#[tokio::test]
async fn people_of_the_provider_come_back_signed_in_to_the_page_that_they_wanted() {
    let provider = Provider::start();
    let fipd = daemon(&provider).await;
    provider.does(|script| script.claims["groups"] = json!(["root"]));
    let browser = checked_browser().await;
    let mut wrong = Vec::new();
    ask(&browser, &fipd, "/ui/leases?state=reserved").await;
    wait_for(&browser, "Leases – fipd").await;
    let url = browser.url().await.unwrap();
    assert!(url.ends_with("/ui/leases?state=reserved"), "{url}");
    let page = browser.source().await.unwrap();
    let name = format!("ann@{}", provider.url);
    assert!(page.contains(&name), "{page}");
    let cookies = browser.cookies().await.unwrap();
    let names: Vec<_> = cookies.as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 1, "what it took on its way is gone: {names:?}");
    assert_eq!(names[0]["name"], "__Host-fipd");
    no_complaints(&browser).await;
    let place = format!("{}/ui/users?by=provider", fipd.url());
    browser.open(&place).await.unwrap();
    let table = browser.text("main table").await.unwrap();
    assert!(table.contains(&name), "{table}");
    look(&browser, "users-by-provider", &mut wrong).await;
    // The session ends here, and there is a way to end it there.
    browser
        .follow("form[action='/ui/logout'] button")
        .await
        .unwrap();
    let out = browser.source().await.unwrap();
    assert!(out.contains(&format!("{}/bye", provider.url)), "{out}");
    look(&browser, "signed-out", &mut wrong).await;
    let home = format!("{}/ui/", fipd.url());
    browser.open(&home).await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "Sign in – fipd");
    look(&browser, "login-with-provider", &mut wrong).await;
    // Who wanted a file gets it, and the page that leads on to it stays. The name is as long as one may be.
    provider.does(|script| script.claims["preferred_username"] = json!("n".repeat(64)));
    ask(&browser, &fipd, "/ui/audit.csv").await;
    wait_for(&browser, "Signed in – fipd").await;
    look(&browser, "signed-in", &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn who_may_not_and_a_provider_that_fails_are_told_and_the_password_goes_on_working() {
    let provider = Provider::start();
    let fipd = daemon(&provider).await;
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    provider.does(|script| script.claims["groups"] = json!(["strangers"]));
    ask(&browser, &fipd, "/ui/").await;
    let told = browser.text("main").await.unwrap();
    assert!(told.contains("[oidc.roles]"), "{told}");
    browser.screenshot("oidc-no-group").await.unwrap();
    provider.does(|script| script.flaw = Flaw::Signature);
    ask(&browser, &fipd, "/ui/").await;
    let told = browser.text("main").await.unwrap();
    assert!(told.contains("Nobody is signed in"), "{told}");
    let cookies = browser.cookies().await.unwrap();
    let session = |one: &serde_json::Value| one["name"] == "__Host-fipd";
    assert!(!cookies.as_array().unwrap().iter().any(session));
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
}

/// The answer to who comes back leads on by itself.
async fn wait_for(browser: &Browser, title: &str) {
    let within = std::time::Duration::from_secs(10);
    fipd_tests::testbed::wait_until(title, within, || async {
        match browser.title().await {
            Ok(seen) if seen == title => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await
    .unwrap();
}
