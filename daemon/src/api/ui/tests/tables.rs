//! Every table sorts, filters and pages on the server, and costs as much of 100,000 leases as of a thousand.

use std::time::Duration;

use fipd_core::{
    Allocate, Choice, LeaseFilter, PoolId, Quota, Request as Ask, Tenant, Timestamp, Want,
    host::{HostSettings, Mode, RuleSet, desired, diff},
    testing,
};
use fipd_web_ui::Direction;

use super::{
    cluster::{KUBECONFIG, upload},
    *,
};
use crate::{
    api::ui::{lease_order::By, leases::sorted},
    guests::{GuestPhase, GuestStatus, GuestUpdate, system::testing::FIRST},
    nodes::{AgentView, NodeView, Nodes},
    rules::{EngineState, View},
};

/// A table: where it is, one of its orders that is not the usual one, and a filter that fits nothing.
const TABLES: [(&str, &str, &str); 16] = [
    ("/ui/pools", "-use", "filter=no-such"),
    ("/ui/leases", "-since", "q=no-such"),
    ("/ui/tenants", "-used", "filter=no-such"),
    ("/ui/users", "-role", "filter=no-such"),
    ("/ui/tokens", "-created", "filter=no-such"),
    ("/ui/audit", "at", "actor=no-such"),
    ("/ui/clusters", "-name", "filter=no-such"),
    ("/ui/guests", "health", "filter=no-such"),
    ("/ui/rules", "owner", "filter=no-such"),
    ("/ui/rules?of=plan", "-rule", "filter=no-such"),
    ("/ui/hosts", "cluster", "filter=no-such"),
    ("/ui/hosts?of=agents", "-name", "filter=no-such"),
    ("/ui/settings", "-origin", "filter=no-such"),
    ("/ui/about", "licence", "filter=no-such"),
    ("/ui/sessions", "began", "filter=no-such"),
    ("/ui/backup", "made", "filter=no-such"),
];

/// The Nodes of a cluster, and the Agents there.
struct Farm;

impl Nodes for Farm {
    fn nodes(&self) -> Vec<NodeView> {
        let node = |number: u32| NodeView {
            name: format!("node-{number}").as_str().into(),
            roles: Vec::new(),
            unready: None,
            here: false,
        };
        (0..40).map(node).collect()
    }

    fn agents(&self) -> Vec<AgentView> {
        let agent = |number: i64| AgentView {
            name: format!("ops/agent-{number}"),
            wanted: 3,
            ready: 3 - number / 39,
        };
        (0..40).map(agent).collect()
    }
}

/// Rules of two that want some, none of which is there.
fn rules() -> View {
    let set = |name: &str, net: u8| RuleSet {
        name: name.into(),
        sources: (1..=40).map(|host| [10, 8, net, host].into()).collect(),
        table: 100,
        priority: None,
        fail_closed: false,
        mode: Mode::Flat,
    };
    // By priority and source the second comes first.
    let sets = [set("farm", 2), set("shop", 1)];
    let desired = desired(&sets, &HostSettings::default(), &Default::default());
    View {
        state: EngineState::Active,
        protocol: 200,
        plan: Arc::new(diff(&desired.rules, &[], 200)),
        desired: Arc::new(desired),
        at: Timestamp(5),
        ..View::default()
    }
}

fn guests(site: &Site) {
    for number in 0..60 {
        let phase = match number % 2 {
            0 => GuestPhase::Ready,
            _ => GuestPhase::Failed,
        };
        let news = GuestUpdate {
            rancher: &"rancher".into(),
            id: &format!("c-m-{number}"),
            display_name: &format!("guest-{number}"),
            system: FIRST,
            says: GuestStatus::new(phase, "Reason", "told"),
            details: vec![],
            releases: None,
        };
        site.api.guests.say(news, Timestamp(1));
    }
}

/// Copies of the address book, by their names.
fn copies(site: &Site) {
    let directory = site.api.backups.schedule().directory;
    std::fs::create_dir_all(&directory).unwrap();
    for minute in 0..60 {
        let name = format!("fipd-20260301T12{minute:02}00.000Z.redb");
        std::fs::write(directory.join(name), "").unwrap();
    }
}

