//! Containers that are pods: their addresses are FlatNetworkIPs, which the fipd that decides fills.
//!
//! The node gets and watches one FlatNetworkIP by its name, gets its subnet, and says in its status that the pod has the address.

use std::{
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use fipd_cni::Code;
use fipd_core::Text;
use fipd_crds::flat_network::{
    FlatNetworkIP, FlatNetworkIPStatus, FlatNetworkSubnet,
    names::{CHOSEN_MAC, FURTHER_INTERFACES, IPV6TO4},
};
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    attach::{PodAddress, PodInterfaceAddresses},
    pod_name::PodName,
    record::PodOwner,
    refusal::CallRefusal,
};
use crate::{
    clusters::ClusterSession,
    connected::Connected,
    controller::{
        client::{Patch, Remote, Target},
        conditions::{CONFLICT, READY, REFUSED},
    },
    validation::flat_network::{interfaces::InterfaceId, subnet::FlatSubnet},
};

/// Phases of a FlatNetworkIP.
const ACTIVE: &str = "Active";
const FAILED: &str = "Failed";
const API: &str = "apis/flatnetwork.pandaria.io/v1";
/// How long the addresses of an interface are waited for; runtimes ask again for minutes. As long as the original tries.
const ADDRESS_WITHIN: Duration = Duration::from_secs(30);
/// The longest watch of one object, in seconds; then it is read again.
const WATCH: u32 = 20;
/// Before a server is asked again that has refused or cut off a watch.
const AGAIN: Duration = Duration::from_millis(500);

/// The cluster whose pods this host runs; by mistake several.
pub type PodSites = Connected<PodSite>;

/// One of them, while its session lasts.
pub struct PodSite {
    pub session: ClusterSession,
    /// The namespace of the subnets.
    pub subnets: Text,
}

/// The cluster of which this host is a node.
///
/// # Errors
/// There is none, or more than one: another could answer for its pods.
pub fn only(sites: &PodSites) -> Result<(Text, Arc<PodSite>), CallRefusal> {
    let mut all = sites.all().into_iter();
    match (all.next(), all.next()) {
        (Some(only), None) => Ok(only),
        (Some((one, _)), Some((other, _))) => Err(CallRefusal::later(format!(
            "[cluster.flat-network] has node = true for the clusters {one} and {other}, and this host is a node of one; write node = false for the other"
        ))),
        (None, _) => Err(CallRefusal::later(
            "no cluster with flat-network is connected, of which this host is a node; where there are several, write node = true in [cluster.flat-network] of one",
        )),
    }
}

/// The addresses of a pod on the interface, once it has them.
pub async fn find(
    sites: &PodSites,
    pod: &PodName,
    ifname: &str,
) -> Result<(PodInterfaceAddresses, PodOwner), CallRefusal> {
    let (cluster, site) = &only(sites)?;
    let end = Instant::now() + ADDRESS_WITHIN;
    let object = async |name: &str| {
        let mut wait = AddressWait::new(cluster, site, pod, name);
        let waited = tokio::time::timeout_at(end, wait.run()).await;
        waited.unwrap_or_else(|_| Err(wait.late()))
    };
    // That of the originals says which others there are.
    let base = object(&pod.name).await?;
    let names = names(&base.metadata, &pod.name, ifname)
        .map_err(|why| CallRefusal::new(Code::InvalidEnvironment, why))?;
    let (mut addresses, mut shown) = (Vec::new(), Vec::new());
    for name in &names {
        let read;
        let ip = match *name == pod.name {
            true => &base,
            false => {
                read = object(name).await?;
                &read
            }
        };
        addresses.push(address(site, ip).await?);
        shown.extend(ip.status.as_ref().map(|status| status.addr.clone()));
    }
    let mut addresses = addresses.into_iter();
    let first = addresses
        .next()
        .ok_or_else(|| CallRefusal::later("the pod has no address"))?;
    let found = PodInterfaceAddresses {
        is_first: names.first() == Some(&pod.name),
        first,
        others: addresses.collect(),
    };
    let owner = PodOwner {
        cluster: cluster.to_string(),
        namespace: pod.namespace.clone(),
        uid: pod.uid.clone(),
        objects: names,
        addresses: shown,
    };
    Ok((found, owner))
}

