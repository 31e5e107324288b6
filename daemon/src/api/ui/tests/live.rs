//! Pages that are open stay fresh, and nobody takes all places of those that are told of changes.

use super::*;

#[tokio::test]
async fn a_session_does_not_take_the_places_of_others() {
    let site = Site::new().await;
    let (viewer, operator) = (site.visitor("viewer").await, site.visitor("operator").await);
    let open = async |visitor: &Visitor<'_>| {
        let ask = get("/ui/events", &visitor.cookie);
        site.router.clone().call(ask).await.unwrap()
    };
    let mut pages = Vec::new();
    for _ in 0..8 {
        let page = open(&viewer).await;
        assert_eq!(page.status(), StatusCode::OK);
        pages.push(page);
    }
    assert_eq!(
        open(&viewer).await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(open(&operator).await.status(), StatusCode::OK);
    // A page that is closed leaves its place.
    pages.pop();
    assert_eq!(open(&viewer).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn lists_stay_fresh_from_their_first_row_on() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    for (page, part) in [
        ("/ui/audit?actor=no-such", "live-audit"),
        ("/ui/pools?filter=no-such", "live-pools"),
        ("/ui/clusters", "live-clusters"),
        ("/ui/guests", "live-guests"),
        ("/ui/hosts", "live-hosts"),
        ("/ui/clusters", "live-banner"),
        ("/ui/pools/1", "live-map"),
        ("/ui/pools/1", "live-legend"),
    ] {
        let html = admin.get(page).await.html;
        assert!(
            html.contains(&format!("id=\"{part}\" data-live")),
            "{page}: {html}"
        );
    }
}
