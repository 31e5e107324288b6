//! Lists that filter, sort and page; the search; the history of an address; the audit log as CSV.

use super::*;
use fipd_core::testing;

/// Leases `10.0.0.2`, `10.0.0.3`, ... of `fipd/host/lab/m-2`, ...
async fn fill(visitor: &Visitor<'_>, many: u8) {
    for number in 2..2 + many {
        let form = format!("owner=fipd/host/lab/m-{number}&address=10.0.0.{number}");
        let page = visitor.post("/ui/pools/1/allocate", &form).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
        // So that no two have the same time.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// The addresses of a list's rows, in order.
fn addresses(html: &str) -> Vec<String> {
    let rows = html.split("<th scope=\"row\"><a href=\"/ui/networks/0/addresses/");
    let address = |row: &str| row.split('"').next().unwrap().to_owned();
    rows.skip(1).map(address).collect()
}

pub(super) fn next(html: &str) -> Option<String> {
    let (before, _) = html.split_once("\" rel=\"next\"")?;
    let (_, link) = before.rsplit_once("href=\"")?;
    Some(link.replace("&#38;", "&"))
}

#[tokio::test]
async fn leases_are_filtered_sorted_and_paged() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    fill(&operator, 60).await;
    let label = fipd_core::Label {
        key: testing::key([10, 0, 0, 9]),
        set: [("app".into(), "w<b".into())].into(),
        remove: Vec::new(),
        actor: "test".into(),
    };
    let label = fipd_core::Request::Label(label);
    site.api.ipam.submit(label).await.unwrap();
    let labelled = operator.get("/ui/networks/0/addresses/10.0.0.9").await.html;
    assert!(labelled.contains("app=w&#60;b"), "{labelled}");
    let first = operator.get("/ui/leases").await.html;
    assert_eq!(addresses(&first).len(), 50);
    let second = operator.get(&next(&first).unwrap()).await.html;
    assert_eq!(addresses(&second).len(), 10);
    assert_eq!(addresses(&second)[0], "10.0.0.52");
    assert_eq!(next(&second), None);

    let newest = operator.get("/ui/leases?sort=-since").await.html;
    let mut all = addresses(&newest);
    assert_eq!(all[0], "10.0.0.61");
    all.extend(addresses(&operator.get(&next(&newest).unwrap()).await.html));
    let mut distinct = all.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!((all.len(), distinct.len()), (60, 60));
    for order in ["owner", "-owner", "state", "-state", "since"] {
        let first = operator.get(&format!("/ui/leases?sort={order}")).await.html;
        let mut sorted = addresses(&first);
        sorted.extend(addresses(&operator.get(&next(&first).unwrap()).await.html));
        let ends = match order {
            "owner" => ("10.0.0.10", "10.0.0.9"),
            "-owner" => ("10.0.0.9", "10.0.0.10"),
            _ => ("10.0.0.2", "10.0.0.61"),
        };
        assert_eq!((&*sorted[0], &*sorted[59]), ends, "{order}");
        sorted.sort();
        assert_eq!(sorted, distinct, "{order}");
    }
    assert!(newest.contains("href=\"/ui/leases?sort=owner\">Owner"));
    assert!(newest.contains("href=\"/ui/leases?sort=state\">State"));
    let oldest = operator.get("/ui/leases?sort=since&q=m-1").await.html;
    assert_eq!(addresses(&oldest)[0], "10.0.0.10");
    assert_eq!(addresses(&oldest).len(), 10);
    for (query, many) in [
        ("within=10.0.0.4/31", 2),
        ("within=10.0.0.4-10.0.0.6", 3),
        ("state=reserved", 0),
        ("pool=dmz&namespace=lab&q=m-7", 1),
        ("network=default&q=10.0.0.33", 1),
        ("tenant=nobody", 0),
        ("label=app", 1),
        ("label=app=w%3Cb+app", 1),
        ("label=app+team", 0),
        ("sort=until", 50),
        ("mark=contended", 0),
    ] {
        let html = operator.get(&format!("/ui/leases?{query}")).await.html;
        assert_eq!(addresses(&html).len(), many, "{query}");
    }
    for (query, error) in [
        ("pool=nope", "id=\"pool-error\">no pool is named nope"),
        ("within=x", "id=\"within-error\">"),
        ("network=nope", "id=\"network-error\">"),
        ("state=nope", "id=\"state-error\">"),
        ("label==x", "id=\"label-error\">"),
    ] {
        let html = operator.get(&format!("/ui/leases?{query}")).await.html;
        assert!(html.contains(error), "{query}: {html}");
    }
    let viewer = site.visitor("viewer").await.get("/ui/leases").await.html;
    assert!(!viewer.contains("/release") && !viewer.contains("/ui/reserve"));
}

/// Has an address used that fipd did not give.
async fn adopt(site: &Site, address: std::net::Ipv4Addr, name: &str) {
    let adopt = fipd_core::Adopt {
        length: None,
        key: testing::key(address),
        holder: fipd_core::Holder {
            identity: format!("rancher-fip/X/Service/shop/{name}")
                .parse()
                .unwrap(),
            instance: "1".into(),
        },
        tenant: None,
        since: fipd_core::Timestamp(1),
        actor: "test".into(),
    };
    let adopt = fipd_core::Request::Adopt(adopt);
    site.api.ipam.submit(adopt).await.unwrap();
}

/// Has an address used by two.
async fn contend(site: &Site, last: u8) {
    for name in ["a", "b"] {
        adopt(site, [10, 0, 0, last].into(), name).await;
    }
}

#[tokio::test]
async fn leases_out_of_range_are_found() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    fill(&operator, 3).await;
    adopt(&site, [10, 9, 9, 9].into(), "a").await;
    for (query, many) in [("", 1), ("&sort=-owner", 1), ("&state=reserved", 0)] {
        let list = format!("/ui/leases?mark=out-of-range{query}");
        let html = operator.get(&list).await.html;
        assert_eq!(addresses(&html), vec!["10.9.9.9"; many], "{query}");
    }
}

