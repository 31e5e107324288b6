//! One cluster: how it is, and taking clusters in, out, and leaving them.

use axum::{Json, extract::State, response::Response};
use fipd_core::System;
use fipd_web_ui::{ClusterPage, Form, FormPage, Input, InputKind, Known, Nav, Served, links};
use http::StatusCode;

use super::{
    clusters::row as cluster_row,
    fields::Fields,
    forms::{AS_REST, blame},
    page::{Answered, Failure, page},
    session_extract::{PathParam, Query, SubmittedForm, Visitor},
};
use crate::{
    api::{
        etag::IfMatch,
        extract::Path,
        problem::Problem,
        rest::{
            attach::{self, Detacher},
            clusters::{self, NamedCluster},
        },
        wire::ClusterAdd,
    },
    clusters::{ClusterOrigin, ClusterView, Clusters, Registration},
    config::{Draws, Systems},
    ipam::Ipam,
};

/// The largest form with a kubeconfig, in bytes.
const MOST: usize = (1 << 20) + (64 << 10);
/// The field with the name of the cluster that the form was filled in for.
const FILLED: &str = "filled";
/// Steps, and things left, that are shown at the most.
const SHOWN: usize = 50;

pub async fn show(
    State(clusters): State<Clusters>,
    visitor: Visitor,
    PathParam(name): PathParam<String>,
) -> Answered {
    let view = find(&clusters, &visitor, &name)?;
    Ok(page(&ClusterPage {
        shell: visitor.shell(Nav::Clusters),
        name: view.name.to_string(),
        served: (view.systems.iter())
            .map(|one| serves(&visitor.ipam, &clusters, &view, one))
            .collect(),
        troubles: (view.troubles.iter())
            .map(|(part, why)| ((*part).to_owned(), why.to_string()))
            .collect(),
        detached: view.detached,
        known: known(view.found),
        leases: view.leases as u128,
        clusters: vec![cluster_row(&view)],
    }))
}

/// What a system does there. Rules for packets are no leases.
fn serves(ipam: &Ipam, clusters: &Clusters, view: &ClusterView, system: &System) -> Served {
    let id = view.id.as_ref();
    let leases = |id| ipam.read(|ledger| ledger.cluster_lease_count(id, Some(system)));
    let session = clusters.session(&view.name);
    let objects = session.map_or_else(Vec::new, |session| session.objects(system));
    let objects = objects.into_iter();
    let known = clusters.known().get(system.as_str());
    let has_leases = known.is_none_or(|one| one.draws != Draws::Nothing);
    Served {
        system: system.to_string(),
        objects: objects.map(|(kind, count)| (kind, count as u128)).collect(),
        leases: has_leases.then(|| id.map_or(0, leases) as u128),
    }
}

fn known(found: ClusterOrigin) -> Known {
    match found {
        ClusterOrigin::Configured => Known::Configured,
        ClusterOrigin::Uploaded => Known::Uploaded,
        ClusterOrigin::Discovered => Known::Discovered,
        ClusterOrigin::Remembered => Known::Remembered,
    }
}

/// Where a cluster is known from.
pub fn found_text(found: ClusterOrigin) -> &'static str {
    match found {
        ClusterOrigin::Configured => "in the configuration",
        ClusterOrigin::Uploaded => "added here",
        ClusterOrigin::Discovered => "found through Rancher",
        ClusterOrigin::Remembered => "only remembered, for its leases",
    }
}

pub async fn new(
    State(clusters): State<Clusters>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let mut form = add_form(clusters.known());
    let name = query.get("name");
    form.set("name", name);
    if let Some(said) = clusters.said_of(name) {
        fill(&mut form, name, &said);
    }
    Ok(ask_new(&visitor, StatusCode::OK, form))
}

/// Shows what was said of the cluster of that name before.
fn fill(form: &mut Form, name: &str, said: &Registration) {
    for system in &said.systems {
        form.set(system, "yes");
    }
    form.set("settings", &said.settings);
    form.set(FILLED, name);
}

