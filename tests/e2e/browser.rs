//! The web UI as people see it: the real daemon over TLS, a real browser, with and without scripts, light and dark.
//!
//! Pictures of pages with something wrong are kept in `target/screenshots`, of all pages with `FIPD_PICTURES=1`.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::time::Duration;

use fipd_tests::scenario::{Scenario, config, write_kubeconfig};
use fipd_tests::testbed::{Browser, BrowserOptions, Fipd, FipdOptions, SiteOptions, wait_until};

#[path = "../../daemon/tests/daemon/beside.rs"]
mod beside;
#[path = "browser/cluster_api.rs"]
mod cluster_api;
#[path = "browser/guests.rs"]
mod guests;
#[path = "browser/oidc.rs"]
mod oidc;
#[path = "browser/pages.rs"]
mod pages;
#[path = "browser/pod_networks.rs"]
mod pod_networks;
#[path = "../../daemon/tests/daemon/provider.rs"]
#[expect(dead_code, reason = "the daemon's tests have it do wrong")]
mod provider;
#[path = "browser/rooms.rs"]
mod rooms;
#[path = "browser/rules.rs"]
mod rules;

const NOTICE: &str = "[role=status]";
const ALERT: &str = "[role=alert]";
/// Of the form on the page of a pool.
const ALLOCATE: &str = "form.allocate button";

/// A daemon with two pools: `dmz` (IPv4) and `six` (IPv6).
async fn daemon() -> Fipd {
    let fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    let dmz = "pool create dmz --cidr 10.20.0.0/22 --exclude 10.20.0.200-10.20.0.210 --gateway 10.20.0.1 --prefix 22";
    for pool in [dmz, "pool create six --cidr 2001:db8:20::/64"] {
        fipd.cli(pool.split(' ')).await.unwrap().success().unwrap();
    }
    fipd
}

/// Name and password of the first account.
fn initial_admin(fipd: &Fipd) -> (String, String) {
    let text = std::fs::read_to_string(fipd.data_dir().join("initial-admin")).unwrap();
    let (name, password) = text.trim().split_once('\n').unwrap();
    (name.to_owned(), password.to_owned())
}

async fn sign_in(browser: &Browser, fipd: &Fipd, (name, password): &(String, String)) {
    browser.open(&format!("{}/", fipd.url())).await.unwrap();
    try_password(browser, name, password).await;
    let page = browser.text("main").await.unwrap();
    assert_eq!(
        browser.title().await.unwrap(),
        "Dashboard – fipd",
        "{page}\n{}",
        fipd.log_tail()
    );
}

async fn try_password(browser: &Browser, name: &str, password: &str) {
    browser.fill("#name", name).await.unwrap();
    browser.fill("#password", password).await.unwrap();
    browser.follow("main button").await.unwrap();
}

async fn allocate(browser: &Browser, owner: &str, address: &str) {
    browser.fill("#owner", owner).await.unwrap();
    browser.fill("#address", address).await.unwrap();
    browser.follow(ALLOCATE).await.unwrap();
}

async fn open_pool(browser: &Browser, fipd: &Fipd, name: &str) {
    browser
        .open(&format!("{}/ui/search?q={name}", fipd.url()))
        .await
        .unwrap();
    assert_eq!(
        browser.title().await.unwrap(),
        format!("Pool {name} – fipd")
    );
}

async fn no_complaints(browser: &Browser) {
    let complaints = browser.complaints().await.unwrap();
    // Chromium notes the status of pages that are errors on purpose.
    let real: Vec<_> = complaints
        .into_iter()
        .filter(|text| !text.contains("the server responded with a status of 4"))
        // Of its own pages, where it has no network.
        .filter(|text| !text.starts_with("chrome://"))
        .collect();
    assert!(real.is_empty(), "the browser complains: {real:?}");
}

