//! Fresh lists while a session runs: new networks are adopted, owners that are gone are found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::{
    Actor, Answer, Handover, Holder, Identity, LeaseKey, Ledger, Release, ReleaseScope, Request,
    System, Timestamp,
};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use tokio::time::Instant;

use super::{
    ClusterSession, HeldBack,
    absence::{Absences, Withheld},
    adoption::{self, Held, Inventory},
};
use crate::{
    backoff::jittered,
    clusters::release_budget::{self, Window},
    ipam::IpamError,
};

/// Between two lists when nothing asks for one earlier.
const PERIOD: Duration = Duration::from_secs(300);
/// Objects read freshly at once.
const READS: usize = 16;
/// After a list that failed.
const RETRY: Duration = Duration::from_secs(15);
/// Many objects that go together are found missing by one list.
const SOON: Duration = Duration::from_secs(5);

/// Keeps adoption and absence going until the session ends: a fresh list whenever another network starts to wait,
/// after each reconnection, every five minutes, and as soon as an absence needs its second list.
pub async fn keep(session: &ClusterSession, system: &System, inventory: &dyn Inventory) {
    let mut sweep = Sweep::new(session, system, inventory);
    let mut networks = session.shared.networks.subscribe();
    let mut reconnects = session.shared.reconnects.subscribe();
    let mut suspects = session.shared.suspects.subscribe();
    let mut confirmed = session.shared.confirmed.subscribe();
    // The system has just been adopted from a list; only a network that came since cannot wait.
    let wait = if sweep.waits_for_us() {
        Duration::ZERO
    } else {
        jittered(RETRY)
    };
    let mut due = Instant::now() + wait;
    loop {
        tokio::select! {
            () = session.cancel.cancelled() => return,
            () = tokio::time::sleep_until(due) => {}
            Ok(()) = networks.changed() => if !sweep.waits_for_us() { continue },
            Ok(()) = reconnects.changed() => {}
            () = inventory.due() => {}
            Ok(()) = suspects.changed() => {
                due = due.min(Instant::now() + SOON);
                continue;
            }
            // What is released is what a list of now does not have either.
            Ok(()) = confirmed.changed() => {
                if let Some(said) = confirmed.borrow_and_update().get(system) {
                    sweep.absences.confirm(said);
                }
            }
        }
        let wait = match sweep.list().await {
            Ok(()) => sweep.next(),
            Err(err) => {
                tracing::warn!(cluster = %session.name, %system, "list failed and says nothing: {err}");
                jittered(RETRY)
            }
        };
        due = Instant::now() + wait;
    }
}

struct Sweep<'a> {
    session: &'a ClusterSession,
    system: &'a System,
    inventory: &'a dyn Inventory,
    absences: Absences,
    /// Who held which leases before the latest list began; whoever came since is not judged by it.
    holders: Held,
    /// Owners that this session has shown, where only those may be missed.
    shown: BTreeSet<Identity>,
}

impl<'a> Sweep<'a> {
    fn new(session: &'a ClusterSession, system: &'a System, inventory: &'a dyn Inventory) -> Self {
        Self {
            session,
            system,
            inventory,
            absences: Absences::default(),
            holders: Held::new(),
            shown: BTreeSet::new(),
        }
    }

    /// Monotonic: the wall clock may jump over the minute that must pass.
    fn now(&self) -> Timestamp {
        self.session.shared.windows.now()
    }