/// Names of the FlatNetworkIPs of an interface, by what that of the pod's first one says of further ones.
fn names(base: &ObjectMeta, pod: &str, ifname: &str) -> Result<Vec<String>, String> {
    let annotations = base.annotations.as_ref();
    let further = annotations.and_then(|all| all.get(FURTHER_INTERFACES));
    let further = further.map(String::as_str).unwrap_or_default();
    let further: Vec<InterfaceId> = InterfaceId::read_list(further);
    let is_further = further
        .iter()
        .any(|one| one.name == ifname && !one.is_partner);
    let own = InterfaceId {
        name: if is_further { ifname } else { "" }.to_owned(),
        is_partner: false,
    };
    let partner = InterfaceId {
        is_partner: true,
        ..own.clone()
    };
    let with_partner = further.contains(&partner).then_some(partner);
    let all = [own].into_iter().chain(with_partner);
    all.map(|one| {
        one.object_name("metadata.annotations", pod)
            .map_err(|wrong| wrong.to_string())
    })
    .collect()
}

/// One FlatNetworkIP that is waited for.
struct AddressWait<'w> {
    site: &'w PodSite,
    cluster: &'w str,
    pod: &'w PodName,
    name: &'w str,
    /// What was seen last.
    seen: Option<FlatNetworkIP>,
    error: Option<String>,
}

impl<'w> AddressWait<'w> {
    fn new(cluster: &'w str, site: &'w PodSite, pod: &'w PodName, name: &'w str) -> Self {
        Self {
            site,
            cluster,
            pod,
            name,
            seen: None,
            error: None,
        }
    }