#[tokio::test]
async fn signing_in_and_out() {
    let fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    let admin = initial_admin(&fipd);
    let file = fipd.data_dir().join("initial-admin");

    browser
        .open(&format!("{}/ui/audit?before=9", fipd.url()))
        .await
        .unwrap();
    assert_eq!(browser.title().await.unwrap(), "Sign in – fipd");
    let hint = browser.text("main pre").await.unwrap();
    assert_eq!(hint, format!("sudo cat {}", file.display()));

    // A wrong password and an unknown name look the same; the name is kept, the password is not.
    try_password(&browser, &admin.0, "wrong").await;
    let wrong = browser.text(ALERT).await.unwrap();
    assert_eq!(
        browser.attribute("#name", "value").await.unwrap().unwrap(),
        admin.0
    );
    assert!(!browser.source().await.unwrap().contains("value=\"wrong\""));
    try_password(&browser, "<nobody>", "wrong").await;
    assert_eq!(browser.text(ALERT).await.unwrap(), wrong);
    for _ in 0..4 {
        try_password(&browser, "<nobody>", "wrong").await;
    }
    try_password(&browser, "<nobody>", "wrong").await;
    let locked = browser.text(ALERT).await.unwrap();
    assert!(
        locked.contains("Too many failed attempts. Try again in"),
        "{locked}"
    );
    browser.screenshot("login-locked").await.unwrap();

    // The lockout is of that name only, and the way goes on to the page asked for first.
    assert!(file.exists());
    try_password(&browser, &admin.0, &admin.1).await;
    assert_eq!(browser.title().await.unwrap(), "Audit – fipd");
    assert!(browser.url().await.unwrap().ends_with("/ui/audit?before=9"));
    assert!(!file.exists(), "the first password is not left lying about");

    let cookies = browser.cookies().await.unwrap();
    let cookies = cookies.as_array().unwrap();
    assert_eq!(cookies.len(), 1, "{cookies:?}");
    let session = &cookies[0];
    assert_eq!(session["name"], "__Host-fipd");
    assert_eq!(
        (&session["httpOnly"], &session["secure"]),
        (&true.into(), &true.into())
    );
    assert_eq!(
        (&session["sameSite"], &session["path"]),
        (&"Strict".into(), &"/".into())
    );

    browser.follow("header .who button").await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "Sign in – fipd");
    assert_eq!(
        browser.count("main pre").await.unwrap(),
        0,
        "no hint at a file that is gone"
    );
    browser.open(&format!("{}/ui/", fipd.url())).await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "Sign in – fipd");
    no_complaints(&browser).await;
}

