//! Pools of prefixes on pages.

use super::*;

const NEW: &str = "/ui/pools/new";
const FORM: &str = "name=delegated&network=default&addresses=2001:db8::/48&quota_unit=address";

#[tokio::test]
async fn a_pool_of_prefixes_is_made_shown_and_used() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    for (length, name) in [
        ("129", "allocation_length"),
        ("x", "allocation_length"),
        ("40", "addresses"),
    ] {
        let page = admin
            .post(NEW, &format!("{FORM}&allocation_length={length}"))
            .await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{length}");
        assert!(
            page.html.contains(&format!("id=\"{name}-error\"")),
            "{}",
            page.html
        );
        assert!(
            page.html.contains(&format!("value=\"{length}\"")),
            "the input is kept"
        );
    }
    let page = admin
        .post(NEW, &format!("{FORM}&allocation_length=64&step=do"))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let pool = site
        .api
        .ipam
        .read(|ledger| ledger.find_pool("delegated").ok().cloned())
        .unwrap();
    let here = format!("/ui/pools/{}", pool.id.0);
    let html = admin.get(&here).await.html;
    for text in [
        "prefixes of /64",
        "Allocate a prefix of /64",
        "2001:db8::/64",
        "<dt>Quotas count</dt><dd>addresses",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    let edit = admin.get(&format!("{here}/edit")).await.html;
    assert!(!edit.contains("allocation_length"), "it stays as it is");

    let allocate = format!("{here}/allocate");
    let owner = "owner=fipd/Router/lab/edge";
    let page = admin
        .post(&allocate, &format!("{owner}&address=2001:db8:0:3::1"))
        .await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.html.contains("id=\"address-error\""), "{}", page.html);
    let page = admin
        .post(&allocate, &format!("{owner}&address=2001:db8:0:3::/64"))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let html = admin.get(&here).await.html;
    assert!(
        html.contains("Blocks of /64") && html.contains(">2001:db8:0:3::/64</a>"),
        "{html}"
    );
    for address in ["2001:db8:0:3::", "2001:db8:0:3::77"] {
        let html = admin
            .get(&format!("/ui/networks/0/addresses/{address}"))
            .await
            .html;
        assert!(html.contains("<h1>2001:db8:0:3::/64</h1>"), "{html}");
        assert!(html.contains("Release 2001:db8:0:3::/64"), "{html}");
    }
    let free = admin
        .get("/ui/networks/0/addresses/2001:db8:0:4::")
        .await
        .html;
    assert!(free.contains("free in pool delegated"), "{free}");
    let release = "/ui/networks/0/addresses/2001:db8:0:3::/release";
    let asked = admin.get(release).await.html;
    assert!(
        asked.contains("<h1>Release 2001:db8:0:3::/64?</h1>"),
        "{asked}"
    );
}
