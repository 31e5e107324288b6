//! By `cnitool`, which is libcni: it keeps results, gives them back as `prevResult` and calls the plugins of a list in turn.

use super::*;

/// How libcni names a container: by its namespace's path. The plugin is given all else by it.
async fn tool(bed: &CniBed, verb: &str, container: &str) -> Result<Value> {
    let called = bed.host.tool(verb, "lan", container, &[]).await?;
    called
        .result()
        .with_context(|| format!("cnitool {verb} lan {container}"))
}

#[test]
fn cnitool_adds_checks_deletes_collects_and_asks_for_the_status() {
    on_host(async |bed| {
        bed.host.write_network("1.1.0", "lan", &[bed.conf(BOTH)])?;
        for container in ["c1", "c2"] {
            bed.host.make_container(container).await?;
        }
        tool(bed, "status", "c1").await?;
        let result = tool(bed, "add", "c1").await?;
        let mut live = Live::from([("c1".to_owned(), given(&result))]);
        tool(bed, "check", "c1").await?;
        let result = tool(bed, "add", "c2").await?;
        live.insert("c2".to_owned(), given(&result));
        agree(bed, &live, &[]).await?;
        bed.host.ping("c2", SEGMENT_V6).await?;
        tool(bed, "del", "c1").await?;
        tool(bed, "del", "c1").await?;
        live.remove("c1");
        wait_agree(bed, &live, &["c1".to_owned()]).await?;
        // It lists no attachment as valid.
        tool(bed, "gc", "c1").await?;
        let both = ["c1", "c2"].map(str::to_owned);
        wait_agree(bed, &Live::new(), &both).await
    });
}

#[test]
fn cnitool_takes_every_version_and_a_mac() {
    on_host(async |bed| {
        for (number, version) in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"].iter().enumerate() {
            let mut conf = bed.conf(BOTH);
            conf["capabilities"] = json!({ "mac": true, "ips": true });
            bed.host.write_network(version, "lan", &[conf])?;
            let container = format!("c{number}");
            bed.host.make_container(&container).await?;
            let mac = format!("02:00:00:00:00:1{number}");
            let arguments = json!({ "mac": mac }).to_string();
            let more = [("CAP_ARGS", arguments.as_str()), ("CNI_IFNAME", "eth0")];
            let result = bed.host.tool("add", "lan", &container, &more).await?;
            let result = result.result()?;
            ensure!(result["cniVersion"] == *version, "{result}");
            ensure!(result["interfaces"][0]["mac"] == *mac, "{result}");
            if *version != "0.3.1" {
                let called = bed.host.tool("check", "lan", &container, &more).await?;
                called.result()?;
            }
            bed.host
                .tool("del", "lan", &container, &more)
                .await?
                .result()?;
        }
        let all = [0, 1, 2, 3].map(|number| format!("c{number}"));
        wait_agree(bed, &Live::new(), &all).await
    });
}

/// After another plugin, whose result it keeps and adds to.
#[test]
fn the_result_of_the_plugin_before_is_kept() {
    on_host(async |bed| {
        let loopback = json!({ "type": "loopback" });
        bed.host
            .write_network("1.0.0", "lan", &[loopback, bed.conf(V4)])?;
        bed.host.make_container("c1").await?;
        let result = tool(bed, "add", "c1").await?;
        let names: Vec<_> = result["interfaces"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["name"].as_str())
            .collect();
        ensure!(names == ["lo", "eth0"], "{result}");
        let ips = result["ips"].as_array().into_iter().flatten();
        let own: Vec<_> = ips.filter(|ip| ip["interface"] == 1).collect();
        ensure!(own.len() == 1, "{result}");
        tool(bed, "check", "c1").await?;
        tool(bed, "del", "c1").await?;
        wait_agree(bed, &Live::new(), &["c1".to_owned()]).await
    });
}

/// The published plugins by the same bed: what the others are compared with.
#[test]
fn the_published_macvlan_does_the_same_by_host_local() {
    on_host(async |bed| {
        let conf = json!({
            "type": "macvlan", "master": MASTER, "mode": "bridge",
            "ipam": { "type": "host-local", "subnet": "10.88.0.0/24", "gateway": SEGMENT_V4,
                      "routes": [{ "dst": "0.0.0.0/0" }] },
        });
        bed.host.write_network("1.0.0", "lan", &[conf])?;
        bed.host.make_container("c1").await?;
        let result = tool(bed, "add", "c1").await?;
        ensure!(given(&result).len() == 1, "{result}");
        bed.host.ping("c1", SEGMENT_V4).await?;
        tool(bed, "del", "c1").await?;
        let left = bed.host.interfaces("c1").await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    });
}
