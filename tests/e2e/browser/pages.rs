//! Every page of the router, looked at by axe: at two widths, light and dark, by those who may see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fipd::api::access::Access;
use fipd::ipam::Ipam;
use fipd_core::{
    Allocate, Ends, Family, Holder, Hour, PoolId, PoolSpec, Request, Role, Sticky, Timestamp, Want,
};
use fipd_tests::testbed::{Browser, BrowserOptions, Fipd, FipdOptions, wait_until};
use fipd_tests::toolchain::npm;
use serde_json::Value;

use super::{ALLOCATE, daemon, initial_admin, no_complaints, sign_in, try_password};

/// What follows a look has a wide window.
const WIDTHS: [u32; 2] = [360, 1440];
/// Colours, and the rules for a page in them: WCAG 2.2 AA and what it is built on, then what of these is about colours.
const COLOURS: [(&str, &str); 2] = [
    (
        "light",
        "{ type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22a', 'wcag22aa'] }",
    ),
    (
        "dark",
        "{ type: 'rule', values: ['color-contrast', 'link-in-text-block'] }",
    ),
];
/// The answer is what is wrong, one line each.
const CHECK: &str = "
    return axe.run(document, { runOnly: rules, resultTypes: ['violations'] })
        .then(found => found.violations.flatMap(rule => rule.nodes.map(
            node => rule.id + ': ' + node.target.join(' ') + ': ' + node.failureSummary)))";

/// Where a pattern of the router is looked at: places of the site below.
fn places(pattern: &str) -> Vec<String> {
    let contended = "/ui/networks/0/addresses/10.20.0.30";
    let all = match pattern {
        // These send on to another page, or away.
        "/ui" | "/ui/backup/hold" | "/ui/leases/{network}/{address}" => vec![],
        "/ui/" => vec!["/ui/", "/ui/?sort=name"],
        "/ui/pools/{id}" => vec![
            "/ui/pools/1",
            "/ui/pools/2",
            "/ui/pools/3?at=10.200.7.9",
            "/ui/pools/1?at=x",
            "/ui/pools/5",
            "/ui/pools/7",
        ],
        "/ui/networks/{network}/addresses/{address}" => vec![
            "/ui/networks/0/addresses/10.20.0.2",
            contended,
            "/ui/networks/0/addresses/10.20.0.77",
            "/ui/networks/0/addresses/10.20.0.120",
            "/ui/networks/0/addresses/10.20.0.250",
            "/ui/networks/0/addresses/2001:db8:21::7",
        ],
        "/ui/search" => vec![
            "/ui/search?q=s",
            "/ui/search?q=10.20.0.250",
            "/ui/search?q=nothing-like-it",
        ],
        "/ui/audit" => vec!["/ui/audit", "/ui/audit?address=soon"],
        "/ui/leases" => vec![
            "/ui/leases?sort=-since",
            "/ui/leases?state=probing",
            "/ui/leases?pool=none",
        ],
        "/ui/clusters/{name}" => vec!["/ui/clusters/east", "/ui/clusters/none"],
        "/ui/{*rest}" => vec!["/ui/nowhere"],
        _ => {
            let place = [
                ("/ui/networks/{network}/addresses/{address}", contended),
                ("/ui/pools/{id}", "/ui/pools/1"),
                ("/ui/users/{name}", "/ui/users/ann"),
                ("/ui/clusters/{name}", "/ui/clusters/east"),
                ("/ui/tokens/{id}", "/ui/tokens/1"),
            ];
            let fill = |path: String, (from, to): &(&str, &str)| path.replace(from, to);
            let path = place.iter().fold(pattern.to_owned(), fill);
            assert!(!path.contains('{'), "say here where {pattern} is looked at");
            return vec![path];
        }
    };
    all.into_iter().map(str::to_owned).collect()
}

/// Places that there are not in that site.
const NOWHERE: [&str; 4] = [
    "/ui/clusters/none",
    "/ui/login/oidc",
    "/ui/login/oidc/callback",
    "/ui/nowhere",
];

