//! Leaving a cluster cleanly: what fipd has put there goes, what users have stays, and so do the addresses.
//!
//! Runs once no system is on for the cluster. Finalizers first, so that nothing is kept from being deleted; then marks; then the
//! objects that are fipd's alone; its Leases; last what proves which cluster it is. Every step may be done again.

mod identity;
mod leases;
mod leaving;
pub mod object;
#[cfg(test)]
pub mod tests;

use std::collections::BTreeSet;

use fipd_core::{Action, Actor};
use serde_json::{Value, json};

pub use self::leaving::{Elsewhere, Leaving, Leftover, Marks, Named, Past, Places, has_webhook};
use crate::{
    clusters::ClusterSession,
    controller::client::{CallError, Patch, Remote, Target},
    ipam::IpamError,
};

/// One thing that is done in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// `Service shop/web`.
    pub object: String,
    pub does: Does,
    pub target: Target,
    pub uid: String,
}

/// What is done to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Does {
    /// This finalizer, which stands among these.
    Finalizer(&'static str, Vec<String>),
    /// A merge patch that takes fipd's marks off, and their names.
    Marks(Vec<String>, Value),
    Delete,
    /// The Lease has no holder any more; its version.
    LetGo,
}

/// A step and what became of it; `None`: it was only looked at.
#[derive(Clone, Debug)]
pub struct Done {
    pub step: Step,
    pub result: Option<Result<(), String>>,
}

/// What leaving found and did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub steps: Vec<Done>,
    /// What could not be looked at, why, and what to do about it.
    pub unseen: Vec<String>,
    /// What stays in clusters that this one manages, and what to do about it.
    pub guests: Vec<String>,
}

impl Does {
    /// In words.
    pub fn text(&self) -> String {
        match self {
            Self::Finalizer(name, _) => format!("take the finalizer {name} off"),
            Self::Marks(names, _) => format!("take off {}", names.join(", ")),
            Self::Delete => "delete".to_owned(),
            Self::LetGo => "let go".to_owned(),
        }
    }
}

impl Report {
    /// Whether nothing was found that stays.
    fn is_clean_so_far(&self) -> bool {
        let failed = |one: &Done| matches!(one.result, Some(Err(_)));
        self.unseen.is_empty() && self.guests.is_empty() && !self.steps.iter().any(failed)
    }

    /// Whether nothing of fipd's is left, as far as could be seen.
    pub fn is_clean(&self) -> bool {
        let done = |one: &Done| matches!(one.result, Some(Ok(())));
        self.unseen.is_empty() && self.guests.is_empty() && self.steps.iter().all(done)
    }
}

/// What was found of one sort.
#[derive(Default)]
pub struct Found {
    pub steps: Vec<Step>,
    pub unseen: Vec<String>,
}

impl Found {
    /// What is to be done to objects of a kind, or why they could not be looked at.
    pub fn take<L: IntoIterator<Item = Value>>(
        &mut self,
        looked: Result<L, CallError>,
        (kind, marks): (&Leftover, &Marks),
        written: bool,
    ) {
        match looked {
            Ok(objects) => {
                let objects = objects.into_iter();
                let steps = objects.flat_map(|object| object::steps(kind, &object, marks));
                self.steps.extend(steps);
            }
            Err(error) => self.missed(kind.kind.kind, &error, written),
        }
    }

    /// What could not be looked at. A refusal counts only where fipd may have `written` such a thing.
    pub fn missed(&mut self, what: &str, error: &CallError, written: bool) {
        match error {
            CallError::NotFound(_) => {}
            CallError::Rejected(..) if !written => {}
            CallError::Rejected(..) => self.unseen.push(format!(
                "{what}: {error}: give fipd's user the role of packaging/rbac for it, and run it again"
            )),
            CallError::Conflict(..) | CallError::Unavailable(..) => {
                self.unseen.push(format!("{what}: {error}; run it again"));
            }
        }
    }
}

/// Looks what fipd has left in the cluster, and with `actor` takes it away. `me` is what this daemon calls itself in Leases.
///
/// # Errors
/// The audit log cannot be written; the rest is left as it is.
pub async fn leave(
    session: &ClusterSession,
    systems: &[&dyn Leaving],
    past: &Past,
    me: &str,
    actor: Option<&Actor>,
) -> Result<Report, IpamError> {
    let remote = Remote::new(session.client.clone());
    let mut report = Report::default();
    let mut elsewhere = Vec::new();
    // What says so is among what goes.
    for system in systems {
        let found = system.elsewhere(&remote, past, &session.name).await;
        report.unseen.extend(found.unseen.iter().cloned());
        elsewhere.push(found);
    }
    for system in systems {
        let found = system.first(&remote, past).await;
        run(session, &remote, found, actor, &mut report).await?;
    }
    let marks = Marks::of(systems);
    for kind in systems.iter().flat_map(|one| one.leftovers()) {
        let mut found = steps_of(&remote, past, kind, &marks).await;
        let needed = |step: &Step| elsewhere.iter().any(|one| one.needs(step));
        found.steps.retain(|step| !needed(step));
        run(session, &remote, found, actor, &mut report).await?;
    }
    for system in systems {
        let found = system.last(&remote, past).await;
        run(session, &remote, found, actor, &mut report).await?;
    }
    let found = leases::steps(&remote, systems, past, me).await;
    run(session, &remote, found, actor, &mut report).await?;
    report.guests = elsewhere.into_iter().flat_map(|one| one.left).collect();
    // Whoever is not left yet has to prove itself when it is attached again.
    if report.is_clean_so_far() {
        let found = identity::steps(session, &remote).await;
        run(session, &remote, found, actor, &mut report).await?;
    }
    if !report.unseen.is_empty() {
        report.unseen.extend(past.doubt());
    }
    Ok(report)
}

