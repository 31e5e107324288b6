//! Guests that cannot be served, and that they hold up no other.

use super::*;

/// The guest answers, by the metric of the original.
async fn status(bed: &Bed, guest: &Guest<'_>) -> Option<f64> {
    let name = "kubefipoperator_guestcluster_status";
    bed.series(name, guest.name(), "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_25_a_guest_behind_a_cut_link_holds_up_no_other_and_is_served_once_it_is_back() {
    let bed = Bed::start(&[]).await;
    let on = || json!({ "kube-vip": "true" });
    let link = bed.cluster("one").proxy.as_ref().unwrap();
    link.set(Fault::BlackHole);
    let dead = bed.make("link-dead", "one", on()).await;
    // The address does not depend on the guest.
    assert_eq!(dead.wait_address().await, "10.90.0.2");
    let others = [
        bed.make("link-near", "two", on()).await,
        bed.make("link-far", "three", on()).await,
    ];
    for guest in &others {
        guest.wait_releases(&[KUBE_VIP, CLOUD_PROVIDER]).await;
        guest.wait_reason("Ready").await;
        assert_eq!(status(&bed, guest).await, Some(1.0));
    }
    let said = dead.wait_reason("Unreachable").await;
    assert_eq!(said["phase"], "Waiting", "{said}");
    dead.wait_event("Unreachable").await;
    assert_eq!(status(&bed, &dead).await, Some(0.0));
    let down = bed.firing("FipdGuestDown").await;
    assert!(
        down.len() == 1 && down[0].contains("guestclustername=\"link-dead\""),
        "{down:?}"
    );
    for (labels, count) in [
        ("phase=\"Ready\",reason=\"Ready\"", 2.0),
        ("phase=\"Waiting\",reason=\"Unreachable\"", 1.0),
    ] {
        let sample = format!("fipd_kube_fip_guests{{{labels}}}");
        assert_eq!(bed.sample(&sample).await, Some(count), "{labels}");
    }
    let installed = "fipd_kube_fip_helm_operations_total{chart=\"kube-vip\",operation=\"install\",result=\"success\"}";
    assert_eq!(bed.sample(installed).await, Some(2.0));
    // One that asks for an address of no range.
    assert_eq!(bed.firing("FipdFloatingIPWaiting").await, [""; 0]);
    let outside = format!("{}/outside", others[1].id);
    let made = bed.objects.make_fip(&outside, "vlan-1", "10.91.0.9").await;
    made.unwrap();
    let waits = bed.objects.wait_reason(&outside, "AddressNotInRange");
    waits.await.unwrap();
    let waiting = "fipd_kube_fip_floatingips_waiting{reason=\"AddressNotInRange\"}";
    assert_eq!(bed.sample(waiting).await, Some(1.0));
    assert_eq!(bed.firing("FipdFloatingIPWaiting").await, [waiting]);
    // What is new for the others arrives meanwhile.
    let path = format!("{}/second", others[0].id);
    bed.objects.make_fip(&path, "vlan-1", "").await.unwrap();
    let name = json!({ "metadata": { "annotations": { "clustername": "link-near" } } });
    bed.objects.merge(&path, name).await.unwrap();
    let both = [("cidr-global", "10.90.0.3/32,10.90.0.5/32")];
    others[0].wait_map("both addresses", &both).await;

    // It comes back slowly.
    link.set(Fault::Delay(Duration::from_millis(50)));
    dead.wait_map("its address", &[("cidr-global", "10.90.0.2/32")])
        .await;
    dead.wait_releases(&[KUBE_VIP, CLOUD_PROVIDER]).await;
    let said = dead.wait_reason("Ready").await;
    assert!(said["last_error"].is_string(), "{said}");
    assert_eq!(status(&bed, &dead).await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn three_inputs_that_stop_the_original_for_good_stop_nothing() {
    let bed = Bed::start(&[]).await;
    let interfaces = |all: Value| json!({ "interfaces": all }).to_string();
    let mut no_slash = bed.guest("bad-slash", "one", json!({}));
    no_slash.machines.network_info = interfaces(json!([{ "networkName": "vlan-1" }]));
    let mut no_interface = bed.guest("bad-interface", "one", json!({}));
    no_interface.machines.network_info = interfaces(json!([]));
    let mut no_colon = bed.guest("bad-colon", "one", json!({}));
    no_colon.machines.credential = "cc-bad-colon".to_owned();
    for guest in [&no_slash, &no_interface, &no_colon] {
        guest.write_machines().await;
        guest.make_cluster().await;
        guest.make_namespace().await;
    }
    let good = bed.make("bad-beside", "two", json!({})).await;
    let address = format!("{}/32", good.wait_address().await);
    good.wait_map("its address", &[("cidr-global", &address)])
        .await;
    let mut bad = [
        (no_interface, "NoNetwork"),
        (no_colon, "BadCredentialName"),
        (no_slash, "BadNetworkName"),
    ];
    for (guest, reason) in &bad {
        let said = guest.wait_reason(reason).await;
        assert_eq!(said["phase"], "Waiting", "{said}");
        let told = guest.wait_event(reason).await;
        assert!(said["message"] == *told, "{told}: {said}");
    }
    for (guest, _) in &mut bad {
        let right = bed.guest(guest.name(), "one", json!({}));
        guest.machines = right.machines;
        guest.write_machines().await;
        guest.wait_address().await;
        // Rancher makes it later.
        guest.wait_reason("NoKubeconfig").await;
    }

    // A kubeconfig that names files of somebody else's host.
    let [(guest, _), ..] = &bad;
    let foreign = guest.cluster.kubeconfig();
    let foreign = foreign.replace(
        "certificate-authority-data: ",
        "certificate-authority: /etc/ca/",
    );
    let site = &bed.ground.site;
    let publish = site.publish_kubeconfig(&bed.objects.client, guest.name(), &foreign);
    publish.await.unwrap();
    guest.wait_reason("BadKubeconfig").await;
    guest.wait_event("BadKubeconfig").await;
    guest.make_kubeconfig().await;
    let address = format!("{}/32", guest.wait_address().await);
    guest
        .wait_map("its address", &[("cidr-global", &address)])
        .await;
}
