//! Makes the pool what its object describes, and shows what became of it.

use std::sync::Arc;

use fipd_core::{Lease, Ledger, Pool, PoolEdit, PoolSpec, Refusal, Request};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::jiff;
use serde::de::IgnoredAny;
use serde_json::json;

use super::{
    Eligible, Leaving, OBSTRUCTED, PoolController, PoolReport, PoolSource, PoolState, entries,
    leases_of, not_ready, pool_facts, state::VLAN_UNKNOWN,
};
use crate::{
    clusters::adoption::AT_ONCE,
    config::PoolFacts,
    controller::{
        ReconcileError, Reconciled,
        client::{CallError, Patch},
        conditions::{ConditionUpdate, INVALID, REFUSED},
        meta::{Meta, View},
        queue::Next,
        store::Key,
    },
    ipam::IpamError,
};

/// A remark, or why the pool is not as the object describes it.
pub(super) type Verdict = Result<Option<String>, ConditionUpdate>;

impl<S: PoolSource> PoolController<S> {
    /// Defines all pools and shows nothing, for before anything is adopted: a pool decides the network of an address. One whose
    /// object the API server does not let fipd write stalls no other: it is defined once that is over.
    pub async fn define_all(&self) -> Reconciled<()> {
        self.links_read().await;
        for (key, object) in self.context.objects.all() {
            // What is refused while fipd runs is no pool after a start either.
            let refused = || matches!(self.eligible(&key, &object), Eligible::No(_));
            if self.goes(&key, &object.meta()) || refused() {
                continue;
            }
            match self.define(&key, &object, true).await {
                Err(ReconcileError::Call(error @ CallError::Rejected(..))) => {
                    let (cluster, kind) = (&self.context.site.name, self.context.kind.kind);
                    tracing::warn!(%cluster, %key, "this {kind} gives no address yet: {error}");
                }
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Whether the object is being deleted, so that its pool is closed already, or nothing keeps the object.
    fn goes(&self, key: &Key, meta: &Meta) -> bool {
        let kept = |finalizer| meta.has_finalizer(finalizer) && self.existing(key).is_none();
        meta.is_terminating() && S::FINALIZER.is_some_and(|finalizer| !kept(finalizer))
    }

    /// The finalizer comes before the pool. `adoption_follows`: a complete list is made after this, before anything is given.
    pub(super) async fn define(
        &self,
        key: &Key,
        object: &S::View,
        adoption_follows: bool,
    ) -> Reconciled<Verdict> {
        let (meta, name) = (object.meta(), Self::object_of(key));
        let existing = self.existing(key);
        let spec = match self.source.spec(&self.mirror_of(&name, &meta), object) {
            Ok(spec) => spec,
            Err(rule) => return Ok(Err(rejected(existing.as_deref(), &rule))),
        };
        let link = self.link(object, existing.is_none());
        let site = &self.context.site;
        let own = self.source.own_network(site, key);
        let facts = PoolFacts {
            own_network: own.as_deref(),
            ..pool_facts(site, key, &self.source.facts(object), &link)
        };
        let session = &site.session;
        let stays = existing
            .as_deref()
            .filter(|pool| !self.follows(object, pool));
        let network = session.network_of(&facts, stays);
        let (network, choice) = network.await?;
        let spec = PoolSpec {
            network,
            network_by_default: choice.is_default_for(existing.as_deref()),
            gateway: (spec.gateway).or_else(|| self.gateway(object, &spec, existing.as_deref())),
            ..spec
        };
        let obstacle = |ledger: &Ledger| {
            let mirror = existing.as_deref();
            self.source.obstacle(ledger, mirror, &spec, object)
        };
        if let Some(why) = self.context.read(obstacle) {
            return Ok(Err(not_ready(OBSTRUCTED, kept(existing.as_deref(), &why))));
        }
        if let Some(finalizer) = S::FINALIZER {
            let add = self
                .context
                .add_finalizer::<IgnoredAny>(key, &meta, finalizer);
            add.await?;
        }
        if existing.as_deref().map(|pool| &pool.spec) != Some(&spec) {
            // The first adoption of a network takes in all that is there, the oldest first. While fipd runs, a list that began before
            // the pool was there does not.
            let adopted = |ledger: &Ledger| ledger.truly_adopted(network, &site.id, &site.system);
            if !adoption_follows || self.context.read(adopted) {
                let of = (key, object);
                let shown = self
                    .source
                    .shown_already(site, of, existing.as_deref(), &spec);
                let taken = stream::iter(shown).map(|request| self.context.take_in(request));
                taken.buffered(AT_ONCE).try_collect::<()>().await?;
            }
            let request = self.request(existing.as_deref(), spec);
            match self.context.submit(request).await {
                Ok(_) => {}
                Err(IpamError::Refused(refusal)) if !matches!(refusal, Refusal::Stale { .. }) => {
                    return Ok(Err(rejected(existing.as_deref(), &refusal.to_string())));
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.source.accepted(object);
        // The one that has no finalizer yet is looked at again with it.
        if S::FINALIZER.is_none_or(|finalizer| meta.has_finalizer(finalizer)) {
            self.correct(key, object).await?;
        }
        Ok(Ok(choice.ignored_annotation))
    }

    /// Whether the pool goes where the link says that its object names.
    fn follows(&self, object: &S::View, pool: &Pool) -> bool {
        let may_follow = |ledger: &Ledger| may_follow(ledger, pool);
        self.context.read(may_follow) && self.source.own_link(object).is_some()
    }

    /// Writes what its source would have otherwise in the object; not over an edit that was not read.
    async fn correct(&self, key: &Key, object: &S::View) -> Reconciled<()> {
        let Some(mut patch) = self.source.correction(object) else {
            return Ok(());
        };
        let meta = object.meta();
        patch["metadata"]["uid"] = json!(&*meta.uid);
        patch["metadata"]["resourceVersion"] = json!(meta.version);
        let target = self.context.kind().target(key);
        let (remote, patch) = (&self.context.remote, &patch);
        Ok(remote.patch(&target, Patch::Merge, patch).await?)
    }

    /// The request that makes the pool so.
    fn request(&self, existing: Option<&Pool>, spec: PoolSpec) -> Request {
        let actor = self.context.actor();
        match existing {
            None => Request::CreatePool { spec, actor },
            Some(pool) => Request::UpdatePool(PoolEdit {
                pool: pool.id,
                // What was accepted of an object that was deleted binds no new one of its name.
                force: S::LEAVING == Leaving::Marked || pool.spec.origin != spec.origin,
                spec,
                // An admin may have taken it to another network since it was read.
                if_generation: Some(pool.generation),
                reason: "".into(),
                actor,
            }),
        }
    }

    /// Writes the status and the Events.
    pub(super) async fn show(&self, key: &Key, object: &S::View, verdict: Verdict) -> Reconciled {
        let (site, meta) = (&self.context.site, object.meta());
        let pool = self.existing(key);
        let state = pool.and_then(|pool| {
            let read = |ledger: &Ledger| PoolState::read(ledger, &pool);
            site.ipam.read(read)
        });
        let verdict = match state.as_ref().and_then(|state| state.doubt.clone()) {
            Some(doubt) if S::AMBIGUOUS_IS_UNREADY => {
                verdict.and(Err(not_ready("NetworkAmbiguous", doubt)))
            }
            _ => verdict,
        };
        let ready = match (verdict, &state) {
            (Err(says), _) => {
                let (reason, message) = (says.reason, says.message.clone());
                self.context.warn(key, &meta.uid, reason, message);
                says
            }
            (Ok(remark), Some(state)) => state.ready(self.with_remark(&meta, key, object, remark)),
            // An admin removed it meanwhile.
            (Ok(_), None) => return Ok(Next::Retry),
        };
        let warnings = state.as_ref().map(|state| self.source.warnings(state));
        for (reason, text) in warnings.into_iter().flatten() {
            self.context.warn(key, &meta.uid, reason, text);
        }
        if let Some(rest) = self.context.status_rests(key) {
            return Ok(rest);
        }
        let state = state.map(|state| self.complete(key, object, state));
        if let Some((_, text)) = state.as_ref().and_then(|state| state.unread.clone()) {
            self.context.warn(key, &meta.uid, VLAN_UNKNOWN, text);
        }
        let report = PoolReport { ready, state };
        let after = self.source.status(object, &report, jiff::Timestamp::now());
        let change = (&self.source.written(object), &after);
        let write = self.context.write_status(key, &meta.uid, change);
        write.await.map(|()| Next::Done)
    }

    /// The remark, and what else is wrong with the object.
    fn with_remark(
        &self,
        meta: &Meta,
        key: &Key,
        object: &S::View,
        remark: Option<String>,
    ) -> Option<String> {
        let Some((reason, wrong)) = self.source.remark(object) else {
            return remark;
        };
        self.context.warn(key, &meta.uid, reason, wrong.clone());
        Some(remark.map_or_else(|| wrong.clone(), |remark| format!("{remark}; {wrong}")))
    }

    fn complete(&self, key: &Key, object: &S::View, state: PoolState) -> PoolState {
        let site = &self.context.site;
        let (id, text) = (state.pool.id, |lease: &_| self.source.entry(lease));
        let listed = (S::LISTED > 0).then(|| entries(&site.ipam, id, S::LISTED, text));
        let entries = listed.unwrap_or_default();
        let is_cut = S::COUNTS_TEXTS && entries.len() > S::LISTED;
        let has_text = |lease: &Arc<Lease>| !self.source.entry(lease).is_empty();
        PoolState {
            shared: site.session.clusters.shared_range_note(&state.pool),
            unread: self.unread(key, object),
            entries,
            texts: is_cut.then(|| leases_of(&site.ipam, id).filter(has_text).count()),
            ..state
        }
    }
}

/// Whether nobody chose the network of the pool, and nothing of it is in use.
pub fn may_follow(ledger: &Ledger, pool: &Pool) -> bool {
    let is_unused = || ledger.usage(pool.id).is_none_or(|usage| !usage.in_use());
    pool.spec.network_by_default && is_unused()
}

fn rejected(existing: Option<&Pool>, rule: &str) -> ConditionUpdate {
    let reason = match existing {
        None => INVALID,
        Some(_) => REFUSED,
    };
    not_ready(reason, kept(existing, rule))
}

/// The rule, and what becomes of the pool meanwhile.
fn kept(existing: Option<&Pool>, rule: &str) -> String {
    match existing {
        None => rule.to_owned(),
        Some(_) => {
            format!("{rule}; the pool stays as it was accepted last until this is corrected")
        }
    }
}
