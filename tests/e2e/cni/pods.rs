//! Containers that are pods of a real API server, beside a fipd that gives them addresses and answers their plugin.

use fipd_tests::flat_network::{FlatObjects, IP, PodCluster, SUBNET, SUBNETS};
use fipd_tests::testbed::ControlPlaneOptions;

use super::*;

const NAMESPACE: &str = "web";
const SUBNET_NAME: &str = "flat";
const NETWORK: &str = "10.99.0.0/24";
/// Beside the pod's first interface.
const IFNAME: &str = "eth1";
/// Tag of fipd's routes.
pub const PROTOCOL: u8 = 200;
/// Has first interfaces of the original's pods, and outlives them.
const BRIDGE: &str = "pods0";

pub struct Pods {
    pub conf: Value,
    objects: FlatObjects,
    /// Of the pods that are there.
    uids: BTreeMap<String, String>,
    _cluster: PodCluster,
}

impl Pods {
    /// A cluster that this fipd decides for from its next start on, and whose node it is on.
    pub async fn prepare(bed: &mut CniBed) -> Result<Self> {
        let cluster = PodCluster::with("pods", ControlPlaneOptions::default()).await?;
        cluster.make_namespace(NAMESPACE).await?;
        // A pod may wait for a verb as long as the test takes.
        cluster.configure_admin(&mut bed.fipd, "pending-limit = \"off\"")?;
        let pods = Self {
            conf: json!({
                "cniVersion": "1.1.0", "name": "rancher-flat-network", "type": "fipd-cni",
                "socket": bed.socket(),
            }),
            objects: cluster.objects().await?,
            uids: BTreeMap::new(),
            _cluster: cluster,
        };
        let spec = json!({
            "vlan": 0, "master": MASTER, "routeSettings": { "addPodIPToHost": true },
        });
        pods.objects.subnet(SUBNET_NAME, NETWORK, spec).await?;
        Ok(pods)
    }

    /// The same, and the daemon serves it.
    pub async fn start(bed: &mut CniBed) -> Result<Self> {
        let pods = Self::prepare(bed).await?;
        pods.restart(bed).await?;
        let path = format!("{SUBNETS}/{SUBNET_NAME}");
        pods.objects.wait_phase(SUBNET, &path, "Active").await?;
        Ok(pods)
    }

    /// Starts the daemon once more and waits until it serves the cluster's pods.
    pub async fn restart(&self, bed: &mut CniBed) -> Result<()> {
        bed.fipd.restart().await?;
        let status = CniCall::new("STATUS", &self.conf);
        wait_until("fipd serves the pods of the cluster", SOON, || async {
            let called = bed.host.call(&status).await;
            let served = called.and_then(|called| called.result());
            served.map_err(|error| format!("{error:#}"))
        })
        .await
        .map(drop)
    }

    /// The namespace of a container that is a pod: it has a first interface, to which the host has a route.
    pub async fn make_container(&self, bed: &CniBed, name: &str) -> Result<()> {
        bed.host.make_container(name).await?;
        let (address, netns) = (first_address(name), bed.host.netns(name));
        let netns = netns.display();
        bed.host
            .run(&format!(
                "ip link add {name} type veth peer name eth0 netns {netns} && ip link set {name} up \
                 && ip route add {address}/32 dev {name}"
            ))
            .await?;
        let inside = format!("ip address add {address}/32 dev eth0 && ip link set eth0 up");
        bed.host.run_in(name, &inside).await.map(drop)
    }

    /// A call about a pod, which is made where there is none.
    pub async fn call_of(
        &mut self,
        bed: &CniBed,
        verb: &str,
        name: &str,
        conf: &Value,
    ) -> Result<CniCall> {
        let uid = match self.uids.get(name) {
            Some(uid) => uid.clone(),
            None => {
                let path = path(name);
                let made = self.objects.pod(&path, SUBNET_NAME, "auto", json!({}));
                let uid = made.await?;
                self.uids.insert(name.to_owned(), uid.clone());
                uid
            }
        };
        let call = CniCall::new(verb, conf).of(name, &bed.host.netns(name), IFNAME);
        Ok(call.of_pod(NAMESPACE, name, &uid))
    }

    /// Calls the plugin about a pod, which is made where there is none.
    pub async fn call(&mut self, bed: &CniBed, verb: &str, name: &str) -> Result<Called> {
        let conf = self.conf.clone();
        let call = self.call_of(bed, verb, name, &conf).await?;
        bed.host.call(&call).await
    }

    /// A pod that is attached.
    pub async fn add(&mut self, bed: &CniBed, name: &str) -> Result<()> {
        self.make_container(bed, name).await?;
        self.call(bed, "ADD", name).await?.result().map(drop)
    }

