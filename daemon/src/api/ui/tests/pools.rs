//! Making, changing and deleting pools.

use fipd_core::{
    Adopt, Answer, Holder, LeaseKey, NetworkId, Origin, PoolEdit, PoolId, PoolSpec, Release,
    ReleaseScope, Request as Ask, Timestamp, testing,
};

use super::*;
use crate::api::convert::pool_view;

const NEW: &str = "/ui/pools/new";
const EDIT: &str = "/ui/pools/1/edit";
const DELETE: &str = "/ui/pools/1/delete";

async fn admin(site: &Site) -> Visitor<'_> {
    site.account("root", Role::Admin, PASSWORD).await;
    site.visitor("root").await
}

fn pool(site: &Site, name: &str) -> Option<Arc<fipd_core::Pool>> {
    site.api
        .ipam
        .read(|ledger| ledger.find_pool(name).ok().cloned())
}

fn form(addresses: &str, generation: u64) -> String {
    format!(
        "name=dmz&network=default&addresses={addresses}&reserve_first=0&reserve_last=0&reserve_of=prefix&generation={generation}"
    )
}

#[tokio::test]
async fn only_admins_change_pools() {
    let site = Site::new().await;
    let (viewer, operator) = (site.visitor("viewer").await, site.visitor("operator").await);
    for visitor in [&viewer, &operator] {
        for path in [NEW, EDIT, DELETE] {
            assert_eq!(visitor.get(path).await.status, StatusCode::FORBIDDEN);
            let page = visitor.post(path, &form("10.9.0.0/24", 1)).await;
            assert_eq!(page.status, StatusCode::FORBIDDEN, "{path}");
        }
        let page = visitor.get("/ui/pools/1").await.html;
        assert!(!page.contains(EDIT) && !page.contains(DELETE));
        assert!(!visitor.get("/ui/pools").await.html.contains(NEW));
    }
    let admin = admin(&site).await;
    let page = admin.get("/ui/pools/1").await.html;
    assert!(page.contains(EDIT) && page.contains(DELETE));
    assert!(admin.get("/ui/pools").await.html.contains(NEW));
    let page = site
        .send(post(EDIT, &admin.cookie, &form("10.9.0.0/24", 1)))
        .await;
    assert_eq!(page.status, StatusCode::FORBIDDEN, "without the token");
}

#[tokio::test]
async fn for_whom_a_pool_is_and_what_it_remembers_is_set_and_shown() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let lab = |scopes: &str| {
        format!(
            "name=lab&addresses=10.0.0.0/24&network=default&sticky_for=2d&sticky_most=25&priority=3&scopes={scopes}"
        )
    };
    let page = admin.post(NEW, &lab("cluster%3Deast%0Azone%3D1")).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.html.contains("id=\"scopes-error\""), "{}", page.html);
    assert!(page.html.contains("cluster=east\nzone=1</textarea>"));
    let good = lab("cluster%3Deast%2Cnamespace%3Dshop%0Aproject%3Dp-1%2Clabel%3Dtier%3Dweb");
    let page = admin.post(NEW, &format!("{good}&step=do")).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let made = pool(&site, "lab").unwrap();
    assert_eq!(
        (made.spec.sticky.lasts, made.spec.sticky.most),
        (172_800, 25)
    );
    assert_eq!(made.spec.scopes.len(), 2);
    let html = admin.get(&format!("/ui/pools/{}", made.id.0)).await.html;
    for text in [
        "cluster=east,namespace=shop",
        "project=p-1,label=tier=web",
        "priority 3",
        "25 addresses for 2 d",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    let edit = admin
        .get(&format!("/ui/pools/{}/edit", made.id.0))
        .await
        .html;
    assert!(
        edit.contains("value=\"25\"") && edit.contains("project=p-1,label=tier=web</textarea>")
    );
}