    fn waits_for_us(&self) -> bool {
        let networks = self.session.networks(self.system);
        let (id, system) = (&self.session.id, self.system);
        self.session.ipam.read(|ledger| {
            networks
                .iter()
                .any(|network| !ledger.truly_adopted(*network, id, system))
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
        self.holders = adoption::held(self.session, self.system, &self.inventory.kinds());
        let adopted = adoption::adopt(self.session, self.system, self.inventory).await?;
        let present: BTreeSet<Identity> = adopted
            .sightings
            .into_iter()
            .map(|seen| seen.holder.identity)
            .filter(|identity| self.inventory.is_whole(identity))
            .collect();
        if self.session.shows.vouched {
            let known = self
                .holders
                .keys()
                .filter(|identity| present.contains(*identity));
            self.shown.extend(known.cloned());
            self.shown
                .retain(|identity| self.holders.contains_key(identity));
        }
        let counts = self
            .holders
            .iter()
            .map(|(identity, holders)| (identity.clone(), count(holders)))
            .collect();
        let missing = self.absences.listed(at, &counts, &present);
        self.read(missing).await;
        if !self.session.cancel.is_cancelled() {
            self.release().await;
        }
        Ok(())
    }

    /// Reads count only if it is still this cluster that answered them.
    async fn read(&mut self, missing: Vec<Identity>) {
        if missing.is_empty() {
            return;
        }
        let this = &*self;
        let found: Vec<_> = stream::iter(missing)
            .map(|identity| async move {
                let begun = this.now();
                let presence = this.inventory.read(&identity).await;
                (begun, identity, presence)
            })
            .buffer_unordered(READS)
            .collect()
            .await;
        if self.session.verify_identity().await.is_err() {
            return;
        }
        for (begun, identity, presence) in found {
            self.absences.read(begun, &identity, presence);
        }
    }

    async fn release(&mut self) {
        if !self.absences.any_gone() {
            return self.show(None).await;
        }
        let session = self.session;
        let shared = match session.shared.windows.of(&session.id, &session.ipam).await {
            Ok(shared) => shared,
            Err(err) => {
                tracing::warn!(cluster = %session.name, "nothing is released, the audit log cannot be read: {err}");
                return;
            }
        };
        let mut window = shared.lock().await;
        let total = self.holders.values().map(count).sum();
        let spent = window.spent(self.now());
        let (vouched, shown) = (session.shows.vouched, &self.shown);
        let believed = |identity: &Identity| !vouched || shown.contains(identity);
        let verdict = self.absences.verdict(total, spent, believed);
        self.show(verdict.held_back).await;
        for (identity, confirmed_by) in verdict.release {
            if session.cancel.is_cancelled() {
                return;
            }
            self.release_owner(&identity, confirmed_by, &mut window)
                .await;
        }
    }

    async fn release_owner(
        &mut self,
        identity: &Identity,
        confirmed_by: Option<Actor>,
        window: &mut Window,
    ) {
        let mut failed = false;
        for (holder, keys) in self.holders.remove(identity).into_iter().flatten() {
            let (now, most) = (self.now(), keys.len());
            // What an admin confirmed is not counted against what goes without one. The rest counts before it is
            // asked for: the answer may come to nobody.
            let counts = confirmed_by.is_none();
            if counts {
                window.add(now, most);
            }
            let mut gone = 0;
            for request in self.requests(&holder, keys, confirmed_by.as_ref()) {
                match self.submit(&holder, request).await {
                    Ok(leases) => gone += leases,
                    Err(_) => failed = true,
                }
            }
            if counts {
                window.take_back(now, most.saturating_sub(gone));
            }
        }
        if !failed {
            self.absences.released(identity);
        }
    }

    /// What makes the leases of one holder pass to their heirs, and the rest free.
    fn requests(
        &self,
        holder: &Holder,
        keys: Vec<LeaseKey>,
        confirmed_by: Option<&Actor>,
    ) -> Vec<Request> {
        let (actor, reason) = match confirmed_by {
            Some(admin) => (admin.clone(), release_budget::CONFIRMED),
            None => (self.session.actor(self.system), release_budget::REASON),
        };
        let mut by_heir: BTreeMap<Option<Holder>, Vec<LeaseKey>> = BTreeMap::new();
        for key in keys {
            let heir = self.inventory.heir(holder, key);
            if heir.is_none() && self.inventory.still_shows(holder, key) {
                continue;
            }
            by_heir.entry(heir).or_default().push(key);
        }
        // Who is gone waits for nothing either.
        let contended = |ledger: &Ledger| ledger.contentions_of(&holder.identity);
        let contended = self.session.ipam.read(contended);
        let uses = contended
            .iter()
            .flat_map(|lease| lease.parts_of(&holder.identity))
            .map(|part| part.key);
        let ended = uses.filter(|key| !self.inventory.still_shows(holder, *key));
        let ended: Vec<LeaseKey> = ended.collect();
        if !ended.is_empty() {
            by_heir.entry(None).or_default().extend(ended);
        }
        let request = |(heir, keys)| match heir {
            Some(to) => Request::Handover(Handover {
                from: holder.clone(),
                to,
                keys,
                actor: actor.clone(),
                reason: reason.into(),
            }),
            None => Request::Release(Release {
                // Not all that it holds: orphaned leases stay, only an admin frees them.
                scope: ReleaseScope::HolderAddresses(holder.clone(), keys),
                actor: actor.clone(),
                reason: reason.into(),
            }),
        };
        by_heir.into_iter().map(request).collect()
    }

    /// How many leases went. What failed is repeated with the next list.
    async fn submit(&self, holder: &Holder, request: Request) -> Result<usize, IpamError> {
        let (cluster, owner) = (&self.session.name, holder.identity.to_string());
        match self.session.ipam.submit(request).await {
            Ok(Answer::Released { leases }) => {
                tracing::warn!(%cluster, owner, leases = leases.len(), "released: its object is gone");
                Ok(leases.len())
            }
            Ok(Answer::HandedOver { leases }) => {
                tracing::warn!(%cluster, owner, leases = leases.len(), "left to its heir: its object is gone");
                Ok(leases.len())
            }
            Ok(_) => Ok(0),
            Err(err) => {
                tracing::warn!(%cluster, owner, "not released: {err}");
                Err(err)
            }
        }
    }

    /// Puts what waits for an admin where it is seen: view, metric, log, and an Event in the cluster itself.
    async fn show(&self, held_back: Option<Withheld>) {
        let mut news = None;
        self.session.shared.held_back.send_if_modified(|shown| {
            let before = shown.remove(self.system);
            let since = before
                .as_ref()
                .map_or_else(|| self.session.ipam.now(), |shown| shown.since);
            let now = held_back.map(|held| HeldBack {
                system: self.system.clone(),
                leases: held.leases(),
                limit: held.limit,
                since,
                owners: Arc::new(held.owners),
            });
            let changed = before != now;
            if let Some(now) = now {
                news = changed.then(|| now.clone());
                shown.insert(self.system.clone(), now);
            }
            changed
        });
        self.session.clusters.touch();
        if let Some(held_back) = news {
            self.warn(&held_back).await;
        }
    }

    async fn warn(&self, held_back: &HeldBack) {
        let (cluster, system) = (&self.session.name, &held_back.system);
        let (leases, limit) = (held_back.leases, held_back.limit);
        let note = format!(
            "The owners of {leases} leases of {system} are gone, more than the {limit} that may be released without an \
             admin. Nothing is released until `fipd clusters confirm-release {cluster}`."
        );
        tracing::warn!(%cluster, "{note}");
        let event = Event {
            type_: EventType::Warning,
            reason: "ReleaseHeldBack".to_owned(),
            note: Some(note),
            action: "Release".to_owned(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: Some("kube-system".to_owned()),
            uid: Some(self.session.id.to_string()),
            ..ObjectReference::default()
        };
        let publish = self.session.recorder.publish(&event, &about);
        if let Err(err) = self.session.call("write an Event", publish).await {
            tracing::warn!(%cluster, "{err}");
        }
    }
}

/// How many leases one owner has.
fn count(holders: &BTreeMap<Holder, Vec<LeaseKey>>) -> usize {
    holders.values().map(Vec::len).sum()
}

#[cfg(test)]
mod tests;
