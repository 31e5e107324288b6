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
    let free = admin
        .get("/ui/networks/0/addresses/2001:db8:0:4::77")
        .await
        .html;
    for text in [
        "This address is in the prefix 2001:db8:0:4::/64, which is free in pool delegated.",
        ">Allocate 2001:db8:0:4::/64</a>",
    ] {
        assert!(free.contains(text), "no {text} in {free}");
    }
    let lease = "/ui/networks/0/addresses/2001:db8:0:3::";
    for address in ["2001:db8:0:3::", "2001:db8:0:3::77"] {
        let release = format!("/ui/networks/0/addresses/{address}/release");
        let asked = admin.get(&release).await.html;
        assert!(
            asked.contains("<h1>Release 2001:db8:0:3::/64?</h1>"),
            "{asked}"
        );
    }
    let release = format!("{lease}/release");
    let seen = field(&admin.get(&release).await.html, "seen");
    let page = admin.post(&release, &format!("seen={seen}")).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let html = admin.get(&here).await.html;
    let done = "2001:db8:0:3::/64 was released and is free.";
    assert!(html.contains(done), "{html}");
    let page = admin.get(&release).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let html = admin.get(lease).await.html;
    assert!(html.contains("2001:db8:0:3::/64 is free already."));
}

/// The page of a pool that is made.
async fn made(site: &Site, spec: fipd_core::PoolSpec) -> String {
    let name = spec.name.to_string();
    let create = testing::create_pool(spec);
    site.api.ipam.submit(create).await.unwrap();
    let id = site
        .api
        .ipam
        .read(|ledger| ledger.find_pool(&name).ok().map(|pool| pool.id.0));
    format!("/ui/pools/{}", id.unwrap())
}

#[tokio::test]
async fn what_others_have_of_a_pool_of_prefixes_is_shown_with_whose_it_is() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    let delegated = fipd_core::PoolSpec {
        allocation_length: Some(64),
        ..testing::pool_spec("delegated", &["2001:db8::/56", "2001:db8:9::/56"])
    };
    let here = made(&site, delegated).await;
    let html = operator.get(&here).await.html;
    for text in [
        "No block has leases yet.",
        "Nothing of this pool is in use.",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }

    // The second lies between what the pool of prefixes lists.
    let lab = testing::pool_spec("lab", &["2001:db8:0:3::7", "2001:db8:5::7"]);
    let lab = made(&site, lab).await;
    let allocate = async |pool: &str, owner: &str, address: &str| {
        let form = format!("owner={owner}&address={address}");
        let page = operator.post(&format!("{pool}/allocate"), &form).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    };
    allocate(&lab, "fipd/host/lab/a", "2001:db8:0:3::7").await;
    allocate(&lab, "fipd/host/lab/between", "2001:db8:5::7").await;
    let html = operator.get(&here).await.html;
    for text in [
        ">2001:db8:0:3::/64</a>",
        "href=\"/ui/leases?network=default&#38;within=2001:db8:0:3::/64\"",
        "fipd/host/lab/a <span class=\"tag\">of pool lab</span>",
        "This pool has no leases. Leases of other pools take some of its prefixes.",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    assert!(!html.contains("fipd/host/lab/between"), "{html}");

    allocate(&here, "fipd/Router/lab/edge", "2001:db8:9:1::/64").await;
    for at in ["2001:db8:0:4::/64", "2001:db8:5::", "2001:db8:9:1::/64"] {
        let html = operator.get(&format!("{here}?at={at}")).await.html;
        let own = "href=\"/ui/leases?pool=delegated&#38;within=2001:db8:9:1::/64\"";
        assert!(html.contains(own), "{at}: {html}");
        assert!(!html.contains("of pool lab"), "{at}: {html}");
    }
    let html = operator
        .get(&format!("{here}?at=2001:db8::7/64"))
        .await
        .html;
    assert!(html.contains("id=\"at-error\""), "{html}");

    let beside = "/ui/networks/0/addresses/2001:db8:0:3::8";
    let html = operator.get(beside).await.html;
    for text in [
        "its prefix 2001:db8:0:3::/64 is not free: 2001:db8:0:3::7 in it is held.",
        "href=\"/ui/networks/0/addresses/2001:db8:0:3::7\">See 2001:db8:0:3::7</a>",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    assert!(!html.contains("which is closed") && !html.contains("/allocate?"));
}
