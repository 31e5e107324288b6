//! A node of the original, with fipd's plugin in the place of its own.

use super::pods::{PROTOCOL, Pods};
use super::*;

/// As the pod of the original has them.
const ADDRESS: &str = "10.99.0.1";
const MAC: &str = "02:00:00:00:00:07";
const GATEWAY: &str = "10.99.0.254";
/// Of another pod of the original.
const OTHER: (&str, &str) = ("10.99.0.5", "02:00:00:00:00:08");

/// What the attachment definition of the original carries (c.1), with what Multus adds and the socket of this bed.
fn original(bed: &CniBed) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "rancher-flat-network", "type": "rancher-flat-network-cni",
        "dns": {}, "ipam": { "type": "static-ipam" },
        "flatNetwork": {
            "mtu": 1500, "clusterCIDR": "10.42.0.0/16", "serviceCIDR": "10.43.0.0/16",
            "arpPolicy": "arp_notify", "proxyARP": false,
        },
        "socket": bed.socket(),
    })
}

async fn routes_to(bed: &CniBed, address: &str) -> Result<String> {
    bed.host.run(&format!("ip route show {address}")).await
}

/// The interface of the pod, without what the kernel changes by itself.
async fn interface(bed: &CniBed) -> Result<Value> {
    let all = attached(bed, "p0").await?;
    let addresses = configured(&all);
    let one = all.first().context("p0 has an interface")?;
    let [index, mac, mtu] = ["ifindex", "address", "mtu"].map(|key| &one[key]);
    Ok(json!({ "index": index, "mac": mac, "mtu": mtu, "addresses": addresses }))
}

#[test]
fn pods_of_the_original_go_on_with_the_plugin_of_fipd_in_its_place() {
    on_host(async |bed| {
        let mut pods = Pods::prepare(bed).await?;
        let segment = format!("ip address add {GATEWAY}/24 dev wire0");
        bed.host.run_in("segment", &segment).await?;
        pods.make_original(bed, "p0", ADDRESS, MAC).await?;
        pods.make_original(bed, "p2", OTHER.0, OTHER.1).await?;
        bed.host.ping("segment", ADDRESS).await?;
        let before = interface(bed).await?;
        let pinging = bed.host.directory().join("pings");
        let pings = format!(
            "ping -i 0.1 -w 120 {ADDRESS} > {} 2>&1 & echo $!",
            pinging.display()
        );
        let pinger = bed.host.run_in("segment", &pings).await?;

        pods.restart(bed).await?;
        let adopt = ["adopt", "flat-network", "--cluster", "pods"];
        bed.fipd.cli(adopt).await?.success()?;
        let conf = original(bed);
        let result = |address: &str| {
            json!({
                "cniVersion": "1.0.0", "dns": {}, "ips": [{ "address": address, "interface": 0 }],
                "interfaces": [{ "name": "eth1", "mac": MAC, "sandbox": bed.host.netns("p0") }],
            })
        };
        // One that the pod has, but not by its object.
        let added = "10.99.0.9/24";
        let change = async |verb: &str| {
            let command = format!("ip address {verb} {added} dev eth1");
            bed.host.run_in("p0", &command).await.map(drop)
        };
        change("add").await?;
        let check = with_previous(&conf, &result(added));
        let check = pods.call_of(bed, "CHECK", "p0", &check).await?;
        let why = bed.host.call(&check).await?.failed_with(100)?;
        ensure!(why.contains(&format!("does not have {ADDRESS}")), "{why}");
        change("del").await?;
        let check = with_previous(&conf, &result("10.99.0.1/24"));
        let check = pods.call_of(bed, "CHECK", "p0", &check).await?;
        bed.host.call(&check).await?.result()?;
        let other = check.of_pod("web", "p0", "another");
        let other = bed.host.call(&other).await?;
        other.failed_with(11)?;
        // The next pod has another address and reaches it.
        pods.make_container(bed, "p1").await?;
        let add = pods.call_of(bed, "ADD", "p1", &conf).await?;
        pods.wait_address("p1").await?;
        let added = bed.host.call(&add).await?.result()?;
        ensure!(given(&added) == ["10.99.0.2"], "{added}");
        bed.host.ping("p1", ADDRESS).await?;

        let stop = format!("kill -INT {}", pinger.trim());
        bed.host.run_in("segment", &stop).await?;
        wait_until("no ping was lost", SOON, || async {
            let said = std::fs::read_to_string(&pinging)?;
            ensure!(said.contains(" 0% packet loss"), "{said}");
            Ok(())
        })
        .await?;
        let after = interface(bed).await?;
        ensure!(after == before, "{before}, afterwards {after}");
        let object = pods.object("p0").await?;
        let status = &object["status"];
        ensure!(
            status["addr"] == ADDRESS && status["mac"] == MAC,
            "{object}"
        );
        ensure!(status["phase"] == "Active", "{object}");
        let owner = bed.allocated().await?.remove(ADDRESS);
        ensure!(
            owner.is_some_and(|owner| owner.ends_with("web/p0")),
            "{ADDRESS}"
        );

        // What is replayed is done before fipd reaches the cluster.
        let del = pods.call_of(bed, "DEL", "p2", &conf).await?;
        bed.fipd.kill9()?;
        bed.host.call(&del).await?.result()?;
        let before = routes_to(bed, OTHER.0).await?;
        ensure!(!before.is_empty(), "it is gone without fipd");
        pods.restart(bed).await?;
        let left = routes_to(bed, OTHER.0).await?;
        ensure!(left.is_empty(), "{left}");
        pods.delete("p2").await?;
        bed.host.remove_container("p2").await?;
        for name in ["p0", "p1"] {
            let del = pods.call_of(bed, "DEL", name, &conf).await?;
            bed.host.call(&del).await?.result()?;
            pods.delete(name).await?;
            bed.host.remove_container(name).await?;
        }
        wait_agree(bed, &Live::new(), &[]).await?;
        let routes = bed.host.run("ip route show").await?;
        ensure!(!routes.contains("10.99.0."), "{routes}");
        // The original made it so, and fipd does not know why.
        let master = bed.host.run(&format!("ip link show dev {MASTER}")).await?;
        ensure!(master.contains("PROMISC"), "{master}");
        Ok(())
    });
}

