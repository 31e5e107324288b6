//! What becomes of a workload: its pods are on a flat network once its template says so.

use std::collections::BTreeSet;

use fipd_crds::macvlan::names as macvlan;
use serde_json::{Value, json};

use super::metadata::{self, MetadataChange, Texts, texts};
use crate::controller::kind::{CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, Kind, STATEFUL_SET};

/// Workloads that have templates of pods, by the names of `--workload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WorkloadKind {
    #[value(name = "deployment")]
    Deployment,
    #[value(name = "daemonset")]
    DaemonSet,
    #[value(name = "statefulset")]
    StatefulSet,
    #[value(name = "cronjob")]
    CronJob,
    #[value(name = "job")]
    Job,
}

/// What is to be done with a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadPlan {
    /// Its pods are on neither network; it is not reported.
    NotFlat,
    /// Nothing, for this reason.
    Skip {
        /// Why, and what to do about it.
        why: String,
        /// What somebody should look at.
        notes: Vec<String>,
    },
    /// A change of its template.
    Change(WorkloadChange),
}

/// A change of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadChange {
    /// The subnets that its pods need.
    pub subnets: BTreeSet<String>,
    /// Its pods have the addresses that it names.
    pub names_addresses: bool,
    /// A merge patch.
    pub patch: Value,
    /// Each change, for people.
    pub lines: Vec<String>,
    /// What somebody should look at.
    pub notes: Vec<String>,
}

/// Note on a workload that names addresses.
const NAMED: &str = "it names addresses, and fipd does not see which of them its pods on macvlan have: end these before the new ones begin (scale it to 0 first, or use the strategy Recreate), or two pods have one address for a while";

/// Where the metadata of a template is, from the root of the workload.
type Place = &'static [&'static str];

impl WorkloadKind {
    /// The kind of the API.
    pub fn kind(self) -> Kind {
        match self {
            Self::Deployment => DEPLOYMENT,
            Self::DaemonSet => DAEMON_SET,
            Self::StatefulSet => STATEFUL_SET,
            Self::CronJob => CRON_JOB,
            Self::Job => JOB,
        }
    }

    /// The template of pods; a CronJob also has one of Jobs, which the original reads in its place.
    fn templates(self) -> &'static [Place] {
        match self {
            Self::Deployment | Self::DaemonSet | Self::StatefulSet | Self::Job => {
                &[&["spec", "template", "metadata"]]
            }
            Self::CronJob => &[
                &["spec", "jobTemplate", "metadata"],
                &["spec", "jobTemplate", "spec", "template", "metadata"],
            ],
        }
    }
}

/// What is to be done with a workload as it is now.
pub fn plan(kind: WorkloadKind, workload: &Value) -> WorkloadPlan {
    let templates = kind.templates().iter().copied();
    let templates: Vec<(Place, &Value)> = templates
        .map(|place| (place, at(workload, place)))
        .collect();
    let annotations: Vec<Texts> = templates
        .iter()
        .map(|(_, metadata)| texts(metadata, "annotations"))
        .collect();
    let is_on = |network: fn(&Texts) -> bool| annotations.iter().any(network);
    if !is_on(metadata::is_on_macvlan) && !is_on(metadata::is_on_flat_network) {
        return unfinished(&annotations);
    }
    let mut change = WorkloadChange::of(workload, &templates);
    let subnets = annotations.iter().filter_map(metadata::subnet);
    change.subnets = subnets.map(str::to_owned).collect();
    change.names_addresses = is_on(metadata::names_addresses);
    let notes = change.notes.clone();
    let skip = |why: &str| WorkloadPlan::Skip {
        why: why.to_owned(),
        notes: notes.clone(),
    };
    if change.lines.is_empty() {
        return skip("it is on flat-network already");
    }
    if !workload["metadata"]["deletionTimestamp"].is_null() {
        return skip("it is being deleted");
    }
    let why = match kind {
        WorkloadKind::Job => frozen(workload),
        WorkloadKind::Deployment
        | WorkloadKind::DaemonSet
        | WorkloadKind::StatefulSet
        | WorkloadKind::CronJob => None,
    };
    if let Some(why) = why {
        return skip(&why);
    }
    if let Some(owner) = controller_name(workload) {
        let note = format!("it belongs to {owner}, which may write the old template back");
        change.notes.push(note);
    }
    if change.names_addresses {
        change.notes.push(NAMED.to_owned());
    }
    WorkloadPlan::Change(change)
}

