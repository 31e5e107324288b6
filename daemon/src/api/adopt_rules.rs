//! `/api/v1/clusters/{name}/adopt/ip-rule`.

use std::sync::Arc;

use axum::{Json, extract::State as Shared};

use super::{
    Api,
    adopt::session,
    extract::Path,
    problem::{Code, Problem},
    wire::{AdoptChange, AdoptFinding, AdoptReport},
};
use crate::api::access::auth::Caller;
use crate::systems::ip_rule::adopt::{AdoptError, Change, Report, Undone};

/// What the original ip-rule-operator left in a cluster and on this host, and what would change. Changes nothing.
#[utoipa::path(get, path = "/api/v1/clusters/{name}/adopt/ip-rule", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = AdoptReport), (status = 404, body = Problem), (status = 422, body = Problem),
        (status = 502, body = Problem), (status = 503, body = Problem)))]
pub async fn preview(
    Shared(api): Shared<Arc<Api>>,
    Path(name): Path<String>,
) -> Result<Json<AdoptReport>, Problem> {
    let session = session(&api, &name)?;
    let report = api.rule_takeover.look(&session).await;
    let report = report.map_err(|error| problem(&name, error))?;
    Ok(Json(view(&session.name, report, true)))
}

/// Takes over the rules of this host that the original ip-rule-operator made, unless it still runs: the rule with fipd's tag
/// is there before the one without goes. Doing it again changes nothing.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/adopt/ip-rule", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = AdoptReport), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem), (status = 502, body = Problem), (status = 503, body = Problem)))]
pub async fn adopt(
    Shared(api): Shared<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<AdoptReport>, Problem> {
    let session = session(&api, &name)?;
    let report = api.rule_takeover.take_over(&session, &caller.actor).await;
    let report = report.map_err(|error| problem(&name, error))?;
    Ok(Json(view(&session.name, report, false)))
}

fn problem(cluster: &str, error: AdoptError) -> Problem {
    let detail = format!("cluster {cluster}: {error}");
    let code = match error {
        AdoptError::NotServed(_) => Code::Invalid,
        AdoptError::Cluster(error) if error.status() == Some(403) => Code::ClusterForbidden,
        AdoptError::Rules(error) => Problem::from(error).code,
        AdoptError::Cluster(_) | AdoptError::Unnoted(_) => Code::Unavailable,
        AdoptError::Blocked(_) => Code::Conflict,
        AdoptError::Broken(_) => Code::Internal,
    };
    Problem::new(code, detail)
}

fn view(cluster: &str, report: Report, dry_run: bool) -> AdoptReport {
    let all = report.changes.len();
    let gone = |one: &&Change| matches!(one.done, Some(Err(_)));
    let gone = report.changes.iter().filter(gone).count();
    let message = match (all, gone, dry_run) {
        (0, ..) => "nothing to do".to_owned(),
        (all, _, true) => format!("{all} rules would be taken over"),
        (all, 0, false) => format!("{all} rules were taken over"),
        (all, gone, false) => format!(
            "{} of {all} rules were taken over; {gone} were left alone or not there any more",
            all - gone
        ),
    };
    let counts = report.counts.into_iter();
    let findings = report.findings.into_iter();
    AdoptReport {
        cluster: cluster.to_owned(),
        dry_run,
        message,
        counts: counts
            .map(|(what, count)| (what.to_owned(), count as u64))
            .collect(),
        findings: findings
            .map(|one| AdoptFinding {
                kind: one.kind.to_owned(),
                name: one.name,
                fine: one.fine,
                detail: one.says,
            })
            .collect(),
        changes: report.changes.into_iter().map(change).collect(),
        unseen: report.unseen,
        blockers: report.blockers,
    }
}

/// A rule that is gone meanwhile is no failure: nothing is left to be done.
fn change(change: Change) -> AdoptChange {
    let state = match &change.done {
        None => "planned",
        Some(Ok(()) | Err(Undone::Gone)) => "done",
        Some(Err(Undone::Refused(_))) => "failed",
    };
    AdoptChange {
        by: "adopt".to_owned(),
        name: change.rule.to_string(),
        does: change.does,
        state: state.to_owned(),
        error: change.done.and_then(Result::err).map(|why| why.to_string()),
    }
}
