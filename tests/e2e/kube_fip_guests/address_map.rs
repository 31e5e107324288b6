//! The ConfigMap of kube-vip's cloud provider, which fipd shares with its users.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_address_stays_while_a_service_of_its_guest_has_it() {
    let bed = Bed::start(&[]).await;
    let on = json!({ "kube-vip": "true" });
    let guest = bed.make("kept", "one", on).await;
    let map = [("cidr-global", "10.90.0.2/32")];
    guest.wait_map("its address", &map).await;
    guest.wait_releases(&[KUBE_VIP, CLOUD_PROVIDER]).await;
    let services = guest.serve_web().await;
    bed.objects.delete(&guest.fip()).await.unwrap();
    let fip = guest.fip();
    let said = bed.objects.wait_event("FloatingIP", &fip, "AddressKept");
    let said = said.await.unwrap();
    assert!(said.contains("10.90.0.2"), "{said}");
    bed.objects.wait_gone(&fip).await.unwrap();
    guest.wait_map("no new Service gets it", &[]).await;
    let next = bed.make("kept-next", "two", json!({})).await;
    assert_eq!(next.wait_address().await, "10.90.0.3", "nobody else has it");
    // kube-vip answers for the Service as long as it is there.
    guest.wait_releases(&[KUBE_VIP, CLOUD_PROVIDER]).await;
    services
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    wait_until("nobody keeps it", DEADLINE, || async {
        let leases = bed.fipd.cli(["lease", "list", "-o", "json"]).await;
        let leases = leases.unwrap().json().unwrap().to_string();
        (!leases.contains("\"10.90.0.2\""))
            .then_some(())
            .ok_or(leases)
    })
    .await
    .unwrap();
    guest.wait_releases(&[]).await;
    let last = bed.make("kept-last", "three", json!({})).await;
    assert_eq!(last.wait_address().await, "10.90.0.2", "it is free");
}

impl Guest<'_> {
    /// Changes keys of the ConfigMap as a user of the guest does; `null` removes one.
    async fn edit_map(&self, data: Value) {
        let maps = self.maps().await;
        let patch = Patch::Merge(json!({ "data": data }));
        maps.patch("kubevip", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_25_keys_of_users_survive_and_several_addresses_are_told_apart() {
    let mut bed = Bed::start(&[]).await;
    let cluster = bed.cluster("one");
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "kubevip", "namespace": "kube-system" },
        "data": { "range-global": "10.99.0.1-10.99.0.9", "cidr-global": "10.99.0.1/32" },
    });
    cluster.plane.apply(&theirs.to_string()).await.unwrap();
    let guest = bed.make("map", "one", json!({})).await;
    let range = ("range-global", "10.99.0.1-10.99.0.9");
    let global = ("cidr-global", "10.90.0.2/32");
    guest.wait_map("beside theirs", &[range, global]).await;
    guest
        .edit_map(json!({ "cidr-global": "10.99.0.2/32", "interface-global": "eth7" }))
        .await;
    let interface = ("interface-global", "eth7");
    guest
        .wait_map("it is put back", &[range, global, interface])
        .await;

    // A second address, for the Services of one namespace.
    let path = format!("{}/shop", guest.id);
    let annotations = json!({
        "clustername": "map", "fiprange": "vlan-1", "fipd.io/service-namespace": "shop",
    });
    let fip = json!({ "metadata": { "annotations": annotations }, "spec": {} });
    bed.objects.create(&path, fip).await.unwrap();
    let shop = ("cidr-shop", "10.90.0.3/32");
    let all = [range, global, interface, shop];
    guest.wait_map("for one namespace", &all).await;
    for (namespace, address) in [("shop", "10.90.0.3"), ("default", "10.90.0.2")] {
        let provided = guest.provided(namespace).await.unwrap();
        assert_eq!(provided.to_string(), address, "{namespace}");
    }
    bed.objects.delete(&path).await.unwrap();
    guest
        .wait_map("the key goes with its address", &[range, global, interface])
        .await;

    // Without `updateConfigMap` it is only made where there is none.
    let first = guest.fip();
    let no = json!({ "metadata": { "annotations": { "updateConfigMap": "false" } } });
    bed.objects.merge(&first, no).await.unwrap();
    bed.objects.want(&first, "10.90.0.7").await.unwrap();
    bed.objects.wait_address(&first, "10.90.0.7").await.unwrap();
    let shown = |said: &Value| said["addresses"] == "10.90.0.7";
    guest.wait_said("the address is shown", shown).await;
    guest
        .wait_map("it is left alone", &[range, global, interface])
        .await;
    let yes = json!({ "metadata": { "annotations": { "updateConfigMap": "T" } } });
    bed.objects.merge(&first, yes).await.unwrap();
    let moved = ("cidr-global", "10.90.0.7/32");
    guest
        .wait_map("it follows", &[range, moved, interface])
        .await;
    let maps = guest.maps().await;
    maps.delete("kubevip", &DeleteParams::default())
        .await
        .unwrap();
    guest.wait_map("it is made again", &[moved]).await;

    // In mode `disabled` it is written as well, as the original does, unless a setting says otherwise.
    let off = ("kubevipGuestInstall", "disabled".to_owned());
    let mut settings = bed.settings();
    settings.extend([off]);
    bed.configure(&settings).await;
    let next = bed.make("map-disabled", "two", json!({ "kube-vip": "true" }));
    let next = next.await;
    // The first guest may keep what it had before.
    let address = format!("{}/32", next.wait_address().await);
    let map = [("cidr-global", &*address)];
    next.wait_map("in mode disabled", &map).await;
    let never = "[cluster.kube-fip]\nwrite-config-map-when-disabled = false\n";
    bed.write_config(&["kube-fip"], never);
    bed.restart().await;
    let last = bed.make("map-never", "three", json!({})).await;
    last.wait_address().await;
    last.wait_reason("Ready").await;
    assert_eq!(texts(&last.maps().await, "kubevip").await, None);
}
