//! An address book and reviews for tests and for fuzzing.

#![allow(clippy::expect_used, reason = "nothing runs on it but tests")]
#![cfg_attr(
    not(test),
    allow(dead_code, reason = "fuzzing needs one address book only")
)]

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{
    ClusterId, Holder, Lease, LeaseKey, LeaseState, Ledger, Member, NetworkId, Op, Pool, PoolId,
    Quota, Tenant, Timestamp,
};
use fipd_crds::floating_ip::GROUP;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Book, Management, Operation, Question, ReviewedKind, Verdict, deletion, judged, rule};
use crate::{
    controller::pool_source::SourceFacts,
    systems::rancher_fip::pool::desired,
    validation::{
        mirror::MirrorOf,
        pool::{validate, written},
    },
};

/// The cluster `rancher` with what it knows beside the address book.
pub struct Rancher {
    id: ClusterId,
    /// Names of pools, and what else they are called.
    pools: BTreeMap<String, Option<String>>,
    rows: Vec<Op>,
    leases: Vec<Lease>,
    pub required: bool,
    pub network: Option<NetworkId>,
    /// Clusters that are connected and show no address.
    pub idle: Vec<&'static str>,
    /// Whether every namespace is being deleted.
    pub ending: bool,
}

impl Management for Rancher {
    fn id(&self) -> &ClusterId {
        &self.id
    }

    fn name(&self) -> &'static str {
        "rancher"
    }

    fn is_fipd(&self, user: &str) -> bool {
        user == "fipd"
    }

    fn has_pool(&self, name: &str) -> bool {
        self.pools.contains_key(name)
    }

    fn other_names(&self) -> BTreeMap<String, Vec<String>> {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (own, called) in &self.pools {
            if let Some(called) = called {
                names.entry(called.clone()).or_default().push(own.clone());
            }
        }
        names
    }

    fn network(&self, _: &Ledger, _: &str, _: &SourceFacts<'_>) -> Option<NetworkId> {
        self.network
    }

    fn quota_required(&self) -> bool {
        self.required
    }

    fn shows_nowhere(&self, cluster: &str, _: IpAddr) -> bool {
        self.idle.contains(&cluster)
    }

    fn is_ending<'a>(&'a self, _: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(self.ending))
    }
}

impl Rancher {
    /// With the pool `net`: 10.0.0.0/24 from .10 to .20 without .15; quotas are required.
    pub fn new() -> Self {
        let rancher = Self {
            id: ClusterId("cluster-1".into()),
            pools: BTreeMap::new(),
            rows: Vec::new(),
            leases: Vec::new(),
            required: true,
            network: Some(NetworkId::DEFAULT),
            idle: Vec::new(),
            ending: false,
        };
        rancher.pool(
            "net",
            "10.0.0.0/24",
            ("10.0.0.10", "10.0.0.20"),
            &["10.0.0.15"],
        )
    }

    pub fn pool(
        mut self,
        name: &str,
        subnet: &str,
        (start, end): (&str, &str),
        exclude: &[&str],
    ) -> Self {
        let raw = written(subnet, start, end, exclude);
        let mirror = MirrorOf {
            cluster: &self.id,
            cluster_name: "rancher",
            object: name,
            uid: name,
        };
        let ranges = validate(Some(&raw)).expect("valid");
        let id = u32::try_from(self.pools.len() + 1).expect("few");
        let pool = Pool {
            id: PoolId(id),
            spec: desired(&mirror, self.required, &ranges, (NetworkId::DEFAULT, true)),
            created: Timestamp(0),
            generation: 1,
        };
        self.rows.push(Op::PutPool(Arc::new(pool)));
        self.pools
            .insert(name.to_owned(), Some(format!("dc--{name}")));
        self
    }

    /// A pool object that is not mirrored.
    pub fn broken(mut self, name: &str) -> Self {
        self.pools.insert(name.to_owned(), None);
        self
    }

    /// The pool object goes; its mirror stays.
    pub fn without(mut self, name: &str) -> Self {
        self.pools.remove(name);
        self
    }

    pub fn quota(mut self, project: &str, limit: u64) -> Self {
        self.rows.push(Op::PutQuota(Quota {
            pool: PoolId(1),
            tenant: Tenant(project.into()),
            limit,
        }));
        self
    }

