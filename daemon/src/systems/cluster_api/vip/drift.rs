//! Whether an endpoint without a claim is another than its lease. The Cluster itself holds what it shows without a claim: what
//! somebody chose for it, and the address of a claim that was deleted. It holds that until it is gone, also when somebody
//! changes its endpoint. Pure.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Family, Holder, Lease};

use super::observe::CapiClusterView;

/// The address that the endpoint had first, by the leases that the Cluster itself holds: of those that it shows nowhere the oldest
/// one, if that is older than the lease of the endpoint. `is_endpoint`: it may be of an endpoint.
///
/// Whoever puts the first address back has an endpoint that is older than what it was changed to, and that is no drift.
pub fn replaced(
    cluster: &CapiClusterView,
    held: &[Arc<Lease>],
    is_endpoint: impl Fn(&Lease) -> bool,
) -> Option<IpAddr> {
    let now = cluster.host();
    let now = held.iter().find(|lease| now == Some(lease.key.address));
    // The other family has an address of its own.
    let families = cluster.families.filter(|all| all.second.is_some());
    let fits = |address| families.is_none_or(|all| Family::of(address) == all.first);
    let hidden = held.iter().filter(|lease| {
        let address = lease.key.address;
        !cluster.shows(address) && fits(address) && is_endpoint(lease)
    });
    let first = hidden.min_by_key(|lease| (lease.since, lease.key))?;
    let is_older = now.is_none_or(|now| first.since < now.since);
    is_older.then_some(first.key.address)
}

/// Why a lease that the Cluster itself holds as `holder` is of no use any more; `None`: it may be.
///
/// What a Cluster took in this life and shows nowhere was never its own for long, if nothing is provisioned yet: whoever chose
/// its endpoint chose again. A Cluster that was moved here is younger than its leases.
pub fn unneeded(cluster: &CapiClusterView, lease: &Lease, holder: &Holder) -> Option<&'static str> {
    if cluster.shows(lease.key.address) {
        return None;
    }
    if holder.instance != cluster.meta.uid {
        return Some("the Cluster that had it is gone, and another one has its name");
    }
    let is_own = lease.since >= cluster.meta.created;
    (is_own && !cluster.is_provisioned && cluster.endpoint.is_some())
        .then_some("another address was chosen before the Cluster was provisioned")
}

#[cfg(test)]
mod tests {
    use fipd_core::{Labels, LeaseKey, LeaseState, NetworkId, PoolId, Timestamp};
    use fipd_crds::cluster_api::Cluster;
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::fake_api_tests::merge;

    /// A lease from the pool of this number, since this time.
    fn lease(address: &str, pool: u32, since: u64) -> Arc<Lease> {
        let key = LeaseKey {
            network: NetworkId::DEFAULT,
            address: address.parse().expect("an address"),
        };
        Arc::new(Lease {
            key,
            length: key.bits(),
            pool: Some(PoolId(pool)),
            state: LeaseState::Allocated,
            members: Default::default(),
            contenders: Vec::new(),
            tenant: None,
            group: None,
            since: Timestamp(since),
            until: None,
            labels: Labels::default(),
        })
    }

    fn cluster(host: &str, rest: &Value) -> CapiClusterView {
        let mut object = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": "c", "namespace": "ns" },
            "spec": { "controlPlaneEndpoint": { "host": host, "port": 6443 } },
        });
        merge(&mut object, rest);
        let object: Cluster = serde_json::from_value(object).expect("a Cluster");
        CapiClusterView::of(object)
    }

    #[test]
    fn what_an_endpoint_was_before_anything_was_built_is_unneeded() {
        let of = |host: &str, rest: &Value, instance: &str, since: u64| {
            let mut rest = rest.clone();
            let meta = json!({ "metadata": {
                "uid": "u", "creationTimestamp": "1970-01-01T00:00:01Z",
            } });
            merge(&mut rest, &meta);
            let holder = Holder {
                identity: "cluster-api/x/Cluster/ns/c".parse().expect("an owner"),
                instance: instance.into(),
            };
            let lease = lease("10.0.0.5", 1, since);
            unneeded(&cluster(host, &rest), &lease, &holder).is_some()
        };
        let built =
            json!({ "status": { "initialization": { "infrastructureProvisioned": true } } });
        let none = json!({});
        assert!(of("10.0.0.6", &none, "u", 2_000));
        assert!(!of("10.0.0.5", &none, "u", 2_000), "it shows the address");
        assert!(
            !of("10.0.0.6", &built, "u", 2_000),
            "certificates may carry it"
        );
        assert!(
            !of("10.0.0.6", &none, "u", 500),
            "the Cluster was moved here"
        );
        assert!(of("10.0.0.6", &built, "another", 500), "that one is gone");
        assert!(
            !of("10.0.0.5", &built, "another", 500),
            "this one has its address"
        );
    }

    #[test]
    fn an_endpoint_differs_from_the_lease_that_it_had_first() {
        let (first, second) = (|| lease("10.0.0.5", 1, 10), || lease("10.0.0.6", 1, 20));
        let third = || lease("10.0.0.7", 1, 30);
        let ingress = || lease("10.1.0.5", 2, 5);
        let none = json!({});
        let front = json!({ "metadata": { "annotations": { "vip.capi.gorizond.io/ingress-vip": "10.0.0.5" } } });
        let dual = json!({ "spec": { "clusterNetwork": { "services": {
            "cidrBlocks": ["10.96.0.0/12", "fd00:96::/112"],
        } } } });
        for (host, rest, held, wanted) in [
            ("10.0.0.5", &none, vec![], None),
            ("10.0.0.5", &none, vec![first()], None),
            // Its new address is reserved, is not yet, or is one that no pool has.
            ("10.0.0.6", &none, vec![first(), second()], Some("10.0.0.5")),
            ("10.0.0.6", &none, vec![first()], Some("10.0.0.5")),
            ("api.example", &none, vec![first()], Some("10.0.0.5")),
            (
                "10.0.0.7",
                &none,
                vec![third(), second(), first()],
                Some("10.0.0.5"),
            ),
            // It is as it was.
            ("10.0.0.5", &none, vec![first(), second()], None),
            // It has the address in another place.
            ("10.0.0.6", &front, vec![first(), second()], None),
            // What an ingress had is not of an endpoint.
            ("10.0.0.5", &none, vec![first(), ingress()], None),
            (
                "10.0.0.5",
                &dual,
                vec![first(), lease("fd00::5", 1, 5)],
                None,
            ),
            ("10.0.0.6", &dual, vec![first()], Some("10.0.0.5")),
        ] {
            let found = replaced(&cluster(host, rest), &held, |one| {
                one.pool == Some(PoolId(1))
            });
            let found = found.map(|address| address.to_string());
            assert_eq!(found.as_deref(), wanted, "{host} {rest} {held:?}");
        }
    }
}
