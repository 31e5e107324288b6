//! Giving a lease to another owner.

use super::*;
use fipd_core::testing;

const LEASE: &str = "/ui/networks/0/addresses/10.0.0.9";

fn owner(site: &Site) -> String {
    let key = testing::key_of("10.0.0.9");
    let lease = site.api.ipam.read(|ledger| ledger.lease(key).cloned());
    lease.unwrap().owner().unwrap().identity.to_string()
}

#[tokio::test]
async fn what_was_seen_is_transferred_with_a_reason_and_nothing_else() {
    let site = Site::new().await;
    let viewer = site.visitor("viewer").await;
    let operator = site.visitor("operator").await;
    let give = "owner=fipd/host/lab/a&address=10.0.0.9";
    operator.post("/ui/pools/1/allocate", give).await;
    let path = format!("{LEASE}/transfer");
    assert!(!viewer.get(LEASE).await.html.contains("/transfer"));
    for page in [viewer.get(&path).await, viewer.post(&path, "to=x").await] {
        assert_eq!(page.status, StatusCode::FORBIDDEN);
    }
    assert!(operator.get(LEASE).await.html.contains(&path));
    let seen = field(&operator.get(&path).await.html, "seen");
    let form = |to: &str, reason: &str, seen: &str| {
        format!("to={to}&tenant=p-2&reason={reason}&seen={seen}")
    };
    for (to, reason, error) in [
        ("", "moved", "id=\"to-error\">Say who"),
        ("no+owner", "moved", "id=\"to-error\">"),
        ("fipd/host/lab/b", "+", "id=\"reason-error\">Say why"),
    ] {
        let page = operator.post(&path, &form(to, reason, &seen)).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(page.html.contains(error), "{to} {reason}: {}", page.html);
        assert!(page.html.contains("value=\"p-2\""), "what was typed stays");
    }
    let stale = form("fipd/host/lab/b", "moved", "0000000000000000");
    let page = operator.post(&path, &stale).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(page.html.contains("has changed since"), "{}", page.html);
    assert_eq!(owner(&site), "fipd/host/lab/a");

    let page = operator
        .post(&path, &form("fipd/host/lab/b", "moved", &seen))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert_eq!(owner(&site), "fipd/host/lab/b");
    let html = operator.get(LEASE).await.html;
    for text in [
        "10.0.0.9 is held by fipd/host/lab/b now.",
        "<dd>p-2</dd>",
        "charged to p-2: moved",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
}