    /// A pod as the original leaves it: its object, and what its plugin makes in the container and on the host, whose first
    /// interface the pod's network has on a bridge that outlives it.
    pub async fn make_original(
        &mut self,
        bed: &CniBed,
        name: &str,
        address: &str,
        mac: &str,
    ) -> Result<()> {
        let path = path(name);
        let made = self.objects.make_original(&path, SUBNET_NAME, address, mac);
        let uid = made.await?;
        self.uids.insert(name.to_owned(), uid);
        self.make_container(bed, name).await?;
        let netns = bed.host.netns(name);
        let on_host = format!(
            "ip link set {MASTER} promisc on && ip link add link {MASTER} name tmp0 address {mac} \
             netns {} type macvlan mode bridge && (ip link add {BRIDGE} type bridge 2>/dev/null; \
             ip link set {BRIDGE} up) && ip route add {address}/32 dev {BRIDGE}",
            netns.display()
        );
        bed.host.run(&on_host).await?;
        let inside = format!(
            "ip link set tmp0 name {IFNAME} && echo 1 > /proc/sys/net/ipv4/conf/{IFNAME}/arp_notify \
             && ip address add {address}/24 dev {IFNAME} && ip link set {IFNAME} up"
        );
        bed.host.run_in(name, &inside).await.map(drop)
    }

    /// Waits until a pod has its address: a new pool gives none until it is known what others use of it.
    pub async fn wait_address(&self, name: &str) -> Result<String> {
        self.objects.wait_address(&path(name)).await
    }

    /// The object of a pod.
    pub async fn object(&self, name: &str) -> Result<Value> {
        let found = self.objects.get(IP, &path(name)).await?;
        found.with_context(|| format!("no {IP} of {name}"))
    }

    /// Deletes a pod, whose addresses go with it.
    pub async fn delete(&mut self, name: &str) -> Result<()> {
        if self.uids.remove(name).is_some() {
            self.objects.delete("Pod", &path(name)).await?;
        }
        Ok(())
    }

    /// That API, kernel and ledger agree about pods. The addresses that pods have, attached or not.
    pub async fn agree(&self, bed: &CniBed, live: &Live) -> Result<BTreeSet<String>> {
        let names = self.objects.names(IP, NAMESPACE).await?;
        let named: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let expected = self.uids.keys().map(String::as_str).collect();
        ensure!(named == expected, "{named:?}, pods {expected:?}");
        let mut addresses = BTreeSet::new();
        for (name, uid) in &self.uids {
            let object = self.object(name).await?;
            ensure!(object["spec"]["podId"] == json!(uid), "{object}");
            let address = object["status"]["addr"].as_str();
            let address = address.with_context(|| format!("no address: {object}"))?;
            if let Some(given) = live.get(name) {
                ensure!(*given == [address], "{name} has {given:?}: {object}");
                let interfaces = bed.host.interfaces(name).await?;
                let mut macs = interfaces.iter().filter(|one| one["ifname"] == IFNAME);
                let mac = macs.next().map(|one| &one["address"]);
                let shown = &object["status"];
                ensure!(
                    shown["phase"] == "Active" && Some(&shown["mac"]) == mac,
                    "{mac:?}: {object}"
                );
            }
            addresses.insert(address.to_owned());
        }
        self.host_agrees(bed, live).await?;
        Ok(addresses)
    }

    /// Waits until the host has nothing of pods, before a runtime says anything: their namespaces are gone.
    pub async fn wait_forgotten(&self, bed: &CniBed) -> Result<()> {
        let none = Live::default();
        wait_until("what pods used is removed", SOON, || {
            self.host_agrees(bed, &none)
        })
        .await
    }

    /// The host has routes to the pods that are attached, is promiscuous while there are any, and the journal has these alone.
    async fn host_agrees(&self, bed: &CniBed, live: &Live) -> Result<()> {
        let attached = live.iter().filter(|(name, _)| is_pod(name));
        let attached: BTreeSet<_> = attached.flat_map(|(_, given)| given.clone()).collect();
        let routes = format!("ip -json route show proto {PROTOCOL}");
        let routes: Vec<Value> = serde_json::from_str(&bed.host.run(&routes).await?)?;
        let routed = routes.iter().filter_map(|one| one["dst"].as_str());
        let routed: BTreeSet<_> = routed.map(str::to_owned).collect();
        ensure!(routed == attached, "routes {routed:?}, pods {attached:?}");
        let master = format!("ip -json -details link show dev {MASTER}");
        let master: Value = serde_json::from_str(&bed.host.run(&master).await?)?;
        let flags = master[0]["flags"].as_array().into_iter().flatten();
        let is_promiscuous = flags.into_iter().any(|flag| flag == "PROMISC");
        ensure!(is_promiscuous != attached.is_empty(), "{master}");
        // Containers of pools use nothing of the host, and the journal has none of them.
        let shown = bed.fipd.cli(["flat-network", "node", "-o", "json"]).await?;
        let shown = shown.json()?;
        let noted = &shown["node"][0]["attachments"];
        ensure!(
            *noted == json!(attached.len()),
            "{shown}, pods {attached:?}"
        );
        Ok(())
    }
}