#[tokio::test]
async fn a_first_look_names_the_first_steps() {
    let fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    let browser = pages::checked_browser().await;
    let mut wrong = Vec::new();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    let text = browser.text("main").await.unwrap();
    assert!(
        text.contains("fipd pool create") && text.contains("[[cluster]]"),
        "{text}"
    );
    pages::look(&browser, "dashboard-empty", &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (path, title, status) in [
        ("ui/pools/77", "Not found – fipd", 404),
        ("ui/nowhere", "Not found – fipd", 404),
        ("ui/audit", "Audit – fipd", 200),
    ] {
        browser
            .open(&format!("{}/{path}", fipd.url()))
            .await
            .unwrap();
        assert_eq!(browser.title().await.unwrap(), title);
        let seen = browser
            .script("return fetch(location.href).then(answer => answer.status)")
            .await
            .unwrap();
        assert_eq!(seen, status);
    }
    no_complaints(&browser).await;
}

#[tokio::test]
async fn an_address_is_allocated_and_released() {
    let fipd = daemon().await;
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    open_pool(&browser, &fipd, "dmz").await;
    assert_eq!(browser.count("ol.map > li").await.unwrap(), 256);
    assert_eq!(browser.count("ol.map a.x").await.unwrap(), 11, "excluded");
    assert_eq!(
        browser.count("ol.map a.e").await.unwrap(),
        1,
        "the network's address"
    );
    assert_eq!(browser.count("ol.map a.g").await.unwrap(), 1);

    allocate(&browser, "fipd/host/lab/printer-7", "").await;
    let notice = browser.text(NOTICE).await.unwrap();
    assert!(notice.contains("10.20.0.2 was allocated"), "{notice}");
    assert_eq!(
        browser
            .attribute("ol.map a.a", "aria-label")
            .await
            .unwrap()
            .unwrap(),
        "10.20.0.2 allocated: fipd/host/lab/printer-7"
    );
    let title = browser
        .attribute("ol.map a.a", "title")
        .await
        .unwrap()
        .unwrap();
    assert!(title.contains("printer-7"), "{title}");
    // Asking again, and loading the page again, changes nothing.
    allocate(&browser, "fipd/host/lab/printer-7", "").await;
    let notice = browser.text(NOTICE).await.unwrap();
    assert!(notice.contains("holds 10.20.0.2 already"), "{notice}");
    browser.open(&browser.url().await.unwrap()).await.unwrap();
    assert_eq!(browser.count(NOTICE).await.unwrap(), 0);

    refused_input_is_kept(&browser, &fipd).await;
    release(&browser, &fipd).await;

    open_pool(&browser, &fipd, "six").await;
    assert_eq!(browser.count("ol.map").await.unwrap(), 0);
    allocate(&browser, "fipd/host/lab/six", "2001:db8:20::77").await;
    assert!(
        browser
            .text("#leases")
            .await
            .unwrap()
            .contains("2001:db8:20::77")
    );
    no_complaints(&browser).await;
}

async fn refused_input_is_kept(browser: &Browser, fipd: &Fipd) {
    for (owner, address, at, part) in [
        (
            "fipd/host/lab/other",
            "10.20.0.2",
            "#address-error",
            "is held by fipd/host/lab/printer-7",
        ),
        (
            "fipd/host/lab/other",
            "10.99.0.2",
            "#address-error",
            "not an assignable address",
        ),
        (
            "fipd/host/lab/other",
            "10.20.0.205",
            "#address-error",
            "excluded",
        ),
        (
            "fipd/host/lab/other",
            "10.20.0.256",
            "#address-error",
            "no address",
        ),
        (
            "<b>nobody</b>",
            "10.20.0.9",
            "#owner-error",
            "SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME",
        ),
    ] {
        open_pool(browser, fipd, "dmz").await;
        allocate(browser, owner, address).await;
        let error = browser.text(at).await.unwrap();
        assert!(error.contains(part), "{owner} {address}: {error}");
        assert_eq!(
            browser.attribute("#owner", "value").await.unwrap().unwrap(),
            owner
        );
        assert_eq!(
            browser
                .attribute("#address", "value")
                .await
                .unwrap()
                .unwrap(),
            address
        );
        assert_eq!(
            browser.count("main b").await.unwrap(),
            0,
            "what was typed is text, not markup"
        );
    }
    browser.screenshot("allocate-refused").await.unwrap();

    // A form whose token is not the session's changes nothing.
    open_pool(browser, fipd, "dmz").await;
    browser
        .script("document.querySelector('form.allocate [name=csrf]').value = 'stolen'")
        .await
        .unwrap();
    allocate(browser, "fipd/host/lab/evil", "10.20.0.66").await;
    assert_eq!(browser.title().await.unwrap(), "Not allowed – fipd");
    let leases = fipd
        .cli(["lease", "list", "-o", "json"])
        .await
        .unwrap()
        .success()
        .unwrap();
    assert!(!leases.contains("10.20.0.66"), "{leases}");
}

async fn release(browser: &Browser, fipd: &Fipd) {
    open_pool(browser, fipd, "dmz").await;
    browser.follow("ol.map a.a").await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "10.20.0.2 – fipd");
    assert!(
        browser.text("main").await.unwrap().contains("user:admin"),
        "the history says who did it"
    );
    browser.screenshot("lease").await.unwrap();
    browser.follow("main a.danger").await.unwrap();
    assert!(
        browser
            .text("main")
            .await
            .unwrap()
            .contains("fipd/host/lab/printer-7")
    );
    browser.screenshot("release").await.unwrap();
    browser.fill("#reason", "moved away").await.unwrap();
    browser.follow("main button.danger").await.unwrap();
    assert!(
        browser
            .text(NOTICE)
            .await
            .unwrap()
            .contains("10.20.0.2 was released and is free")
    );
    assert_eq!(browser.count("ol.map a.a").await.unwrap(), 0);
    browser
        .open(&format!("{}/ui/audit", fipd.url()))
        .await
        .unwrap();
    assert!(browser.text("main").await.unwrap().contains("moved away"));
}

