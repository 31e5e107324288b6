//! Whole exports of many leases.

use std::collections::BTreeSet;

use fipd_core::{
    Allocate, Answer, LeaseState, PoolSpec, Release, ReleaseScope, Request, Tenant, Want, testing,
};
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::*;
use crate::api::{
    access::auth::Caller,
    ui::tests::Site,
    wire::{LeaseView, PoolView},
};

const LEASES: usize = 25_000;

/// A pool and a lease as clients see them.
pub fn samples() -> (PoolView, LeaseView) {
    let mut ledger = Ledger::new();
    let pool = Pool {
        id: PoolId(1),
        spec: spec("p", "10.0.0.0/24"),
        generation: 1,
        created: fipd_core::Timestamp(1),
    };
    ledger.apply(&fipd_core::Op::PutPool(Arc::new(pool.clone())));
    let lease = fipd_core::Lease {
        length: 32,
        key: key("10.0.0.1"),
        pool: Some(pool.id),
        state: LeaseState::Quarantined,
        members: std::iter::empty().collect(),
        contenders: Vec::new(),
        tenant: None,
        group: None,
        since: fipd_core::Timestamp(1),
        until: None,
        labels: Default::default(),
    };
    (
        convert::pool_view(&ledger, &pool),
        convert::lease_view(&ledger, &lease),
    )
}

pub fn root(site: &Site) -> Requester {
    let caller = Caller {
        actor: "test".into(),
        role: Role::Admin,
        via: crate::api::access::auth::Via::Socket,
        scope: Arc::default(),
    };
    let ipam = site.api.ipam.clone();
    Requester { ipam, caller }
}

fn key(address: &str) -> LeaseKey {
    testing::key_of(address)
}

fn spec(name: &str, cidr: &str) -> PoolSpec {
    testing::pool_spec(name, &[cidr])
}

async fn pool(site: &Site, name: &str, cidr: &str) -> PoolId {
    let request = Request::CreatePool {
        spec: spec(name, cidr),
        actor: "test".into(),
    };
    let Answer::Pool(pool) = site.api.ipam.submit(request).await.unwrap() else {
        panic!("no pool");
    };
    pool.id
}

async fn give(site: &Site, pool: PoolId, owner: &str, count: usize) {
    let request = Request::Allocate(Allocate {
        tenant: Some(Tenant("research, \"blue\"".into())),
        ..testing::allocate(
            testing::holder(owner, ""),
            [Want {
                pool: pool.into(),
                address: None,
                count: u32::try_from(count).unwrap(),
            }],
        )
    });
    site.api.ipam.submit(request).await.unwrap();
}

/// 24,000 leases of IPv4 and 1,000 of IPv6.
async fn full() -> Site {
    let site = Site::new().await;
    let (four, six) = (
        pool(&site, "four", "10.1.0.0/16").await,
        pool(&site, "six", "2001:db8::/64").await,
    );
    for number in 0..24 {
        give(&site, four, &format!("fipd/Host/lab/h{number}"), 1_000).await;
    }
    give(&site, six, "fipd/Host/lab/six", 1_000).await;
    site
}

async fn ask(site: &Site, what: &str, format: &str) -> Response {
    let query = ExportQuery {
        what: Some(what.into()),
        format: Some(format.into()),
    };
    let stop = State(site.api.stop.clone());
    export(stop, root(site), Query(query)).await.unwrap()
}

async fn whole(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn every_lease_comes_once_in_either_format() {
    let site = full().await;
    let response = ask(&site, "leases", "jsonl").await;
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "application/jsonl"
    );
    let text = whole(response).await;
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), LEASES);
    let addresses: BTreeSet<_> = rows.iter().map(|row| row["address"].to_string()).collect();
    assert_eq!(addresses.len(), LEASES);
    let leases: Vec<LeaseView> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();

    let response = ask(&site, "leases", "csv").await;
    let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
    assert!(kind.starts_with("text/csv"), "{kind}");
    let text = whole(response).await;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().unwrap().clone();
    let at = |name: &str| heads.iter().position(|head| head == name).unwrap();
    let (address, tenant, owner) = (at("address"), at("tenant"), at("owner"));
    let mut count = 0;
    for (row, lease) in reader.records().zip(&leases) {
        let row = row.unwrap();
        assert_eq!(row[address], lease.summary.address.to_string());
        assert_eq!(&row[tenant], "research, \"blue\"");
        assert_eq!(Some(&row[owner]), lease.summary.owner.as_deref());
        count += 1;
    }
    assert_eq!(count, LEASES);
    assert_eq!(text.lines().count(), LEASES + 1, "one header line");
    assert!(text.contains("2001:db8::3e7,"), "IPv6 as it is written");
}