#[test]
fn g1_19_a_route_that_the_original_left_is_replaced_and_goes_with_the_pod() {
    on_host(async |bed| {
        let mut pods = Pods::start(bed).await?;
        for (name, device) in [("p0", "p0"), ("p1", MASTER)] {
            let address = leave_a_route(bed, &mut pods, name, device).await?;
            pods.call(bed, "ADD", name).await?.result()?;
            let routes = routes_to(bed, &address).await?;
            let expected = format!("{address} dev {name} proto {PROTOCOL} ");
            let is_it = routes.starts_with(&expected) && routes.lines().count() == 1;
            ensure!(is_it, "{routes}");
            pods.call(bed, "DEL", name).await?.result()?;
            let left = routes_to(bed, &address).await?;
            ensure!(left.is_empty(), "{left}");
        }
        // That of a third program stays.
        let foreign = format!("{MASTER} proto static");
        let address = leave_a_route(bed, &mut pods, "p2", &foreign).await?;
        let why = pods.call(bed, "ADD", "p2").await?.failed_with(11)?;
        ensure!(why.contains(&address) && why.contains("remove it"), "{why}");
        let routes = routes_to(bed, &address).await?;
        ensure!(routes.contains(&foreign), "{routes}");
        routes_of_an_earlier_tag_go(bed, &mut pods).await
    });
}

/// Routes over what outlives the pod, with the tag of an earlier setting.
async fn routes_of_an_earlier_tag_go(bed: &mut CniBed, pods: &mut Pods) -> Result<()> {
    for name in ["p3", "p4"] {
        pods.make_container(bed, name).await?;
        pods.call(bed, "ADD", name).await?.result()?;
    }
    let mut config = std::fs::read_to_string(bed.fipd.config_path())?;
    config.push_str("\n[host]\nrule-protocol = 201\n");
    bed.fipd.write_config(&config)?;
    pods.restart(bed).await?;
    // The runtime makes the container of one anew, on another interface of the host.
    let address = pods.wait_address("p3").await?;
    let elsewhere = format!("ip route replace {address}/32 dev {MASTER} proto {PROTOCOL}");
    bed.host.run(&elsewhere).await?;
    bed.host.run_in("p3", "ip link delete eth1").await?;
    pods.call(bed, "ADD", "p3").await?.result()?;
    let routes = routes_to(bed, &address).await?;
    let expected = format!("{address} dev p3 proto 201 ");
    ensure!(
        routes.starts_with(&expected) && routes.lines().count() == 1,
        "{routes}"
    );
    let kept = pods.wait_address("p4").await?;
    for (name, address) in [("p3", &address), ("p4", &kept)] {
        let routes = routes_to(bed, address).await?;
        ensure!(!routes.is_empty(), "no route to {name}");
        pods.call(bed, "DEL", name).await?.result()?;
        let left = routes_to(bed, address).await?;
        ensure!(left.is_empty(), "{left}");
    }
    Ok(())
}

/// A pod that is not attached yet, to whose address the host has a route; the address.
async fn leave_a_route(bed: &CniBed, pods: &mut Pods, name: &str, device: &str) -> Result<String> {
    pods.make_container(bed, name).await?;
    let conf = pods.conf.clone();
    pods.call_of(bed, "ADD", name, &conf).await?;
    let address = pods.wait_address(name).await?;
    let route = format!("ip route add {address}/32 dev {device}");
    bed.host.run(&route).await?;
    Ok(address)
}