#[tokio::test]
async fn a_pool_is_looked_at_before_it_is_made() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let wrong = "name=lab&addresses=10.0.0.0/33&gateway=10.0.0.1&network=default";
    let page = admin.post(NEW, wrong).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        page.html.contains("id=\"addresses-error\""),
        "{}",
        page.html
    );
    assert!(page.html.contains("10.0.0.0/33</textarea>") && page.html.contains("value=\"lab\""));
    let right = "name=lab&addresses=10.0.0.128/25&gateway=10.0.0.129&network=default";
    let page = admin.post(NEW, right).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.html);
    for text in [
        "<strong>125</strong>",
        "Shares addresses with other pools",
        "href=\"/ui/pools/1\"",
        "type=\"hidden\" name=\"addresses\" value=\"10.0.0.128/25\"",
    ] {
        assert!(page.html.contains(text), "no {text} in {}", page.html);
    }
    assert!(pool(&site, "lab").is_none(), "looking makes nothing");
    let page = admin.post(NEW, &format!("{right}&step=edit")).await;
    assert!(page.html.contains("10.0.0.128/25</textarea>"));
    let page = admin.post(NEW, &format!("{right}&step=do")).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert_eq!(page.headers[header::LOCATION], "/ui/pools/2");
    let made = pool(&site, "lab").unwrap();
    assert_eq!((made.spec.ends.first, made.spec.ends.last), (1, 1));
    let html = admin.get("/ui/pools/2").await.html;
    assert!(html.contains("Pool lab was made."), "{html}");
    let again = "name=lab&addresses=10.7.0.0/24&network=default";
    let page = admin.post(NEW, again).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        page.html.contains("id=\"name-error\">a pool named lab"),
        "{}",
        page.html
    );
}

#[tokio::test]
async fn leaving_leases_out_takes_a_reason() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let give = "owner=fipd/host/lab/a&address=10.0.0.9";
    admin.post("/ui/pools/1/allocate", give).await;
    admin
        .post("/ui/tenants", "tenant=t&pool=dmz&limit=99")
        .await;
    let narrow = form("10.0.0.64/26", 1);
    let page = admin.post(EDIT, &narrow).await;
    assert_eq!(page.status, StatusCode::OK);
    for text in [
        "1 lease would be out of range",
        "fipd/host/lab/a",
        "Limits above what the pool can give",
        "Change it and leave them out of range",
        "<strong>256</strong> before, <strong>64</strong> after",
        ">10.0.0.0/24</td>",
    ] {
        assert!(page.html.contains(text), "no {text} in {}", page.html);
    }
    let page = admin.post(EDIT, &format!("{narrow}&step=do")).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.html.contains("id=\"reason-error\">Say why"));
    assert_eq!(pool(&site, "dmz").unwrap().generation, 1);
    let page = admin
        .post(EDIT, &format!("{narrow}&step=do&reason=new+plan"))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert_eq!(pool(&site, "dmz").unwrap().generation, 2);
    assert!(site.holds("10.0.0.9"), "the lease stays with its holder");
    let audit = admin.get("/ui/audit").await.html;
    assert!(audit.contains("dmz: new plan"), "{audit}");
}

#[tokio::test]
async fn what_others_changed_is_shown_and_nothing_typed_is_lost() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let mut spec = pool(&site, "dmz").unwrap().spec.clone();
    spec.gateway = Some("10.0.0.254".parse().unwrap());
    let edit = PoolEdit {
        pool: PoolId(1),
        spec,
        if_generation: None,
        force: false,
        actor: "somebody".into(),
        reason: "".into(),
    };
    site.api
        .ipam
        .submit(fipd_core::Request::UpdatePool(edit))
        .await
        .unwrap();
    let mine = form("10.0.0.0/23", 1);
    for step in ["", "&step=do"] {
        let page = admin.post(EDIT, &format!("{mine}{step}")).await;
        assert_eq!(page.status, StatusCode::CONFLICT);
        for text in [
            "Somebody else changed the pool meanwhile",
            "10.0.0.0/23</textarea>",
            "At present it is 10.0.0.0/24.",
            "id=\"gateway-error\">At present it is 10.0.0.254.",
            "name=\"generation\" value=\"2\"",
        ] {
            assert!(page.html.contains(text), "no {text} in {}", page.html);
        }
    }
    let page = admin
        .post(EDIT, &(form("10.0.0.0/23", 2) + "&step=do"))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert_eq!(pool(&site, "dmz").unwrap().spec.gateway, None);
}