/// What is to be seen at some places, for it is there only where the site has come about as it is to be.
const SEEN: [(&str, &str); 16] = [
    ("/ui/", "#live-flow tbody tr"),
    ("/ui/pools/1", "#live-chart .chart"),
    ("/ui/pools/1", "#doubts form"),
    ("/ui/pools/1", "main > .notice a[href='/ui/clusters']"),
    ("/ui/pools/1", "#live-map .w"),
    ("/ui/pools/5", "main > .head .tag + .tag"),
    ("/ui/pools/7", "#live-map tbody a"),
    ("/ui/networks/0/addresses/10.20.0.30", "#contenders-title"),
    (
        "/ui/networks/0/addresses/10.20.0.30/release",
        "section .notice",
    ),
    (
        "/ui/networks/0/addresses/10.20.0.30/transfer",
        "section .notice",
    ),
    (
        "/ui/networks/0/addresses/10.20.0.250",
        "main a[href$='#doubts']",
    ),
    ("/ui/search?q=10.20.0.250", "#networks-title"),
    ("/ui/search?q=s", "#pools-title"),
    ("/ui/search?q=s", "#tenants-title"),
    ("/ui/search?q=s", "#clusters-title"),
    ("/ui/tenants", "tbody .tag.bad"),
];

/// A pool in another network that may mean addresses of `dmz`, and an address that two have.
const ROWS: &str = r#"{"name":"twin","network":"lab","network_by_default":true,"addresses":["10.20.0.240/28"]}
{"address":"10.20.0.30","pool":"dmz","owner":"rancher-fip/west/Service/shop/web","labels":{"team":"shop"},"contenders":[{"owner":"rancher-fip/west/Service/shop/other","since":"2026-01-01T00:00:00Z"}]}
"#;

