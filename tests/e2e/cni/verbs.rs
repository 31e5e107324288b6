//! What each verb does: rows 78 to 87.

use super::*;

#[test]
fn a_container_reaches_the_segment_in_both_families() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        let mut live = Live::new();
        for container in ["c1", "c2"] {
            let result = bed.add(container, &conf).await?;
            live.insert(container.to_owned(), given(&result));
            for address in [SEGMENT_V4, SEGMENT_V6] {
                bed.host.ping(container, address).await?;
            }
            let interface = &result["interfaces"][0];
            let found = &bed.host.interfaces(container).await?[0];
            ensure!(interface["name"] == "eth0", "{result}");
            ensure!(interface["mac"] == found["address"], "{result} {found}");
            let netns = bed.host.netns(container).display().to_string();
            ensure!(interface["sandbox"] == netns, "{result}");
            ensure!(found["linkinfo"]["info_kind"] == "macvlan", "{found}");
            ensure!(found["mtu"] == 1500, "{found}");
        }
        ensure!(live["c1"].len() == 2, "{live:?}");
        // Each other, and from the other side.
        for address in &live["c2"] {
            bed.host.ping("c1", address).await?;
            bed.host.ping("segment", address).await?;
        }
        let routes = "ip route show default; ip -6 route show default";
        let routes = bed.host.run_in("c1", routes).await?;
        for gateway in [SEGMENT_V4, SEGMENT_V6] {
            ensure!(routes.contains(gateway), "{routes}");
        }
        agree(bed, &live, &[]).await
    });
}

#[test]
fn row_78_deleting_succeeds_whatever_is_there() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        let del = async |call: CniCall| bed.host.call(&call).await?.result().map(drop);
        bed.host.make_container("unknown").await?;
        del(bed.call_of("DEL", "unknown", &conf)).await?;
        // Twice.
        bed.add("twice", &conf).await?;
        del(bed.call_of("DEL", "twice", &conf)).await?;
        del(bed.call_of("DEL", "twice", &conf)).await?;
        // Its namespace is gone, and a second time without a word about it.
        bed.add("gone", &conf).await?;
        bed.host.remove_container("gone").await?;
        del(bed.call_of("DEL", "gone", &conf)).await?;
        del(bed.call_of("DEL", "gone", &conf).without("CNI_NETNS")).await?;
        // An empty CNI_NETNS: the addresses are free.
        bed.add("empty", &conf).await?;
        del(bed.call_of("DEL", "empty", &conf).with("CNI_NETNS", "")).await?;
        wait_until("nothing is leased", SOON, || async {
            let left = bed.allocated().await?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await?;
        // Its link was deleted by hand.
        bed.host.make_container("bare").await?;
        bed.call("ADD", "bare", &conf).await?.result()?;
        bed.host.run_in("bare", "ip link del eth0").await?;
        del(bed.call_of("DEL", "bare", &conf)).await?;
        let others = ["twice", "bare", "unknown"].map(str::to_owned);
        wait_agree(bed, &Live::new(), &others).await
    });
}

/// Nothing but what the original's plugin leaves behind; the original itself does not run here.
#[test]
fn an_interface_that_fipd_did_not_make_is_deleted_by_the_originals_configuration() {
    on_host(async |bed| {
        let conf = json!({
            "cniVersion": "1.0.0", "name": "rancher-flat-network",
            "type": "rancher-flat-network-cni", "dns": {}, "ipam": { "type": "static-ipam" },
            "flatNetwork": {
                "mtu": 1500, "clusterCIDR": "10.42.0.0/16", "serviceCIDR": "10.43.0.0/16",
                "arpPolicy": "arp_notify", "proxyARP": false,
            },
            "socket": bed.socket(),
        });
        bed.host.make_container("old").await?;
        let netns = bed.host.netns("old");
        // As the original makes it: under another name first.
        let made = format!(
            "ip link add link {MASTER} name veth1 netns {} type macvlan mode bridge",
            netns.display()
        );
        bed.host.run(&made).await?;
        let named = "ip link set veth1 name eth1 && ip address add 10.88.0.77/24 dev eth1 && ip link set eth1 up";
        bed.host.run_in("old", named).await?;
        bed.fipd.restart().await?;
        bed.host
            .run_in("old", &format!("ping -c 1 -W 5 {SEGMENT_V4}"))
            .await?;
        let del = CniCall::new("DEL", &conf)
            .of("old", &netns, "eth1")
            .with("CNI_ARGS", "K8S_POD_NAMESPACE=n;K8S_POD_NAME=p");
        bed.host.call(&del).await?.result()?;
        let links = bed.host.run_in("old", "ip -oneline link").await?;
        ensure!(!links.contains("eth1"), "{links}");
        let master = bed.host.run(&format!("ip link show {MASTER}")).await?;
        ensure!(master.contains("UP"), "{master}");
        Ok(())
    });
}

