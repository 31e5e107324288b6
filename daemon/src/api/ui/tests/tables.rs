//! Every table sorts, filters and pages on the server, and costs as much of 100,000 leases as of a thousand.

use std::time::{Duration, Instant};

use fipd_core::{Allocate, Choice, Holder, PoolId, Request as Ask, Want};

use super::*;

/// A table: where it is, one of its orders that is not the usual one, and a filter that fits nothing.
const TABLES: [(&str, &str, &str); 13] = [
    ("/ui/pools", "-use", "filter=no-such"),
    ("/ui/leases", "-since", "q=no-such"),
    ("/ui/tenants", "-used", "filter=no-such"),
    ("/ui/users", "-role", "filter=no-such"),
    ("/ui/tokens", "-created", "filter=no-such"),
    ("/ui/audit", "at", "actor=no-such"),
    ("/ui/clusters", "-leases", "filter=no-such"),
    ("/ui/guests", "health", "filter=no-such"),
    ("/ui/rules", "owner", "filter=no-such"),
    ("/ui/hosts", "cluster", "filter=no-such"),
    ("/ui/settings", "-origin", "filter=no-such"),
    ("/ui/about", "licence", "filter=no-such"),
    ("/ui/sessions", "began", "filter=no-such"),
];

/// Has what each table shows more of than fits on a page, where that can be.
async fn crowded() -> Site {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    for number in 0..101 {
        let form = format!("name=p-{number}&addresses=10.1.{number}.0/24&network=default&step=do");
        let page = admin.post("/ui/pools/new", &form).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
        let form = format!("tenant=t-{number}&pool=dmz&limit={number}");
        admin.post("/ui/tenants", &form).await;
        let form = format!("name=t-{number}&role=viewer");
        admin.post("/ui/tokens/new", &form).await;
    }
    give(&site, PoolId(1), "a", 60).await;
    for _ in 0..60 {
        let account = site.api.accounts.login("root", PASSWORD).await.unwrap();
        site.api.sessions.open(&account, origin()).unwrap();
    }
    drop(admin);
    site
}

async fn give(site: &Site, pool: PoolId, name: &str, many: u32) {
    let want = Want {
        pool: Choice::Pool(pool),
        address: None,
        count: many,
    };
    let ask = Allocate {
        holder: Holder {
            identity: format!("fipd/host/lab/{name}").parse().unwrap(),
            instance: "".into(),
        },
        tenant: None,
        wants: vec![want],
        waiting_since: None,
        by_admin: false,
        share: None,
        probe: false,
        actor: "test".into(),
    };
    site.api.ipam.submit(Ask::Allocate(ask)).await.unwrap();
}

#[tokio::test]
async fn every_table_sorts_filters_and_pages() {
    let site = crowded().await;
    let admin = site.visitor("root").await;
    for (path, order, nothing) in TABLES {
        let plain = admin.get(path).await;
        assert_eq!(plain.status, StatusCode::OK, "{path}");
        let sorted = admin.get(&format!("{path}?sort={order}")).await;
        // Where there is nothing yet there is no table either, and the next step is named instead.
        let empty = !plain.html.contains("name=\"sort\"");
        assert_eq!(
            empty,
            ["/ui/clusters", "/ui/guests", "/ui/rules", "/ui/hosts"].contains(&path),
            "{path}: {}",
            plain.html
        );
        if empty {
            continue;
        }
        let chosen = format!("<option value=\"{order}\" selected>");
        assert!(
            sorted.html.contains(&chosen),
            "{path} is not sorted by {order}"
        );
        assert!(
            sorted.html.contains("aria-sort=\""),
            "{path} has no head that says its order"
        );
        let body = |html: &str| html.split("<tbody>").nth(1).map(str::to_owned);
        assert_ne!(
            body(&plain.html),
            body(&sorted.html),
            "{path} is the same in another order"
        );
        // There are not so many users and keys here.
        if !["/ui/users", "/ui/settings"].contains(&path) {
            let next = lists::next(&sorted.html);
            let next = next.unwrap_or_else(|| panic!("{path} has one page only"));
            assert!(
                next.contains(&format!("sort={order}")),
                "{path} forgets its order: {next}"
            );
        }
        let none = admin.get(&format!("{path}?{nothing}")).await;
        assert!(
            none.html.contains("class=\"empty\"") && body(&none.html).is_none(),
            "{path}?{nothing}: {}",
            none.html
        );
        assert!(
            none.html.contains(">Show all</a>"),
            "{path} has no way back"
        );
    }
    // All pages that have a table of rows are in the list above, or are of one thing.
    let one = [
        "/ui/",
        "/ui/backup",
        "/ui/search",
        "/ui/import",
        "/ui/password",
        "/ui/login",
        "/ui/reserve",
    ];
    for (pattern, _) in crate::api::pages() {
        let known =
            pattern.contains('{') || pattern.ends_with("/new") || one.contains(&pattern.as_str());
        let table = TABLES.iter().any(|(path, ..)| *path == pattern);
        let page = admin.get(&pattern).await;
        let rows = page.html.contains("<table");
        assert!(
            known || table || !rows,
            "{pattern} has a table: say above how it is sorted"
        );
    }
}

/// The best of a few, so that what else runs on the machine does not count.
async fn takes(visitor: &Visitor<'_>, path: &str) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        let page = visitor.get(path).await;
        best = best.min(started.elapsed());
        assert_eq!(page.status, StatusCode::OK, "{path}");
    }
    best
}

#[tokio::test]
async fn pages_of_a_hundred_thousand_leases_cost_what_those_of_a_thousand_do() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    for (name, net) in [
        ("few", "11.0.0.0/8"),
        ("many", "12.0.0.0/8"),
        ("six-few", "2001:db8:1::/64"),
        ("six-many", "2001:db8:2::/64"),
    ] {
        let form = format!("name={name}&addresses={net}&network=default&step=do");
        admin.post("/ui/pools/new", &form).await;
    }
    // Numbers of pools: dmz is 1.
    for (few, many) in [(2, 3), (4, 5)] {
        give(&site, PoolId(few), &format!("few-{few}"), 1_000).await;
        for batch in 0..50 {
            give(&site, PoolId(many), &format!("many-{many}-{batch}"), 1_000).await;
        }
    }
    let leases = site.api.ipam.read(fipd_core::Ledger::lease_count);
    assert_eq!(leases, 102_000);
    for (few, many) in [
        ("/ui/pools/2", "/ui/pools/3"),
        ("/ui/pools/2?at=11.200.7.9", "/ui/pools/3?at=12.200.7.9"),
        ("/ui/pools/4", "/ui/pools/5"),
        ("/ui/leases?pool=few", "/ui/leases?pool=many"),
        (
            "/ui/leases?within=11.0.0.0/24",
            "/ui/leases?within=12.0.0.0/24",
        ),
        (
            "/ui/networks/0/addresses/11.0.0.7",
            "/ui/networks/0/addresses/12.0.0.7",
        ),
    ] {
        let (few_took, many_took) = (takes(&admin, few).await, takes(&admin, many).await);
        let most = few_took * 8 + Duration::from_millis(60);
        assert!(
            many_took < most,
            "{many} took {many_took:?}, {few} {few_took:?}"
        );
    }
    // Orders that the ledger does not keep look at all of it, for so long as a reader waits.
    for path in [
        "/ui/leases?sort=owner",
        "/ui/leases?sort=-since",
        "/ui/tenants",
        "/ui/",
        "/ui/audit?sort=at",
    ] {
        let took = takes(&admin, path).await;
        assert!(took < Duration::from_millis(1_500), "{path} took {took:?}");
    }
}
