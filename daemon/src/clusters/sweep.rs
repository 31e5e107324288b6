//! Fresh lists while a session runs: new networks are adopted, owners that are gone are found.

use std::{collections::BTreeSet, time::Duration};

use fipd_core::{Answer, Holder, Identity, Release, ReleaseScope, Request, System, Timestamp};
use tokio::time::Instant;

use super::{
    ClusterSession, HeldBack,
    absence::{Absences, Presence},
    adoption::{self, Inventory},
    backoff::jittered,
};

/// Between two lists when nothing asks for one earlier.
const PERIOD: Duration = Duration::from_secs(300);
/// After a list that failed.
const RETRY: Duration = Duration::from_secs(15);

/// Runs until the session is cancelled.
pub(super) async fn run(session: &ClusterSession, system: &System, inventory: &dyn Inventory) {
    let mut sweep = Sweep {
        session,
        system,
        inventory,
        start: Instant::now(),
        absences: Absences::default(),
    };
    let mut networks = session.shared.networks.subscribe();
    let mut reconnects = session.shared.reconnects.subscribe();
    let mut confirmed = session.shared.confirmed.subscribe();
    // The system has just been adopted from a list; only a network that came since cannot wait.
    let mut wait = if sweep.waits_for_us() {
        Duration::ZERO
    } else {
        jittered(RETRY)
    };
    loop {
        tokio::select! {
            () = session.cancel.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            Ok(()) = networks.changed() => if !sweep.waits_for_us() { continue },
            Ok(()) = reconnects.changed() => {}
            Ok(()) = confirmed.changed() => {
                sweep.absences.confirm();
                sweep.release().await;
                continue;
            }
        }
        wait = match sweep.list().await {
            Ok(()) => sweep.next(),
            Err(err) => {
                tracing::warn!(cluster = %session.name, %system, "list failed and says nothing: {err}");
                jittered(RETRY)
            }
        };
    }
}

struct Sweep<'a> {
    session: &'a ClusterSession,
    system: &'a System,
    inventory: &'a dyn Inventory,
    start: Instant,
    absences: Absences,
}

impl Sweep<'_> {
    /// Monotonic: the wall clock may jump over the minute that must pass.
    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn waits_for_us(&self) -> bool {
        let networks = self.session.networks(self.system);
        let (id, system) = (&self.session.id, self.system);
        self.session.ipam.read(|ledger| {
            networks
                .iter()
                .any(|network| !ledger.adopted(*network, id, system))
        })
    }

    fn next(&self) -> Duration {
        let due = self
            .absences
            .next_list()
            .map(|at| Duration::from_millis(at.0.saturating_sub(self.now().0)));
        due.map_or_else(
            || jittered(PERIOD),
            |due| due.clamp(Duration::from_secs(1), PERIOD),
        )
    }

    async fn list(&mut self) -> Result<(), adoption::AdoptError> {
        let at = self.now();
        let adopted = adoption::adopt(self.session, self.system, self.inventory).await?;
        let present: BTreeSet<Identity> = adopted
            .sightings
            .into_iter()
            .map(|seen| seen.holder.identity)
            .collect();
        let held = adoption::held(self.session, self.system, &self.inventory.kinds());
        let counts = held
            .into_iter()
            .map(|(identity, holders)| (identity, holders.len()))
            .collect();
        for identity in self.absences.listed(at, &counts, &present) {
            let begun = self.now();
            let presence = self.read(&identity).await;
            self.absences.read(begun, &identity, presence);
            if self.session.cancel.is_cancelled() {
                return Ok(());
            }
        }
        self.release().await;
        Ok(())
    }

    /// A read counts only if it is still this cluster that answered it.
    async fn read(&self, identity: &Identity) -> Presence {
        match self.inventory.read(identity).await {
            Presence::Gone if self.session.verify_identity().await.is_err() => Presence::Unknown,
            presence => presence,
        }
    }

    async fn release(&mut self) {
        let total = self
            .session
            .ipam
            .read(|ledger| ledger.cluster_lease_count(&self.session.id, None));
        let verdict = self.absences.verdict(self.now(), total);
        self.show(verdict.held_back);
        if verdict.release.is_empty() {
            return;
        }
        let held = adoption::held(self.session, self.system, &self.inventory.kinds());
        for identity in verdict.release {
            let mut freed = 0;
            let mut failed = false;
            let holders: BTreeSet<Holder> =
                held.get(&identity).into_iter().flatten().cloned().collect();
            for holder in holders {
                match self.give_back(holder).await {
                    Some(count) => freed += count,
                    None => failed = true,
                }
            }
            if !failed {
                self.absences.released(self.now(), &identity, freed);
            }
        }
    }

    /// How many leases went; `None` if the request failed and is repeated with the next list.
    async fn give_back(&self, holder: Holder) -> Option<usize> {
        let owner = holder.identity.to_string();
        let release = Release {
            scope: ReleaseScope::Holder(holder),
            actor: self.session.actor(self.system),
            reason: "absent from two complete lists and a fresh read".into(),
        };
        match self.session.ipam.submit(Request::Release(release)).await {
            Ok(Answer::Released { leases }) => {
                tracing::warn!(cluster = %self.session.name, owner, leases = leases.len(), "released: its object is gone");
                Some(leases.len())
            }
            Ok(_) => Some(0),
            Err(err) => {
                tracing::warn!(cluster = %self.session.name, owner, "not released: {err}");
                None
            }
        }
    }

    fn show(&self, held_back: Option<(usize, usize)>) {
        self.session.shared.held_back.send_if_modified(|shown| {
            let before = shown.get(self.system).cloned();
            let since = before.as_ref().map_or_else(|| self.session.ipam.now(), |shown| shown.since);
            let now = held_back.map(|(leases, limit)| HeldBack { system: self.system.clone(), leases, limit, since });
            if before == now {
                return false;
            }
            match now {
                Some(now) => {
                    tracing::warn!(
                        cluster = %self.session.name, system = %self.system, leases = now.leases, limit = now.limit,
                        "the owners of more leases are gone than may be released at once; nothing is released until `fipd clusters confirm-release {}`",
                        self.session.name
                    );
                    shown.insert(self.system.clone(), now);
                }
                None => {
                    shown.remove(self.system);
                }
            }
            true
        });
        self.session.clusters.touch();
    }
}