pub async fn add(State(clusters): State<Clusters>, posted: SubmittedForm<MOST>) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let mut form = add_form(clusters.known());
    let name = fields.get("name").to_owned();
    form.set("name", &name);
    let kept = clusters.said_of(&name);
    let shown = if kept.is_some() { &*name } else { "" };
    let said = said(clusters.known(), &fields, kept);
    fill(&mut form, shown, &said);
    if fields.raw("kubeconfig").trim().is_empty() {
        form.wrong("kubeconfig", "Choose the file of a kubeconfig.");
        return Ok(ask_new(&visitor, StatusCode::UNPROCESSABLE_ENTITY, form));
    }
    let body = ClusterAdd {
        kubeconfig: fields.raw("kubeconfig").to_owned(),
        systems: said.systems.into_iter().collect(),
        settings: said.settings,
    };
    let detached = match attach::take_in(&clusters, &visitor.caller(), &name, body).await {
        Ok(detached) => detached,
        Err(problem) => {
            let status = blame(&mut form, &at_fault(problem), AS_REST);
            return Ok(ask_new(&visitor, status, form));
        }
    };
    let said = match detached {
        true => format!(
            "Cluster {name} was added and stays detached: no system is on until it is attached again."
        ),
        false => format!("Cluster {name} was added."),
    };
    Ok(visitor.done(&links::cluster(&name), said))
}

/// As the form has it: what is wrong with the cluster is its settings, for the ticks are of systems that there are.
fn at_fault(mut problem: Problem) -> Problem {
    let Some(field) = problem.field.take() else {
        return problem;
    };
    // REST begins with its name of the field.
    let why = problem.detail.strip_prefix(&format!("{field}: "));
    if let Some(why) = why.map(Box::from) {
        problem.detail = why;
    }
    problem.field = Some(match &*field {
        "cluster" => "settings".into(),
        _ => field,
    });
    problem
}

/// What the form says. Where it was not filled in with what is kept of the cluster, what it leaves out stays.
fn said(known: Systems, fields: &Fields, kept: Option<Registration>) -> Registration {
    let ticked = known.names().filter(|one| fields.get(one) == "yes");
    let mut said = Registration {
        systems: ticked.map(str::to_owned).collect(),
        settings: fields.raw("settings").to_owned(),
    };
    let blind = fields.get(FILLED) != fields.get("name");
    if let Some(kept) = kept.filter(|_| blind) {
        if said.systems.is_empty() {
            said.systems = kept.systems;
        }
        if said.settings.trim().is_empty() {
            said.settings = kept.settings;
        }
    }
    said
}

pub async fn ask_remove(
    State(clusters): State<Clusters>,
    visitor: Visitor,
    PathParam(name): PathParam<String>,
) -> Answered {
    let view = find(&clusters, &visitor, &name)?;
    let lead = vec![format!(
        "fipd forgets its kubeconfig and serves it no more. {} leases of it are kept until an admin says `fipd clusters forget {name}`. \
         What fipd has put into the cluster stays there: leave it first to have that taken away.",
        view.leases
    )];
    let form = Form::confirm(links::cluster(&name) + "/remove", "Remove the cluster");
    Ok(confirm(&visitor, &name, "Remove cluster", lead, form))
}

pub async fn remove(
    State(clusters): State<Clusters>,
    PathParam(name): PathParam<String>,
    SubmittedForm { visitor, .. }: SubmittedForm,
) -> Answered {
    let held = clusters.remove(&name, visitor.actor()).await;
    let left = match held.map_err(|error| failed(&visitor, &error.into()))? {
        true => {
            " What fipd has put there stays, since it was not left cleanly: add it again and leave it to have that taken away."
        }
        false => "",
    };
    let said = format!("Cluster {name} was removed; its leases are kept.{left}");
    Ok(visitor.done(links::CLUSTERS, said))
}

/// Shows what would be taken away.
pub async fn ask_detach(
    State(clusters): State<Clusters>,
    State(detacher): State<Detacher>,
    visitor: Visitor,
    PathParam(name): PathParam<String>,
) -> Answered {
    find(&clusters, &visitor, &name)?;
    let report = detacher.look(&name).await;
    let report = report.map_err(|problem| failed(&visitor, &problem))?;
    let mut lead = vec![
        "The systems of the cluster are switched off, also after restarts, until it is attached again. Its addresses are kept."
            .to_owned(),
        format!("In the cluster: {}.", report.message),
    ];
    let steps = report.steps.iter().take(SHOWN);
    lead.extend(steps.map(|step| format!("{}: {}", step.object, step.does)));
    if report.steps.len() > SHOWN {
        lead.push(format!("And {} more.", report.steps.len() - SHOWN));
    }
    let left = report.left.iter().take(SHOWN);
    lead.extend(left.map(|what| format!("Left: {what}.")));
    let form = Form::confirm(links::cluster(&name) + "/detach", "Leave the cluster");
    Ok(confirm(&visitor, &name, "Leave cluster", lead, form))
}