/// Pods are named apart from other containers.
pub fn is_pod(name: &str) -> bool {
    name.starts_with('p')
}

/// What its objects are called.
fn path(name: &str) -> String {
    format!("{NAMESPACE}/{name}")
}

fn first_address(name: &str) -> String {
    let number: u8 = name[1..].parse().unwrap();
    format!("10.200.0.{}", number + 1)
}

/// A route over an interface that the pod does not have is left out. Its only interface has the others, which the original
/// forgets (g1-22).
#[test]
fn rows_66_and_67_a_pod_has_the_routes_of_the_interfaces_that_it_has() {
    on_host(async |bed| {
        let pods = Pods::start(bed).await?;
        let route = |dev: &str, dst: &str| json!({ "dev": dev, "dst": dst, "via": "192.168.1.9" });
        let spec = json!({
            "vlan": 0, "master": MASTER, "gateway": "192.168.1.1",
            "routes": [route("eth1", "10.9.1.0/24"), route("eth0", "10.9.0.0/24")],
        });
        let subnet = "merged";
        pods.objects.subnet(subnet, "192.168.1.0/24", spec).await?;
        let there = format!("{SUBNETS}/{subnet}");
        pods.objects.wait_phase(SUBNET, &there, "Active").await?;
        bed.host.make_container("p8").await?;
        pods.make_container(bed, "p9").await?;
        let over = |dev: &str, dst: &str| format!("{dst} via 192.168.1.9 dev {dev}");
        let (near, far) = (over("eth0", "10.9.0.0/24"), over("eth1", "10.9.1.0/24"));
        for (name, ifname, address, has_far) in [
            ("p8", "eth0", "192.168.1.2/24", false),
            ("p9", "eth1", "192.168.1.3/24", true),
        ] {
            let path = path(name);
            let made = pods.objects.pod(&path, subnet, "auto", json!({}));
            let uid = made.await?;
            pods.wait_address(name).await?;
            let call = |verb| {
                let call = CniCall::new(verb, &pods.conf);
                let call = call.of(name, &bed.host.netns(name), ifname);
                call.of_pod(NAMESPACE, name, &uid)
            };
            let result = bed.host.call(&call("ADD")).await?.result()?;
            let ip = &result["ips"][0];
            ensure!(ip["address"] == address, "{result}");
            ensure!(ip["gateway"] == "192.168.1.1", "{result}");
            let routes = bed.host.run_in(name, "ip route show").await?;
            ensure!(routes.contains(&near), "{name}: {routes}");
            ensure!(routes.contains(&far) == has_far, "{name}: {routes}");
            bed.host.call(&call("DEL")).await?.result()?;
            let left = attached(bed, name).await?;
            ensure!(left.is_empty(), "{name}: {left:?}");
        }
        Ok(())
    });
}

/// Otherwise the container would have an address of one subnet with the prefix of the other.
#[test]
fn a_pod_keeps_its_subnet_whatever_its_annotation_says_by_now() {
    on_host(async |bed| {
        let mut pods = Pods::start(bed).await?;
        let other = json!({ "vlan": 0, "master": MASTER });
        pods.objects.subnet("other", "10.98.0.0/24", other).await?;
        let there = format!("{SUBNETS}/other");
        pods.objects.wait_phase(SUBNET, &there, "Active").await?;
        pods.make_container(bed, "p1").await?;
        let first = pods.call(bed, "ADD", "p1").await?.result()?;
        pods.call(bed, "DEL", "p1").await?.result()?;
        let edit = json!({ "flatnetwork.pandaria.io/subnet": "other" });
        let edit = json!({ "metadata": { "annotations": edit } });
        pods.objects.merge("Pod", &path("p1"), edit).await?;
        // A pod made after the edit is served after it.
        pods.add(bed, "p2").await?;
        let again = pods.call(bed, "ADD", "p1").await?.result()?;
        ensure!(again["ips"] == first["ips"], "{first}; {again}");
        pods.call(bed, "DEL", "p1").await?.result().map(drop)
    });
}