/// Of a cluster that is never reached.
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{ name: a, cluster: { server: \"https://127.0.0.1:1\" } }]\nusers: [{ name: a, user: { token: t } }]\ncontexts: [{ name: a, context: { cluster: a, user: a } }]\n";

/// As [`daemon`] has it, with a past of four days: ten addresses of `dmz` were given every four hours, and each of these
/// hours was noted.
async fn with_past() -> Fipd {
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    let time = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&time);
    let clock = Arc::new(move || Timestamp(told.load(Ordering::Relaxed)));
    let set = |now: Timestamp| time.store(now.0, Ordering::Relaxed);
    let (ipam, writer) = Ipam::start(&fipd.data_dir(), clock).unwrap();
    let now = Hour::of(fipd::clock::now());
    set(now.before(96).begin());
    let spec = PoolSpec {
        network_by_default: true,
        exclusions: vec!["10.20.0.200-10.20.0.210".parse().unwrap()],
        gateway: Some([10, 20, 0, 1].into()),
        prefix_len: Some(22),
        ends: Ends::own_default(Family::V4),
        sticky: Sticky::OWN_DEFAULT,
        ..PoolSpec::own("dmz", vec!["10.20.0.0/22".parse().unwrap()])
    };
    let actor = "test".into();
    let create = Request::CreatePool { spec, actor };
    ipam.submit(create).await.unwrap();
    let hosts: Vec<u8> = (1..=240).collect();
    for (some, back) in hosts.chunks(10).zip((4..=96).rev().step_by(4)) {
        let hour = now.before(back);
        set(hour.begin());
        let given = some.iter().map(|host| ipam.submit(give(*host)));
        futures::future::try_join_all(given).await.unwrap();
        set(hour.end());
        assert_eq!(fipd::rollup::roll_up(&ipam).await, Ok(1));
    }
    ipam.shutdown().await;
    writer.join();
    fipd.restart().await.unwrap();
    fipd
}

/// An address of `dmz` for a host.
fn give(host: u8) -> Request {
    let identity = format!("fipd/host/lab/old-{host}").parse().unwrap();
    Request::Allocate(Allocate {
        holder: Holder {
            identity,
            instance: "".into(),
        },
        tenant: None,
        wants: vec![Want {
            pool: PoolId(1).into(),
            address: Some([10, 20, 2, host].into()),
            count: 1,
        }],
        waiting_since: None,
        by_admin: false,
        share: None,
        probe: false,
        actor: "test".into(),
    })
}

/// A history, leases in all states, doubts, users, tokens, limits, copies and a cluster for which the network waits.
async fn site() -> Fipd {
    let fipd = with_past().await;
    let kubeconfig = fipd.data_dir().join("east.kubeconfig");
    std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let rows = fipd.data_dir().join("rows.jsonl");
    std::fs::write(&rows, ROWS).unwrap();
    let run = async |call: &str| {
        fipd.cli(call.split(' ')).await.unwrap().success().unwrap();
    };
    run("pool create six --cidr 2001:db8:20::/64").await;
    run("network create lab").await;
    run("pool create vast --cidr 10.128.0.0/9 --network lab").await;
    run("pool create nearly --cidr 10.30.0.0/29 --quarantine 1h").await;
    for number in [2_u8, 3, 9, 17, 64, 65, 66] {
        let owner = format!("fipd/host/lab/a-rather-long-name-of-a-machine-{number}");
        run(&format!(
            "lease allocate --pool dmz --tenant shop --owner {owner} --address 10.20.0.{number}"
        ))
        .await;
    }
    for number in 1..=5 {
        run(&format!(
            "lease allocate --pool nearly --owner fipd/host/lab/n-{number}"
        ))
        .await;
    }
    for call in [
        "pool create shut --cidr 10.31.0.0/29",
        "pool update shut --close",
        &format!("import {}", rows.display()),
        "pool create delegated --cidr 2001:db8:21::/48 --allocation-length 64",
        "lease allocate --pool delegated --count 3 --owner fipd/Router/lab/edge",
        "lease release 10.30.0.3",
        "lease reserve --pool dmz --owner fipd/host/lab/later --address 10.20.0.120 --until 2999-01-01T00:00:00Z",
        "lease allocate --pool six --owner fipd/host/lab/six --address 2001:db8:20::77",
        "quota set --tenant shop --pool dmz --limit 7",
        "token create ci --role operator --pool dmz --tenant shop --from 10.0.0.0/8",
        "backup now",
        "backup drill",
        &format!(
            "clusters add east --systems claims --kubeconfig {}",
            kubeconfig.display()
        ),
    ] {
        run(call).await;
    }
    fipd
}

/// Axe on the open page, and whether it fits. A picture is kept where something is wrong, of all pages with `FIPD_PICTURES`.
pub(super) async fn look(browser: &Browser, name: &str, wrong: &mut Vec<String>) {
    let all = std::env::var_os("FIPD_PICTURES").is_some();
    for width in WIDTHS {
        browser.narrow(width).await.unwrap();
        for (colours, rules) in COLOURS {
            browser.colours(colours).await.unwrap();
            let before = wrong.len();
            let check = format!("const rules = {rules};{CHECK}");
            let found = browser.script(&check).await.unwrap();
            let found = found.as_array().unwrap().iter().filter_map(Value::as_str);
            wrong.extend(found.map(|what| format!("{name} {width} {colours}: {what}")));
            let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
            if browser.script(fits).await.unwrap() != true {
                wrong.push(format!("{name} is wider than {width} pixels"));
            }
            if all || wrong.len() > before {
                let picture = format!("{name}-{width}-{colours}");
                browser.screenshot(&picture).await.unwrap();
            }
        }
    }
}

/// The place as the name of a file.
fn name(place: &str) -> String {
    let word = place.trim_start_matches("/ui").trim_matches('/');
    let word = word.replace(|c: char| !c.is_alphanumeric() && c != '.', "-");
    if word.is_empty() {
        "dashboard".to_owned()
    } else {
        word
    }
}

/// A browser that can [`look`].
pub(super) async fn checked_browser() -> Browser {
    let axe = tokio::task::spawn_blocking(npm::axe_core)
        .await
        .unwrap()
        .unwrap();
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    browser
        .in_every_page(&std::fs::read_to_string(axe).unwrap())
        .await
        .unwrap();
    browser
}

/// What changes something: forms, and the ways to pages of forms.
const WRITES: &str = "main form[method=post], main a[href$='/release'], main a[href$='/edit'], main a[href$='/allocate'], \
    main a[href*='/allocate?'], main a[href$='/new'], main a[href$='/move'], main a[href$='/delete'], \
    main a[href$='/transfer'], main a[href^='/ui/reserve'], main a[href^='/ui/import'], main a[href$='/flush'], \
    main a[href$='/detach'], main a[href$='/remove']";

/// Makes a viewer, as an admin does.
async fn make_viewer(browser: &Browser, fipd: &Fipd, name: &str) -> (String, String) {
    let password = "a long password";
    browser
        .open(&format!("{}/ui/users/new", fipd.url()))
        .await
        .unwrap();
    for (field, value) in [
        ("#name", name),
        ("#password", password),
        ("#again", password),
    ] {
        browser.fill(field, value).await.unwrap();
    }
    browser.follow("main form button").await.unwrap();
    (name.to_owned(), password.to_owned())
}

#[tokio::test]
async fn who_may_only_look_is_offered_nothing_else_and_told_so() {
    let fipd = site().await;
    let browser = checked_browser().await;
    let mut wrong = Vec::new();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    let eve = make_viewer(&browser, &fipd, "eve").await;
    browser.follow("header .who button").await.unwrap();
    sign_in(&browser, &fipd, &eve).await;
    let (mut seen, mut refused) = (0, 0);
    for (pattern, access) in fipd::api::pages(*fipd::systems::SYSTEMS) {
        if access == Access::Open {
            continue;
        }
        for place in places(&pattern) {
            browser
                .open(&format!("{}{place}", fipd.url()))
                .await
                .unwrap();
            let title = browser.title().await.unwrap();
            if access == Access::Page(Role::Viewer) {
                assert_ne!(title, "Not allowed – fipd", "{place}");
                let own = ["/ui/password", "/ui/sessions"].contains(&pattern.as_str());
                let offered = browser.count(WRITES).await.unwrap();
                assert!(own || offered == 0, "{place} offers {offered} writes");
                seen += 1;
            } else {
                assert_eq!(title, "Not allowed – fipd", "{place}");
                refused += 1;
            }
        }
    }
    assert!(
        seen >= 15 && refused >= 10,
        "{seen} seen, {refused} refused"
    );
    browser
        .open(&format!("{}/ui/users", fipd.url()))
        .await
        .unwrap();
    look(&browser, "not-allowed", &mut wrong).await;
    // A write tried anyway does nothing and says why.
    browser
        .open(&format!("{}/ui/pools/1", fipd.url()))
        .await
        .unwrap();
    let tried = "const csrf = document.querySelector('header [name=csrf]').value;
        const body = new URLSearchParams({ csrf, owner: 'fipd/host/lab/eve', address: '10.20.1.1' });
        return fetch('/ui/pools/1/allocate', { method: 'POST', body })
            .then(answer => answer.text().then(text => answer.status + ' ' + text))";
    let answer = browser.script(tried).await.unwrap();
    let answer = answer.as_str().unwrap();
    assert!(
        answer.starts_with("403 ") && answer.contains("Ask an admin to do it, or for the role."),
        "{answer}"
    );
    let leases = fipd
        .cli(["lease", "list", "-o", "json"])
        .await
        .unwrap()
        .success()
        .unwrap();
    assert!(!leases.contains("10.20.1.1\""), "{leases}");
    // As a viewer sees them.
    for place in [
        "/ui/",
        "/ui/pools/1",
        "/ui/leases",
        "/ui/networks/0/addresses/10.20.0.2",
    ] {
        browser
            .open(&format!("{}{place}", fipd.url()))
            .await
            .unwrap();
        look(&browser, &format!("viewer-{}", name(place)), &mut wrong).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_map_is_walked_with_arrow_keys() {
    let fipd = daemon().await;
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    super::open_pool(&browser, &fipd, "dmz").await;
    let stops = browser.count("ol.map a[tabindex='0']").await.unwrap();
    assert_eq!(stops, 1, "the Tab key stops once in the map");
    let focus = "document.querySelector('ol.map a').focus(); return 0";
    browser.script(focus).await.unwrap();
    let focused = async || {
        browser
            .script("return document.activeElement.getAttribute('aria-label')")
            .await
            .unwrap()
    };
    for (key, label) in [
        ("ArrowRight", "10.20.0.1 gateway"),
        ("ArrowDown", "10.20.0.17 free"),
        ("ArrowLeft", "10.20.0.16 free"),
        ("ArrowUp", "10.20.0.0 reserved end"),
        ("ArrowUp", "10.20.0.0 reserved end"),
        ("End", "10.20.0.255 free"),
        ("Home", "10.20.0.0 reserved end"),
    ] {
        browser.press(key).await.unwrap();
        assert_eq!(focused().await, label, "{key}");
    }
    browser.press("PageDown").await.unwrap();
    wait_until(
        "the next page of the map",
        Duration::from_secs(20),
        || async {
            let title = browser
                .text("#map-title")
                .await
                .map_err(|error| error.to_string())?;
            (title == "Addresses of 10.20.1.0/24")
                .then_some(())
                .ok_or(title)
        },
    )
    .await
    .unwrap();
    no_complaints(&browser).await;
}

#[tokio::test]
async fn times_are_in_utc_and_in_the_readers_zone_where_asked() {
    let fipd = site().await;
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    browser.zone("Asia/Kolkata").await.unwrap();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    browser
        .open(&format!(
            "{}/ui/networks/0/addresses/10.20.0.120",
            fipd.url()
        ))
        .await
        .unwrap();
    let shown = async || browser.text("main").await.unwrap();
    assert!(
        shown().await.contains("2999-01-01 00:00:00 UTC"),
        "{}",
        shown().await
    );
    assert_eq!(browser.text("#zone span").await.unwrap(), "UTC");
    browser.click("#zone button").await.unwrap();
    assert!(
        shown().await.contains("2999-01-01 05:30:00 GMT+5:30"),
        "{}",
        shown().await
    );
    // It stays so on other pages, and goes back.
    browser
        .open(&format!("{}/ui/audit", fipd.url()))
        .await
        .unwrap();
    assert!(
        browser
            .text("tbody time")
            .await
            .unwrap()
            .ends_with("GMT+5:30")
    );
    browser.click("#zone button").await.unwrap();
    assert!(browser.text("tbody time").await.unwrap().ends_with("UTC"));
    no_complaints(&browser).await;
}

#[tokio::test]
async fn an_open_page_says_that_its_session_has_ended() {
    let fipd = daemon().await;
    let browser = checked_browser().await;
    let mut wrong = Vec::new();
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    assert_eq!(browser.count("#ended[hidden]").await.unwrap(), 1);
    // In another tab.
    let out = "const csrf = document.querySelector('header [name=csrf]').value;
        return fetch('/ui/logout', { method: 'POST', body: new URLSearchParams({ csrf }) }).then(answer => answer.status)";
    browser.script(out).await.unwrap();
    let change = "lease allocate --pool dmz --owner fipd/host/lab/elsewhere";
    fipd.cli(change.split(' '))
        .await
        .unwrap()
        .success()
        .unwrap();
    wait_until("the page says so", Duration::from_secs(30), || async {
        let told = browser
            .count("#ended:not([hidden])")
            .await
            .map_err(|error| error.to_string())?;
        (told == 1).then_some(()).ok_or("it does not".to_owned())
    })
    .await
    .unwrap();
    look(&browser, "session-ended", &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    browser.follow("#ended a").await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "Sign in – fipd");
}

#[tokio::test]
async fn every_page_can_be_used_by_everybody_on_every_screen() {
    let fipd = site().await;
    let browser = checked_browser().await;
    let mut wrong = Vec::new();
    let open = async |place: &str| {
        browser
            .open(&format!("{}{place}", fipd.url()))
            .await
            .unwrap();
    };
    open("/ui/login").await;
    look(&browser, "login", &mut wrong).await;
    try_password(&browser, "nobody", "wrong").await;
    look(&browser, "login-wrong", &mut wrong).await;
    sign_in(&browser, &fipd, &initial_admin(&fipd)).await;
    make_viewer(&browser, &fipd, "ann").await;
    look(&browser, "users-notice", &mut wrong).await;
    let tokens = fipd.cli("token list -o json".split(' ')).await.unwrap();
    let token = tokens.json().unwrap()["tokens"][0]["id"].to_string();
    let mut looked = 0;
    for (pattern, _) in fipd::api::pages(*fipd::systems::SYSTEMS) {
        for place in places(&pattern) {
            if pattern == "/ui/login" {
                continue;
            }
            open(&place.replace("/tokens/1/", &format!("/tokens/{token}/"))).await;
            let title = browser.title().await.unwrap();
            assert!(
                title.ends_with(" – fipd") && !title.starts_with("Sign in"),
                "{place}: {title}"
            );
            let missing = title.starts_with("Not found");
            assert_eq!(missing, NOWHERE.contains(&place.as_str()), "{place}");
            for (_, part) in SEEN.iter().filter(|(at, _)| *at == place) {
                let parts = browser.count(part).await.unwrap();
                assert!(parts > 0, "{place} is without {part}");
            }
            look(&browser, &name(&place), &mut wrong).await;
            looked += 1;
        }
    }
    assert!(looked >= 35, "only {looked} pages");
    // What forms answer, right and wrong.
    open("/ui/pools/1/allocate").await;
    browser.fill("#owner", "no owner").await.unwrap();
    browser.follow(ALLOCATE).await.unwrap();
    look(&browser, "allocate-refused", &mut wrong).await;
    super::import_preview(&browser, &fipd).await;
    look(&browser, "import-preview", &mut wrong).await;
    open("/ui/tenants").await;
    for (field, value) in [("#tenant", "shop"), ("#pool", "none"), ("#limit", "few")] {
        browser.fill(field, value).await.unwrap();
    }
    browser.follow(ALLOCATE).await.unwrap();
    assert_eq!(browser.count("#pool-error").await.unwrap(), 1);
    look(&browser, "limit-refused", &mut wrong).await;
    let ground = async || browser.style("body", "background-color").await.unwrap();
    browser.colours("light").await.unwrap();
    let light = ground().await;
    browser.colours("dark").await.unwrap();
    assert_ne!(light, ground().await, "dark where the reader's system is");
    assert!(
        wrong.is_empty(),
        "{} things are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    no_complaints(&browser).await;
}