#[tokio::test]
async fn an_empty_pool_is_deleted_and_a_used_one_is_not() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let give = "owner=fipd/host/lab/a&address=10.0.0.9";
    admin.post("/ui/pools/1/allocate", give).await;
    let page = admin.get(DELETE).await;
    assert!(
        page.html.contains("still has a lease") && !page.html.contains("value=\"do\""),
        "{}",
        page.html
    );
    let page = admin.post(DELETE, "generation=1").await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    let lease = "/ui/networks/0/addresses/10.0.0.9/release";
    let seen = field(&admin.get(lease).await.html, "seen");
    admin.post(lease, &format!("seen={seen}")).await;
    let page = admin.post(DELETE, "generation=7").await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(pool(&site, "dmz").is_some());
    let page = admin.post(DELETE, "generation=1").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert!(pool(&site, "dmz").is_none());
}

#[tokio::test]
async fn who_releases_an_address_is_told_what_becomes_of_it() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    let mut spec = testing::pool_spec("cool", &["10.7.0.0/24"]);
    spec.quarantine = 3_600;
    let actor = "test".into();
    let create = Ask::CreatePool { spec, actor };
    site.api.ipam.submit(create).await.unwrap();
    for (pool, address, said) in [
        (1, "10.0.0.9", "given to anyone at once"),
        (2, "10.7.0.9", "it is quarantined for 1 h"),
    ] {
        let give = format!("owner=fipd/host/lab/of-{pool}&address={address}");
        let allocate = format!("/ui/pools/{pool}/allocate");
        operator.post(&allocate, &give).await;
        let release = format!("/ui/networks/0/addresses/{address}/release");
        let page = operator.get(&release).await.html;
        assert!(page.contains(said), "{page}");
    }
}

#[tokio::test]
async fn a_mirror_is_read_only() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let mut spec = testing::pool_spec("rancher-fip/edge/web", &["10.5.0.0/24"]);
    spec.origin = Origin::Mirror {
        system: "rancher-fip".parse().unwrap(),
        cluster: fipd_core::ClusterId("c-1".into()),
        object: "web".into(),
        uid: "u".into(),
    };
    let create = fipd_core::testing::create_pool(spec);
    site.api.ipam.submit(create).await.unwrap();
    let page = admin.get("/ui/pools/2").await.html;
    assert!(!page.contains("/ui/pools/2/edit") && page.contains("/ui/clusters?filter=c-1"));
    for path in ["/ui/pools/2/edit", "/ui/pools/2/delete"] {
        assert_eq!(admin.get(path).await.status, StatusCode::CONFLICT);
        let page = admin.post(path, &form("10.6.0.0/24", 1)).await;
        assert!(
            page.html.contains("follows the object web"),
            "{}",
            page.html
        );
    }
}