#[tokio::test]
async fn everything_works_without_scripts() {
    let fipd = daemon().await;
    let options = BrowserOptions {
        javascript: false,
        ..BrowserOptions::default()
    };
    let browser = Browser::start(options).await.unwrap();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    open_pool(&browser, &fipd, "dmz").await;
    browser.fill("#at", "10.20.3.9").await.unwrap();
    browser.follow("form.filter button").await.unwrap();
    assert_eq!(
        browser.text("#map-title").await.unwrap(),
        "Addresses of 10.20.3.0/24"
    );
    allocate(&browser, "fipd/host/lab/plain", "10.20.3.9").await;
    assert!(
        browser
            .text(NOTICE)
            .await
            .unwrap()
            .contains("10.20.3.9 was allocated")
    );
    browser.follow("#leases .act a").await.unwrap();
    browser.follow("main button.danger").await.unwrap();
    assert!(
        browser
            .text(NOTICE)
            .await
            .unwrap()
            .contains("10.20.3.9 was released")
    );
    browser.follow("header .who button").await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "Sign in – fipd");
}

#[tokio::test]
async fn open_pages_follow_changes() {
    let fipd = daemon().await;
    // The file is gone after the first sign-in.
    let password = initial_admin(&fipd);
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    sign_in(&browser, &fipd, &password).await;
    open_pool(&browser, &fipd, "dmz").await;
    let allocate = async |address: &str| {
        let call = format!(
            "lease allocate --pool dmz --owner fipd/host/lab/elsewhere --address {address}"
        );
        fipd.cli(call.split(' ')).await.unwrap().success().unwrap();
    };
    allocate("10.20.0.42").await;
    shows_leases(&browser, 1).await;
    assert_eq!(
        browser
            .attribute("ol.map a.a", "aria-label")
            .await
            .unwrap()
            .unwrap(),
        "10.20.0.42 allocated: fipd/host/lab/elsewhere"
    );
    let legend = browser.text("#live-legend").await.unwrap();
    assert!(legend.contains("allocated 1"), "{legend}");
    // Unless its reader holds it, also where the reader goes on to another page and comes back.
    browser.click("#pace button").await.unwrap();
    let page = browser.url().await.unwrap();
    browser.open(&page).await.unwrap();
    let other = Browser::start(BrowserOptions::default()).await.unwrap();
    sign_in(&other, &fipd, &password).await;
    open_pool(&other, &fipd, "dmz").await;
    // Once the other page has followed twice, this one had the time to follow once.
    for (address, leases) in [("10.20.0.43", 2), ("10.20.0.44", 3)] {
        allocate(address).await;
        shows_leases(&other, leases).await;
    }
    let leases = browser.count(LEASES).await.unwrap();
    assert_eq!(leases, 1, "the page is held");
    let told = browser.text("#pace").await.unwrap();
    assert!(told.contains("may be out of date"), "{told}");
    browser.click("#pace button").await.unwrap();
    shows_leases(&browser, 3).await;
    no_complaints(&browser).await;
}

const LEASES: &str = "#live-leases tbody th a";

async fn shows_leases(browser: &Browser, wanted: usize) {
    let look = || async {
        let shown = browser.count(LEASES).await.map_err(|e| e.to_string())?;
        if shown == wanted {
            Ok(())
        } else {
            Err(format!("{shown} leases"))
        }
    };
    wait_until("the page shows the leases", Duration::from_secs(20), look)
        .await
        .unwrap();
}

