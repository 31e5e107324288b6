//! A cluster, its address book and reviews, for tests and for fuzzing.

#![allow(clippy::expect_used, reason = "nothing runs on it but tests")]
#![cfg_attr(not(test), allow(dead_code, reason = "fuzzing needs one cluster only"))]

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{
    ClusterId, Holder, Lease, LeaseKey, LeaseState, Ledger, Member, Network, NetworkId, Op, Origin,
    Pool, PoolId, PoolSpec, System, Text, Timestamp,
};
use serde_json::{Value, json};

use super::{BookReader, FlatFacts, FlatQuestion, subnet::object_of};
use crate::{
    admission::{
        ReviewedKind,
        review::{Question, Verdict},
    },
    controller::store::Key,
    systems::flat_network::names::NAMESPACE,
    validation::flat_network::{
        interfaces::partner_of, mac::MacAddress, subnet::FlatSubnet, workload::WorkloadRef,
    },
};

/// The cluster `lab` with what its controllers know.
pub struct Lab {
    id: ClusterId,
    namespace: Text,
    subnets: Vec<(String, Arc<FlatSubnet>)>,
    /// Of VLANs; others are in `default`.
    networks: Vec<Network>,
    pools: Vec<Pool>,
    leases: Vec<Lease>,
    pods: BTreeMap<Key, Option<WorkloadRef>>,
    macs: BTreeMap<MacAddress, Key>,
}

impl BookReader for Ledger {
    fn look<R>(&self, look: impl FnOnce(&Ledger) -> R) -> R {
        look(self)
    }
}

impl FlatFacts for Lab {
    fn id(&self) -> &ClusterId {
        &self.id
    }

    fn namespace(&self) -> &Text {
        &self.namespace
    }

    fn lives(&self) -> bool {
        true
    }

    fn is_fipd(&self, user: &str) -> bool {
        user == "fipd"
    }

    fn subnets(&self) -> Vec<(String, Arc<FlatSubnet>)> {
        self.subnets.clone()
    }

    fn subnet(&self, name: &str) -> Option<Arc<FlatSubnet>> {
        let mut subnets = self.subnets.iter();
        let found = subnets.find(|(one, _)| one == name)?;
        Some(Arc::clone(&found.1))
    }

    fn partner(&self, name: &str) -> Result<String, String> {
        partner_of(name, |name| self.subnet(name))
    }

    fn network(&self, _: &str, subnet: &FlatSubnet, annotation: Option<&str>) -> String {
        let of_vlan = format!("vlan-{}", subnet.vlan);
        let mut networks = self.networks.iter();
        let has_own = networks.any(|network| *network.name == *of_vlan);
        let by_default = if has_own { &*of_vlan } else { "default" };
        annotation.unwrap_or(by_default).to_owned()
    }

    fn mac_user(&self, _: &str, mac: &MacAddress) -> Option<Key> {
        self.macs.get(mac).cloned()
    }

    fn workload_of(&self, pod: &Key) -> Option<WorkloadRef> {
        self.pods.get(pod).cloned().flatten()
    }

    fn is_used(&self, ip: &Key) -> bool {
        self.pods.contains_key(ip)
    }
}

