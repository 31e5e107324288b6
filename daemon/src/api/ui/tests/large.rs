//! An address book with more rows of each kind than one step may read: debug builds panic where a page reads on.

use axum::{body::Body, extract::ConnectInfo};
use fipd_core::{Adopt, Answer, Ledger, PoolId, PoolSpec, Quota, Tenant, Timestamp, testing};
use futures::future::join_all;
use http::{Request, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::Service as _;

use super::Site;
use crate::api::access::auth::SocketPeer;

const PAGES: [&str; 16] = [
    "/ui/",
    "/ui/pools",
    "/ui/pools?sort=-use",
    "/ui/pools/1",
    "/ui/pools/1/edit",
    "/ui/pools/1/delete",
    "/ui/pools/1/move",
    "/ui/pools/new",
    "/ui/leases",
    "/ui/leases?sort=-since",
    "/ui/tenants",
    "/ui/search?q=10.0.0.7",
    "/ui/search?q=apps",
    "/ui/clusters",
    "/ui/audit",
    "/ui/users",
];

const VIEWS: [&str; 13] = [
    "/api/v1/networks?limit=1000",
    "/api/v1/pools?limit=1000",
    "/api/v1/pools/dmz",
    "/api/v1/leases?limit=1000",
    "/api/v1/quotas?limit=1000",
    "/api/v1/quotas?tenant=t&limit=1000",
    "/api/v1/changes?since=0&limit=1000",
    "/api/v1/audit?limit=1000",
    "/api/v1/export?what=pools",
    "/api/v1/export?what=networks",
    "/api/v1/export?what=quotas",
    "/api/v1/check",
    "/metrics",
];

/// What the command line is answered.
async fn ask(site: &Site, request: http::request::Builder, body: &Value) -> Value {
    let json = (header::CONTENT_TYPE, "application/json");
    let request = request.header(json.0, json.1);
    let mut request = request.body(Body::from(body.to_string())).unwrap();
    let peer = SocketPeer {
        uid: Some(0),
        gid: Some(0),
    };
    let path = request.uri().clone();
    request.extensions_mut().insert(ConnectInfo(peer));
    let answer = site.router.clone().call(request).await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    // Not all is JSON.
    serde_json::from_slice(&body).unwrap_or_default()
}

async fn submit(site: &Site, requests: impl Iterator<Item = fipd_core::Request>) -> Vec<Answer> {
    let answers = requests.map(|request| site.api.ipam.submit(request));
    let answers = join_all(answers).await.into_iter();
    answers.map(Result::unwrap).collect()
}

/// Networks, pools, quotas of one tenant and contended leases.
async fn fill(site: &Site) {
    let actor = || "test".into();
    let each = || 0..=Ledger::SCAN + 1;
    let networks = each().map(|at| fipd_core::Request::CreateNetwork {
        name: format!("network-{at}").into(),
        actor: actor(),
    });
    submit(site, networks).await;
    let pools = each().map(|at| {
        let addresses = format!("10.{}.{}.0/29", 1 + at / 256, at % 256);
        let name = format!("pool-{at}");
        let spec = PoolSpec::own(&*name, vec![addresses.parse().unwrap()]);
        let actor = actor();
        fipd_core::Request::CreatePool { spec, actor }
    });
    let pools = submit(site, pools).await;
    let quotas = pools.iter().map(|answer| {
        let Answer::Pool(pool) = answer else {
            panic!("{answer:?}");
        };
        fipd_core::Request::SetQuota {
            quota: Quota {
                pool: pool.id,
                tenant: Tenant("t".into()),
                limit: 7,
            },
            actor: actor(),
        }
    });
    submit(site, quotas).await;
    for user in ["a", "b"] {
        let leases = each().map(|at| {
            let address = [10, 1 + (at / 256) as u8, (at % 256) as u8, 1];
            fipd_core::Request::Adopt(Adopt {
                length: None,
                key: testing::key(address),
                holder: testing::holder(format!("fipd/Service/apps/{user}-{at}"), "1"),
                tenant: None,
                since: Timestamp(1),
                actor: actor(),
            })
        });
        submit(site, leases).await;
    }
    assert!(site.api.ipam.read(Ledger::next_pool) > PoolId(1_000));
}

#[tokio::test]
async fn no_page_and_no_view_reads_more_than_a_step_at_once() {
    let site = Site::new().await;
    site.sign_in().await;
    fill(&site).await;
    let root = site.visitor("root").await;
    for path in PAGES {
        let status = root.get(path).await.status;
        assert!(
            status.is_success() || status.is_redirection(),
            "{path}: {status}"
        );
    }
    for path in VIEWS {
        ask(&site, Request::get(path), &json!(null)).await;
    }
}

#[tokio::test]
async fn an_owner_may_have_more_than_is_read_at_once() {
    let site = Site::new().await;
    site.sign_in().await;
    let spec = PoolSpec::own("wide", vec!["10.9.0.0/20".parse().unwrap()]);
    submit(&site, [testing::create_pool(spec)].into_iter()).await;
    let since = site.api.ipam.read(Ledger::revision);
    let want = json!({ "pool": "wide", "count": 1024 });
    let all = json!({ "owner": "fipd/vm/lab/a", "wants": [want, want] });
    ask(&site, Request::post("/api/v1/leases"), &all).await;
    let path = format!("/api/v1/changes?since={since}");
    let changes = ask(&site, Request::get(path), &json!(null)).await["changes"].take();
    assert_eq!(changes.as_array().map(Vec::len), Some(1));
    assert_eq!(changes[0]["kinds"], json!(["pools", "leases"]));
    assert_eq!(changes[0]["leases"].as_array().map(Vec::len), Some(2_048));
    let root = site.visitor("root").await;
    let found = root.get("/ui/search?q=fipd/vm/lab/a").await;
    for text in ["10.9.0.1", "There may be more."] {
        assert!(found.html.contains(text), "{}", found.html);
    }
    let owner = json!({ "owner": "fipd/vm/lab/a" });
    for left in [2_048, 0] {
        let path = Request::post("/api/v1/leases/release");
        let released = ask(&site, path, &owner).await["released"].take();
        assert_eq!(released.as_array().map(Vec::len), Some(left));
    }
}
