//! Edits that admission refuses: where one was stored unasked, the last accepted specification stays in force. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{
    AddressUser, Edits,
    outcome::{READY, ShownLease},
    settle::Wished,
};
use crate::{
    controller::{conditions::REFUSED, meta::View as _, unserved::Unserved, waiters::Cause},
    validation::held_address::{elsewhere, gives, keeps},
};

/// The fields that decide about an address, as the object has them.
#[derive(Debug)]
pub struct FixedFields<'a> {
    /// The field that names an address.
    pub address: &'static str,
    /// The field that names a pool, the name, and the kind of the pool's object; `None`: it names none.
    pub pool: Option<(&'static str, &'a str, &'a str)>,
}

/// The lease with what is not applied of the specification.
pub fn judged<U: AddressUser>(object: &U::View, shown: ShownLease, wish: &Wished) -> ShownLease {
    match (U::EDITS, wish) {
        (Edits::Refused(fixed), wish) => {
            // One that shows no address yet was not edited: it gets whatever is kept for it.
            let first = wish.is_ok() && !U::shows_address(object);
            let accepted = first || is_accepted(U::conditions(object), object.meta().generation);
            let refused = refusal(&fixed(object), accepted, &shown, wish);
            ShownLease { refused, ..shown }
        }
        (Edits::Followed, Err(problem)) => shown.staying(problem),
        (Edits::Followed, Ok(_)) => shown,
    }
}

/// Whether the specification was applied: an edit of it makes another generation. What an original left says of no generation
/// that it was, and is taken as it is.
fn is_accepted(conditions: &[Condition], generation: Option<i64>) -> bool {
    let ready = conditions.iter().rfind(|one| one.type_ == READY);
    let applied = |one: &Condition| one.status == "True" && one.observed_generation == generation;
    let original = (conditions.iter()).all(|one| one.observed_generation.is_none());
    generation.is_some() && (original || ready.is_some_and(applied))
}

/// The rule that the specification of an object with an address breaks. What was accepted stays so, whatever becomes of
/// its pool.
fn refusal(
    fields: &FixedFields<'_>,
    accepted: bool,
    shown: &ShownLease,
    wish: &Wished,
) -> Option<Unserved> {
    let wish = match wish {
        Err(problem) if problem.cause.is_none() || !accepted => {
            let (rule, cause) = (problem.message.clone(), problem.cause.clone());
            return Some(Unserved::new(REFUSED, rule, cause));
        }
        Ok(wish) if !accepted => wish,
        Ok(_) | Err(_) => return None,
    };
    let pool = &wish.pool;
    let moved = shown.pool_id.is_some_and(|before| before != pool.id);
    let stays = pool.spec.network == shown.key.network && gives(&pool.spec, shown.address());
    let left = fields.pool.filter(|_| moved && !stays);
    let kept = keeps(fields.address, wish.address, shown.address());
    let broken = kept.err().or_else(|| {
        let (field, name, kind) = left?;
        Some(elsewhere(field, name, kind, shown.address()))
    });
    // What another pool has may change; what the object says changes with the object.
    let cause = left.map(|_| Cause::Pools);
    broken.map(|rule| Unserved::new(REFUSED, rule.to_string(), cause))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{NetworkId, Pool, PoolId, Tenant, Timestamp, testing};
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff};

    use super::*;
    use crate::controller::address_user::{outcome::testing::shown, settle::AddressWish};

    fn wish(pool: u32, addresses: &str, address: Option<&str>) -> AddressWish {
        let spec = testing::pool_spec("net", &[addresses]);
        let pool = Pool {
            id: PoolId(pool),
            spec,
            created: Timestamp(0),
            generation: 1,
        };
        let address = address.and_then(|address| address.parse().ok());
        AddressWish::new(Tenant("t".into()), Arc::new(pool), address)
    }

    /// What is wrong with an object that names a pool and has 10.0.0.5 of pool 1.
    fn judge(accepted: bool, wish: Wished) -> Option<String> {
        let fields = FixedFields {
            address: "spec.address",
            pool: Some(("spec.pool", "net", "Pool")),
        };
        let problem = refusal(&fields, accepted, &shown(), &wish)?;
        assert_eq!(problem.reason, REFUSED);
        Some(problem.message)
    }

    #[test]
    fn an_edit_that_would_take_the_address_away_is_refused() {
        let edited = |wish| judge(false, Ok(wish));
        assert_eq!(
            edited(wish(1, "10.9.0.0/24", None)),
            None,
            "the pool was edited"
        );
        assert_eq!(edited(wish(1, "10.0.0.0/24", Some("10.0.0.5"))), None);
        let other = edited(wish(1, "10.0.0.0/24", Some("10.0.0.6"))).expect("a rule");
        let rule =
            "spec.address: \"10.0.0.6\" is not allowed: the object has 10.0.0.5 and keeps it";
        assert!(other.starts_with(rule), "{other}");
        assert_eq!(
            edited(wish(2, "10.0.0.0/24", None)),
            None,
            "that has it too"
        );
        let rule = "spec.pool: \"net\" is not allowed: the object has 10.0.0.5, which this Pool does not have; \
            delete the object and make another";
        assert_eq!(edited(wish(2, "10.9.0.0/24", None)).as_deref(), Some(rule));
        let mut far = wish(2, "10.0.0.0/24", None);
        Arc::make_mut(&mut far.pool).spec.network = NetworkId(9);
        assert_eq!(
            edited(far).as_deref(),
            Some(rule),
            "it is another address there"
        );
        let mut excluded = wish(2, "10.0.0.0/24", None);
        let spec = &mut Arc::make_mut(&mut excluded.pool).spec;
        spec.exclusions = vec!["10.0.0.5".parse().expect("an address")];
        assert_eq!(edited(excluded).as_deref(), Some(rule));
    }

    #[test]
    fn what_was_accepted_stays_so_unless_it_makes_no_sense() {
        assert_eq!(judge(true, Ok(wish(2, "10.9.0.0/24", None))), None);
        let gone = || Err(Unserved::new("PoolNotFound", "no pool", Some(Cause::Pools)));
        assert_eq!(judge(true, gone()), None, "its pool went");
        assert_eq!(judge(false, gone()).as_deref(), Some("no pool"));
        let wrong = || Err(Unserved::new("MissingProject", "no project", None));
        for accepted in [true, false] {
            assert_eq!(judge(accepted, wrong()).as_deref(), Some("no project"));
        }
    }

    #[test]
    fn a_generation_is_accepted_by_the_condition_that_is_about_it() {
        let ready = |status: &str, generation| Condition {
            type_: READY.into(),
            status: status.into(),
            reason: "Allocated".into(),
            message: String::new(),
            observed_generation: generation,
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        };
        assert!(is_accepted(&[ready("True", Some(2))], Some(2)));
        assert!(!is_accepted(&[ready("True", Some(2))], Some(3)));
        assert!(!is_accepted(&[ready("False", Some(2))], Some(2)));
        assert!(!is_accepted(&[ready("True", None)], None));
        assert!(
            is_accepted(&[ready("True", None)], Some(3)),
            "of an original"
        );
        assert!(is_accepted(&[], Some(1)), "of an original too");
    }
}
