//! Pools, leases and clusters for the tests of this folder; what a test is about it sets itself.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    ClusterId, Holder, Lease, LeaseKey, Member, Pool, PoolId, PoolSpec, Tenant, Timestamp, testing,
};
use futures::future::BoxFuture;

use super::{
    names::ServiceRef,
    rancher::{Guest, Rancher},
};
use crate::controller::{Reconciled, client::CallError, store::Key};

/// A cluster with one Service at most that shows every address.
#[derive(Clone, Default)]
pub struct Shows {
    /// How Rancher calls it.
    pub called: String,
    /// By the list that is watched.
    pub listed: Option<ServiceRef>,
    /// By a fresh read.
    pub fresh: Option<ServiceRef>,
    /// It does not answer.
    pub silent: bool,
    pub project: Option<Tenant>,
}

impl Guest for Shows {
    fn rancher_id(&self) -> Option<String> {
        Some(self.called.clone())
    }

    fn pools_changed(&self) {}

    fn fip_changed(&self, _: &Key) {}

    fn stock_changed(&self, _: &Key) {}

    fn shows(&self, _: IpAddr) -> Option<ServiceRef> {
        self.listed.clone()
    }

    fn charged_to(&self, _: &ServiceRef) -> Option<Tenant> {
        self.project.clone()
    }

    fn ask<'a>(&'a self, _: &'a [Key], _: IpAddr) -> BoxFuture<'a, Reconciled<Option<ServiceRef>>> {
        let why = || CallError::Unavailable("services web".into(), "no answer".into());
        let answer = if self.silent {
            Err(why().into())
        } else {
            Ok(self.fresh.clone())
        };
        Box::pin(std::future::ready(answer))
    }
}

/// The cluster `id`, which Rancher calls `called`, is connected.
pub fn connect(rancher: &Rancher, id: &str, called: &str, guest: Shows) {
    let called = called.to_owned();
    let guest = Shows { called, ..guest };
    rancher.listen(ClusterId(id.into()), Arc::new(guest));
}

/// An own pool of the default network, without addresses.
pub fn pool(id: u32, name: &str) -> Pool {
    let spec = PoolSpec::own(name, vec![]);
    Pool {
        id: PoolId(id),
        spec,
        created: Timestamp(0),
        generation: 1,
    }
}

/// A place in the default network.
pub fn place(address: &str) -> LeaseKey {
    let address: IpAddr = address.parse().expect("an address");
    testing::key(address)
}

/// A lease of no pool.
pub fn lease(key: LeaseKey, holder: Option<Holder>) -> Lease {
    let member = holder.map(|holder| Member {
        holder,
        ports: vec![],
    });
    Lease {
        members: member.into_iter().collect(),
        since: Timestamp(0),
        ..testing::lease(key, None, None)
    }
}
