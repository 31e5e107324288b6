//! What the mirror of a FloatingIPPool is to be, and the request that makes it so.

use fipd_core::{Pool, PoolEdit, PoolSpec, Request};

use crate::systems::rancher_fip::names::actor;

/// What to ask for, if anything. The cluster has the last word on its pool: leases that an edit leaves out of
/// range are kept and marked.
pub fn change(existing: Option<&Pool>, desired: PoolSpec, cluster_name: &str) -> Option<Request> {
    let actor = actor(cluster_name);
    match existing {
        None => Some(Request::CreatePool {
            spec: desired,
            actor,
        }),
        Some(pool) if pool.spec == desired => None,
        Some(pool) => Some(edit(pool, desired, cluster_name)),
    }
}

/// What to ask for when the object is gone: close the pool, then, once it is empty, delete it.
pub fn removal(existing: &Pool, in_use: bool, cluster_name: &str) -> Option<Request> {
    if !in_use {
        return Some(Request::DeletePool {
            pool: existing.id,
            actor: actor(cluster_name),
        });
    }
    let closed = PoolSpec {
        closed: true,
        ..existing.spec.clone()
    };
    (!existing.spec.closed).then(|| edit(existing, closed, cluster_name))
}

fn edit(pool: &Pool, spec: PoolSpec, cluster_name: &str) -> Request {
    Request::UpdatePool(PoolEdit {
        pool: pool.id,
        spec,
        // An admin may have taken it to another network since it was read.
        if_generation: Some(pool.generation),
        force: true,
        actor: actor(cluster_name),
        reason: "".into(),
    })
}

#[cfg(test)]
mod tests {
    use fipd_core::{ClusterId, NetworkId, PoolId, Timestamp};

    use super::*;
    use crate::validation::{
        mirror::{Source, desired},
        pool::{RawConfig, validate},
    };

    fn spec(end: &str) -> PoolSpec {
        let raw = RawConfig {
            family: None,
            subnet: "10.0.0.0/24",
            start: "10.0.0.1",
            end,
            exclude: vec![],
        };
        let ranges = validate(Some(&raw)).expect("valid");
        let cluster = ClusterId("id".into());
        let source = Source {
            cluster: &cluster,
            cluster_name: "rancher",
            name: "dc--net",
            uid: "u",
            quota_required: true,
        };
        desired(&source, &ranges, (NetworkId::DEFAULT, true))
    }

    fn pool(spec: PoolSpec) -> Pool {
        Pool {
            id: PoolId(7),
            spec,
            created: Timestamp(0),
            generation: 3,
        }
    }

    #[test]
    fn only_a_difference_is_asked_for() {
        let now = spec("10.0.0.9");
        assert_eq!(&*now.name, "rancher-fip/rancher/dc--net");
        assert!(matches!(
            change(None, now.clone(), "rancher"),
            Some(Request::CreatePool { .. })
        ));
        assert_eq!(change(Some(&pool(now.clone())), now, "rancher"), None);
        let Some(Request::UpdatePool(edit)) =
            change(Some(&pool(spec("10.0.0.9"))), spec("10.0.0.5"), "rancher")
        else {
            panic!("an edit was expected");
        };
        assert!(edit.force && edit.pool == PoolId(7));
        assert_eq!(
            edit.if_generation,
            Some(3),
            "what an admin does meanwhile stays"
        );
    }

    #[test]
    fn a_pool_without_object_closes_once_and_goes_when_empty() {
        let open = pool(spec("10.0.0.9"));
        let Some(Request::UpdatePool(edit)) = removal(&open, true, "rancher") else {
            panic!("an edit was expected");
        };
        assert!(edit.spec.closed);
        let closed = pool(edit.spec);
        assert_eq!(removal(&closed, true, "rancher"), None);
        assert!(matches!(
            removal(&closed, false, "rancher"),
            Some(Request::DeletePool { .. })
        ));
    }
}