/// A subnet on `eth0.10`, with these fields in the place of its own.
pub fn subnet(fields: &Value) -> Value {
    let mut spec = json!({
        "flatMode": "macvlan", "master": "eth0", "vlan": 10, "cidr": "10.2.3.0/24", "gateway": "10.2.3.1",
        "ranges": [{ "from": "10.2.3.100", "to": "10.2.3.200" }],
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({ "metadata": {}, "spec": spec })
}

impl Lab {
    /// With the subnet `lab`, of which pod `ns/web-1` of Deployment `ns/web` has 10.2.3.150 and Deployment `ns/kept` has
    /// 10.2.3.160 for later.
    pub fn new() -> Self {
        Self::bare()
            .subnet("lab", &json!({}))
            .pod("web-1", Some(WorkloadRef::new("Deployment", "ns", "web")))
            .lease(150, "FlatNetworkIP/ns/web-1", LeaseState::Allocated)
            .lease(160, "Deployment/ns/kept", LeaseState::Reserved)
    }

    /// Without anything.
    pub fn bare() -> Self {
        Self {
            id: ClusterId("cluster-1".into()),
            namespace: NAMESPACE.into(),
            subnets: Vec::new(),
            networks: Vec::new(),
            pools: Vec::new(),
            leases: Vec::new(),
            pods: BTreeMap::new(),
            macs: BTreeMap::new(),
        }
    }

    pub fn subnet(mut self, name: &str, fields: &Value) -> Self {
        let spec = subnet(fields)["spec"].take();
        let spec = serde_json::from_value(spec).expect("a spec");
        let subnet = FlatSubnet::read(&spec).expect("a subnet");
        let object = object_of(&self, name);
        let spec = PoolSpec {
            name: format!("flat-network/lab/{object}").into(),
            origin: Origin::Mirror {
                system: System::flat_network(),
                cluster: self.id.clone(),
                object: object.into(),
                uid: name.into(),
            },
            ..subnet.pool()
        };
        self.subnets.push((name.to_owned(), Arc::new(subnet)));
        self.add_pool(spec)
    }

    /// A pool of fipd's own.
    pub fn own_pool(self, name: &str, addresses: &str) -> Self {
        let addresses = vec![addresses.parse().expect("addresses")];
        self.add_pool(PoolSpec::own(name, addresses))
    }

    /// The pool that was added last is in a network of this VLAN.
    pub fn on_vlan(mut self, vlan: u16) -> Self {
        let id = NetworkId(vlan.into());
        self.networks.push(Network {
            id,
            name: format!("vlan-{vlan}").into(),
            hold: None,
        });
        self.change_last(|spec| spec.network = id)
    }

    /// Nobody chose the network of the pool that was added last.
    pub fn by_default(self) -> Self {
        self.change_last(|spec| spec.network_by_default = true)
    }

    fn change_last(mut self, change: impl FnOnce(&mut PoolSpec)) -> Self {
        let pool = self.pools.last_mut().expect("a pool");
        change(&mut pool.spec);
        self
    }

    fn add_pool(mut self, spec: PoolSpec) -> Self {
        let id = u32::try_from(self.pools.len() + 1).expect("few");
        self.pools.push(Pool {
            id: PoolId(id),
            spec,
            created: Timestamp(0),
            generation: 1,
        });
        self
    }

    pub fn pod(mut self, name: &str, of: Option<WorkloadRef>) -> Self {
        self.pods.insert(Key::new("ns", name), of);
        self
    }

    pub fn mac(mut self, mac: &str, pod: &str) -> Self {
        let mac = mac.parse().expect("a MAC");
        self.macs.insert(mac, Key::new("ns", pod));
        self
    }

    /// `KIND/NAMESPACE/NAME` has 10.2.3.LAST.
    pub fn lease(self, last: u8, owner: &str, state: LeaseState) -> Self {
        let owner = format!("flat-network/cluster-1/{owner}");
        self.lease_of(last, &owner, state)
    }

    /// The same of an owner of any system.
    pub fn lease_of(mut self, last: u8, owner: &str, state: LeaseState) -> Self {
        let holder = Holder {
            identity: owner.parse().expect("an owner"),
            instance: "u-1".into(),
        };
        let member = Member {
            holder,
            ports: Vec::new(),
        };
        let cools = state == LeaseState::Quarantined;
        self.leases.push(Lease {
            key: LeaseKey {
                network: NetworkId::DEFAULT,
                address: [10, 2, 3, last].into(),
            },
            length: 32,
            pool: Some(PoolId(1)),
            state,
            members: (!cools).then_some(member).into_iter().collect(),
            contenders: Vec::new(),
            tenant: None,
            group: None,
            since: Timestamp(1),
            until: cools.then_some(Timestamp(2)),
            labels: Default::default(),
        });
        self
    }

    fn ledger(&self) -> Ledger {
        let networks = self.networks.iter().cloned().map(Op::PutNetwork);
        let pools = self.pools.iter().cloned();
        let pools = pools.map(|pool| Op::PutPool(Arc::new(pool)));
        let leases = self.leases.iter().cloned();
        let leases = leases.map(|lease| Op::PutLease(Arc::new(lease)));
        let next = Op::PutNextPool(PoolId(100));
        Ledger::load(networks.chain(pools).chain(leases).chain([next]), 0).expect("rows")
    }

    /// Subnets count in another namespace.
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    pub fn judge(&self, kind: &ReviewedKind, question: &Question) -> Verdict {
        match FlatQuestion::read(kind, question, Some(self)) {
            Ok(asked) => asked.verdict(self, &self.ledger()),
            Err(verdict) => verdict,
        }
    }

    /// What is said of a review with these fields of its request.
    pub fn ask(&self, kind: &ReviewedKind, operation: &str, fields: &Value) -> Verdict {
        let namespace = match kind.plural {
            "flatnetworksubnets" => "cattle-flat-network",
            _ => "ns",
        };
        let mut request = json!({
            "uid": "u-1", "operation": operation, "name": "a", "namespace": namespace,
            "resource": { "group": kind.group, "version": "v1", "resource": kind.plural },
            "userInfo": { "username": "somebody" },
        });
        for (key, value) in fields.as_object().into_iter().flatten() {
            request[key] = value.clone();
        }
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
        });
        let question = Question::read(review.to_string().as_bytes(), kind).expect("a question");
        self.judge(kind, &question)
    }
}