#[tokio::test]
async fn contended_leases_are_found() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    fill(&operator, 3).await;
    for last in [100, 101, 102, 103, 104, 105] {
        contend(&site, last).await;
    }
    let first = operator.get("/ui/").await.html;
    let list = "/ui/leases?mark=contended";
    assert!(first.contains(&format!("href=\"{list}\">6</a>")), "{first}");
    assert!(first.contains("1 more like it") && first.contains(">See all of them</a>"));
    let all: Vec<_> = (100..106).map(|last| format!("10.0.0.{last}")).collect();
    assert_eq!(addresses(&operator.get(list).await.html), all);
    for (query, many) in [
        ("&pool=dmz&within=10.0.0.104/31", 2),
        ("&state=reserved", 0),
        ("&sort=owner", 6),
    ] {
        let html = operator.get(&format!("{list}{query}")).await.html;
        assert_eq!(addresses(&html).len(), many, "{query}");
    }
}

#[tokio::test]
async fn an_address_of_several_networks_is_asked_about() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    let make = fipd_core::Request::CreateNetwork {
        name: "lab".into(),
        actor: "test".into(),
    };
    site.api.ipam.submit(make).await.unwrap();
    let other = "name=other&addresses=10.0.0.0/28&network=lab&step=do";
    let page = admin.post("/ui/pools/new", other).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let page = admin.get("/ui/search?q=10.0.0.7").await;
    assert_eq!(page.status, StatusCode::OK);
    for link in [">default</a>", ">lab</a>", "/addresses/10.0.0.7\""] {
        assert!(page.html.contains(link), "no {link} in {}", page.html);
    }
    // In use in one of them, that one is meant.
    let give = "owner=fipd/host/lab/a&address=10.0.0.7";
    admin.post("/ui/pools/1/allocate", give).await;
    let page = admin.get("/ui/search?q=10.0.0.7").await;
    assert_eq!(
        page.headers[header::LOCATION],
        "/ui/networks/0/addresses/10.0.0.7"
    );
}