#[tokio::test]
async fn what_stays_comes_once_whatever_changes_meanwhile() {
    let site = full().await;
    let before: BTreeSet<String> = whole(ask(&site, "leases", "jsonl").await)
        .await
        .lines()
        .map(str::to_owned)
        .collect();
    let mut body = ask(&site, "leases", "jsonl").await.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let mut text = String::from_utf8(first.to_vec()).unwrap();
    assert_eq!(text.lines().count(), 1_000, "one page at a time");
    // One that was read, the one at which the next page begins, and one that comes later go.
    for gone in ["10.1.0.3", "10.1.3.231", "10.1.20.0"] {
        let request = Request::Release(Release {
            scope: ReleaseScope::Address(key(gone)),
            actor: "test".into(),
            reason: "".into(),
        });
        site.api.ipam.submit(request).await.unwrap();
    }
    let rest = body.collect().await.unwrap().to_bytes();
    text.push_str(std::str::from_utf8(&rest).unwrap());
    let after: Vec<&str> = text.lines().collect();
    let set: BTreeSet<String> = after.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(set.len(), after.len(), "nothing comes twice");
    let missing: Vec<_> = before.difference(&set).collect();
    assert!(missing.len() <= 2 && set.is_subset(&before), "{missing:?}");
    assert!(
        missing
            .iter()
            .all(|line| line.contains("10.1.20.0") || line.contains("10.1.3.231"))
    );
}

#[test]
fn a_page_of_pools_ends_by_the_number_of_entries() {
    let mut ledger = Ledger::new();
    let single = |at: u32| fipd_core::AddressSpec::Single(std::net::Ipv4Addr::from(at).into());
    for (id, entries) in [(1, 4_000), (2, 4_000), (3, 4_000), (4, 30_000), (5, 1)] {
        let addresses = (0..entries)
            .map(|at| single((id << 24) | (at * 2)))
            .collect();
        let pool = Pool {
            id: PoolId(id),
            spec: PoolSpec::own(format!("p{id}"), addresses),
            generation: 1,
            created: fipd_core::Timestamp(1),
        };
        ledger.apply(&fipd_core::Op::PutPool(Arc::new(pool)));
    }
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let (ledger, scope) = (&ledger, &fipd_core::Scope::default());
        let (page, next) = pools(VisibleLedger { ledger, scope }, after);
        assert!(page.iter().all(|(head, _)| head.addresses.is_empty()));
        pages.push(page.iter().map(|(head, _)| head.id).collect::<Vec<_>>());
        match next {
            Some(ExportPosition::Pools(last)) => after = last,
            _ => break,
        }
    }
    assert_eq!(pages, [vec![1, 2, 3], vec![4], vec![5]]);
}

#[tokio::test]
async fn pools_networks_and_the_audit_log_are_whole() {
    let site = Site::new().await;
    for number in 0..450 {
        pool(
            &site,
            &format!("p{number}"),
            &format!("10.9.{}.{}/32", number / 250, number % 250),
        )
        .await;
    }
    let quota = |number: usize| fipd_core::Quota {
        pool: PoolId(1),
        tenant: Tenant(format!("t-{number}").into()),
        limit: 3,
    };
    for number in 0..1_001 {
        let (quota, actor) = (quota(number), "test".into());
        let request = Request::SetQuota { quota, actor };
        site.api.ipam.submit(request).await.unwrap();
    }
    let lines = |text: String| text.lines().count();
    assert_eq!(lines(whole(ask(&site, "pools", "csv").await).await), 452);
    assert_eq!(lines(whole(ask(&site, "pools", "jsonl").await).await), 451);
    assert_eq!(lines(whole(ask(&site, "networks", "csv").await).await), 2);
    assert_eq!(lines(whole(ask(&site, "quotas", "csv").await).await), 1_002);
    let text = whole(ask(&site, "quotas", "jsonl").await).await;
    let row: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&row["tenant"], &row["limit"]), (&"t-0".into(), &3.into()));
    for number in 0..1_100 {
        give(&site, PoolId(1), "fipd/Host/lab/a", 1).await;
        let scope = ReleaseScope::Address(key("10.0.0.0"));
        let (actor, reason) = ("test".into(), format!("line {number}").into());
        let request = Request::Release(Release {
            scope,
            actor,
            reason,
        });
        site.api.ipam.submit(request).await.unwrap();
    }
    let text = whole(ask(&site, "audit", "jsonl").await).await;
    let numbers: Vec<u64> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["number"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert!(numbers.len() > 2_650, "{}", numbers.len());
    assert!(
        numbers.is_sorted_by(|a, b| a > b),
        "newest first, each once"
    );
    for (what, format) in [("people", "csv"), ("leases", "xml")] {
        let query = ExportQuery {
            what: Some(what.into()),
            format: Some(format.into()),
        };
        let stop = State(site.api.stop.clone());
        let problem = export(stop, root(&site), Query(query)).await;
        assert_eq!(problem.unwrap_err().status, 422);
    }
}
