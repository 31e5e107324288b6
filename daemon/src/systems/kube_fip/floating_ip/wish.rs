//! What a FloatingIP asks for. Pure.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Identity, Ledger, Pool, PoolSpec, System, Tenant};

use super::FipView;
use crate::{
    controller::{
        address_user::{
            claim_status::MAY_BE_IN_USE,
            outcome::READY,
            settle::{AddressWish, Wished},
        },
        unserved::Unserved,
        waiters::Cause,
    },
    systems::kube_fip::{
        guest::address_map::is_namespace,
        names::{CLUSTER_NAME, FIP_RANGE, SERVICE_NAMESPACE},
    },
    validation::held_address::gives,
};

const ADDRESS: &str = "spec.ipaddress";

/// Reason: the range does not have the address that the object names.
pub const NOT_IN_RANGE: &str = "AddressNotInRange";

/// The range and the address, or what is to be done about the object. `own` is what the ledger calls it.
pub fn wish(ledger: &Ledger, own: &Identity, tenant: Tenant, fip: &FipView) -> Wished {
    if fip.cluster.is_none() {
        return Err(missing(
            CLUSTER_NAME,
            "the name of the provisioning Cluster that it is for",
        ));
    }
    if let Some(namespace) = fip
        .service_namespace
        .as_ref()
        .filter(|one| !is_namespace(one))
    {
        let message = format!(
            "annotation {SERVICE_NAMESPACE}: {namespace:?} is no namespace that can have addresses of its own; write the name of one (not \"global\", whose key is that of all), or remove the annotation: then Services of all may have the address"
        );
        return Err(Unserved::new("AnnotationInvalid", message, None));
    }
    let range = fip.range.as_deref();
    let range = range.ok_or_else(|| missing(FIP_RANGE, "the name of a FloatingIPRange"))?;
    let mirror = |cluster| ledger.mirror(&System::kube_fip(), cluster, range);
    let pool = own.cluster.as_ref().and_then(mirror).ok_or_else(|| {
        let message = format!(
            "annotation {FIP_RANGE}: there is no usable FloatingIPRange {range:?}; make it, or name another; it is tried again when one appears"
        );
        Unserved::new("RangeNotFound", message, Some(Cause::Pools))
    })?;
    let address = address(ledger, own, fip, (range, pool))?;
    Ok(AddressWish::new(tenant, Arc::clone(pool), address))
}

/// The address that the object names of the range. One that it got from another range before is no wish.
fn address(
    ledger: &Ledger,
    own: &Identity,
    fip: &FipView,
    (range, pool): (&str, &Pool),
) -> Result<Option<IpAddr>, Unserved> {
    if fip.wanted.is_empty() {
        return Ok(None);
    }
    let Some(address) = fip.named() else {
        let message = format!(
            "{ADDRESS}: {:?} is no IP address; write one of range {range:?}, or nothing for any",
            fip.wanted
        );
        return Err(Unserved::new("Invalid", message, None));
    };
    let leases = ledger.addresses_of(own);
    let held = leases.iter().find(|lease| lease.key.address == address);
    let of_range = held.is_some_and(|lease| lease.pool == Some(pool.id));
    if of_range || gives(&pool.spec, address) {
        return Ok(Some(address));
    }
    if held.is_some() && fip.got(address) {
        return Ok(None);
    }
    let message = format!(
        "{ADDRESS}: {address} is not in range {range:?} ({}); write an address of it, or nothing for any, or name another range",
        pool.spec
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    );
    Err(Unserved::new(NOT_IN_RANGE, message, Some(Cause::Pools)))
}

fn missing(annotation: &str, what: &str) -> Unserved {
    let message = format!("annotation {annotation} is missing; set it to {what}");
    Unserved::new("AnnotationMissing", message, None)
}

impl FipView {
    /// The address in the specification, by which others may mean the same in other words.
    pub fn named(&self) -> Option<IpAddr> {
        let address: IpAddr = self.wanted.parse().ok()?;
        Some(address.to_canonical())
    }

    /// The address in the status, which only fipd writes.
    pub fn recorded(&self) -> Option<IpAddr> {
        self.status.address.parse().ok()
    }

    /// The address that it may be using, where that is of this pool, which its range describes. It may show one of the range
    /// that it named before: two networks may have the same addresses.
    pub fn shown_of(&self, pool: &PoolSpec) -> Option<IpAddr> {
        let cluster = |pool: &str| pool.rsplit_once('/').map(|(head, _)| head.to_owned());
        let shown = &*self.status.pool;
        let of_other = *shown != *pool.name && cluster(shown) == cluster(&pool.name);
        let address = self.recorded().or_else(|| self.written())?;
        (!of_other && gives(pool, address)).then_some(address)
    }

    /// The address in the specification, unless fipd knows that it is no more than a wish.
    fn written(&self) -> Option<IpAddr> {
        self.named().filter(|_| self.may_be_in_use())
    }

    /// Whether the address that it shows or names may be in use, as far as fipd has told yet.
    pub fn may_be_in_use(&self) -> bool {
        let waits = self.waits();
        waits.is_none_or(|reason| MAY_BE_IN_USE.contains(&reason))
    }

    /// Why it waits for an address, or for another than it has; `None`: it does not.
    pub fn waits(&self) -> Option<&str> {
        let mut conditions = self.status.conditions.iter();
        let ready = conditions.find(|one| one.type_ == READY)?;
        (ready.status != "True").then_some(&ready.reason)
    }