/// Has what each table shows more of than fits on a page, where that can be; Nodes as long as the farm is kept.
async fn crowded() -> (Site, Arc<Farm>) {
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
    for _ in 0..3 {
        let account = site.api.accounts.login("root", PASSWORD).await.unwrap();
        site.api.sessions.open(&account, origin()).unwrap();
    }
    for name in ["east", "west"] {
        let form = upload(name, KUBECONFIG);
        let page = admin.post("/ui/clusters/new", &form).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    }
    guests(&site);
    copies(&site);
    site.api.rules.show(rules());
    let farm = Arc::new(Farm);
    for cluster in ["west", "east"] {
        site.api.nodes.tell(&cluster.into(), &farm);
    }
    drop(admin);
    (site, farm)
}

async fn give(site: &Site, pool: PoolId, name: &str, many: u32) {
    let want = Want {
        pool: Choice::Pool(pool),
        address: None,
        count: many,
    };
    let ask = Allocate {
        tenant: Some(Tenant(name.into())),
        ..testing::allocate(testing::holder(format!("fipd/host/lab/{name}"), ""), [want])
    };
    site.api.ipam.submit(Ask::Allocate(ask)).await.unwrap();
}

#[tokio::test]
async fn every_table_sorts_filters_and_pages() {
    let (site, _farm) = crowded().await;
    let admin = site.visitor("root").await;
    for (path, order, nothing) in TABLES {
        let plain = admin.get(path).await;
        assert_eq!(plain.status, StatusCode::OK, "{path}");
        let sign = if path.contains('?') { '&' } else { '?' };
        let sorted = admin.get(&format!("{path}{sign}sort={order}")).await;
        let chosen = format!("<option value=\"{order}\" selected>");
        assert!(
            sorted.html.contains(&chosen),
            "{path} is not sorted by {order}"
        );
        // What has much to say of each row is a list of cards.
        let cards = ["/ui/clusters", "/ui/guests"].contains(&path);
        assert!(
            cards || sorted.html.contains("aria-sort=\""),
            "{path} has no head that says its order"
        );
        let begin = match cards {
            true => "<li class=\"card\">",
            false => "<tbody>",
        };
        let body = |html: &str| html.split(begin).nth(1).map(str::to_owned);
        assert!(body(&plain.html).is_some(), "{path} is empty");
        assert_ne!(
            body(&plain.html),
            body(&sorted.html),
            "{path} is the same in another order"
        );
        // There are not so many users, keys and clusters here, and never so many sessions of one.
        let few = ["/ui/users", "/ui/settings", "/ui/clusters", "/ui/sessions"];
        if !few.contains(&path) {
            let next = lists::next(&sorted.html);
            let next = next.unwrap_or_else(|| panic!("{path} has one page only"));
            assert!(
                next.contains(&format!("sort={order}")),
                "{path} forgets its order: {next}"
            );
        }
        let none = admin.get(&format!("{path}{sign}{nothing}")).await;
        assert!(
            none.html.contains("class=\"empty\"") && body(&none.html).is_none(),
            "{path} {nothing}: {}",
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
        "/ui/search",
        "/ui/import",
        "/ui/password",
        "/ui/login",
        "/ui/reserve",
    ];
    for (pattern, _) in crate::api::pages(*crate::systems::SYSTEMS) {
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

#[tokio::test]
async fn agents_are_listed_apart_and_page_by_page() {
    let site = Site::new().await;
    let farm = Arc::new(Farm);
    for cluster in ["west", "east"] {
        site.api.nodes.tell(&cluster.into(), &farm);
    }
    let viewer = site.visitor("viewer").await;
    let nodes = viewer.get("/ui/hosts").await.html;
    assert!(!nodes.contains("ops/agent"), "{nodes}");
    assert!(nodes.contains("href=\"/ui/hosts?of=agents\""), "{nodes}");
    let many = async |query: &str| {
        let page = viewer.get(&format!("/ui/hosts?of=agents{query}")).await;
        let rows = page.html.matches("<tr><th scope=\"row\">ops/agent-");
        (rows.count(), lists::next(&page.html))
    };
    let next = "/ui/hosts?of=agents&page=2".to_owned();
    assert_eq!(many("").await, (50, Some(next)));
    assert_eq!(many("&page=2").await, (30, None));
    assert_eq!(many("&filter=west").await, (40, None));
    assert_eq!(many("&state=not+ready").await, (2, None));
    let ill = viewer.get("/ui/hosts?of=agents&sort=state").await.html;
    let first = ill.split("<tbody>").nth(1).unwrap();
    let first = first.split("</tr>").next().unwrap();
    assert!(
        first.contains("agent-39") && first.contains("2 of 3"),
        "{first}"
    );
}

#[tokio::test]
async fn who_is_signed_in_by_the_provider_is_listed_apart_and_page_by_page() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    let enter = |name: &str, role| {
        let sessions = &site.api.sessions;
        let opened = sessions.open_by_provider(name.into(), role, origin());
        assert!(opened.is_some());
    };
    for number in 0..101 {
        enter(&format!("p-{number:03}@idp"), Role::Viewer);
    }
    enter("p-050@idp", Role::Viewer);
    enter("boss@idp", Role::Admin);
    let accounts = admin.get("/ui/users").await.html;
    assert!(!accounts.contains("@idp") && accounts.contains("provider: 102<"));
    let names = async |query: &str| {
        let page = admin.get(&format!("/ui/users?by=provider{query}")).await;
        let rows = page.html.split("<tr><th scope=\"row\">").skip(1);
        let name = |row: &str| row.split('<').next().unwrap().to_owned();
        let names: Vec<String> = rows.map(name).collect();
        (names, lists::next(&page.html))
    };
    let (first, next) = names("").await;
    assert_eq!((&*first[0], first.len()), ("boss@idp", 100));
    assert_eq!(next.as_deref(), Some("/ui/users?by=provider&page=2"));
    let (second, next) = names("&page=2").await;
    assert_eq!((&*second[1], second.len(), next), ("p-100@idp", 2, None));
    assert_eq!(names("&sort=-sessions").await.0[0], "p-050@idp");
    assert_eq!(names("&sort=-name").await.0[0], "p-100@idp");
    assert_eq!(names("&filter=p-07").await.0.len(), 10);
    assert_eq!(names("&role=admin").await.0, ["boss@idp"]);
}

/// Sets so many limits of tenants that hold nothing.
async fn limit(site: &Site, many: u32) {
    let set = |number| {
        let quota = Quota {
            pool: PoolId(1),
            tenant: Tenant(format!("idle-{number}").as_str().into()),
            limit: 1,
        };
        let actor = "test".into();
        site.api.ipam.submit(Ask::SetQuota { quota, actor })
    };
    let set = futures::future::join_all((0..many).map(set)).await;
    assert!(set.iter().all(Result::is_ok));
}

/// Also of leases that the walk comes to last, where the reader has the time for it.
async fn newest_first(site: &Site, visitor: &Visitor<'_>) {
    let path = "/ui/leases?sort=-since&pool=six-few";
    let html = visitor.get(path).await.html;
    let row = html.split("<tbody>").nth(1).unwrap();
    let first = row.split("</tr>").next().unwrap();
    assert!(first.contains("newest-of-few"), "{first}");
    for (patience, cut) in [(Duration::MAX, false), (Duration::ZERO, true)] {
        let all = LeaseFilter::default();
        let order = (By::Since, Direction::Down);
        let found = sorted(&site.api.ipam, &all, order, "", patience).await;
        let newest = found.rows[0].owner.contains("newest-of-all");
        assert_eq!((found.cut, newest), (cut, !cut), "{patience:?}");
    }
}

/// How many rows the tables of the page have.
async fn rows(visitor: &Visitor<'_>, path: &str) -> usize {
    let page = visitor.get(path).await;
    assert_eq!(page.status, StatusCode::OK, "{path}");
    page.html.matches("<tr").count()
}

/// What they cost is measured by `bench-peers page`.
#[tokio::test]
async fn pages_of_a_hundred_thousand_leases_are_as_long_as_those_of_few() {
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
        // As many as a reader looks at in one step, so that a slow machine sees all of them too.
        give(&site, PoolId(few), &format!("few-{few}"), 900).await;
        for batch in 0..50 {
            give(&site, PoolId(many), &format!("many-{many}-{batch}"), 1_000).await;
        }
    }
    let leases = site.api.ipam.read(fipd_core::Ledger::lease_count);
    assert_eq!(leases, 101_800);
    // The last two addresses of all, and the newest.
    for (pool, name) in [(4, "newest-of-few"), (5, "newest-of-all")] {
        tokio::time::sleep(Duration::from_millis(5)).await;
        give(&site, PoolId(pool), name, 1).await;
    }
    limit(&site, 5_000).await;
    newest_first(&site, &admin).await;
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
        let (few_rows, many_rows) = (rows(&admin, few).await, rows(&admin, many).await);
        assert_eq!(few_rows, many_rows, "{few} and {many}");
    }
    // Orders that the ledger does not keep look at all of it, for so long as a reader waits.
    for path in [
        "/ui/leases?sort=owner",
        "/ui/leases?sort=-since",
        "/ui/tenants",
        "/ui/",
        "/ui/audit?sort=at",
    ] {
        assert!((1..=130).contains(&rows(&admin, path).await), "{path}");
    }
}