#[test]
fn row_79_an_interface_that_is_there_is_left_alone() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        bed.host.make_container("c1").await?;
        bed.host
            .run_in("c1", "ip link add eth0 type bridge")
            .await?;
        let (_, text) = bed.call("ADD", "c1", &conf).await?.error()?;
        ensure!(text.contains("eth0"), "{text}");
        let left = bed.host.interfaces("c1").await?;
        ensure!(left.len() == 1, "{left:?}");
        ensure!(left[0]["linkinfo"]["info_kind"] == "bridge", "{left:?}");
        let leased = bed.allocated().await?;
        ensure!(leased.is_empty(), "{leased:?}");
        // DEL of a container whose ADD failed is none for the interface of another plugin either.
        bed.call("DEL", "c1", &conf).await?.result()?;
        let left = bed.host.interfaces("c1").await?;
        ensure!(left.len() == 1, "{left:?}");
        Ok(())
    });
}

#[test]
fn a_repeated_add_changes_nothing() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        let first = bed.add("c1", &conf).await?;
        let live = Live::from([("c1".to_owned(), given(&first))]);
        let again = bed.call("ADD", "c1", &conf).await?;
        if again.code == Some(0) {
            ensure!(again.result()? == first, "{again:?}");
        }
        agree(bed, &live, &[]).await?;
        bed.host.ping("c1", SEGMENT_V4).await
    });
}

#[test]
fn g1_18_row_80_a_check_sees_what_is_missing() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        let result = bed.add("c1", &conf).await?;
        let conf = with_previous(&conf, &result);
        let check = async || bed.call("CHECK", "c1", &conf).await;
        check().await?.result()?;
        let v4 = &given(&result)[0];
        let change = async |command: String| bed.host.run_in("c1", &command).await.map(drop);
        change(format!("ip address del {v4}/24 dev eth0")).await?;
        check().await?.error()?;
        change(format!("ip address add {v4}/24 dev eth0")).await?;
        change(format!("ip route replace default via {SEGMENT_V4}")).await?;
        check().await?.result()?;
        change("ip route del default".to_owned()).await?;
        check().await?.error()?;
        change(format!("ip route add default via {SEGMENT_V4}")).await?;
        // What a later plugin of the list does is no fault.
        change("ip address add 192.0.2.1/32 dev eth0".to_owned()).await?;
        check().await?.result()?;
        change("ip link set eth0 down".to_owned()).await?;
        change("ip link del eth0".to_owned()).await?;
        check().await?.error()?;
        bed.call("DEL", "c1", &conf).await?.result()?;
        // Without a result there is nothing to compare with.
        let (code, _) = bed.call("CHECK", "c1", &bed.conf(BOTH)).await?.error()?;
        ensure!(code != 0);
        wait_agree(bed, &Live::new(), &["c1".to_owned()]).await
    });
}

#[test]
fn row_82_garbage_is_what_the_runtime_does_not_list() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        let mut live = Live::new();
        for container in ["c1", "c2", "c3"] {
            let result = bed.add(container, &conf).await?;
            live.insert(container.to_owned(), given(&result));
        }
        let gc = async |keys: &[&str], valid: Value| {
            let mut conf = conf.clone();
            for key in keys {
                conf[*key] = valid.clone();
            }
            bed.host.call(&CniCall::new("GC", &conf)).await?.result()
        };
        let entry = |container: &str| json!({ "containerID": container, "ifname": "eth0" });
        let both = ["cni.dev/valid-attachments", "cni.dev/attachments"];
        gc(&both, json!([entry("c1"), entry("c2"), entry("c3")])).await?;
        agree(bed, &live, &[]).await?;
        // The interface of another attachment keeps nothing.
        let other = json!({ "containerID": "c2", "ifname": "eth1" });
        gc(&both, json!([entry("c1"), other])).await?;
        let leased = |live: &Live| live.values().flatten().cloned().collect::<BTreeSet<_>>();
        live.remove("c2");
        live.remove("c3");
        let wait = async |live: &Live| {
            wait_until("only what is valid is leased", SOON, || async {
                let found: BTreeSet<_> = bed.allocated().await?.into_keys().collect();
                ensure!(found == leased(live), "{found:?}");
                Ok(())
            })
            .await
        };
        wait(&live).await?;
        gc(&both[..1], json!([])).await?;
        wait(&Live::new()).await
    });
}

#[test]
fn garbage_of_one_network_is_none_of_another() {
    on_host(async |bed| {
        let conf = bed.conf(V4);
        let result = bed.add("c1", &conf).await?;
        let mut other = conf.clone();
        other["name"] = json!("other");
        other["cni.dev/valid-attachments"] = json!([]);
        bed.host.call(&CniCall::new("GC", &other)).await?.result()?;
        agree(bed, &Live::from([("c1".to_owned(), given(&result))]), &[]).await
    });
}

