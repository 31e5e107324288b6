//! The check of a new address on the wire, before its claim shows it (`conflict-probe`).
//!
//! ```text
//!  claim --> lease, probing --> check, beside the workers --+-- nobody answers --> allocated
//!                  ^                                        +-- somebody answers --> quarantined, the claim asks again
//!                  +-------- a pause, with the reason ------+-- not known --> the lease ends by itself
//! ```
//!
//! One that answers for address after address of a pool ends its checks for a while (`brake`).
//!
//! Nothing of it is kept over a restart but the lease, which is checked anew then.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::{Lease, LeaseKey, LeaseState, Pool, PoolId, ProbeVerdict, Probed, Request, Want};
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    IpClaimController, IpClaims,
    brake::{self, IN_A_ROW, PoolBrakes},
    observe::IpClaimView,
};
use crate::{
    backoff::{Backoff, jittered},
    controller::{
        ReconcileError, Reconciled,
        address_user::{
            AddressUser as _,
            outcome::{AddressOutcome, ShownLease},
        },
        events::Events,
        queue::{Next, Queue},
        store::Key,
        unserved::{PROBING, Unserved},
        waiters::Cause,
    },
    host::probe::{LocalLink, Prober},
    ipam::{Ipam, IpamError},
};

/// Reasons of Events.
const PROBE_FAILED: &str = "AddressProbeFailed";
const IN_USE: &str = "AddressInUse";

/// How long a claim waits after a check that failed; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How long one waits while as many are checked as may be at once.
const TURN: Duration = Duration::from_secs(1);

/// The checks of a cluster's claims.
#[derive(Clone)]
pub struct ClaimProbes {
    prober: Prober,
    states: Arc<Mutex<BTreeMap<Key, ProbeState>>>,
    brakes: Arc<PoolBrakes>,
}

/// How far the check of a claim's address is.
struct ProbeState {
    is_running: bool,
    /// Why the last one failed.
    failure: String,
    /// When the next one may begin.
    due: Instant,
    pauses: Backoff,
}

impl ClaimProbes {
    pub fn new(prober: &Prober) -> Self {
        Self {
            prober: prober.clone(),
            states: Arc::default(),
            brakes: Arc::default(),
        }
    }

    /// Whether a check begins now; one at a time for each claim.
    fn begin(&self, key: &Key) -> bool {
        let mut states = self.states.lock();
        let state = states.entry(key.clone()).or_insert_with(|| ProbeState {
            is_running: false,
            failure: String::new(),
            due: Instant::now(),
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        });
        !std::mem::replace(&mut state.is_running, true)
    }

    fn fail(&self, key: &Key, failure: String) {
        if let Some(state) = self.states.lock().get_mut(key) {
            state.is_running = false;
            state.failure = failure;
            state.due = Instant::now() + state.pauses.pause();
        }
    }

    /// The claim has what it asked for, or is gone.
    pub fn forget(&self, key: &Key) {
        self.states.lock().remove(key);
    }

    /// How long the claim pauses after a check that failed, and why it did.
    fn pause(&self, key: &Key) -> Option<(Duration, String)> {
        let states = self.states.lock();
        let state = states.get(key).filter(|state| !state.is_running)?;
        let rest = state.due.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then(|| (rest, state.failure.clone()))
    }

    fn is_running(&self, key: &Key) -> bool {
        let states = self.states.lock();
        states.get(key).is_some_and(|state| state.is_running)
    }
}