#[tokio::test]
async fn pools_and_tenants_are_sorted() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    fill(&admin, 3).await;
    for (name, net) in [("abc", "10.1.0.0/30"), ("zed", "2001:db8::/64")] {
        let form = format!("name={name}&addresses={net}&network=default&step=do");
        admin.post("/ui/pools/new", &form).await;
    }
    for (tenant, limit) in [("a", 9), ("b", 3), ("c", 5)] {
        let form = format!("tenant={tenant}&pool=dmz&limit={limit}");
        admin.post("/ui/tenants", &form).await;
    }
    let order = |html: &str, names: &[&str]| {
        let at = |name: &&str| html.find(&format!(">{name}</")).unwrap_or(usize::MAX);
        let mut sorted = names.to_vec();
        sorted.sort_by_key(at);
        assert!(names.iter().all(|name| at(name) < usize::MAX), "{html}");
        sorted.join(" ")
    };
    for (path, names, expected) in [
        ("/ui/pools", ["abc", "dmz", "zed"], "abc dmz zed"),
        ("/ui/pools?sort=-name", ["abc", "dmz", "zed"], "zed dmz abc"),
        ("/ui/pools?sort=-use", ["abc", "dmz", "zed"], "dmz abc zed"),
        ("/ui/pools?sort=free", ["abc", "dmz", "zed"], "abc dmz zed"),
        (
            "/ui/pools?sort=-family",
            ["abc", "dmz", "zed"],
            "zed dmz abc",
        ),
        ("/ui/", ["abc", "dmz", "zed"], "dmz abc zed"),
        ("/ui/?sort=-name", ["abc", "dmz", "zed"], "zed dmz abc"),
        ("/ui/tenants?sort=-limit", ["a", "b", "c"], "a c b"),
        ("/ui/tenants?sort=limit", ["a", "b", "c"], "b c a"),
        ("/ui/tenants", ["a", "b", "c"], "a b c"),
    ] {
        let html = admin.get(path).await.html;
        assert_eq!(order(&html, &names), expected, "{path}");
    }
    for (query, shown) in [
        ("family=IPv6", "zed"),
        ("within=10.1.0.2-10.9.0.0", "abc"),
        ("within=10.0.0.7&network=default", "dmz"),
        ("filter=b", "abc"),
        ("within=10.9.0.0/16", ""),
        ("network=lab", ""),
    ] {
        let html = admin.get(&format!("/ui/pools?{query}")).await.html;
        let names = ["abc", "dmz", "zed"].into_iter();
        let found = names.filter(|name| html.contains(&format!(">{name}</")));
        assert_eq!(found.collect::<String>(), shown, "{query}");
    }
    let mut spec = fipd_core::testing::pool_spec("old", &["10.9.0.0/24"]);
    spec.closed = true;
    let create = fipd_core::testing::create_pool(spec);
    site.api.ipam.submit(create).await.unwrap();
    for (sort, expected) in [("-use", "dmz abc zed old"), ("use", "zed abc dmz old")] {
        let html = admin.get(&format!("/ui/pools?sort={sort}")).await.html;
        let names = ["abc", "dmz", "old", "zed"];
        assert_eq!(order(&html, &names), expected, "closed ones come last");
    }
    // Neither the order of the pools nor the span of the chart is lost by choosing the other.
    let html = admin.get("/ui/?span=month&sort=-name").await.html;
    for link in [
        "href=\"/ui/?span=month&#38;sort=name\"",
        "href=\"/ui/?sort=-name\">24 hours</a>",
    ] {
        assert!(html.contains(link), "no {link} in {html}");
    }
    let html = admin.get("/ui/pools?within=x").await.html;
    assert!(html.contains("id=\"within-error\">"), "{html}");
}

#[tokio::test]
async fn leases_that_would_leave_a_pool_are_found_in_the_list() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    fill(&admin, 25).await;
    let give = "owner=fipd/host/lab/stays&address=10.0.0.200";
    admin.post("/ui/pools/1/allocate", give).await;
    let narrow = "name=dmz&network=default&addresses=10.0.0.128/25&reserve_first=0&reserve_last=0&reserve_of=prefix&generation=1";
    let html = admin.post("/ui/pools/1/edit", narrow).await.html;
    let list = "/ui/leases?pool=dmz&within=10.0.0.2-10.0.0.26";
    let link = format!("href=\"{}\"", list.replace('&', "&#38;"));
    assert!(
        html.contains("and 5 more, ") && html.contains(&link),
        "{html}"
    );
    assert_eq!(addresses(&admin.get(list).await.html).len(), 25);
}

