//! `/api/v1/clusters/{name}/adopt/rancher-fip`.

use std::sync::Arc;

use axum::{Json, extract::State as Shared};

use super::{
    Api,
    extract::Path,
    problem::{Code, Problem},
    wire::{AdoptChange, AdoptFinding, AdoptReport},
};
use crate::api::access::auth::Caller;
use crate::{
    clusters::ClusterSession,
    systems::rancher_fip::adopt::{
        AdoptError,
        report::{By, Change, Finding, Report, State},
    },
};

/// What the originals of rancher-fip left in a Rancher cluster, and what would change. Changes nothing.
#[utoipa::path(get, path = "/api/v1/clusters/{name}/adopt/rancher-fip", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = AdoptReport), (status = 404, body = Problem), (status = 422, body = Problem),
        (status = 502, body = Problem), (status = 503, body = Problem)))]
pub async fn preview(
    Shared(api): Shared<Arc<Api>>,
    Path(name): Path<String>,
) -> Result<Json<AdoptReport>, Problem> {
    let session = session(&api, &name)?;
    let report = api.takeover.look(&session).await;
    let report = report.map_err(|error| problem(&name, error))?;
    Ok(Json(view(&session, report, true)))
}

/// Takes over what the originals of rancher-fip left, unless one of them still runs. Goes on to its end also where the
/// request is cut off; meanwhile another is refused. Doing it again changes nothing.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/adopt/rancher-fip", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = AdoptReport), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem), (status = 502, body = Problem), (status = 503, body = Problem)))]
pub async fn adopt(
    Shared(api): Shared<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<AdoptReport>, Problem> {
    let session = session(&api, &name)?;
    let report = api.takeover.take_over(&session, &caller.actor).await;
    let report = report.map_err(|error| problem(&name, error))?;
    Ok(Json(view(&session, report, false)))
}

pub(super) fn session(api: &Api, name: &str) -> Result<ClusterSession, Problem> {
    api.clusters
        .session(name)
        .ok_or_else(|| match api.clusters.view(name) {
            Some(view) => {
                let state = view.state.as_str();
                let detail = format!("cluster {name} is not reached at the moment ({state})");
                Problem::new(Code::Unavailable, detail)
            }
            None => Problem::not_found("cluster", name),
        })
}

fn problem(cluster: &str, error: AdoptError) -> Problem {
    let detail = format!("cluster {cluster}: {error}");
    let code = match &error {
        AdoptError::NotManagement(_) => Code::Invalid,
        AdoptError::Cluster(error) if error.status() == Some(403) => Code::ClusterForbidden,
        AdoptError::Cluster(_) => Code::Unavailable,
        AdoptError::Blocked(_) | AdoptError::Busy => Code::Conflict,
        AdoptError::Broken(_) | AdoptError::Unmade(_) => Code::Internal,
    };
    Problem::new(code, detail)
}

fn view(session: &ClusterSession, report: Report, dry_run: bool) -> AdoptReport {
    let asked = report.changes.iter().filter(|one| one.by == By::Adopt);
    let why = |one: &Change| match &one.state {
        State::Failed(why) => Some(format!("{}: {why}", one.name)),
        State::Planned | State::Done => None,
    };
    let failed: Vec<String> = asked.clone().filter_map(why).collect();
    let message = match (asked.count(), failed.len()) {
        (0, _) => "nothing to do".to_owned(),
        (all, 0) if dry_run => format!("{all} things would be done"),
        (all, 0) => format!("{all} things were done"),
        (all, count) => {
            let could = if dry_run { "cannot" } else { "could not" };
            format!(
                "{count} of {all} things {could} be done: {}",
                failed.join("; ")
            )
        }
    };
    let finding = |one: Finding| AdoptFinding {
        kind: one.kind.as_str().to_owned(),
        name: one.name,
        fine: one.fine,
        detail: one.says,
    };
    AdoptReport {
        cluster: session.name.to_string(),
        dry_run,
        message,
        counts: report
            .counts
            .into_iter()
            .map(|(what, count)| (what.to_owned(), count as u64))
            .collect(),
        findings: report.findings.into_iter().map(finding).collect(),
        changes: report.changes.into_iter().map(change).collect(),
        unseen: report.unseen,
        blockers: report.blockers,
    }
}

fn change(change: Change) -> AdoptChange {
    let (state, error) = match change.state {
        State::Planned => ("planned", None),
        State::Done => ("done", None),
        State::Failed(why) => ("failed", Some(why)),
    };
    AdoptChange {
        by: change.by.as_str().to_owned(),
        name: change.name,
        does: change.does,
        state: state.to_owned(),
        error,
    }
}
