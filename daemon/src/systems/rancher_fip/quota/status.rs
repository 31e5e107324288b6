//! The status of a FloatingIPProjectQuota, exactly as the rancher-fip family reads it.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_crds::floating_ip::{QuotaStatus, QuotaUsage};
use k8s_openapi::jiff;

use crate::controller::conditions::{ConditionUpdate, note_condition, set};

/// The most addresses of one pool that are listed; an object has a size limit. Counts stay exact beyond it.
pub const MOST_ENTRIES: usize = 5_000;

/// The project holds more than it may.
pub const OVER_LIMIT: &str = "OverLimit";
/// `status.fips` does not list everything.
pub const TRUNCATED: &str = "AllocatedTruncated";

/// What the status shows of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolShown {
    /// As the quota names the pool, or its own name.
    pub name: String,
    /// The family's text of the pool.
    pub family: String,
    /// `None`: the quota does not name the pool.
    pub limit: Option<u64>,
    /// How much the project has of the pool; exact.
    pub used: u64,
    /// Address and the cluster that has it, up to [`MOST_ENTRIES`].
    pub allocated: Vec<(IpAddr, String)>,
}

/// The status to write. `ready` is the verdict on the object.
pub fn desired(
    before: &QuotaStatus,
    ready: &ConditionUpdate,
    pools: &[PoolShown],
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> QuotaStatus {
    let mut status = QuotaStatus {
        fips: pools
            .iter()
            .map(|pool| (pool.name.clone(), usage(pool)))
            .collect(),
        conditions: before.conditions.clone(),
    };
    set(&mut status.conditions, ready, generation, now);
    for (kind, reason, message) in [
        (OVER_LIMIT, "LeasesKept", over(pools)),
        (TRUNCATED, "TooMany", truncated(pools)),
    ] {
        let kind = (kind, reason);
        note_condition(&mut status.conditions, kind, message, generation, now);
    }
    status
}

fn usage(pool: &PoolShown) -> QuotaUsage {
    let allocated = pool.allocated.iter();
    let allocated: BTreeMap<String, String> = allocated
        .map(|(address, user)| (address.to_string(), user.clone()))
        .collect();
    QuotaUsage {
        family: pool.family.clone(),
        allocated,
        used: i64::try_from(pool.used).unwrap_or(i64::MAX),
    }
}

/// Where the project holds more than it may.
fn over(pools: &[PoolShown]) -> Option<String> {
    let over: Vec<String> = pools
        .iter()
        .filter_map(|pool| {
            let limit = pool.limit.filter(|limit| pool.used > *limit)?;
            Some(format!("{} of {limit} in {}", pool.used, pool.name))
        })
        .collect();
    (!over.is_empty()).then(|| {
        format!(
            "the project holds more addresses than it may: {}; they are kept, and it gets no more of these pools",
            over.join(", ")
        )
    })
}

fn truncated(pools: &[PoolShown]) -> Option<String> {
    let more =
        |pool: &PoolShown| usize::try_from(pool.used).is_ok_and(|used| used > pool.allocated.len());
    pools.iter().any(more).then(|| {
        format!("status.fips lists the first {MOST_ENTRIES} addresses of a pool; used is exact")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ready() -> ConditionUpdate {
        ConditionUpdate::ready(true, "Applied", "it counts")
    }

    fn pool(limit: Option<u64>, used: u64) -> PoolShown {
        let address = |n: u8| (IpAddr::from([10, 0, 0, n]), "c-m-a".to_owned());
        PoolShown {
            name: "dc--net".into(),
            family: "IPv4".into(),
            limit,
            used,
            allocated: (1..=u8::try_from(used).expect("few"))
                .map(address)
                .collect(),
        }
    }

    fn shown(before: &QuotaStatus, pools: &[PoolShown]) -> QuotaStatus {
        let now = jiff::Timestamp::from_second(1_000).expect("a time");
        desired(before, &ready(), pools, Some(1), now)
    }

    #[test]
    fn defect_11_the_status_is_made_anew_of_what_is_held_and_never_counted_on() {
        let one = shown(&QuotaStatus::default(), &[pool(Some(2), 2)]);
        assert_eq!(
            json!(one.fips),
            json!({ "dc--net": {
                "family": "IPv4", "used": 2, "allocated": { "10.0.0.1": "c-m-a", "10.0.0.2": "c-m-a" },
            } })
        );
        let less = shown(&one, &[pool(Some(2), 0)]);
        assert_eq!(json!(less.fips), json!({ "dc--net": { "family": "IPv4" } }));
        assert_eq!(
            shown(&less, &[pool(Some(2), 0)]),
            less,
            "nothing more to write"
        );
    }

    #[test]
    fn more_than_allowed_is_said_until_it_is_over() {
        let of = |status: &QuotaStatus| {
            let mut all = status.conditions.iter();
            all.find(|one| one.type_ == OVER_LIMIT)
                .map(|one| one.message.clone())
        };
        let over = shown(&QuotaStatus::default(), &[pool(Some(1), 3)]);
        assert!(of(&over).is_some_and(|text| text.contains("3 of 1 in dc--net")));
        assert_eq!(of(&shown(&over, &[pool(Some(3), 3)])), None);
        assert_eq!(of(&shown(&over, &[pool(None, 3)])), None);
    }

    #[test]
    fn what_is_not_listed_is_said() {
        let mut many = pool(Some(9), 3);
        many.used = 7_000;
        let status = shown(&QuotaStatus::default(), &[many]);
        assert!(status.conditions.iter().any(|one| one.type_ == TRUNCATED));
        assert_eq!(status.fips["dc--net"].used, 7_000);
    }
}