    /// Until the object is this pod's and has an address, or says why it has none.
    async fn run(&mut self) -> Result<FlatNetworkIP, CallRefusal> {
        let api: Api<FlatNetworkIP> =
            Api::namespaced(self.site.session.client.clone(), &self.pod.namespace);
        loop {
            let read = self
                .site
                .session
                .call("read a FlatNetworkIP", api.get_opt(self.name));
            match read.await {
                Ok(found) => {
                    let version = found
                        .as_ref()
                        .and_then(|ip| ip.metadata.resource_version.clone());
                    self.error = None;
                    if let Some(ended) = self.judge(found) {
                        return ended;
                    }
                    // One that is not there yet is watched from its creation on.
                    let from = version.unwrap_or_else(|| "0".to_owned());
                    if let Some(ended) = self.watch(&api, &from).await {
                        return ended;
                    }
                }
                Err(error) => {
                    self.error = Some(error.to_string());
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// `None`: the object is to be read again.
    async fn watch(
        &mut self,
        api: &Api<FlatNetworkIP>,
        from: &str,
    ) -> Option<Result<FlatNetworkIP, CallRefusal>> {
        let only = format!("metadata.name={}", self.name);
        let params = WatchParams::default().fields(&only).timeout(WATCH);
        let stream = self
            .site
            .session
            .call("watch a FlatNetworkIP", api.watch(&params, from));
        let mut stream = match stream.await {
            Ok(stream) => Box::pin(stream),
            Err(error) => {
                self.error = Some(error.to_string());
                tokio::time::sleep(AGAIN).await;
                return None;
            }
        };
        while let Some(event) = stream.next().await {
            let found = match event {
                Ok(WatchEvent::Added(ip) | WatchEvent::Modified(ip)) => Some(ip),
                Ok(WatchEvent::Deleted(_)) => None,
                Ok(WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Error(_)) | Err(_) => {
                    tokio::time::sleep(AGAIN).await;
                    return None;
                }
            };
            if let Some(ended) = self.judge(found) {
                return Some(ended);
            }
        }
        None
    }

    /// Notes what was seen; `None`: it is waited for further.
    fn judge(
        &mut self,
        found: Option<FlatNetworkIP>,
    ) -> Option<Result<FlatNetworkIP, CallRefusal>> {
        let ip = found.filter(|ip| ip.spec.pod_id == self.pod.uid);
        let status = ip
            .as_ref()
            .and_then(|ip| ip.status.clone())
            .unwrap_or_default();
        self.seen = ip;
        let terminating = |ip: &FlatNetworkIP| ip.metadata.deletion_timestamp.is_some();
        let there = self.seen.clone().filter(|ip| !terminating(ip))?;
        let usable = is_usable(&status, there.metadata.generation)?;
        Some(match usable {
            true => Ok(there),
            false => Err(self.not_there(&status)),
        })
    }

    fn late(&self) -> CallRefusal {
        let status = self.seen.as_ref().and_then(|ip| ip.status.clone());
        self.not_there(&status.unwrap_or_default())
    }

    fn not_there(&self, status: &FlatNetworkIPStatus) -> CallRefusal {
        let object = format!("FlatNetworkIP {}/{}", self.pod.namespace, self.name);
        let (cluster, uid) = (self.cluster, &self.pod.uid);
        let why = match (&self.seen, &self.error) {
            (_, Some(error)) => format!("cluster {cluster}: {error}"),
            (None, None) => format!(
                "cluster {cluster} has no {object} of the pod with uid {uid}: has the pod the annotations of flat-network, and does fipd serve the cluster?"
            ),
            (Some(_), None) => format!("{object} in cluster {cluster}: {}", says(status)),
        };
        CallRefusal::later(why)
    }
}

/// Whether the pod may use the address of its object; `None`: that is not decided yet. An original leaves no conditions, and its
/// addresses are taken as they are.
fn is_usable(status: &FlatNetworkIPStatus, generation: Option<i64>) -> Option<bool> {
    // What another has too it gets only after that.
    if status.addr.is_empty() || unready(status, CONFLICT).is_some() {
        return (status.phase == FAILED).then_some(false);
    }
    let judged = ready(status).and_then(|ready| ready.observed_generation);
    if judged.is_some() && judged < generation {
        return None;
    }
    // The address stays that of the specification before the edit, which nobody shows.
    Some(unready(status, REFUSED).is_none())
}

fn ready(status: &FlatNetworkIPStatus) -> Option<&Condition> {
    status.conditions.iter().rfind(|one| one.type_ == READY)
}

/// The message of an object that is not ready for this reason.
fn unready<'s>(status: &'s FlatNetworkIPStatus, reason: &str) -> Option<&'s str> {
    let ready = ready(status).filter(|ready| ready.status == "False" && ready.reason == reason)?;
    Some(&ready.message)
}

/// Why the pod cannot have an address.
fn says(status: &FlatNetworkIPStatus) -> &str {
    let failed = Some(&*status.failure_message).filter(|text| !text.is_empty());
    let edited = (!status.addr.is_empty()).then_some("an edit of it is not decided yet");
    unready(status, CONFLICT)
        .or_else(|| unready(status, REFUSED))
        .or(failed)
        .or(edited)
        .unwrap_or("no address yet")
}

/// The address of an object, and its subnet.
async fn address(site: &PodSite, ip: &FlatNetworkIP) -> Result<PodAddress, CallRefusal> {
    let status = ip.status.clone().unwrap_or_default();
    let api: Api<FlatNetworkSubnet> = Api::namespaced(site.session.client.clone(), &site.subnets);
    let name = &ip.spec.subnet;
    let read = site.session.call("read a FlatNetworkSubnet", api.get(name));
    let subnet = read
        .await
        .map_err(|error| CallRefusal::later(error.to_string()))?;
    let wrong = |why: String| CallRefusal::later(format!("FlatNetworkSubnet {name}: {why}"));
    let subnet = FlatSubnet::in_force(&subnet).map_err(wrong)?;
    let address = address_of(&subnet, &status.addr).map_err(wrong)?;
    let annotations = ip.metadata.annotations.as_ref();
    let annotation = |key: &str| annotations.and_then(|all| all.get(key));
    let mac = Some(status.mac).filter(|mac| !mac.is_empty());
    Ok(PodAddress {
        subnet,
        address,
        with_6to4: annotation(IPV6TO4).is_some_and(|value| !value.is_empty()),
        mac: mac.or_else(|| annotation(CHOSEN_MAC).cloned()),
    })
}

/// The address, which the subnet has to have: with the prefix and the VLAN of another one nobody would reach it.
fn address_of(subnet: &FlatSubnet, shown: &str) -> Result<IpAddr, String> {
    let address: IpAddr = shown
        .parse()
        .map_err(|_| format!("status.addr {shown:?} is no address"))?;
    match subnet.cidr.contains(&address) {
        true => Ok(address),
        false => Err(format!(
            "status.addr {address} is not in its spec.cidr {}; delete the pod, so that the next one gets an address of it",
            subnet.cidr
        )),
    }
}

/// Says in the status of each object that the pod has the address; not if the object is another pod's by now, or has another
/// address.
pub async fn activate(sites: &PodSites, owner: &PodOwner, mac: &str) -> Result<(), CallRefusal> {
    let site = site_of(sites, owner)?;
    let remote = Remote::new(site.session.client.clone());
    for (name, address) in owner.objects.iter().zip(&owner.addresses) {
        let target = target(owner, name);
        let patch = activation(&owner.uid, address, mac);
        let patched =
            remote.patch_status_seen::<serde::de::IgnoredAny>(&target, Patch::Json, &patch);
        patched
            .await
            .map_err(|error| CallRefusal::later(error.to_string()))?;
    }
    Ok(())
}

/// The JSON Patch of one of the objects.
fn activation(uid: &str, address: &str, mac: &str) -> Value {
    json!([
        { "op": "test", "path": "/spec/podId", "value": uid },
        { "op": "test", "path": "/status/addr", "value": address },
        { "op": "add", "path": "/status/mac", "value": mac },
        { "op": "add", "path": "/status/phase", "value": ACTIVE },
    ])
}

/// The addresses that the objects of the pod show; `None`: one of them is not this pod's any more.
///
/// # Errors
/// The cluster does not say.
pub async fn held(sites: &PodSites, owner: &PodOwner) -> Result<Option<Vec<IpAddr>>, CallRefusal> {
    let site = site_of(sites, owner)?;
    let api: Api<FlatNetworkIP> = Api::namespaced(site.session.client.clone(), &owner.namespace);
    let mut addresses = Vec::new();
    for name in &owner.objects {
        let read = site.session.call("read a FlatNetworkIP", api.get_opt(name));
        let found = read
            .await
            .map_err(|error| CallRefusal::later(format!("cluster {}: {error}", owner.cluster)))?;
        let Some(ip) = found.filter(|ip| ip.spec.pod_id == owner.uid) else {
            return Ok(None);
        };
        let status = ip.status.unwrap_or_default();
        addresses.extend(status.addr.parse::<IpAddr>());
    }
    Ok(Some(addresses))
}

/// Whose the interface of a pod is by the objects of the cluster, where no record says it.
pub async fn owner(sites: &PodSites, pod: &PodName, ifname: &str) -> Option<PodOwner> {
    let (cluster, site) = only(sites).ok()?;
    let api: Api<FlatNetworkIP> = Api::namespaced(site.session.client.clone(), &pod.namespace);
    let read = site
        .session
        .call("read a FlatNetworkIP", api.get_opt(&pod.name));
    let found = read.await.ok().flatten();
    let base = found.filter(|ip| ip.spec.pod_id == pod.uid)?;
    Some(PodOwner {
        cluster: cluster.to_string(),
        namespace: pod.namespace.clone(),
        uid: pod.uid.clone(),
        objects: names(&base.metadata, &pod.name, ifname).ok()?,
        addresses: Vec::new(),
    })
}

fn site_of(sites: &PodSites, owner: &PodOwner) -> Result<Arc<PodSite>, CallRefusal> {
    let mut all = sites.all().into_iter();
    let found = all.find(|(name, _)| **name == *owner.cluster);
    found.map(|(_, site)| site).ok_or_else(|| {
        let why = format!("cluster {} is not connected now", owner.cluster);
        CallRefusal::later(why)
    })
}

fn target(owner: &PodOwner, name: &str) -> Target {
    Target {
        api: API,
        plural: "flatnetworkips",
        namespace: owner.namespace.clone(),
        name: name.to_owned(),
    }
}

/// Has this host answer for pods of a cluster until the session ends.
pub async fn serve(sites: &PodSites, session: ClusterSession, subnets: Text) {
    let (name, cancel) = (Text::clone(&session.name), session.cancel.clone());
    let site = Arc::new(PodSite { session, subnets });
    let there: Weak<PodSite> = Arc::downgrade(&site);
    sites.add(&name, there);
    cancel.cancelled().await;
    drop(site);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fipd_crds::flat_network::FlatNetworkSubnetSpec;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff};

    use super::*;

    fn status(addr: &str, ready: Option<(&str, &str, Option<i64>)>) -> FlatNetworkIPStatus {
        let ready = ready.map(|(status, reason, generation)| Condition {
            type_: READY.into(),
            status: status.into(),
            reason: reason.into(),
            message: format!("{reason} of the test"),
            observed_generation: generation,
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        });
        FlatNetworkIPStatus {
            addr: addr.into(),
            conditions: ready.into_iter().collect(),
            ..FlatNetworkIPStatus::default()
        }
    }

    /// Otherwise a pod that names another subnet would get its old address there.
    #[test]
    fn an_address_is_used_once_its_object_is_judged_and_unless_that_is_refused() {
        let usable = |addr, ready| is_usable(&status(addr, ready), Some(2));
        let address = "10.0.0.5";
        assert_eq!(usable("", None), None);
        assert_eq!(usable(address, None), Some(true), "of an original");
        assert_eq!(
            usable(address, Some(("True", "Allocated", None))),
            Some(true)
        );
        assert_eq!(
            usable(address, Some(("True", "Allocated", Some(2)))),
            Some(true)
        );
        assert_eq!(usable(address, Some(("True", "Allocated", Some(1)))), None);
        assert_eq!(usable(address, Some(("False", REFUSED, Some(1)))), None);
        assert_eq!(
            usable(address, Some(("False", REFUSED, Some(2)))),
            Some(false)
        );
        assert_eq!(usable(address, Some(("False", CONFLICT, Some(2)))), None);
        let failed = FlatNetworkIPStatus {
            phase: FAILED.into(),
            ..status("", None)
        };
        assert_eq!(is_usable(&failed, Some(1)), Some(false));
        let refused = status(address, Some(("False", REFUSED, Some(2))));
        assert_eq!(says(&refused), "Refused of the test");
        let edited = status(address, Some(("True", "Allocated", Some(1))));
        assert_eq!(says(&edited), "an edit of it is not decided yet");
    }

    #[test]
    fn an_address_is_one_of_its_subnet() {
        let spec = FlatNetworkSubnetSpec {
            flat_mode: "macvlan".into(),
            master: "eth0".into(),
            cidr: "10.0.0.0/24".into(),
            ..FlatNetworkSubnetSpec::default()
        };
        let subnet = FlatSubnet::read(&spec).unwrap();
        let inside = "10.0.0.5".parse().unwrap();
        assert_eq!(address_of(&subnet, "10.0.0.5"), Ok(inside));
        for (shown, says) in [
            ("10.1.0.5", "10.0.0.0/24"),
            ("fd00::5", "10.0.0.0/24"),
            ("10.0.0", "no address"),
        ] {
            let why = address_of(&subnet, shown).unwrap_err();
            assert!(why.contains(shown) && why.contains(says), "{why}");
        }
    }

    fn base(further: &str) -> ObjectMeta {
        ObjectMeta {
            annotations: Some(BTreeMap::from([(
                FURTHER_INTERFACES.to_owned(),
                further.to_owned(),
            )])),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn an_interface_has_the_objects_that_the_first_one_names() {
        let of = |further: &str, ifname: &str| names(&base(further), "web-0", ifname).unwrap();
        assert_eq!(
            names(&ObjectMeta::default(), "web-0", "eth1").unwrap(),
            ["web-0"]
        );
        assert_eq!(of("eth2", "eth1"), ["web-0"]);
        let further = of("eth2 eth2/partner /partner", "eth2");
        assert_eq!(further.len(), 2);
        assert!(
            further.iter().all(|name| name.starts_with("web-0.if-")),
            "{further:?}"
        );
        let dual = of("eth2 /partner", "eth1");
        assert_eq!(dual[0], "web-0");
        assert_eq!(dual.len(), 2);
        assert_eq!(of("eth2 /partner", "eth2").len(), 1);
    }

    #[test]
    fn a_pod_is_active_by_the_address_that_its_interface_has() {
        let expected = json!([
            { "op": "test", "path": "/spec/podId", "value": "u" },
            { "op": "test", "path": "/status/addr", "value": "10.0.0.5" },
            { "op": "add", "path": "/status/mac", "value": "m" },
            { "op": "add", "path": "/status/phase", "value": "Active" },
        ]);
        assert_eq!(activation("u", "10.0.0.5", "m"), expected);
    }
}
