//! `/api/v1/clusters/{name}`: taking clusters in, out, and leaving them.

use std::time::Duration;

use axum::{Json, extract::State as Shared};
use fipd_core::{Actor, Text};

use crate::{
    api::{
        access::auth::Caller,
        extract::{Body, Path},
        problem::{Code, Problem},
        wire::{ClusterAdd, DetachReport, DetachStep, Outcome},
    },
    clusters::{ClusterSession, ClusterView, Clusters, Upload},
    detach::{self, Done, Leaving, Past, Report},
    guests::GuestBoard,
    system::System,
};

/// How long the systems of a cluster may take to end before it is left, and the cluster managers of others to begin.
const QUIET: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(200);

/// Takes a cluster in by its kubeconfig, which must be self-contained; at once, and over restarts. One that was taken in like
/// that before gets another kubeconfig and other systems; one that was left stays so until it is attached.
#[utoipa::path(put, path = "/api/v1/clusters/{name}", tag = "clusters", params(("name" = String, Path)),
    request_body = ClusterAdd, responses((status = 200, body = Outcome)))]
pub async fn add(
    Shared(clusters): Shared<Clusters>,
    caller: Caller,
    Path(name): Path<String>,
    Body(body): Body<ClusterAdd>,
) -> Result<Json<Outcome>, Problem> {
    let message = match take_in(&clusters, &caller, &name, body).await? {
        true => format!(
            "cluster {name} is added and stays detached: no system is on; `fipd clusters attach {name}` switches its systems on"
        ),
        false => format!("cluster {name} is added; `fipd clusters show {name}` says how it is"),
    };
    Ok(Json(Outcome { message }))
}

/// Takes a cluster in; whether it stays detached.
pub(in crate::api) async fn take_in(
    clusters: &Clusters,
    caller: &Caller,
    name: &str,
    body: ClusterAdd,
) -> Result<bool, Problem> {
    let upload = Upload {
        name: name.into(),
        kubeconfig: body.kubeconfig,
        systems: body.systems.into_iter().collect(),
        settings: body.settings,
    };
    Ok(clusters.add(upload, caller.actor.clone()).await?)
}

