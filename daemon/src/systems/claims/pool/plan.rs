//! What the object of an own pool is to be.

use std::sync::Arc;

use fipd_core::{EndsOf, Pool, Text, Timestamp};
use fipd_crds::fipd_io::{OF_EACH_CIDR, OF_PREFIX, PoolSpec, ReservedEnds};

use super::observe::PoolObject;

/// What is to be done about the object of a name.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolObjectPlan {
    Create(Box<PoolSpec>),
    /// It is ours: written where it differs, and its status shown.
    Keep(Box<PoolSpec>),
    /// Its pool is gone, or not offered any more.
    Delete,
    /// It is ours, but no pool of this name was ever known here: the store may be another one.
    Orphan,
    /// It is another's; the pool is not mirrored.
    NameTaken,
    Leave,
}

/// What is known of the own pool that has the name of an object.
#[derive(Clone, Debug)]
pub enum OwnPool {
    /// Offered to the cluster, with the name of its network.
    Offered(Arc<Pool>, Text),
    /// It is there, but not for this cluster; or it was there while fipd runs.
    Withdrawn,
    /// No such pool.
    Unknown,
}

/// What fipd wrote before `since`, it may have written from another store, and that its pool is missing here says nothing:
/// others refer to the object by its UID.
pub fn plan(object: Option<&PoolObject>, wanted: &OwnPool, since: Timestamp) -> PoolObjectPlan {
    match (object, wanted) {
        (None, OwnPool::Offered(pool, network)) => {
            PoolObjectPlan::Create(Box::new(desired(pool, network)))
        }
        (None, OwnPool::Withdrawn | OwnPool::Unknown) => PoolObjectPlan::Leave,
        (Some(object), OwnPool::Offered(..)) if !object.ours => PoolObjectPlan::NameTaken,
        (Some(object), _) if !object.ours || object.meta.deleted.is_some() => PoolObjectPlan::Leave,
        (Some(_), OwnPool::Offered(pool, network)) => {
            PoolObjectPlan::Keep(Box::new(desired(pool, network)))
        }
        (Some(_), OwnPool::Withdrawn) => PoolObjectPlan::Delete,
        // Objects carry whole seconds.
        (Some(object), OwnPool::Unknown) => {
            if object.meta.created.0 / 1_000 > since.0 / 1_000 {
                PoolObjectPlan::Delete
            } else {
                PoolObjectPlan::Orphan
            }
        }
    }
}

/// The specification of the object.
pub fn desired(pool: &Pool, network: &str) -> PoolSpec {
    let spec = &pool.spec;
    let texts = |specs: &[fipd_core::AddressSpec]| specs.iter().map(ToString::to_string).collect();
    PoolSpec {
        addresses: texts(&spec.addresses),
        exclusions: texts(&spec.exclusions),
        gateway: spec.gateway.map_or_else(String::new, |one| one.to_string()),
        prefix_length: spec.prefix_len.map(i64::from),
        network: network.to_owned(),
        reserved_ends: Some(ReservedEnds {
            first: spec.ends.first.into(),
            last: spec.ends.last.into(),
            of: match spec.ends.of {
                EndsOf::Prefix => OF_PREFIX.into(),
                EndsOf::EachCidr => OF_EACH_CIDR.into(),
            },
        }),
        quarantine_seconds: spec.quarantine.into(),
        closed: spec.closed,
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::{PoolId, PoolSpec as Spec};
    use fipd_crds::fipd_io;

    use super::*;
    use crate::systems::claims::pool::observe::view;

    fn pool() -> Arc<Pool> {
        let addresses = ["10.0.0.0/24", "10.0.1.5-10.0.1.9"];
        Arc::new(Pool {
            id: PoolId(1),
            spec: Spec {
                gateway: "10.0.0.1".parse().ok(),
                prefix_len: Some(16),
                quarantine: 60,
                ..Spec::own(
                    "lab",
                    addresses.map(|one| one.parse().expect("addresses")).into(),
                )
            },
            created: Timestamp(0),
            generation: 1,
        })
    }

    #[test]
    fn the_object_says_what_the_pool_says() {
        let spec = desired(&pool(), "blue");
        assert_eq!(spec.addresses, ["10.0.0.0/24", "10.0.1.5-10.0.1.9"]);
        assert_eq!(
            (
                spec.gateway.as_str(),
                spec.prefix_length,
                spec.network.as_str()
            ),
            ("10.0.0.1", Some(16), "blue")
        );
        assert_eq!(spec.quarantine_seconds, 60);
        assert_eq!(spec.reserved_ends.expect("ends").of, OF_PREFIX);
    }

    #[test]
    fn only_what_is_ours_is_touched_and_only_what_was_known_is_deleted() {
        let offered = OwnPool::Offered(pool(), "default".into());
        let mut object = view(fipd_io::Pool::default());
        object.meta.created = Timestamp(9_000);
        let known = Timestamp(5_000);
        assert!(matches!(
            plan(None, &offered, known),
            PoolObjectPlan::Create(_)
        ));
        assert_eq!(plan(None, &OwnPool::Unknown, known), PoolObjectPlan::Leave);
        assert_eq!(
            plan(Some(&object), &offered, known),
            PoolObjectPlan::NameTaken
        );
        assert_eq!(
            plan(Some(&object), &OwnPool::Withdrawn, known),
            PoolObjectPlan::Leave
        );
        object.ours = true;
        assert!(matches!(
            plan(Some(&object), &offered, known),
            PoolObjectPlan::Keep(_)
        ));
        assert_eq!(
            plan(Some(&object), &OwnPool::Withdrawn, known),
            PoolObjectPlan::Delete
        );
        assert_eq!(
            plan(Some(&object), &OwnPool::Unknown, known),
            PoolObjectPlan::Delete
        );
        assert_eq!(
            plan(Some(&object), &OwnPool::Unknown, Timestamp(9_500)),
            PoolObjectPlan::Orphan,
            "it is from another store"
        );
        object.meta.deleted = Some(Timestamp(10_000));
        assert_eq!(plan(Some(&object), &offered, known), PoolObjectPlan::Leave);
        assert_eq!(
            plan(Some(&object), &OwnPool::Withdrawn, known),
            PoolObjectPlan::Leave
        );
    }
}
