//! `/api/v1/check` and `/backup`.

use std::{path::PathBuf, sync::Arc};

use axum::{
    Json,
    body::Body as HttpBody,
    extract::State,
    response::{IntoResponse, Response},
};
use futures::StreamExt as _;
use http::{HeaderValue, header};
use tokio::sync::Semaphore;
use tokio_util::io::ReaderStream;

use super::{overlaps, rules, verify};
use crate::api::{
    health, nameless,
    problem::{Code, Problem},
    wire::{CheckReport, Checked},
};
use crate::{backups::Backups, clusters::Clusters, ipam::Ipam, rules::RuleBoard, store};

/// Verifies the store as it is at this moment, the ledger in memory page by page, and that both say the same.
/// Decisions go on meanwhile. It takes the memory of a second ledger, so one runs at a time.
#[utoipa::path(get, path = "/api/v1/check", tag = "admin",
    responses((status = 200, body = CheckReport), (status = 429, body = Problem)))]
pub async fn check(
    State(ipam): State<Ipam>,
    State(clusters): State<Clusters>,
    State(rules): State<RuleBoard>,
    State(checking): State<Arc<Semaphore>>,
) -> Result<Json<CheckReport>, Problem> {
    let turns = Arc::clone(&checking);
    let checks = alone(turns, move || check_all(&ipam, &clusters, &rules)).await??;
    Ok(Json(CheckReport::of(checks)))
}

/// Does it unless one is being done. It goes on when its asker goes away, and until it has ended nobody else has a turn.
async fn alone<T: Send + 'static>(
    turns: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let Ok(turn) = turns.try_acquire_owned() else {
        let detail = "another check is running; ask again when it has ended";
        return Err(Problem::new(Code::Busy, detail));
    };
    blocking(move || {
        let done = work();
        drop(turn);
        done
    })
    .await
}

/// Blocks on the disk and for long.
fn check_all(ipam: &Ipam, clusters: &Clusters, rules: &RuleBoard) -> Result<Vec<Checked>, Problem> {
    let unavailable = |error: store::ReadError| Problem::new(Code::Unavailable, error.to_string());
    let (file, problems) = ipam.reader().verify().map_err(unavailable)?;
    let fine = "rows, invariants and audit log are in order".to_owned();
    let in_file = Checked::all("store", &problems, fine);
    let live = verify::live(ipam, file.as_ref()).map_err(unavailable)?;
    let leases = live.leases;
    let compared = match &file {
        Some(_) => ", the store says the same",
        None => "; the store could not be compared",
    };
    let fine = format!("{leases} leases in memory agree with their indexes and pools{compared}");
    let mut checks = Checked::all("ledger", &live.wrong, fine);
    checks.extend(in_file);
    checks.push(health::store(ipam));
    checks.push(health::time(ipam));
    checks.extend(overlaps::checks(ipam));
    checks.extend(nameless::checks(ipam, clusters));
    checks.extend(rules::checks(&rules.view()));
    Ok(checks)
}

/// A consistent copy of the store, as it is at this moment. One is read at a time.
#[utoipa::path(get, path = "/api/v1/backup", tag = "admin",
    responses((status = 200, content_type = "application/octet-stream"), (status = 429, body = Problem),
        (status = 507, body = Problem)))]
pub async fn backup(
    State(backups): State<Backups>,
    State(data_dir): State<PathBuf>,
) -> Result<Response, Problem> {
    let temporary = blocking(move || backups.make_temporary(&data_dir)).await??;
    file_answer(temporary.path().to_owned(), temporary).await
}

/// A file as it is read; `guard` is dropped at its end, or when the client goes away.
pub(in crate::api) async fn file_answer<G: Send + 'static>(
    path: PathBuf,
    guard: G,
) -> Result<Response, Problem> {
    let io = |error: std::io::Error| {
        Problem::new(Code::Internal, format!("{}: {error}", path.display()))
    };
    let file = tokio::fs::File::open(&path).await.map_err(io)?;
    let length = file.metadata().await.map_err(io)?.len();
    let chunks = ReaderStream::with_capacity(file, 256 * 1024).map(move |chunk| {
        let _until_the_end = &guard;
        chunk
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
    ];
    Ok((headers, HttpBody::from_stream(chunks)).into_response())
}

/// The name appears in the audit log as `token:NAME` or `user:NAME`.
pub(in crate::api) fn plain_name(name: &str) -> Result<&str, Problem> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if (1..=63).contains(&name.len()) && name.chars().all(fine) {
        return Ok(name);
    }
    let allowed = "1 to 63 of letters, digits, '-', '_', '.' and '@'";
    Err(Problem::invalid("name", name, allowed))
}

/// Runs what waits for the disk on a thread of its own.
pub(in crate::api) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        let detail = format!("a background task ended early: {error}");
        Problem::new(Code::Internal, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ui::tests::Site;

    #[tokio::test]
    async fn one_check_runs_at_a_time() {
        let site = Site::new().await;
        let ask = || {
            let api = &site.api;
            check(
                State(api.ipam.clone()),
                State(api.clusters.clone()),
                State(api.rules.clone()),
                State(Arc::clone(&api.checking)),
            )
        };
        let turn = Arc::clone(&site.api.checking).try_acquire_owned().unwrap();
        let problem = ask().await.unwrap_err();
        assert_eq!((problem.code, problem.status), (Code::Busy, 429));
        drop(turn);
        for _ in 0..2 {
            let report = ask().await.unwrap();
            assert!(report.ok, "{report:?}");
        }
    }

    #[tokio::test]
    async fn an_asker_that_goes_away_gives_its_turn_to_nobody() {
        let turns = Arc::new(Semaphore::new(1));
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let long = alone(Arc::clone(&turns), move || ended.recv());
        let gone = tokio::time::timeout(std::time::Duration::from_millis(1), long).await;
        assert!(gone.is_err());
        let next = || alone(Arc::clone(&turns), || ());
        assert_eq!(next().await.unwrap_err().code, Code::Busy);
        end.send(()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while next().await.is_err() {
            assert!(std::time::Instant::now() < deadline);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}