async fn run(
    session: &ClusterSession,
    remote: &Remote,
    mut found: Found,
    actor: Option<&Actor>,
    report: &mut Report,
) -> Result<(), IpamError> {
    // The notes are asked for twice, and systems may have kinds in common. What was done is not found again but where
    // it came back or failed.
    found.unseen.retain(|one| !report.unseen.contains(one));
    if actor.is_none() {
        let what = |step: &Step| (step.target.clone(), step.does.text());
        let mut known: BTreeSet<_> = report.steps.iter().map(|one| what(&one.step)).collect();
        // Nothing is taken off what goes.
        let gone = |known: &BTreeSet<_>, step: &Step| {
            known.contains(&(step.target.clone(), Does::Delete.text()))
        };
        found
            .steps
            .retain(|step| !gone(&known, step) && known.insert(what(step)));
    }
    report.unseen.append(&mut found.unseen);
    for step in found.steps {
        let mut result = None;
        if let Some(actor) = actor {
            let (object, does) = (&step.object, step.does.text());
            let what = format!("detach {}: {object}: {does}", session.name);
            let noted = session
                .ipam
                .note(Action::ClusterChanged, what, actor.clone());
            noted.await?;
            let applied = apply(remote, &step).await;
            result = Some(applied.map_err(|error| error.to_string()));
        }
        report.steps.push(Done { step, result });
    }
    Ok(())
}

async fn apply(remote: &Remote, step: &Step) -> Result<(), CallError> {
    let Step {
        target, uid, does, ..
    } = step;
    let gone = |result| match result {
        Err(CallError::NotFound(_)) => Ok(()),
        other => other,
    };
    match does {
        Does::Finalizer(name, all) => remote.drop_finalizer(target, uid, all, name).await,
        Does::Marks(_, patch) => gone(remote.patch(target, Patch::Merge, patch).await),
        Does::Delete => remote.delete(target, uid).await,
        Does::LetGo => {
            let patch = json!({ "spec": { "holderIdentity": "" } });
            gone(remote.patch(target, Patch::Merge, &patch).await)
        }
    }
}

/// Everything of a kind that is to be done: of a list, and of the objects that fipd knows by name where it may not list. They
/// are written in the version of their API that the cluster serves.
async fn steps_of(remote: &Remote, past: &Past, kind: &Leftover, marks: &Marks) -> Found {
    let mut found = Found::default();
    let served = match kind.kind.served(remote).await {
        Ok(Some(served)) => served,
        // Then there are no such objects.
        Ok(None) => return found,
        Err(error) => {
            found.missed(kind.kind.kind, &error, true);
            return found;
        }
    };
    let kind = &Leftover {
        kind: served,
        ..*kind
    };
    if !list(remote, past, (kind, marks), &mut found).await {
        ask(remote, past, (kind, marks), &mut found).await;
    }
    found
}

/// Whether all could be listed.
async fn list(
    remote: &Remote,
    past: &Past,
    (kind, marks): (&Leftover, &Marks),
    found: &mut Found,
) -> bool {
    let Some(wrote) = kind.listed else {
        return false;
    };
    let mut whole = true;
    for (namespace, writes) in namespaces(past, kind.only_in) {
        let all = kind.kind.named(&namespace, "");
        let listed = match kind.is_ours {
            None => remote.list_meta(&all, "").await,
            Some(is_ours) => {
                let keep = |object: Value| is_ours(&object, past).then_some(object);
                remote.list_kept(&all, "", keep).await
            }
        };
        whole &= listed.is_ok();
        found.take(listed, (kind, marks), wrote(past) && writes);
    }
    whole
}

async fn ask(remote: &Remote, past: &Past, (kind, marks): (&Leftover, &Marks), found: &mut Found) {
    let named = &kind.named;
    for (namespace, writes) in namespaces(past, named.only_in) {
        for name in named.names {
            let object = remote.get(&kind.kind.named(&namespace, name)).await;
            let wrote = (named.wrote)(past) && writes;
            found.take::<Option<_>>(object, (kind, marks), wrote);
        }
    }
}

/// Where to look, and whether fipd may have written there; the empty namespace is all of them.
fn namespaces(past: &Past, places: Option<&Places>) -> Vec<(String, bool)> {
    let Some(places) = places else {
        return vec![(String::new(), true)];
    };
    let all = (places.namespaces)(past).into_iter();
    all.map(|namespace| {
        let written = (places.written)(past, &namespace);
        (namespace, written)
    })
    .collect()
}
