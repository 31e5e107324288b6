//! Who holds the Leases of the originals, and whether he lives.

use fipd_core::{SigningKey, Text};
use fipd_crds::labels::{API_SERVER_LEASE, MANAGER_LEASE};
use k8s_openapi::api::coordination::v1::Lease;

use super::Looks;
use crate::{
    clusters::ClusterSession,
    controller::{client, kind::LEASE},
    systems::rancher_fip::{
        adopt::found::{BETWEEN_LOOKS, LOOKS_ALONE, LeaseSeen, LeaseState},
        settings::RancherFipSettings,
    },
};

impl Looks<'_> {
    /// Who holds the originals' Leases. Where it is another, a second look tells whether it lives.
    pub async fn leases(&self, session: &ClusterSession, me: &Text) -> Vec<LeaseSeen> {
        let settings = session.settings.of::<RancherFipSettings>();
        let third = settings.cluster_manager.enabled;
        let names = [
            (MANAGER_LEASE, true),
            (API_SERVER_LEASE, true),
            (&*settings.lease_lock_name, third),
        ];
        let namespace = &settings.lease_lock_namespace;
        let mut seen = Vec::new();
        let mut others = Vec::new();
        for (name, rival) in names {
            let target = LEASE.named(namespace, name);
            let first = self.remote.get::<Lease>(&target).await;
            let state = first_look(first, me);
            if let LeaseState::Held { .. } = &state {
                others.push((seen.len(), target));
            }
            let name = format!("{namespace}/{name}");
            seen.push(LeaseSeen { name, rival, state });
        }
        let looks = if settings.leader_elect {
            1
        } else {
            LOOKS_ALONE
        };
        for _ in 0..looks {
            let silent =
                |lease: &LeaseSeen| matches!(&lease.state, LeaseState::Held { alive: false, .. });
            others.retain(|(place, _)| seen.get(*place).is_some_and(silent));
            if others.is_empty() {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            for (place, target) in &others {
                let next = first_look(self.remote.get::<Lease>(target).await, me);
                if let Some(lease) = seen.get_mut(*place) {
                    lease.state = second_look(&lease.state, next);
                }
            }
        }
        seen
    }
}

fn first_look(lease: Result<Option<Lease>, client::CallError>, me: &Text) -> LeaseState {
    let spec = match lease {
        Ok(Some(lease)) => lease.spec.unwrap_or_default(),
        Ok(None) => return LeaseState::Missing,
        Err(error) => return LeaseState::Unknown(error.to_string()),
    };
    match spec.holder_identity.unwrap_or_default() {
        holder if holder.is_empty() => LeaseState::Free,
        holder if *holder == **me => LeaseState::Ours {
            since: spec.acquire_time.map(|time| time.0),
        },
        by => LeaseState::Held {
            by,
            renewed: spec.renew_time.map(|time| time.0.to_string()),
            alive: false,
        },
    }
}

/// Whether fipd has served the API for so long that no token of the original counts any more.
pub fn tokens_over(leases: &[LeaseSeen], now: jiff::Timestamp) -> bool {
    let mut api = leases
        .iter()
        .filter(|lease| lease.name.ends_with(API_SERVER_LEASE));
    let ours = api.find_map(|lease| {
        if let LeaseState::Ours { since } = &lease.state {
            return *since;
        }
        None
    });
    ours.is_some_and(|since| {
        let led = now.duration_since(since).as_millis();
        u64::try_from(led).is_ok_and(|led| led > SigningKey::OVERLAP)
    })
}

/// A holder that has written meanwhile lives.
fn second_look(first: &LeaseState, second: LeaseState) -> LeaseState {
    match second {
        LeaseState::Held { by, renewed, .. } => {
            let now = LeaseState::Held {
                by: by.clone(),
                renewed: renewed.clone(),
                alive: false,
            };
            let alive = now != *first;
            LeaseState::Held { by, renewed, alive }
        }
        LeaseState::Missing
        | LeaseState::Free
        | LeaseState::Ours { .. }
        | LeaseState::Unknown(_) => second,
    }
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
        let alive = |state: LeaseState| matches!(state, LeaseState::Held { alive: true, .. });
        assert!(!alive(lease("other", early)));
        assert!(!alive(second_look(
            &lease("other", early),
            lease("other", early)
        )));
        assert!(alive(second_look(
            &lease("other", early),
            lease("other", late)
        )));
        assert!(alive(second_look(
            &lease("other", early),
            lease("third", early)
        )));
        assert_eq!(
            second_look(&lease("other", early), lease("", late)),
            LeaseState::Free
        );
        assert!(matches!(lease("me", early), LeaseState::Ours { .. }));
        assert_eq!(first_look(Ok(None), &"me".into()), LeaseState::Missing);
    }
}