    /// `owner` has an address of pool `net` and is charged for it as `project`.
    pub fn lease(mut self, address: &str, owner: &str, project: &str, state: LeaseState) -> Self {
        let holder = Holder {
            identity: owner.parse().expect("an owner"),
            instance: "u-1".into(),
        };
        let cools = state == LeaseState::Quarantined;
        let member = Member {
            holder,
            ports: Vec::new(),
        };
        self.leases.push(Lease {
            length: 32,
            key: LeaseKey {
                network: NetworkId::DEFAULT,
                address: address.parse::<IpAddr>().expect("an address"),
            },
            pool: Some(PoolId(1)),
            state,
            members: (!cools).then_some(member).into_iter().collect(),
            contenders: Vec::new(),
            tenant: Some(Tenant(project.into())),
            group: None,
            since: Timestamp(1),
            until: cools.then_some(Timestamp(2)),
            labels: Default::default(),
        });
        self
    }

    /// The last lease is of a prefix of so many bits, which no pool gives.
    pub fn in_prefix(mut self, length: u8) -> Self {
        if let Some(lease) = self.leases.last_mut() {
            (lease.length, lease.pool) = (length, None);
        }
        self
    }

    /// The FloatingIP `c-m-a/NAME` has the address.
    pub fn fip(self, address: &str, name: &str, project: &str) -> Self {
        let owner = format!("rancher-fip/cluster-1/FloatingIP/c-m-a/{name}");
        self.lease(address, &owner, project, LeaseState::Allocated)
    }

    pub fn ledger(&self) -> Ledger {
        let leases = self
            .leases
            .iter()
            .map(|lease| Op::PutLease(Arc::new(lease.clone())));
        let rows = self.rows.iter().cloned().chain(leases);
        let next = Op::PutNextPool(PoolId(100));
        Ledger::load(rows.chain([next]), 0).expect("rows")
    }

    pub fn judge(
        &self,
        kind: &ReviewedKind,
        name: &str,
        old: Option<Value>,
        new: Value,
    ) -> Verdict {
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-1", "operation": operation, "name": name, "namespace": "c-m-a",
                "resource": { "group": GROUP, "version": "v1beta2", "resource": kind.plural },
                "object": new, "oldObject": old,
            },
        });
        let question = Question::read(review.to_string().as_bytes(), kind).expect("a question");
        self.answer(kind, &question)
    }

    /// A delete of `object` by `user`.
    pub fn delete(&self, kind: &ReviewedKind, name: &str, user: &str, object: Value) -> Verdict {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-1", "operation": "DELETE", "name": name, "namespace": "c-m-a",
                "resource": { "group": GROUP, "version": "v1beta2", "resource": kind.plural },
                "userInfo": { "username": user }, "object": null, "oldObject": object,
            },
        });
        let question = Question::read(review.to_string().as_bytes(), kind).expect("a question");
        self.answer(kind, &question)
    }

    pub fn answer(&self, kind: &ReviewedKind, question: &Question) -> Verdict {
        if question.operation != Operation::Delete && question.passes() {
            return Verdict::allowed();
        }
        let ledger = self.ledger();
        let book = Book {
            ledger: &ledger,
            cluster: self,
        };
        if question.operation == Operation::Delete {
            return deletion::subject(kind, question).map_or_else(Verdict::allowed, |object| {
                deletion::judge(kind, question, object, book)
            });
        }
        match rule(kind, question, self) {
            Ok(rule) => judged(&rule, book),
            Err(verdict) => verdict,
        }
    }
}

/// The message of a refusal.
pub fn why(verdict: Verdict) -> String {
    verdict.denied.expect("a refusal").message
}

/// A FloatingIP of project `p-1`.
pub fn fip(pool: &str, address: &str) -> Value {
    json!({
        "metadata": { "labels": { "rancher.k8s.binbash.org/project-name": "p-1" } },
        "spec": { "floatingIPPool": pool, "ipAddr": address },
    })
}

/// A FloatingIPPool.
pub fn pool(subnet: &str, start: &str, end: &str, exclude: &[&str]) -> Value {
    json!({ "metadata": {}, "spec": { "ipConfig": {
        "subnet": subnet, "pool": { "start": start, "end": end, "exclude": exclude },
    } } })
}