#[test]
fn row_86_the_runtimes_mac_wins() {
    on_host(async |bed| {
        let mut conf = bed.conf(V4);
        let mac = async |container: &str, conf: &Value, args: &str| {
            bed.host.make_container(container).await?;
            let call = bed.call_of("ADD", container, conf).with("CNI_ARGS", args);
            let result = bed.host.call(&call).await?.result()?;
            let found = bed.host.interfaces(container).await?;
            ensure!(result["interfaces"][0]["mac"] == found[0]["address"]);
            Ok(found[0]["address"].as_str().unwrap_or_default().to_owned())
        };
        let args = "IgnoreUnknown=1;MAC=02:00:00:00:00:0a";
        ensure!(mac("c1", &conf, args).await? == "02:00:00:00:00:0a");
        conf["runtimeConfig"] = json!({ "mac": "02:00:00:00:00:0b" });
        ensure!(mac("c2", &conf, args).await? == "02:00:00:00:00:0b");
        Ok(())
    });
}

#[test]
fn an_address_that_the_runtime_asks_for_is_given_or_refused() {
    on_host(async |bed| {
        let mut conf = bed.conf(V4);
        conf["runtimeConfig"] = json!({ "ips": ["10.88.0.77/24"] });
        let result = bed.add("c1", &conf).await?;
        ensure!(given(&result) == ["10.88.0.77"], "{result}");
        bed.host.make_container("c2").await?;
        let (_, text) = bed.call("ADD", "c2", &conf).await?.error()?;
        ensure!(text.contains("10.88.0.77"), "{text}");
        let live = Live::from([("c1".to_owned(), given(&result))]);
        agree(bed, &live, &["c2".to_owned()]).await
    });
}

#[test]
fn row_87_the_result_has_the_version_asked_for() {
    on_host(async |bed| {
        for (number, version) in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"].iter().enumerate() {
            let mut conf = bed.conf(BOTH);
            conf["cniVersion"] = json!(version);
            let result = bed.add(&format!("c{number}"), &conf).await?;
            ensure!(result["cniVersion"] == *version, "{result}");
            let expected = match version.starts_with('0') {
                true => [json!("4"), json!("6")],
                false => [Value::Null, Value::Null],
            };
            for (ip, version) in result["ips"].as_array().into_iter().flatten().zip(expected) {
                ensure!(ip["version"] == version, "{result}");
                ensure!(ip["interface"] == 0, "{result}");
            }
            let mtu = &result["interfaces"][0]["mtu"];
            ensure!(*version == "1.1.0" || mtu.is_null(), "{result}");
        }
        Ok(())
    });
}

#[test]
fn row_84_a_larger_mtu_than_the_masters_is_refused() {
    on_host(async |bed| {
        let mut conf = bed.conf(V4);
        conf["mtu"] = json!(9000);
        bed.host.make_container("c1").await?;
        let (code, text) = bed.call("ADD", "c1", &conf).await?.error()?;
        ensure!(code == 7 && text.contains("1500"), "{code} {text}");
        let found = bed.host.interfaces("c1").await?;
        ensure!(found.is_empty(), "{found:?}");
        conf["mtu"] = json!(1400);
        let result = bed.add("c2", &conf).await?;
        let found = bed.host.interfaces("c2").await?;
        ensure!(found[0]["mtu"] == 1400, "{result} {found:?}");
        Ok(())
    });
}

#[test]
fn the_modes_of_macvlan_are_the_kernels() {
    on_host(async |bed| {
        for mode in ["bridge", "vepa", "private"] {
            let mut conf = bed.conf(V4);
            conf["mode"] = json!(mode);
            bed.add(mode, &conf).await?;
            let found = bed.host.interfaces(mode).await?;
            let shown = &found[0]["linkinfo"]["info_data"]["mode"];
            ensure!(shown == mode, "{mode}: {found:?}");
        }
        Ok(())
    });
}

#[test]
fn passthru_has_the_master_for_itself_and_a_second_container_gets_nothing() {
    on_host(async |bed| {
        let mut conf = bed.conf(V4);
        conf["mode"] = json!("passthru");
        bed.add("c1", &conf).await?;
        let found = bed.host.interfaces("c1").await?;
        let shown = &found[0]["linkinfo"]["info_data"]["mode"];
        ensure!(shown == "passthru", "{found:?}");
        bed.host.make_container("c2").await?;
        let called = bed.call("ADD", "c2", &conf).await?;
        ensure!(called.code != Some(0), "{called:?}");
        let left = bed.host.interfaces("c2").await?;
        ensure!(left.is_empty(), "{called:?} {left:?}");
        ensure!(bed.call("DEL", "c1", &conf).await?.code == Some(0));
        bed.add("c3", &conf).await?;
        Ok(())
    });
}

#[test]
fn neighbors_hear_of_a_new_container() {
    on_host(async |bed| {
        let conf = bed.conf(BOTH);
        bed.add("c1", &conf).await?;
        for file in ["ipv4/conf/eth0/arp_notify", "ipv6/conf/eth0/ndisc_notify"] {
            let value = bed
                .host
                .run_in("c1", &format!("cat /proc/sys/net/{file}"))
                .await?;
            ensure!(value.trim() == "1", "{file}: {value}");
        }
        Ok(())
    });
}
