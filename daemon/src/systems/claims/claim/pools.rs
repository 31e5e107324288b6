//! Which pool a claim means.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{ClusterId, Ledger, Pool};
use fipd_crds::fipd_io::{AddressClaimSpec, NAMESPACED_POOL, POOL, PoolRef};

use crate::{
    controller::{
        address_user::refusal::FixedFields, own_pools::OwnPools, unserved::Unserved, waiters::Cause,
    },
    systems::claims::settings::ClaimsSettings,
};

const ADDRESS: &str = "spec.address";
const POOL_REF: &str = "spec.poolRef";

/// Where a claim is.
#[derive(Clone, Copy, Debug)]
pub struct ClaimPlace<'a> {
    pub cluster: &'a ClusterId,
    pub namespace: &'a str,
    pub settings: &'a ClaimsSettings,
}

/// The pool that a claim means, and the address that it names.
pub fn wish(
    ledger: &Ledger,
    place: &ClaimPlace<'_>,
    spec: &AddressClaimSpec,
) -> Result<(Arc<Pool>, Option<IpAddr>), Unserved> {
    let address = match spec.address.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            let message =
                format!("{ADDRESS}: {text:?} is no IP address; make the claim anew without it");
            Unserved::new("Invalid", message, None)
        })?),
    };
    Ok((find(ledger, place, spec.pool_ref.as_ref())?, address))
}

/// The fields that may not be changed of a claim that has an address, where the API server does not see to that.
pub fn fixed(spec: &AddressClaimSpec) -> FixedFields<'_> {
    let named = spec.pool_ref.as_ref();
    let kind = named.map_or(POOL, |named| match named.kind.as_str() {
        "" => POOL,
        kind => kind,
    });
    FixedFields {
        address: ADDRESS,
        pool: named.map(|named| (POOL_REF, named.name.as_str(), kind)),
    }
}

fn find(
    ledger: &Ledger,
    place: &ClaimPlace<'_>,
    named: Option<&PoolRef>,
) -> Result<Arc<Pool>, Unserved> {
    let (kind, name) = match (named, &place.settings.default_pool) {
        (Some(named), _) => (named.kind.as_str(), named.name.as_str()),
        (None, Some(default)) => (POOL, &**default),
        (None, None) => {
            let message = "spec.poolRef is missing, and fipd's configuration names no default-pool for this cluster";
            return Err(Unserved::new("Invalid", message, None));
        }
    };
    let kind = if kind.is_empty() { POOL } else { kind };
    if ![POOL, NAMESPACED_POOL].contains(&kind) {
        let message = format!(
            "spec.poolRef.kind: {kind:?} is unknown; allowed are {POOL:?} and {NAMESPACED_POOL:?}"
        );
        return Err(Unserved::new("Invalid", message, None));
    }
    let pools = OwnPools {
        cluster: place.cluster,
        namespace: place.namespace,
        settings: place.settings,
    };
    pools.find(ledger, kind, name).ok_or_else(|| {
        let message = format!(
            "spec.poolRef: there is no {kind} {name:?} for this claim; it is tried again when one appears"
        );
        Unserved::new("PoolNotFound", message, Some(Cause::Pools))
    })
}

#[cfg(test)]
mod tests {
    use fipd_core::{Op, Origin, PoolId, System, Timestamp, testing};

    use super::*;

    fn put(ledger: &mut Ledger, id: u32, name: &str, object: Option<&str>) {
        let mut spec = testing::pool_spec(name, &["10.0.0.0/24"]);
        if let Some(object) = object {
            spec.origin = Origin::Mirror {
                system: System::claims(),
                cluster: ClusterId("c".into()),
                object: object.into(),
                uid: "u".into(),
            };
        }
        ledger.apply(&Op::PutPool(Arc::new(Pool {
            id: PoolId(id),
            spec,
            created: Timestamp(0),
            generation: 1,
        })));
    }

    fn spec(kind: &str, name: &str) -> AddressClaimSpec {
        AddressClaimSpec {
            pool_ref: Some(PoolRef {
                kind: kind.into(),
                name: name.into(),
            }),
            address: String::new(),
        }
    }

    #[test]
    fn a_claim_uses_what_its_cluster_and_namespace_may() {
        let mut ledger = Ledger::new();
        put(&mut ledger, 1, "lab", None);
        put(&mut ledger, 2, "secret", None);
        put(&mut ledger, 3, "claims/x/here/lab", Some("here/lab"));
        put(&mut ledger, 4, "claims/x/theirs", Some("theirs"));
        let settings: ClaimsSettings =
            toml::from_str("pools = [\"l*\"]\ndefault-pool = \"lab\"").expect("settings");
        let found = |cluster: &str, namespace: &str, spec: &AddressClaimSpec| {
            let cluster = ClusterId(cluster.into());
            let place = ClaimPlace {
                cluster: &cluster,
                namespace,
                settings: &settings,
            };
            match wish(&ledger, &place, spec) {
                Ok((pool, _)) => pool.spec.name.to_string(),
                Err(problem) => problem.reason.to_owned(),
            }
        };
        assert_eq!(found("c", "any", &AddressClaimSpec::default()), "lab");
        assert_eq!(found("c", "any", &spec("", "lab")), "lab");
        assert_eq!(found("c", "any", &spec("Pool", "secret")), "PoolNotFound");
        assert_eq!(
            found("c", "here", &spec("NamespacedPool", "lab")),
            "claims/x/here/lab"
        );
        assert_eq!(
            found("c", "there", &spec("NamespacedPool", "lab")),
            "PoolNotFound"
        );
        assert_eq!(
            found("c", "any", &spec("Pool", "theirs")),
            "claims/x/theirs"
        );
        assert_eq!(found("d", "any", &spec("Pool", "theirs")), "PoolNotFound");
        assert_eq!(
            found("c", "here", &spec("Pool", "here/lab")),
            "PoolNotFound",
            "a name with a slash is no way into a namespace"
        );
        assert_eq!(found("c", "any", &spec("Node", "lab")), "Invalid");
        let address = AddressClaimSpec {
            address: "10.0.0.300".into(),
            ..spec("", "lab")
        };
        assert_eq!(found("c", "any", &address), "Invalid");
    }
}