#[tokio::test]
async fn a_pool_goes_to_another_network_after_a_look() {
    const MOVE: &str = "/ui/pools/1/move";
    let site = Site::new().await;
    let (admin, operator) = (admin(&site).await, site.visitor("operator").await);
    assert_eq!(operator.get(MOVE).await.status, StatusCode::FORBIDDEN);
    let page = operator.post(MOVE, "network=blue&step=do").await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(!operator.get("/ui/pools/1").await.html.contains(MOVE));
    assert!(admin.get("/ui/pools/1").await.html.contains(MOVE));
    let page = admin.post(MOVE, "network=blue").await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    assert!(page.html.contains("network-error"), "{}", page.html);
    let (name, actor) = ("blue".into(), "test".into());
    let made = site.api.ipam.submit(Ask::CreateNetwork { name, actor });
    let Ok(Answer::Network(blue)) = made.await else {
        panic!("no network");
    };
    let give = "owner=fipd/host/lab/a&address=10.0.0.9";
    admin.post("/ui/pools/1/allocate", give).await;
    let key = LeaseKey {
        network: blue.id,
        address: "10.0.0.9".parse().unwrap(),
    };
    let there = |owner: &str| Holder {
        identity: owner.parse().unwrap(),
        instance: "".into(),
    };
    let adopt = Ask::Adopt(Adopt {
        length: None,
        key,
        holder: there("fipd/host/lab/there"),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    });
    site.api.ipam.submit(adopt).await.unwrap();
    assert!(
        admin
            .get(MOVE)
            .await
            .html
            .contains("<option value=\"blue\"")
    );
    let page = admin.post(MOVE, "network=blue").await;
    for text in [
        "1 in default",
        "1 in blue",
        "10.0.0.9 (fipd/host/lab/there)",
    ] {
        assert!(page.html.contains(text), "no {text} in {}", page.html);
    }
    assert!(!page.html.contains("value=\"do\""), "{}", page.html);
    let page = admin.post(MOVE, "network=blue&step=do").await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.html);
    let release = Ask::Release(Release {
        scope: ReleaseScope::Address(key),
        actor: "test".into(),
        reason: "".into(),
    });
    site.api.ipam.submit(release).await.unwrap();
    let page = admin.post(MOVE, "network=blue").await;
    assert!(page.html.contains("value=\"do\""), "{}", page.html);
    let page = admin.post(MOVE, "network=blue&step=do").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert_eq!(pool(&site, "dmz").unwrap().spec.network, blue.id);
    let html = admin.get("/ui/pools/1").await.html;
    assert!(html.contains("Pool dmz went to network blue."), "{html}");
}

#[tokio::test]
async fn an_admin_says_that_two_networks_are_two() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let ask = |request| site.api.ipam.submit(request);
    let (name, actor) = ("vlan-7".into(), "test".into());
    let Ok(Answer::Network(network)) = ask(Ask::CreateNetwork { name, actor }).await else {
        panic!("no network");
    };
    for (name, network) in [("here", NetworkId::DEFAULT), ("there", network.id)] {
        let spec = PoolSpec {
            network,
            network_by_default: true,
            ..testing::pool_spec(name, &["10.77.0.0/28"])
        };
        let actor = "test".into();
        ask(Ask::CreatePool { spec, actor }).await.unwrap();
        if name == "here" {
            let lease = "owner=fipd/host/lab/web&address=10.77.0.12";
            let here = format!("/ui/pools/{}", pool(&site, name).unwrap().id.0);
            admin.post(&format!("{here}/allocate"), lease).await;
        }
    }
    let here = pool(&site, "here").unwrap();
    let usage = site.api.ipam.read(|ledger| pool_view(ledger, &here).usage);
    // All leases of the pool, and all addresses that it lists.
    let leases = (usage.used.0, usage.withheld_in_use.0, usage.out_of_range.0);
    assert_eq!((leases, usage.withheld.0, usage.size.0), ((0, 1, 0), 16, 0));
    let page = format!("/ui/pools/{}", here.id.0);
    let said = format!("{page}/separate");
    let html = admin.get(&page).await.html;
    for text in [
        "16 addresses are not given",
        "<dt>Withheld in use</dt><dd>1</dd>",
        "<strong>there</strong> of network <strong>vlan-7</strong>",
        &format!("action=\"{said}\""),
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    assert!(
        html.contains("10.77.0.9 withheld") && !html.contains("reserved end"),
        "{html}"
    );
    let address = "/ui/networks/0/addresses/10.77.0.9";
    let html = admin.get(address).await.html;
    for text in [
        "withheld in pool here",
        "waits for an admin&#39;s word",
        &format!("href=\"{page}#doubts\""),
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    assert!(!html.contains("never give"), "{html}");
    let operator = site.visitor("operator").await;
    assert!(!operator.get(&page).await.html.contains(&said));
    let refused = operator.post(&said, "network=vlan-7").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    admin.post(&said, "network=nowhere").await;
    assert!(admin.get(&page).await.html.contains("nowhere"));
    let done = admin.post(&said, "network=vlan-7").await;
    assert_eq!(done.status, StatusCode::SEE_OTHER);
    let html = admin.get(&page).await.html;
    assert!(
        !html.contains("are not given") && !html.contains("withheld"),
        "{html}"
    );
    assert!(admin.get(address).await.html.contains("free in pool here"));
    assert!(html.contains("The networks of here and vlan-7 are two."));
}
