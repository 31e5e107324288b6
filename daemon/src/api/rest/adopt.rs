//! `/api/v1/clusters/{name}/adopt/{system}`.

use axum::{Json, extract::State as Shared};

use super::clusters::reached;
use crate::{
    adopt::{
        ChangeState, Finding, SystemTakeover, TakeoverChange, TakeoverError, TakeoverReport,
        Takeovers,
    },
    api::{
        access::auth::Caller,
        extract::Path,
        problem::{Code, Problem},
        wire::{AdoptChange, AdoptFinding, AdoptReport},
    },
    clusters::{ClusterSession, Clusters},
};

/// What the originals of a system left in a cluster and on this host, and what would change. Changes nothing. A system that has
/// nothing to take over is not found; the problem names those that have.
#[utoipa::path(get, path = "/api/v1/clusters/{name}/adopt/{system}", tag = "clusters",
    params(("name" = String, Path), ("system" = String, Path)),
    responses((status = 200, body = AdoptReport), (status = 502, body = Problem)))]
pub async fn preview(
    Shared(takeovers): Shared<Takeovers>,
    Shared(clusters): Shared<Clusters>,
    Path((name, system)): Path<(String, String)>,
) -> Result<Json<AdoptReport>, Problem> {
    let (takeover, session) = find(&takeovers, &clusters, &name, &system)?;
    let report = takeover.look(&session).await;
    let report = report.map_err(|error| problem(&name, error))?;
    Ok(Json(view(session.name.to_string(), report, true)))
}

/// Takes over what the originals of a system left, unless one of them still runs. Goes on to its end also where the
/// request is cut off; meanwhile another is refused. Doing it again changes nothing.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/adopt/{system}", tag = "clusters",
    params(("name" = String, Path), ("system" = String, Path)),
    responses((status = 200, body = AdoptReport), (status = 409, body = Problem), (status = 502, body = Problem)))]
pub async fn adopt(
    Shared(takeovers): Shared<Takeovers>,
    Shared(clusters): Shared<Clusters>,
    caller: Caller,
    Path((name, system)): Path<(String, String)>,
) -> Result<Json<AdoptReport>, Problem> {
    let (takeover, session) = find(&takeovers, &clusters, &name, &system)?;
    let report = takeover.adopt(&session, &caller.actor).await;
    let report = report.map_err(|error| problem(&name, error))?;
    Ok(Json(view(session.name.to_string(), report, false)))
}

fn find<'a>(
    takeovers: &'a Takeovers,
    clusters: &Clusters,
    name: &str,
    system: &str,
) -> Result<(SystemTakeover<'a>, ClusterSession), Problem> {
    let takeover = takeovers.of(system);
    let takeover = takeover.map_err(|error| Problem::new(Code::NotFound, error.to_string()))?;
    Ok((takeover, reached(clusters, name)?))
}

fn problem(cluster: &str, error: TakeoverError) -> Problem {
    let detail = format!("cluster {cluster}: {error}");
    let code = match error {
        TakeoverError::Unknown(..) => Code::NotFound,
        TakeoverError::NotServed(_) => Code::Invalid,
        TakeoverError::Cluster(error) if error.status() == Some(403) => Code::ClusterForbidden,
        TakeoverError::Rules(error) => Problem::from(error).code,
        TakeoverError::Cluster(_) | TakeoverError::NotBegun(_) => Code::Unavailable,
        TakeoverError::Blocked(_) | TakeoverError::Busy(_) => Code::Conflict,
        TakeoverError::Broken(_) | TakeoverError::Unmade(_) => Code::Internal,
    };
    Problem::new(code, detail)
}

fn view(cluster: String, report: TakeoverReport, dry_run: bool) -> AdoptReport {
    let message = report.summary(dry_run);
    let counts = report.counts.into_iter();
    AdoptReport {
        cluster,
        dry_run,
        message,
        counts: counts
            .map(|(what, count)| (what.to_owned(), count as u64))
            .collect(),
        findings: report.findings.into_iter().map(finding).collect(),
        changes: report.changes.into_iter().map(change).collect(),
        unseen: report.unseen,
        blockers: report.blockers,
    }
}

fn finding(finding: Finding) -> AdoptFinding {
    AdoptFinding {
        kind: finding.kind.as_str().to_owned(),
        name: finding.name,
        fine: finding.fine,
        detail: finding.says,
    }
}

fn change(change: TakeoverChange) -> AdoptChange {
    let (state, error) = match change.state {
        ChangeState::Planned => ("planned", None),
        ChangeState::Done => ("done", None),
        ChangeState::Needless(why) => ("done", Some(why)),
        ChangeState::Failed(why) => ("failed", Some(why)),
    };
    AdoptChange {
        by: change.by.as_str().to_owned(),
        name: change.name,
        does: change.does,
        state: state.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::adopt::FindingKind;

    #[test]
    fn a_report_is_shown_with_what_became_of_each_change() {
        let mut report = TakeoverReport::<()>::default();
        report.count("rules", 2);
        report.wrong(FindingKind::Program, "Deployment a/b", "it runs");
        report.act("one", "deletes it", ());
        report.cannot("two", "deletes it", "forbidden");
        report.changes[0].state = ChangeState::Needless("it is gone".to_owned());
        let shown = view("east".to_owned(), report.shown(), false);
        let mut shown: Value = serde_json::to_value(shown).unwrap();
        let changes = shown["changes"].take();
        assert_eq!(
            shown,
            json!({
                "cluster": "east", "dry_run": false, "counts": { "rules": 2 }, "unseen": [], "blockers": [],
                "message": "1 of 2 things could not be done: two: forbidden", "changes": null,
                "findings": [
                    { "kind": "program", "name": "Deployment a/b", "fine": false, "detail": "it runs" },
                ],
            })
        );
        let (state, error) = ("state", "error");
        assert_eq!(changes[0][state], "done");
        assert_eq!(changes[0][error], "it is gone");
        assert_eq!(changes[1][state], "failed");
        assert_eq!(changes[1][error], "forbidden");
    }

    #[test]
    fn the_code_tells_what_a_client_can_do_about_it() {
        let code = |error| problem("east", error).code;
        let system = fipd_core::System::ip_rule();
        assert_eq!(code(TakeoverError::NotServed(String::new())), Code::Invalid);
        assert_eq!(code(TakeoverError::Blocked(Vec::new())), Code::Conflict);
        assert_eq!(
            code(TakeoverError::NotBegun(String::new())),
            Code::Unavailable
        );
        let busy = problem("east", TakeoverError::Busy(system));
        assert_eq!(busy.code, Code::Conflict);
        assert!(
            busy.detail
                .contains("`fipd adopt ip-rule --cluster NAME --dry-run`")
        );
    }
}