/// What a claim without an address waits for before it asks for one.
pub async fn waits(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
) -> Reconciled<Option<Next>> {
    let probes = &claims.user.probes;
    if !IpClaims::probes(&claims.context.site) || IpClaims::shows_address(claim) {
        return Ok(None);
    }
    let Some(pool) = checked_pool(claims, key, claim) else {
        return Ok(None);
    };
    if let Some((rest, failure)) = probes.pause(key) {
        let message = format!(
            "whether its address is in use could not be checked: {failure}; nothing is allocated unchecked, fipd tries again within {} minutes",
            LONGEST_PAUSE.as_secs() / 60
        );
        return rests(claims, (key, claim), rest, message).await;
    }
    if probes.is_running(key) {
        return Ok(None);
    }
    if let Some((rest, by)) = probes.brakes.pause(pool.id) {
        let message = format!(
            "{by} answered for {IN_A_ROW} addresses of pool {} in a row, as a router with proxy ARP does for all; switch that off in this network, or exclude the addresses that it has; checks of the pool go on within {} minutes",
            pool.spec.name,
            brake::PAUSE.as_secs() / 60
        );
        return rests(claims, (key, claim), rest, message).await;
    }
    let must_wait = probes.prober.is_busy();
    Ok(must_wait.then(|| Next::After(jittered(TURN))))
}

/// Says why a claim gets no address for so long.
async fn rests(
    claims: &IpClaimController,
    (key, claim): (&Key, &IpClaimView),
    rest: Duration,
    message: String,
) -> Reconciled<Option<Next>> {
    let problem = Unserved::new(PROBE_FAILED, message, None);
    let shown = claims.show(key, claim, Err(problem), None).await?;
    Ok(Some(Next::After(match shown {
        Next::After(sooner) => sooner.min(rest),
        Next::Done | Next::Retry => rest,
    })))
}

/// The pool of which the claim needs an address that is to be checked; `None`: it needs none.
pub(super) fn checked_pool(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
) -> Option<Arc<Pool>> {
    let site = &claims.context.site;
    let identity = claims.context.identity(key);
    claims.context.read(|ledger| {
        let wish = claims.user.wish(ledger, site, key, claim).ok()?;
        let leases = ledger.leases_of(&identity);
        let has_one = leases
            .iter()
            .any(|lease| lease.state == LeaseState::Allocated);
        let gives_prefixes = wish.pool.spec.allocation_length.is_some();
        let is_checked = wish.recorded.is_none() && !gives_prefixes && !has_one;
        is_checked.then_some(wish.pool)
    })
}

/// Begins the check of a lease, unless it runs; where this host is not in the network, it is in use from here on.
pub async fn probe(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
    lease: &Lease,
) -> Reconciled<AddressOutcome> {
    let (context, probes) = (&claims.context, &claims.user.probes);
    let Some(link) = LocalLink::of(lease.key.address).map_err(unlisted)? else {
        return use_unchecked(claims, key, claim, lease).await;
    };
    if probes.begin(key) {
        let check = Check {
            probes: probes.clone(),
            key: key.clone(),
            reference: context.reference(key, &claim.meta.uid),
            lease: lease.key,
            pool: lease.pool,
            report: Probed {
                key: lease.key,
                identity: context.identity(key),
                verdict: ProbeVerdict::Free,
                actor: context.actor(),
            },
            ipam: context.site.ipam.clone(),
            events: Arc::clone(&context.events),
            queue: Arc::clone(&context.queue),
        };
        let cancel = context.site.cancel();
        tokio::spawn(async move { cancel.run_until_cancelled(check.run(link)).await });
    }
    let message = "an address is being checked on the wire, which takes some seconds; the claim gets it when nobody answers";
    let cause = Some(Cause::Address(lease.key));
    Ok(Err(Unserved::new(PROBING, message, cause)))
}

fn unlisted(error: std::io::Error) -> ReconcileError {
    ReconcileError::internal(format!("list the addresses of this host: {error}"))
}

/// Uses a lease that this host cannot check.
async fn use_unchecked(
    claims: &IpClaimController,
    key: &Key,
    claim: &IpClaimView,
    lease: &Lease,
) -> Reconciled<AddressOutcome> {
    let asker = claims.asker(key, &claim.meta);
    let request = match (lease.pool, &lease.tenant) {
        (Some(pool), Some(tenant)) => {
            let want = Want {
                pool: pool.into(),
                address: Some(lease.key.address),
                count: 1,
            };
            asker.allocate(tenant.clone(), vec![want])
        }
        (_, tenant) => asker.adopt(lease.prefix(), tenant.clone()),
    };
    let network = lease.key.network;
    let asked = claims.ask(request, &asker.holder, network).await?;
    Ok(asked.map(|lease| claims.shown(&lease)))
}

