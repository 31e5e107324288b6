//! What is shown of guests and ranges: on the page, by the CLI and by REST.

use fipd_tests::testbed::{Browser, BrowserOptions, Login, Method, Visitor};

use super::*;

/// The part of the page of guests that is about one.
async fn card(visitor: &mut Visitor, id: &str) -> String {
    let (page, status) = visitor.send(Method::GET, "/ui/guests", "").await.unwrap();
    assert_eq!(status, 200, "{page}");
    let mut cards = page.split("<li class=\"card\">");
    let card = cards.find(|card| card.contains(&format!("<code>{id}</code>")));
    card.unwrap_or_default().to_owned()
}

/// From the page of guests to the lease and back, as an admin clicks.
async fn look(bed: &Bed, login: &Login) {
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    let url = bed.fipd.url();
    browser.open(&format!("{url}/ui/guests")).await.unwrap();
    browser.fill("#name", &login.name).await.unwrap();
    browser.fill("#password", &login.password).await.unwrap();
    browser.follow("main button").await.unwrap();
    browser.open(&format!("{url}/ui/guests")).await.unwrap();
    browser.screenshot("kube-fip-guests").await.unwrap();
    let lease = "main a[href$='/addresses/10.90.0.2']";
    browser.follow(lease).await.unwrap();
    let page = browser.text("main").await.unwrap();
    assert!(page.contains("shown-served-kubevip"), "{page}");
    browser.screenshot("kube-fip-lease").await.unwrap();
    let back = "main a[href='/ui/guests?filter=c-m-shown-served']";
    browser.follow(back).await.unwrap();
    let page = browser.text("main").await.unwrap();
    assert!(
        page.contains("shown-served") && !page.contains("shown-waits"),
        "{page}"
    );
    let complaints = browser.complaints().await.unwrap();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_the_cli_and_rest_show_address_range_releases_and_what_is_missing() {
    let bed = Bed::start(&[]).await;
    let served = bed.guest("shown-served", "one", json!({ "kube-vip": "true" }));
    served.write_machines().await;
    served.make_cluster().await;
    served.make_namespace().await;
    served.wait_reason("NoKubeconfig").await;
    served.make_kubeconfig().await;
    let mut waits = bed.guest("shown-waits", "two", json!({}));
    waits.machines.harvester = "c-m-elsewhere".to_owned();
    waits.make().await;
    waits.wait_reason("NoHarvester").await;
    served.wait_releases(&[KUBE_VIP, CLOUD_PROVIDER]).await;
    let said = served.wait_reason("Ready").await;
    assert_eq!(
        (&said["addresses"], &said["ranges"]),
        (&json!("10.90.0.2"), &json!("vlan-1"))
    );
    let (error, _) = said["last_error"]
        .as_str()
        .unwrap()
        .split_once(':')
        .unwrap();
    let releases = said["releases"].as_array().unwrap();
    let names: Vec<_> = releases.iter().map(|one| &one["name"]).collect();
    assert_eq!(names, [KUBE_VIP, CLOUD_PROVIDER]);
    for release in releases {
        assert_eq!(release["state"], "deployed", "{release}");
        assert_eq!(release["namespace"], "kube-system", "{release}");
    }

    let login = Login::first(&bed.fipd).unwrap();
    let mut visitor = Visitor::connect(&bed.fipd).await.unwrap();
    visitor.sign_in(&login).await.unwrap();
    let shown = card(&mut visitor, &served.id).await;
    for part in [
        "shown-served",
        "10.90.0.2",
        "vlan-1",
        "kube-fip",
        KUBE_VIP,
        CLOUD_PROVIDER,
        "0.6.4",
        "deployed",
        error,
    ] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
    let shown = card(&mut visitor, &waits.id).await;
    for part in ["shown-waits", "c-m-elsewhere", "Waiting"] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }

    look(&bed, &login).await;

    let listed = bed.fipd.cli(["kube-fip", "guests"]).await.unwrap();
    let listed = listed.success().unwrap();
    for part in ["shown-served", "10.90.0.2", "vlan-1", "shown-waits"] {
        assert!(listed.contains(part), "no {part} in {listed}");
    }
    let json = bed.fipd.cli(["kube-fip", "guests", "-o", "json"]).await;
    let guests = json.unwrap().json().unwrap();
    let guests = guests["guests"].as_array().unwrap();
    assert!(
        guests
            .iter()
            .any(|one| one["id"] == *served.id && one["addresses"] == "10.90.0.2")
    );
    let ranges = bed.fipd.cli(["kube-fip", "ranges"]).await.unwrap();
    let ranges = ranges.success().unwrap();
    for part in ["vlan-1", "10.90.0.0/24"] {
        assert!(ranges.contains(part), "no {part} in {ranges}");
    }
}
