//! `/api/v1/backups`, the copies of the store that the daemon keeps, and `/api/v1/restore-hold`.

use axum::{Json, extract::State, response::Response};
use fipd_core::{Ledger, Request};
use http::StatusCode;

use super::admin;
use crate::{
    api::{
        access::auth::Caller,
        convert,
        extract::{Body, Path},
        problem::{Code, Problem},
        wire::{BackupList, BackupView, DrillView, LiftHold, RestoreHoldView, StoreCounts},
    },
    backups::{Backups, Copy, CopyError, Drill},
    clock,
    ipam::Ipam,
};

/// The copies that are kept, newest first, and how making them has gone.
#[utoipa::path(get, path = "/api/v1/backups", tag = "admin", responses((status = 200, body = BackupList)))]
pub async fn list(
    State(ipam): State<Ipam>,
    State(backups): State<Backups>,
) -> Result<Json<BackupList>, Problem> {
    let listed = backups.clone();
    let copies = admin::blocking(move || listed.list()).await?;
    let copies = copies.map_err(|error| Problem::new(Code::Unavailable, error.to_string()))?;
    let (schedule, standing) = (backups.schedule(), backups.standing());
    let (failed, error) = standing.failure.unzip();
    let revision = ipam.reader().stats().audit_next;
    Ok(Json(BackupList {
        directory: schedule.directory.display().to_string(),
        every: schedule.every.map(|every| every.as_secs()),
        keep: schedule.keep,
        backups: copies.iter().map(view).collect(),
        failed: failed.map(clock::rfc3339),
        error,
        store: ipam.read(|ledger| counts(ledger, revision)),
    }))
}

/// Makes a copy, reads it back, and removes those that are too many.
#[utoipa::path(post, path = "/api/v1/backups", tag = "admin",
    responses((status = 201, body = BackupView), (status = 429, body = Problem), (status = 507, body = Problem)))]
pub async fn make(
    State(backups): State<Backups>,
) -> Result<(StatusCode, Json<BackupView>), Problem> {
    let made = admin::blocking(move || backups.make()).await?;
    Ok((StatusCode::CREATED, Json(view(&made?))))
}

/// Restores a copy on trial, in a place of its own, and notes what came of it.
#[utoipa::path(post, path = "/api/v1/backups/{name}/drill", tag = "admin", params(("name" = String, Path)),
    responses((status = 200, body = DrillView), (status = 429, body = Problem), (status = 507, body = Problem)))]
pub async fn drill(
    State(backups): State<Backups>,
    Path(name): Path<String>,
) -> Result<Json<DrillView>, Problem> {
    let drill = admin::blocking(move || backups.drill(&name)).await??;
    Ok(Json(drill_view(&drill)))
}

/// One copy, as a file.
#[utoipa::path(get, path = "/api/v1/backups/{name}", tag = "admin", params(("name" = String, Path)),
    responses((status = 200, content_type = "application/octet-stream")))]
pub async fn download(
    State(backups): State<Backups>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let path = backups.path(&name);
    let path = path.ok_or_else(|| Problem::not_found("backup", &name))?;
    admin::file_answer(path, ()).await
}

fn view(copy: &Copy) -> BackupView {
    BackupView {
        name: copy.name.clone(),
        created: clock::rfc3339(copy.created),
        bytes: copy.bytes,
        verified: true,
        drill: copy.drill.as_ref().map(drill_view),
    }
}

fn drill_view(drill: &Drill) -> DrillView {
    DrillView {
        at: clock::rfc3339(drill.at),
        ok: drill.problems.is_empty(),
        problems: drill.problems.clone(),
    }
}

impl From<CopyError> for Problem {
    fn from(error: CopyError) -> Self {
        let code = match &error {
            CopyError::Unknown(name) => return Self::not_found("backup", name),
            CopyError::Busy => Code::Busy,
            CopyError::Full { .. } => Code::DiskFull,
            CopyError::Io { .. } | CopyError::Store(_) => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

/// What the address book holds.
pub fn counts(ledger: &Ledger, revision: u64) -> StoreCounts {
    StoreCounts {
        revision,
        networks: ledger.networks().len(),
        pools: ledger.pools().len(),
        quotas: ledger.quota_count(),
        leases: ledger.lease_count(),
        clusters: ledger.clusters().len(),
        users: ledger.accounts().len(),
        tokens: ledger.tokens().len(),
    }
}

/// Whether free addresses are held because a backup was restored, and until when.
#[utoipa::path(get, operation_id = "show", path = "/api/v1/restore-hold", tag = "admin",
    responses((status = 200, body = RestoreHoldView)))]
pub async fn show_hold(State(ipam): State<Ipam>) -> Json<RestoreHoldView> {
    Json(ipam.read(hold_view))
}

/// Gives free addresses again before the hold has ended. Lifting nothing succeeds.
#[utoipa::path(post, operation_id = "lift", path = "/api/v1/restore-hold/lift", tag = "admin", request_body = LiftHold,
    responses((status = 200, body = RestoreHoldView)))]
pub async fn lift_hold(
    State(ipam): State<Ipam>,
    caller: Caller,
    Body(LiftHold { reason }): Body<LiftHold>,
) -> Result<Json<RestoreHoldView>, Problem> {
    let request = Request::LiftHold {
        reason: convert::text("reason", &reason)?,
        actor: caller.actor,
    };
    ipam.submit(request).await?;
    Ok(Json(ipam.read(hold_view)))
}

fn hold_view(ledger: &Ledger) -> RestoreHoldView {
    let (epoch, hold) = (ledger.epoch(), ledger.restore_hold());
    let of_all = epoch.is_some_and(|epoch| epoch.hold.is_some());
    let listed = if of_all { 0 } else { Ledger::HELD_SHOWN };
    let networks = ledger.networks_held().take(listed);
    RestoreHoldView {
        held: hold.is_some(),
        networks: networks.map(|network| network.name.to_string()).collect(),
        until: hold.map(|hold| clock::rfc3339(hold.until)),
        epoch: epoch.map_or(0, |epoch| epoch.number),
        restored: epoch.map(|epoch| clock::rfc3339(epoch.began)),
    }
}