#[tokio::test]
async fn the_search_groups_what_it_finds() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    fill(&admin, 3).await;
    admin
        .post("/ui/tenants", "tenant=lab-team&pool=dmz&limit=3")
        .await;
    let html = admin.get("/ui/search?q=lab").await.html;
    for text in [
        "/ui/tenants?filter=lab-team",
        "fipd/host/lab/m-3",
        "/ui/leases?q=lab",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    let viewer = site.visitor("viewer").await.get("/ui/search?q=lab").await;
    assert!(
        !viewer.html.contains("lab-team"),
        "as on the page of tenants"
    );
    let html = admin.get("/ui/search?q=10.0.0.2/31").await.html;
    assert_eq!(addresses(&html), ["10.0.0.2", "10.0.0.3"]);
    assert!(html.contains("href=\"/ui/pools/1\""), "{html}");
    for (query, to) in [
        ("10.0.0.3", "/ui/networks/0/addresses/10.0.0.3"),
        ("dmz", "/ui/pools/1"),
    ] {
        let page = admin.get(&format!("/ui/search?q={query}")).await;
        assert_eq!(page.headers[header::LOCATION], to);
    }
}

#[tokio::test]
async fn the_search_leads_to_all_of_what_it_shows_some_of() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    let clusters = "href=\"/ui/clusters?filter=farm\"";
    let by_name = "href=\"/ui/pools?filter=farm\"";
    let by_address = "href=\"/ui/pools?within=10.7.0.0/16\"";
    for number in 0..=50 {
        let addresses = vec![format!("10.7.{number}.0/24").parse().unwrap()];
        let create = fipd_core::Request::CreatePool {
            spec: fipd_core::PoolSpec::own(format!("farm-{number}"), addresses),
            actor: "test".into(),
        };
        site.api.ipam.submit(create).await.unwrap();
        if number <= 20 {
            let form = cluster::upload(&format!("farm-{number}"), cluster::KUBECONFIG);
            let page = admin.post("/ui/clusters/new", &form).await;
            assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
        }
        let named = admin.get("/ui/search?q=farm").await.html;
        assert_eq!(named.contains(clusters), number >= 20, "{number}");
        assert_eq!(named.contains(by_name), number == 50, "{number}");
    }
    let html = admin.get("/ui/search?q=10.7.0.0/16").await.html;
    assert!(html.contains(by_address), "{html}");
    let html = admin.get("/ui/search?q=10.7.0.0/24").await.html;
    assert!(html.contains(">farm-0</") && !html.contains("/ui/pools?within="));
}

#[tokio::test]
async fn an_address_remembers_who_had_it() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    let lease = "/ui/networks/0/addresses/10.0.0.9";
    for round in 0..30 {
        let give = format!("owner=fipd/host/lab/round-{round}&address=10.0.0.9");
        operator.post("/ui/pools/1/allocate", &give).await;
        let release = format!("{lease}/release");
        let seen = field(&operator.get(&release).await.html, "seen");
        operator.post(&release, &format!("seen={seen}")).await;
    }
    let first = operator.get(lease).await.html;
    for text in [
        "free in pool dmz",
        "round-29",
        "/ui/pools/1/allocate?address=10.0.0.9",
        "/ui/reserve?pool=dmz&#38;address=10.0.0.9",
    ] {
        assert!(first.contains(text), "no {text} in {first}");
    }
    assert!(!first.contains("round-3<"));
    let second = operator.get(&next(&first).unwrap()).await.html;
    assert!(
        second.contains("round-0<") && next(&second).is_none(),
        "{second}"
    );
    site.account("root", Role::Admin, PASSWORD).await;
    let other = "name=other&addresses=10.0.0.0/28&network=default&step=do";
    site.visitor("root")
        .await
        .post("/ui/pools/new", other)
        .await;
    let html = operator.get(lease).await.html;
    assert!(
        html.contains("Listed by") && html.contains(">other</a>"),
        "{html}"
    );
    let page = operator.get("/ui/leases/default/10.0.0.9").await;
    assert_eq!(page.headers[header::LOCATION], lease);
    let html = operator
        .get("/ui/networks/0/addresses/10.77.0.9")
        .await
        .html;
    assert!(html.contains("in no pool of this network") && !html.contains("/ui/reserve?"));
}