    /// Whether fipd wrote the address into the object as one of the range that it named by then. One that was adopted may be of
    /// no such range: it is kept as it is.
    fn got(&self, address: IpAddr) -> bool {
        let conditions = self.status.conditions.iter();
        let mut ready = conditions.filter(|one| one.type_ == READY);
        self.recorded() == Some(address) && !ready.any(|one| one.reason == NOT_IN_RANGE)
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::{ClusterId, Lease, Op, Origin, PoolId, Timestamp, testing};
    use k8s_openapi::jiff;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        controller::{conditions::ConditionUpdate, conditions::set, store::Key},
        systems::kube_fip::{floating_ip::view, names::FLOATING_IP},
    };

    fn own() -> Identity {
        let key = Key::new("c-m-1", "guest-kubevip");
        key.identity(System::kube_fip(), &ClusterId("c".into()), FLOATING_IP.kind)
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new();
        for (id, range, addresses) in [(1, "a", "10.0.0.0/24"), (2, "b", "10.0.1.0/24")] {
            let spec = PoolSpec {
                origin: Origin::Mirror {
                    system: System::kube_fip(),
                    cluster: ClusterId("c".into()),
                    object: range.into(),
                    uid: range.into(),
                },
                ..testing::pool_spec(range, &[addresses])
            };
            ledger.apply(&Op::PutPool(Arc::new(Pool {
                id: PoolId(id),
                spec,
                created: Timestamp(0),
                generation: 1,
            })));
        }
        ledger
    }

    fn fip(annotations: &Value, address: &str) -> FipView {
        view(
            serde_json::from_value(json!({
                "apiVersion": "kubefip.k8s.binbash.org/v1", "kind": "FloatingIP",
                "metadata": { "annotations": annotations }, "spec": { "ipaddress": address },
            }))
            .expect("a FloatingIP"),
        )
    }

    fn named(range: &str, address: &str) -> FipView {
        fip(
            &json!({ "clustername": "guest", "fiprange": range }),
            address,
        )
    }

    /// The range and the address that are asked for, or why none is.
    fn asked(ledger: &Ledger, fip: &FipView) -> String {
        match wish(ledger, &own(), Tenant("t".into()), fip) {
            Ok(wish) => format!("{} {:?}", wish.pool.spec.name, wish.address),
            Err(problem) => problem.reason.to_owned(),
        }
    }

    #[test]
    fn what_is_missing_or_wrong_says_what_to_do() {
        let ledger = ledger();
        assert_eq!(asked(&ledger, &named("a", "")), "a None");
        assert_eq!(asked(&ledger, &named("a", "10.0.0.5")), "a Some(10.0.0.5)");
        assert_eq!(
            asked(&ledger, &named("a", "::ffff:10.0.0.5")),
            "a Some(10.0.0.5)"
        );
        for (fip, reason, words) in [
            (
                fip(&json!({}), ""),
                "AnnotationMissing",
                "clustername is missing; set it to",
            ),
            (
                fip(&json!({ "clustername": "g" }), ""),
                "AnnotationMissing",
                "fiprange is missing",
            ),
            (
                fip(&json!({ "clustername": " ", "fiprange": "a" }), ""),
                "AnnotationMissing",
                "clustername",
            ),
            (
                fip(
                    &json!({ "clustername": "g", "fiprange": "a", "fipd.io/service-namespace": "a,b" }),
                    "",
                ),
                "AnnotationInvalid",
                "write the name of one",
            ),
            (named("c", ""), "RangeNotFound", "make it, or name another"),
            (named("a/b", ""), "RangeNotFound", "make it"),
            (named("a", "10.0.1.5"), NOT_IN_RANGE, "10.0.0.0/24"),
            (named("a", ":::"), "Invalid", "spec.ipaddress"),
        ] {
            let problem = wish(&ledger, &own(), Tenant("t".into()), &fip).expect_err("a problem");
            assert_eq!(problem.reason, reason, "{}", problem.message);
            assert!(problem.message.contains(words), "{}", problem.message);
        }
    }

    /// Only an address that fipd wrote there is no wish once another range is named.
    #[test]
    fn another_range_is_asked_for_any_address_and_what_was_adopted_stays() {
        let mut ledger = ledger();
        let lease = Lease {
            members: [testing::member(fipd_core::Holder {
                identity: own(),
                instance: "u".into(),
            })]
            .into_iter()
            .collect(),
            ..testing::lease(testing::key([10, 0, 0, 5]), Some(PoolId(1)), None)
        };
        ledger.apply(&Op::PutLease(Arc::new(lease)));
        let mut fip = named("b", "10.0.0.5");
        assert_eq!(asked(&ledger, &fip), NOT_IN_RANGE, "the original wrote it");
        fip.status.address = "10.0.0.5".into();
        assert_eq!(asked(&ledger, &fip), "b None");
        let adopted = ConditionUpdate::ready(false, NOT_IN_RANGE, "");
        let now = jiff::Timestamp::UNIX_EPOCH;
        set(&mut fip.status.conditions, &adopted, None, now);
        assert_eq!(asked(&ledger, &fip), NOT_IN_RANGE, "it was adopted");
        fip.wanted = String::new();
        assert_eq!(asked(&ledger, &fip), "b None");
        fip.wanted = "10.0.1.7".into();
        assert_eq!(asked(&ledger, &fip), "b Some(10.0.1.7)");
        fip.range = Some("a".into());
        assert_eq!(
            asked(&ledger, &fip),
            NOT_IN_RANGE,
            "it names an address of b"
        );
    }
}
