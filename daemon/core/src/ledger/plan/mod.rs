//! From a request to a draft: one file for each kind of request.

mod account;
mod adopt;
mod adopt_over;
mod allocate;
mod cluster;
mod epoch;
mod expire;
mod import;
mod import_lease;
mod label;
mod move_network;
mod pool;
mod preview;
mod probe;
mod quota;
mod release;
mod remember;
mod reserve;
mod roll_up;
mod select;
mod separate;
mod share;
mod transfer;
mod wants;

use super::{
    Ledger, Ticket,
    draft::{Draft, Draw, Stop},
};
use crate::{Action, Actor, Answer, Decision, Holder, Refusal, Request, Text, Timestamp};

pub use import::Trial;
pub use move_network::MovePage;
pub use preview::PoolPreview;

/// What became of a request.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Planned {
    /// Nothing has to change.
    Answer(Answer),
    /// Answer this once the decision is durable and confirmed.
    Tentative {
        ticket: Ticket,
        decision: Decision,
        answer: Answer,
    },
    /// It stands on something that a decision in flight changes (or a pool is full only because of decisions in
    /// flight). Plan it again after the next confirm or abort, before requests that came later.
    Busy,
    Refused(Refusal),
}

impl Ledger {
    /// Decides a request without making the decision visible. Addresses it gives are nobody else's from here on;
    /// what it changes is locked until [`Ledger::confirm`] or [`Ledger::abort`].
    ///
    /// `now` must not run backwards between calls.
    pub fn plan(&mut self, request: &Request, now: Timestamp) -> Planned {
        match self.draft(request, now) {
            Ok((draft, answer)) => self.depart(draft, answer),
            Err(Stop::Answer(answer)) => Planned::Answer(answer),
            Err(Stop::Busy) => Planned::Busy,
            Err(Stop::Refused(refusal)) => {
                self.count_refused(&refusal);
                Planned::Refused(refusal)
            }
        }
    }

    /// The draft of a request, with the answer that its commit gives.
    fn draft(&mut self, request: &Request, now: Timestamp) -> Draw {
        let by = |actor: &Actor| Draft::new(now, actor);
        match request {
            Request::Allocate(ask) => self.plan_allocate(ask, None, by(&ask.actor)),
            Request::Reserve(ask) => self.plan_reserve(ask, by(&ask.ask.actor)),
            Request::Release(ask) => self.plan_release(ask, by(&ask.actor)),
            Request::Probed(ask) => self.plan_probed(ask, by(&ask.actor)),
            Request::Adopt(ask) => self.plan_adopt(ask, by(&ask.actor)),
            Request::Handover(ask) => self.plan_handover(ask, by(&ask.actor)),
            Request::Transfer(ask) => self.plan_transfer(ask, by(&ask.actor)),
            Request::Label(ask) => self.plan_label(ask, by(&ask.actor)),
            Request::CreateNetwork { name, actor } => self.plan_network(name, by(actor)),
            Request::CreatePool { spec, actor } => self.plan_create_pool(spec, by(actor)),
            Request::UpdatePool(edit) => self.plan_update_pool(edit, by(&edit.actor)),
            Request::DeletePool { pool, actor } => self.plan_delete_pool(*pool, by(actor)),
            Request::MoveNetwork {
                pool,
                network,
                actor,
            } => self.plan_move_network(*pool, *network, by(actor)),
            Request::Separate {
                networks,
                apart,
                actor,
            } => self.plan_separate(*networks, *apart, by(actor)),
            Request::SetQuota { quota, actor } => self.plan_set_quota(quota, by(actor)),
            Request::DeleteQuota {
                pool,
                tenant,
                actor,
            } => self.plan_delete_quota(*pool, tenant, by(actor)),
            Request::RecordCluster { record } => {
                self.plan_record_cluster(record, by(&"fipd".into()))
            }
            Request::SetApart {
                record,
                name,
                actor,
            } => self.plan_set_apart(record, name, by(actor)),
            Request::MarkAdopted { marker, actor } => self.plan_mark_adopted(marker, by(actor)),
            Request::Orphan {
                cluster,
                system,
                most,
                actor,
            } => self.plan_orphan(cluster, system.as_ref(), *most, by(actor)),
            Request::Forget {
                cluster,
                most,
                actor,
            } => self.plan_forget(cluster, *most, by(actor)),
            Request::Expire { most, actor } => self.plan_expire(*most, by(actor)),
            Request::RollUp { after, most, actor } => self.plan_roll_up(*after, *most, by(actor)),
            Request::CreateAccount { account, actor } => {
                self.plan_create_account(account, by(actor))
            }
            Request::EditAccount(edit) => self.plan_edit_account(edit, by(&edit.actor)),
            Request::DeleteAccount { name, actor } => self.plan_delete_account(name, by(actor)),
            Request::PutToken { token, actor } => self.plan_put_token(token, by(actor)),
            Request::DeleteToken { id, actor } => self.plan_delete_token(*id, by(actor)),
            Request::RotateKey {
                bytes,
                after,
                actor,
            } => self.plan_rotate_key(bytes, *after, by(actor)),
            Request::ImportKey { bytes, actor } => self.plan_import_key(bytes, by(actor)),
            Request::Note {
                action,
                what,
                actor,
            } => Ok(note(*action, what, by(actor))),
            Request::HoldNetworks {
                networks,
                reason,
                actor,
            } => self.plan_hold_networks(networks, reason, by(actor)),
            Request::PassHold { elapsed, actor } => self.plan_pass_hold(*elapsed, by(actor)),
            Request::Import(ask) => self.plan_import(ask, now),
            Request::LiftHold { reason, actor } => self.plan_lift_hold(reason, by(actor)),
        }
    }

    /// Puts a finished draft in flight; one that leaves nothing behind is an answer at once.
    fn depart(&mut self, mut draft: Draft, answer: Answer) -> Planned {
        if draft.flight.ops.is_empty() && draft.audit.is_empty() {
            if let Some((identity, instance)) = draft.flight.leaves.as_deref() {
                self.leave_queues(identity, instance.as_ref());
            }
            self.moved_up(draft.flight.places.iter().map(|(id, ..)| *id).collect());
            return Planned::Answer(answer);
        }
        let forgets = self.forget_granted(&draft.flight);
        draft.flight.ops.extend(forgets);
        let decision = Decision {
            ops: draft.flight.ops.to_vec(),
            audit: draft.audit,
        };
        self.count_ahead(&draft.flight);
        self.start_in_memory(&draft.flight);
        let ticket = self.drafts.start(draft.flight);
        Planned::Tentative {
            ticket,
            decision,
            answer,
        }
    }
}

fn note(action: Action, what: &Text, mut draft: Draft) -> (Draft, Answer) {
    draft.say(action, Text::clone(what));
    (draft, Answer::Done)
}

/// What the audit log says of a lease that changes hands.
fn from_whom(before: Option<&Holder>, reason: &Text) -> Text {
    let before = before.map_or_else(|| "nobody".to_owned(), |owner| owner.identity.to_string());
    let detail = if reason.is_empty() {
        format!("from {before}")
    } else {
        format!("from {before}: {reason}")
    };
    detail.into()
}