/// Why the address that a claim is about to show was not checked.
pub fn unchecked(claims: &IpClaimController, shown: &ShownLease) -> Option<String> {
    let is_address = |key: LeaseKey| {
        let lease = claims.context.read(|ledger| ledger.lease(key).cloned());
        lease.is_some_and(|lease| lease.prefix().is_address())
    };
    let elsewhere = matches!(LocalLink::of(shown.address()), Ok(None)) && is_address(shown.key);
    elsewhere.then(|| {
        format!(
            "{} was not checked on the wire: fipd's host has no interface in its network",
            shown.address()
        )
    })
}

/// One check of a claim's address, with all that it says of it.
struct Check {
    probes: ClaimProbes,
    key: Key,
    reference: ObjectReference,
    lease: LeaseKey,
    pool: Option<PoolId>,
    report: Probed,
    ipam: Ipam,
    events: Arc<Events>,
    queue: Arc<Queue<Key>>,
}

impl Check {
    async fn run(self, link: LocalLink) {
        let verdict = self.probes.prober.check(&link, self.lease.address).await;
        // What this host has itself says nothing of others.
        let on_wire = matches!(link, LocalLink::Network(_));
        if let (Some(pool), Ok(verdict), true) = (self.pool, &verdict, on_wire) {
            self.probes.brakes.note(pool, verdict);
        }
        let done = match verdict {
            Ok(verdict) => self.report(verdict).await,
            Err(error) => Err(error.to_string()),
        };
        match done {
            Ok(()) => self.probes.forget(&self.key),
            Err(failure) => self.probes.fail(&self.key, failure),
        }
        self.queue.add(self.key);
    }

    async fn report(&self, verdict: ProbeVerdict) -> Result<(), String> {
        let report = Probed {
            verdict: verdict.clone(),
            ..self.report.clone()
        };
        match self.ipam.submit(Request::Probed(report)).await {
            Ok(_) => {}
            // The claim went, or took too long: it asks again, if it is there.
            Err(IpamError::Refused(refusal)) => {
                tracing::debug!(%refusal, address = %self.lease.address, "a check came to nothing");
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        }
        if let ProbeVerdict::Taken { by } = verdict {
            let note = format!(
                "{} is in use: {by} answered for it; it is quarantined for {} minutes, and the claim asks for another",
                self.lease.address,
                Probed::TAKEN / 60
            );
            self.events.warning(&self.reference, IN_USE, note);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_checked_once_at_a_time_and_pauses_longer_after_each_failure() {
        let prober = Prober::beside("/nonexistent/fipd.sock".as_ref());
        let (probes, key) = (ClaimProbes::new(&prober), Key::new("ns", "claim"));
        assert!(probes.pause(&key).is_none());
        assert!(probes.begin(&key) && !probes.begin(&key));
        assert!(probes.is_running(&key) && probes.pause(&key).is_none());
        let mut longest = Duration::ZERO;
        for _ in 0..9 {
            probes.fail(&key, "why".to_owned());
            assert!(!probes.is_running(&key));
            let (rest, failure) = probes.pause(&key).expect("a pause");
            assert_eq!(failure, "why");
            assert!(rest <= LONGEST_PAUSE && rest > longest / 2, "{rest:?}");
            longest = longest.max(rest);
            tokio::time::advance(rest).await;
            assert!(probes.pause(&key).is_none() && probes.begin(&key));
        }
        assert!(longest > LONGEST_PAUSE / 2);
        probes.forget(&key);
        probes.fail(&key, "late".to_owned());
        assert!(probes.pause(&key).is_none(), "the claim is gone");
    }
}