#[tokio::test]
async fn the_audit_log_is_filtered_and_downloaded() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    fill(&operator, 3).await;
    let release = "/ui/networks/0/addresses/10.0.0.3/release";
    let seen = field(&operator.get(release).await.html, "seen");
    operator
        .post(release, &format!("seen={seen}&reason=%3D1%2B1"))
        .await;
    for (query, shown, hidden) in [
        ("action=released", "10.0.0.3", "10.0.0.4"),
        ("address=10.0.0.4", "10.0.0.4", "10.0.0.2"),
        ("actor=operator&pool=dmz", "10.0.0.2", "user:root"),
    ] {
        let html = operator.get(&format!("/ui/audit?{query}")).await.html;
        let (_, rows) = html.split_once("<tbody>").unwrap();
        assert!(rows.contains(shown) && !rows.contains(hidden), "{query}");
        assert!(html.contains("/ui/audit.csv?"), "{html}");
    }
    let html = operator.get("/ui/audit?from=2999-01-01").await.html;
    assert!(html.contains("Nothing is like that"), "{html}");
    let html = operator.get("/ui/audit?from=soon").await.html;
    assert!(html.contains("id=\"from-error\"") && !html.contains("/ui/audit.csv?"));

    let csv = operator.get("/ui/audit.csv?action=released").await;
    assert_eq!(csv.status, StatusCode::OK);
    assert!(
        csv.headers[header::CONTENT_DISPOSITION]
            .to_str()
            .unwrap()
            .starts_with("attachment")
    );
    let lines: Vec<_> = csv.html.lines().collect();
    assert_eq!(lines.len(), 2, "{}", csv.html);
    assert!(lines[0].starts_with("number,at,actor,action"));
    assert!(lines[1].ends_with(",'=1+1"), "{}", lines[1]);
    let page = operator.get("/ui/audit.csv?action=nonsense").await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    let page = site.send(get("/ui/audit.csv", "")).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "only after signing in");
}

#[tokio::test]
async fn guests_are_filtered_and_the_ill_ones_come_first() {
    use crate::guests::{
        DetailValue, GuestDetail, GuestPhase, GuestStatus, GuestUpdate, system::testing::FIRST,
    };

    let site = Site::new().await;
    let viewer = site.visitor("viewer").await;
    let none = viewer.get("/ui/guests").await.html;
    assert!(none.contains("rancher-fip=enabled"), "{none}");
    for (id, name, phase, message) in [
        ("c-m-1", "alpha", GuestPhase::Ready, "it has everything"),
        ("c-m-2", "beta", GuestPhase::Failed, "no answer <at all>"),
    ] {
        let news = GuestUpdate {
            rancher: &"rancher".into(),
            id,
            display_name: name,
            system: FIRST,
            says: GuestStatus::new(phase, "Reason", message),
            details: vec![GuestDetail {
                field: "projects",
                label: "Projects",
                value: DetailValue::Projects([("p-1".to_owned(), "net".to_owned())].into()),
            }],
            releases: None,
        };
        site.api.guests.say(news, fipd_core::Timestamp(1));
    }
    let name = Some("Shop".to_owned());
    (site.api.guests).name_project(&"rancher".into(), "p-1", name);
    let names = |html: &str| {
        let heads = html.split("<h3>").skip(1);
        let name = |part: &str| part.split('<').next().unwrap().to_owned();
        heads.map(name).collect::<Vec<_>>()
    };
    let all = viewer.get("/ui/guests").await.html;
    assert_eq!(names(&all), ["alpha", "beta"]);
    assert!(all.contains("no answer &#60;at all&#62;"), "{all}");
    assert!(all.contains("p-1 (Shop)"), "{all}");
    let ill = viewer.get("/ui/guests?sort=health").await.html;
    assert_eq!(names(&ill), ["beta", "alpha"]);
    let failed = viewer.get("/ui/guests?phase=Failed").await.html;
    assert_eq!(names(&failed), ["beta"]);
    assert_eq!(
        names(&viewer.get("/ui/guests?filter=m-1").await.html),
        ["alpha"]
    );
}