/// Pods on neither network may have annotations of macvlan all the same.
fn unfinished(annotations: &[Texts]) -> WorkloadPlan {
    let mut keys = annotations.iter().flat_map(Texts::keys);
    if !keys.any(|key| macvlan::is_of_macvlan(key)) {
        return WorkloadPlan::NotFlat;
    }
    WorkloadPlan::Skip {
        why: format!(
            "its template has annotations of macvlan, but not both {} and {}; add what is missing, or remove them",
            macvlan::IP,
            macvlan::SUBNET
        ),
        notes: Vec::new(),
    }
}

fn at(workload: &Value, place: Place) -> &Value {
    place.iter().fold(workload, |value, field| &value[*field])
}

/// The labels that a selector names, in either of its forms.
fn selected(selector: &Value) -> Texts {
    let mut all = texts(selector, "matchLabels");
    let expressions = selector["matchExpressions"].as_array();
    let keys = expressions
        .into_iter()
        .flatten()
        .filter_map(|one| one["key"].as_str());
    all.extend(keys.map(|key| (key.to_owned(), String::new())));
    all
}

impl WorkloadChange {
    fn of(workload: &Value, templates: &[(Place, &Value)]) -> Self {
        let mut change = Self {
            subnets: BTreeSet::new(),
            names_addresses: false,
            patch: json!({}),
            lines: Vec::new(),
            notes: Vec::new(),
        };
        let selector = selected(&workload["spec"]["selector"]);
        for (place, metadata) in templates {
            let annotations = texts(metadata, "annotations");
            let labels = texts(metadata, "labels");
            let of_template = MetadataChange::of(&annotations, &labels, &selector);
            change.add(place, of_template);
        }
        let labels = texts(&workload["metadata"], "labels");
        let own = MetadataChange::of(&Texts::new(), &labels, &Texts::new());
        change.add(&["metadata"], own);
        change
    }

    fn add(&mut self, place: Place, change: MetadataChange) {
        let shown = place.join(".");
        let lines = change.lines.iter();
        self.lines
            .extend(lines.map(|line| format!("{shown}: {line}")));
        let notes = change.notes.iter();
        self.notes
            .extend(notes.map(|note| format!("{shown}: {note}")));
        if change.is_empty() {
            return;
        }
        let patched = place
            .iter()
            .fold(&mut self.patch, |value, field| &mut value[*field]);
        for (key, value) in change.annotations {
            patched["annotations"][key] = json!(value);
        }
        for label in change.labels {
            patched["labels"][label] = Value::Null;
        }
    }
}

/// The reference to the object whose controller keeps this one.
pub fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Kind and name of the object whose controller keeps the workload.
fn controller_name(workload: &Value) -> Option<String> {
    let owner = controller(workload)?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    Some(format!("{} {}", text("kind"), text("name")))
}

/// Why the template of a Job cannot be changed, and what to do about it; `None`: it is suspended and has not begun.
fn frozen(job: &Value) -> Option<String> {
    const FIXED: &str = "the API server lets nobody change the template of such a Job";
    let conditions = job["status"]["conditions"].as_array();
    let ended = conditions.into_iter().flatten().any(|condition| {
        let kind = condition["type"].as_str().unwrap_or_default();
        ["Complete", "Failed"].contains(&kind) && condition["status"] == "True"
    });
    let suspended = job["spec"]["suspend"] == true && job["status"]["startTime"].is_null();
    if let Some(owner) = controller_name(job).filter(|owner| owner.starts_with("CronJob ")) {
        return Some(format!(
            "it was made by {owner}, whose next Job is migrated with it"
        ));
    }
    match (ended, suspended) {
        (true, _) => Some(format!("it has finished, and {FIXED}; delete it")),
        (false, true) => None,
        (false, false) => Some(format!(
            "it is running, and {FIXED}; let it finish, or delete it and make it again with the annotations of flat-network"
        )),
    }
}

#[cfg(test)]
mod tests;
