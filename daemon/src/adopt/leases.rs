//! Who holds the Leases of the originals, and whether that program runs.

use std::time::Duration;

use fipd_core::Text;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use crate::controller::{
    client::{CallError, Remote, Target},
    kind::LEASE,
    store::Key,
};

/// How long a holder has between two looks to renew its Lease: it does so every two seconds.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);
/// Second looks where fipd takes no Leases itself: as long as a Lease lasts that is not renewed.
pub const LOOKS_ALONE: usize = 3;

/// Who has a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseHolder {
    Missing,
    /// Its last holder has released it.
    Nobody,
    /// This daemon.
    Ours {
        since: Option<Timestamp>,
    },
    Other {
        by: String,
        /// By the holder's clock.
        renewed: Option<String>,
        /// Whether it was renewed between two looks.
        alive: bool,
    },
    Unknown(String),
}

/// Looks at each Lease, and up to `looks` times again at those that another holds and does not renew.
pub async fn look<const N: usize>(
    remote: &Remote,
    me: &Text,
    targets: &[Target; N],
    looks: usize,
) -> [LeaseHolder; N] {
    let mut seen = [const { LeaseHolder::Missing }; N];
    for (holder, target) in seen.iter_mut().zip(targets) {
        *holder = first_look(remote.get(target).await, me);
    }
    for _ in 0..looks {
        let silent =
            |holder: &LeaseHolder| matches!(holder, LeaseHolder::Other { alive: false, .. });
        if !seen.iter().any(silent) {
            break;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
        let all = seen.iter_mut().zip(targets);
        for (holder, target) in all.filter(|(holder, _)| silent(holder)) {
            let next = first_look(remote.get(target).await, me);
            *holder = confirmed(holder, next);
        }
    }
    seen
}

/// Why the program that holds the Lease is in the way; `None`: nobody else renews it.
pub async fn renewed_by_other(remote: &Remote, me: &Text, lease: &Key) -> Option<String> {
    let [holder] = look(remote, me, &[LEASE.target(lease)], 1).await;
    match holder {
        LeaseHolder::Other {
            by, alive: true, ..
        } => Some(format!(
            "{by} holds the Lease {lease} and renews it: stop that program"
        )),
        LeaseHolder::Unknown(error) => Some(format!(
            "it is not known whether a program renews the Lease {lease}: {error}; let fipd read it"
        )),
        LeaseHolder::Other { .. }
        | LeaseHolder::Ours { .. }
        | LeaseHolder::Nobody
        | LeaseHolder::Missing => None,
    }
}

fn first_look(lease: Result<Option<Lease>, CallError>, me: &Text) -> LeaseHolder {
    let spec = match lease {
        Ok(Some(lease)) => lease.spec.unwrap_or_default(),
        Ok(None) => return LeaseHolder::Missing,
        Err(error) => return LeaseHolder::Unknown(error.to_string()),
    };
    match spec.holder_identity.unwrap_or_default() {
        holder if holder.is_empty() => LeaseHolder::Nobody,
        holder if *holder == **me => LeaseHolder::Ours {
            since: spec.acquire_time.map(|time| time.0),
        },
        by => LeaseHolder::Other {
            by,
            renewed: spec.renew_time.map(|time| time.0.to_string()),
            alive: false,
        },
    }
}

/// A holder that has written in between is alive.
fn confirmed(first: &LeaseHolder, mut second: LeaseHolder) -> LeaseHolder {
    let changed = second != *first;
    if let LeaseHolder::Other { alive, .. } = &mut second {
        *alive = changed;
    }
    second
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_holder_lives_that_writes_between_two_looks() {
        let lease = |holder: &str, renewed: &str| {
            let lease = json!({ "metadata": {}, "spec": { "holderIdentity": holder, "renewTime": renewed } });
            first_look(
                serde_json::from_value(lease)
                    .map(Some)
                    .map_err(|_| unreachable!()),
                &"me".into(),
            )
        };
        let (early, late) = ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:02.000000Z");
        let alive = |state: LeaseHolder| matches!(state, LeaseHolder::Other { alive: true, .. });
        assert!(!alive(lease("other", early)));
        assert!(!alive(confirmed(
            &lease("other", early),
            lease("other", early)
        )));
        assert!(alive(confirmed(
            &lease("other", early),
            lease("other", late)
        )));
        assert!(alive(confirmed(
            &lease("other", early),
            lease("third", early)
        )));
        assert_eq!(
            confirmed(&lease("other", early), lease("", late)),
            LeaseHolder::Nobody
        );
        assert!(matches!(lease("me", early), LeaseHolder::Ours { .. }));
        assert_eq!(first_look(Ok(None), &"me".into()), LeaseHolder::Missing);
    }
}
