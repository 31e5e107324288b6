//! What a check on the wire has come to.

use std::sync::Arc;

use super::release::cool;
use crate::{
    Action, Answer, Lease, LeaseState, ProbeVerdict, Probed, Refusal, Text, Timestamp,
    ledger::{
        Ledger,
        draft::{Draft, Draw, Stop},
    },
};

impl Ledger {
    pub(super) fn plan_probed(&self, ask: &Probed, draft: Draft) -> Draw {
        let key = ask.key.canonical();
        self.settled(std::iter::once(key))?;
        let not = |why: String| {
            let address = key.address;
            Stop::from(Refusal::NotProbed { address, why })
        };
        let Some(lease) = self.rows.leases.get(&key) else {
            return Err(not("nobody has it; ask for an address again".to_owned()));
        };
        let mine = lease.held_by(&ask.identity);
        match (lease.state, &ask.verdict) {
            (LeaseState::Quarantined, ProbeVerdict::Taken { .. }) => {
                let leases = Vec::new();
                Err(Stop::Answer(Answer::Released { leases }))
            }
            (LeaseState::Quarantined, ProbeVerdict::Free) => {
                Err(not("it is in quarantine".to_owned()))
            }
            (..) if !mine => {
                let owner = lease.owner().map(|owner| owner.identity.to_string());
                Err(not(format!("it is that of {}", owner.unwrap_or_default())))
            }
            (LeaseState::Probing, ProbeVerdict::Free) if lease.contenders.is_empty() => {
                Ok(confirm(lease, draft))
            }
            (LeaseState::Probing, ProbeVerdict::Free) => {
                let user = lease.contenders.first();
                let user = user.map(|contender| contender.holder.identity.to_string());
                let detail = format!("it was found in use by {}", user.unwrap_or_default());
                self.give_up(lease, detail.into(), draft)
            }
            (LeaseState::Probing, ProbeVerdict::Taken { by }) => {
                let by = match &**by {
                    "" => "somebody",
                    by => by,
                };
                self.give_up(lease, format!("{by} answered for it").into(), draft)
            }
            (LeaseState::Allocated, ProbeVerdict::Free) => Err(Stop::Answer(Answer::Granted {
                leases: vec![Arc::clone(lease)],
                fresh: false,
            })),
            (LeaseState::Allocated, ProbeVerdict::Taken { .. }) => Err(not(
                "it is in use already; release it, or look who else uses it".to_owned(),
            )),
            (LeaseState::Reserved | LeaseState::Orphaned, _) => {
                Err(not("it is not in use; ask for it again".to_owned()))
            }
        }
    }

    /// Somebody uses the address whom fipd does not know: a contender gets it, or it cools. No tenant may end that.
    fn give_up(&self, lease: &Arc<Lease>, detail: Text, mut draft: Draft) -> Draw {
        // Those who use parts get them once the rest has cooled.
        if lease.contenders.iter().all(|one| !one.uses.is_empty()) {
            let pool = lease.pool.and_then(|id| self.rows.pools.get(&id));
            let seconds = pool.map_or(0, |pool| pool.spec.quarantine);
            let cooling = u64::from(seconds.max(Probed::TAKEN)).saturating_mul(1_000);
            let until = Timestamp(draft.now.0.saturating_add(cooling));
            let nobodys = Lease {
                tenant: None,
                ..Lease::clone(lease)
            };
            cool(&mut draft, &nobodys, until, Action::FoundInUse, &detail);
        } else {
            self.vacate(&mut draft, lease, (Action::FoundInUse, &detail), false)?;
        }
        let leases = vec![lease.prefix()];
        Ok((draft, Answer::Released { leases }))
    }
}

fn confirm(lease: &Lease, mut draft: Draft) -> (Draft, Answer) {
    let lease = Arc::new(Lease {
        state: LeaseState::Allocated,
        until: None,
        ..lease.clone()
    });
    draft.put(&lease, Action::Allocated, "nobody answered for it".into());
    let answer = Answer::Granted {
        leases: vec![lease],
        fresh: true,
    };
    (draft, answer)
}