pub async fn detach(
    State(detacher): State<Detacher>,
    PathParam(name): PathParam<String>,
    SubmittedForm { visitor, .. }: SubmittedForm,
) -> Answered {
    let (actor, leaving) = (visitor.actor(), name.clone());
    // To its end, whether the browser waits or not.
    let ended = tokio::spawn(async move { detacher.leave(&leaving, actor).await }).await;
    let (good, text) = match ended {
        Ok(Ok(Ok(report))) => {
            let left = report.left.iter().take(SHOWN);
            let left: String = left.map(|what| format!(" Left: {what}.")).collect();
            let text = format!("Cluster {name}: {}.{left}", report.message);
            (report.clean, text)
        }
        Ok(Err(problem)) => return Err(failed(&visitor, &problem)),
        Ok(Ok(Err(problem))) => {
            let next = "The page of the cluster says whether its systems are on.";
            return Err(visitor.failure(problem.status_code(), problem.detail, next));
        }
        Err(error) => (false, error.to_string()),
    };
    Ok(visitor.redirect_with(&links::cluster(&name), good, text))
}

pub async fn attach_again(
    State(clusters): State<Clusters>,
    PathParam(name): PathParam<String>,
    SubmittedForm { visitor, .. }: SubmittedForm,
) -> Answered {
    let path = Path(name.clone());
    let done = attach::attach(State(clusters.clone()), visitor.caller(), path).await;
    if let Err(problem) = done {
        return Err(failed(&visitor, &problem));
    }
    let text = format!("The systems of cluster {name} are on again.");
    Ok(visitor.done(&links::cluster(&name), text))
}

/// Keeps what foreign Services use and is only reported.
pub async fn confirm_sightings(
    State(clusters): State<Clusters>,
    PathParam(name): PathParam<String>,
    SubmittedForm { visitor, .. }: SubmittedForm,
) -> Answered {
    let named = NamedCluster {
        clusters,
        actor: visitor.actor(),
        name: name.clone(),
        if_match: IfMatch::default(),
    };
    let done = clusters::confirm_sightings(named).await;
    let Json(outcome) = done.map_err(|problem| failed(&visitor, &problem))?;
    Ok(visitor.done(&links::cluster(&name), outcome.message))
}

fn find(clusters: &Clusters, visitor: &Visitor, name: &str) -> Result<ClusterView, Failure> {
    let view = clusters.view(name);
    view.ok_or_else(|| visitor.not_found("There is no cluster of that name."))
}

fn failed(visitor: &Visitor, problem: &Problem) -> Failure {
    let next = "Nothing was changed here.";
    visitor.failure(problem.status_code(), problem.detail.to_string(), next)
}

fn add_form(known: Systems) -> Form {
    let name = Input::new("name", "Name").required().hint(
        "Small letters, digits, dots and dashes. It is what the cluster is called in commands and lists.",
    );
    let file = Input::new("kubeconfig", "Kubeconfig")
        .kind(InputKind::File(".yaml,.yml,.conf,.kubeconfig,.txt"))
        .hint("With everything in it: programs and names of files are refused. It is kept on this host and never shown again.");
    let ticks = known.0.iter();
    let ticks = ticks.map(|one| Input::new(one.name, one.tick).kind(InputKind::Tick));
    let settings = Input::new("settings", "Settings")
        .note("optional")
        .kind(InputKind::Lines)
        .hint("As below [[cluster]] in the configuration file, such as: [claims] and in the next line pools = [\"lab\"]");
    let filled = Input::new(FILLED, "").kind(InputKind::Hidden);
    let inputs = [name, file].into_iter().chain(ticks);
    let inputs = inputs.chain([settings, filled]).collect();
    Form::new(links::CLUSTER_NEW, "Add the cluster", inputs)
}

fn ask_new(visitor: &Visitor, status: StatusCode, form: Form) -> Response {
    let mut lead = vec!["It is served at once, and after restarts. Systems need rights in the cluster: the manifests are in the package.".to_owned()];
    let again = form.value(FILLED).to_owned();
    let title = match again.as_str() {
        "" => "Add a cluster".to_owned(),
        name => {
            lead.push("What was said of it before is filled in: what is sent takes its place. If fipd has left the cluster, it is attached again.".to_owned());
            format!("Another kubeconfig for {name}")
        }
    };
    let asks = FormPage {
        lead,
        ..FormPage::below(links::CLUSTERS, "Clusters", title, form)
    };
    visitor.ask(Nav::Clusters, status, asks)
}

fn confirm(visitor: &Visitor, name: &str, what: &str, lead: Vec<String>, form: Form) -> Response {
    let (title, back) = (format!("{what} {name}?"), links::cluster(name));
    let mut asks = FormPage::below(links::CLUSTERS, "Clusters", title, form);
    asks.trail.push((back.clone(), name.to_owned()));
    let asks = FormPage { lead, back, ..asks };
    visitor.ask(Nav::Clusters, StatusCode::OK, asks)
}