/// Takes a cluster out that was added by hand. Its leases are kept as orphaned until it is forgotten.
#[utoipa::path(delete, path = "/api/v1/clusters/{name}", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = Outcome), (status = 409, body = Problem)))]
pub async fn remove(
    Shared(clusters): Shared<Clusters>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Outcome>, Problem> {
    // Something of fipd's may be left there.
    let left = match clusters.remove(&name, caller.actor).await? {
        true => format!(
            "; what fipd has put there stays, since it was not left cleanly: add it again and `fipd clusters detach {name}` \
             takes it away"
        ),
        false => String::new(),
    };
    let message = format!(
        "cluster {name} is removed; its leases are kept until `fipd clusters forget {name}`{left}"
    );
    Ok(Json(Outcome { message }))
}

/// What leaving a cluster would take away there. Changes nothing.
#[utoipa::path(get, path = "/api/v1/clusters/{name}/detach", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = DetachReport), (status = 409, body = Problem)))]
pub async fn preview(
    Shared(detacher): Shared<Detacher>,
    Path(name): Path<String>,
) -> Result<Json<DetachReport>, Problem> {
    Ok(Json(detacher.look(&name).await?))
}

/// Leaves a cluster: switches its systems off for good, and takes away what fipd has put there. Addresses are kept. Goes on to its
/// end also where the request is cut off; doing it again does what is left. Takes as long as there is something to take away: up
/// to half an hour is waited for the report.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/detach", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = DetachReport), (status = 409, body = Problem)))]
pub async fn detach(
    Shared(detacher): Shared<Detacher>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<DetachReport>, Problem> {
    let leaving = tokio::spawn(async move { detacher.leave(&name, caller.actor).await });
    let ended = leaving.await;
    let report = ended.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(Json(report??))
}

/// Switches the systems of a cluster that was left on again, as it is configured.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/attach", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = Outcome), (status = 409, body = Problem)))]
pub async fn attach(
    Shared(clusters): Shared<Clusters>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Outcome>, Problem> {
    let view = found(&clusters, &name)?;
    clusters.attach(&view.name, caller.actor).await?;
    let message = format!("the systems of cluster {name} are on again");
    Ok(Json(Outcome { message }))
}

fn found(clusters: &Clusters, name: &str) -> Result<ClusterView, Problem> {
    let view = clusters.view(name);
    view.ok_or_else(|| Problem::not_found("cluster", name))
}

/// The cluster of that name as one that can be left: under the name that leads.
fn leading(clusters: &Clusters, name: &str) -> Result<ClusterView, Problem> {
    let view = found(clusters, name)?;
    if let Some(lead) = &view.lead {
        let detail = format!(
            "cluster {name} is the same cluster as {lead}, which runs its systems: `fipd clusters detach {lead}` leaves it; \
             nothing was changed"
        );
        return Err(Problem::new(Code::Conflict, detail));
    }
    Ok(view)
}

/// What failed says of itself that nothing was changed, which holds for its part only.
fn halfway(view: &ClusterView, mut problem: Problem) -> Problem {
    let detail = format!(
        "the systems of cluster {} are off, but what is done there cannot be noted ({}): the rest is left as it is; run it \
         again when that works",
        view.name, problem.title
    );
    problem.detail = detail.into_boxed_str();
    problem
}

/// Leaves clusters.
#[derive(Clone)]
pub struct Detacher {
    clusters: Clusters,
    guests: GuestBoard,
    leaving: Vec<&'static dyn Leaving>,
    /// The name under which this daemon leads.
    me: Text,
}

impl Detacher {
    pub fn new(
        clusters: Clusters,
        guests: GuestBoard,
        systems: &[&'static dyn System],
        me: Text,
    ) -> Self {
        let leaving = systems.iter().map(|system| system.leaving());
        Self {
            clusters,
            guests,
            leaving: leaving.collect(),
            me,
        }
    }

    /// What would be taken away.
    pub async fn look(&self, name: &str) -> Result<DetachReport, Problem> {
        let view = leading(&self.clusters, name)?;
        let Some(session) = self.clusters.session(&view.name) else {
            return Ok(unreached(&view, true));
        };
        let past = self.past(&session);
        let report = detach::leave(&session, &self.leaving, &past, &self.me, None).await?;
        Ok(shown(&view, report, true))
    }

    /// Takes it away. Nobody else changes the cluster meanwhile.
    ///
    /// # Errors
    /// Nothing was changed. What fails once the systems are off is in the inner result.
    pub async fn leave(
        &self,
        name: &str,
        actor: Actor,
    ) -> Result<Result<DetachReport, Problem>, Problem> {
        let view = leading(&self.clusters, name)?;
        let _hold = self.clusters.detach(&view.name, actor.clone()).await?;
        Ok(self.take_away(&view, actor).await)
    }

    async fn take_away(&self, view: &ClusterView, actor: Actor) -> Result<DetachReport, Problem> {
        let Some(session) = self.quiet(&view.name).await else {
            return Ok(unreached(view, false));
        };
        let past = self.heard(&session).await;
        let report = detach::leave(&session, &self.leaving, &past, &self.me, Some(&actor)).await;
        let report = report.map_err(|error| halfway(view, error.into()))?;
        let shown = shown(view, report, false);
        if shown.clean {
            let noted = self.clusters.left(&view.name, actor).await;
            noted.map_err(|error| halfway(view, error.into()))?;
        }
        Ok(shown)
    }

    fn past(&self, session: &ClusterSession) -> Past {
        let put = self.guests.put_into(&session.names);
        let mut unheard = self.clusters.managers();
        unheard.retain(|(rancher, system)| {
            let said = put
                .keys()
                .any(|(of, by)| of == rancher && *by == system.as_str());
            !said && !session.names.contains(rancher)
        });
        Past {
            systems: self.clusters.held(&session.names),
            settings: session.settings.clone(),
            guest: !unheard.is_empty() || put.values().any(|put| *put),
            unheard: unheard.into_iter().map(|(rancher, _)| rancher).collect(),
        }
    }

    /// The same, once all cluster managers know where they have put something: after a start that takes a moment.
    async fn heard(&self, session: &ClusterSession) -> Past {
        let known = soon(|| Some(self.past(session)).filter(|past| past.unheard.is_empty()));
        known.await.unwrap_or_else(|| self.past(session))
    }

    /// The session of a cluster that no system writes to any more.
    async fn quiet(&self, name: &Text) -> Option<ClusterSession> {
        let quiet = |session: &ClusterSession| session.systems.is_empty();
        soon(|| self.clusters.session(name).filter(quiet)).await
    }
}

/// What is there within [`QUIET`].
async fn soon<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    let found = async {
        loop {
            match look() {
                Some(found) => return found,
                None => tokio::time::sleep(LOOK).await,
            }
        }
    };
    tokio::time::timeout(QUIET, found).await.ok()
}

fn unreached(view: &ClusterView, dry_run: bool) -> DetachReport {
    let why = view.last_error.as_deref().unwrap_or("not reached yet");
    let state = view.state.as_str();
    DetachReport {
        cluster: view.name.to_string(),
        dry_run,
        clean: false,
        message: format!(
            "cluster {} does not answer ({state}): what fipd has put there is left",
            view.name
        ),
        steps: Vec::new(),
        left: vec![format!(
            "everything: {why}; run it again when the cluster answers"
        )],
    }
}

fn shown(view: &ClusterView, report: Report, dry_run: bool) -> DetachReport {
    let clean = report.is_clean() && !dry_run;
    let mut left = report.guests;
    left.extend(report.unseen);
    left.extend(report.steps.iter().filter_map(stays));
    let failed = |one: &&Done| matches!(one.result, Some(Err(_)));
    let (all, failures) = (
        report.steps.len(),
        report.steps.iter().filter(failed).count(),
    );
    let what = match (dry_run, all, failures) {
        (_, 0, _) if left.is_empty() => "there is nothing of fipd's to take away".to_owned(),
        (_, 0, _) => "nothing was found to take away".to_owned(),
        (true, all, _) => format!("{all} things would be taken away"),
        (false, all, 0) => format!("{all} things were taken away"),
        (false, all, failures) => {
            format!("{failures} of {all} things could not be taken away; run it again")
        }
    };
    let message = match left.len() {
        0 => what,
        count => format!("{what}; {count} are left or could not be seen"),
    };
    DetachReport {
        cluster: view.name.to_string(),
        dry_run,
        clean,
        message,
        steps: report.steps.into_iter().map(step).collect(),
        left,
    }
}

fn stays(done: &Done) -> Option<String> {
    let Some(Err(why)) = &done.result else {
        return None;
    };
    Some(format!("{}: {why}", done.step.object))
}

fn step(done: Done) -> DetachStep {
    let (state, error) = match done.result {
        None => ("planned", None),
        Some(Ok(())) => ("done", None),
        Some(Err(why)) => ("failed", Some(why)),
    };
    DetachStep {
        object: done.step.object,
        does: done.step.does.text(),
        state: state.to_owned(),
        error,
    }
}
