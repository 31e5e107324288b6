//! `fipd backup drill`: whether a backup could be restored, without restoring it.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, path::Path};

use serde::Serialize;

use crate::{
    api::{
        rest::backups::counts,
        wire::{BackupList, StoreCounts},
    },
    cli::{CliSession, client::segment, download::to_file, exit::Failure, output::Table, shown},
    clock,
    store::{self, Store, StoreOptions},
};

/// What the drill found.
#[derive(Serialize)]
struct Drill {
    backup: String,
    created: Option<String>,
    ok: bool,
    /// What is wrong with it.
    problems: Vec<String>,
    restored: StoreCounts,
    /// `null` without a running daemon.
    running: Option<StoreCounts>,
}

/// Fails where the backup could not be restored.
pub(super) async fn run(session: &CliSession, file: Option<&Path>) -> Result<(), Failure> {
    let private = Permissions::from_mode(0o700);
    let mut scratch = tempfile::Builder::new();
    let scratch = scratch.prefix("fipd-drill-").permissions(private).tempdir();
    let scratch = scratch.map_err(Failure::failed)?;
    let list = session.client.get::<BackupList>("/api/v1/backups").await;
    let (backup, running) = match (file, list) {
        (Some(file), list) => (file.to_owned(), list.ok().map(|list| list.store)),
        (None, list) => {
            let list = list?;
            let newest = list.backups.first().ok_or_else(|| {
                Failure::NotFound(format!("there is no backup in {}", list.directory))
            })?;
            let copy = scratch.path().join(&newest.name);
            let path = format!("/api/v1/backups/{}", segment(&newest.name));
            to_file(session, &path, &copy).await?;
            (copy, Some(list.store))
        }
    };
    let mut drill = try_out(&backup, &scratch.path().join("drill.redb"))?;
    drill.running = running;
    session.output.show(&drill, table)?;
    if drill.ok {
        Ok(())
    } else {
        Err(Failure::Failed(format!(
            "drill: {} things are wrong with {}",
            drill.problems.len(),
            drill.backup
        )))
    }
}

fn try_out(backup: &Path, place: &Path) -> Result<Drill, Failure> {
    let restore = store::Restore {
        backup,
        store: place,
        no_hold: None,
        actor: "drill".into(),
        now: clock::now(),
        host: None,
    };
    let restored = restore.run().map_err(Failure::failed)?;
    let problems = store::check(place).map_err(Failure::failed)?;
    let options = StoreOptions {
        ballast: 0,
        ..StoreOptions::default()
    };
    let (opened, loaded) = Store::open(place, options).map_err(Failure::failed)?;
    // The restore itself is an entry of the audit log.
    let revision = opened.reader().stats().audit_next - 1;
    let name = backup.file_name().map(Path::new).unwrap_or(backup);
    Ok(Drill {
        backup: shown(name),
        created: restored.seal.map(|seal| clock::rfc3339(seal.created)),
        ok: problems.is_empty(),
        problems: problems.iter().map(ToString::to_string).collect(),
        restored: counts(&loaded.ledger, revision),
        running: None,
    })
}

fn table(drill: &Drill) -> Table {
    let mut table = Table::new(["WHAT", "BACKUP", "RUNNING"]);
    let created = drill.created.clone().unwrap_or_else(|| "-".to_owned());
    table.row(["made".to_owned(), created, "-".to_owned()]);
    let running = drill.running.as_ref().map(figures);
    for (at, (what, count)) in figures(&drill.restored).into_iter().enumerate() {
        let running = running.and_then(|running| Some(running.get(at)?.1.to_string()));
        table.row([
            what.to_owned(),
            count.to_string(),
            running.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    for problem in &drill.problems {
        table.row(["WRONG".to_owned(), problem.clone(), String::new()]);
    }
    if drill.ok {
        let fine = "checksums, rows, invariants and audit log are in order";
        table.row(["checks".to_owned(), fine.to_owned(), "-".to_owned()]);
    }
    table
}

fn figures(of: &StoreCounts) -> [(&'static str, u64); 8] {
    [
        ("revision", of.revision),
        ("networks", of.networks as u64),
        ("pools", of.pools as u64),
        ("quotas", of.quotas as u64),
        ("leases", of.leases as u64),
        ("clusters", of.clusters as u64),
        ("users", of.users as u64),
        ("tokens", of.tokens as u64),
    ]
}