/// Rows of which one is wrong.
async fn import_preview(browser: &Browser, fipd: &Fipd) {
    browser
        .open(&format!("{}/ui/import", fipd.url()))
        .await
        .unwrap();
    let owner = "fipd/host/lab/a-rather-long-name-of-a-machine";
    let rows = format!("address,owner\n10.20.0.7,{owner}\n10.20.0.2,{owner}\n10.20.0.9,");
    browser.fill("#rows", &rows).await.unwrap();
    browser.follow("main .buttons button").await.unwrap();
}

#[tokio::test]
async fn a_crowded_pool_is_shown_page_by_page() {
    let fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    let create = "pool create big --cidr 10.64.0.0/16";
    fipd.cli(create.split(' '))
        .await
        .unwrap()
        .success()
        .unwrap();
    for number in 0..30 {
        let owner = format!(
            "fipd/host/lab/{}-{number}",
            "a-name-of-a-usual-length".repeat(2)
        );
        let call = [
            "lease", "allocate", "--pool", "big", "--owner", &owner, "--count", "1000",
        ];
        fipd.cli(call).await.unwrap().success().unwrap();
    }
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    open_pool(&browser, &fipd, "big").await;
    let rows = browser.count("#leases tbody tr").await.unwrap();
    assert!((25..=100).contains(&rows), "{rows} rows");
    browser.screenshot("pool-crowded").await.unwrap();
    let fetch = "return fetch(location.href, {headers: {'X-Fipd-Live': '1'}})
            .then(answer => answer.arrayBuffer())
            .then(body => body.byteLength)";
    let size = browser.script(fetch).await.unwrap().as_u64().unwrap();
    assert!((1..=150_000).contains(&size), "{size} bytes");
    browser.follow("#leases .pager a[rel=next]").await.unwrap();
    assert!(browser.url().await.unwrap().contains("after="));
}

/// The clusters of a site, and one that nobody answers for.
#[tokio::test]
async fn clusters_are_shown_with_their_health() {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&["edge"]))
        .await
        .unwrap();
    let away = "[[cluster]]\nname = \"away\"\nkubeconfig = \"away.kubeconfig\"\nsystems = [\"rancher-fip\"]\n\
                [cluster.rancher-fip]\nrole = \"downstream\"\ncluster-id = \"c-m-away\"\nproject = \"p-away\"\n";
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: away\n\
        clusters: [{name: away, cluster: {server: 'https://127.0.0.1:1'}}]\n\
        users: [{name: away, user: {token: none}}]\n\
        contexts: [{name: away, context: {cluster: away, user: away}}]\n";
    write_kubeconfig(&scenario.fipd, "away", kubeconfig).unwrap();
    let text = config(&scenario.site, "") + away;
    scenario.fipd.write_config(&text).unwrap();
    scenario.fipd.restart().await.unwrap();
    let fipd = &scenario.fipd;
    let browser = pages::checked_browser().await;
    let mut wrong = Vec::new();
    sign_in(&browser, fipd, &initial_admin(fipd)).await;
    let page = wait_until(
        "the page shows the clusters",
        Duration::from_secs(60),
        || async {
            let open = browser.open(&format!("{}/ui/clusters", fipd.url())).await;
            open.map_err(|error| error.to_string())?;
            let page = browser
                .text("main")
                .await
                .map_err(|error| error.to_string())?;
            let shown = page.matches("ready").count() == 2 && page.contains("127.0.0.1:1");
            if shown { Ok(page) } else { Err(page) }
        },
    )
    .await
    .unwrap();
    for name in ["rancher", "edge", "away"] {
        assert!(page.contains(name), "{name} is not in {page}");
    }
    assert!(page.contains("refused"), "it does not say why: {page}");
    pages::look(&browser, "clusters-of-a-site", &mut wrong).await;
    let edge = format!("{}/ui/clusters/edge", fipd.url());
    browser.open(&edge).await.unwrap();
    pages::look(&browser, "cluster-of-a-site", &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    browser.open(&format!("{}/ui/", fipd.url())).await.unwrap();
    let dashboard = browser.text("main").await.unwrap();
    assert!(dashboard.contains("2 of 3"), "{dashboard}");
    browser.screenshot("dashboard-of-a-site").await.unwrap();
    no_complaints(&browser).await;
}
