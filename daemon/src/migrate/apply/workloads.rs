//! Workloads, by their templates.

use fipd_crds::flat_network::names::NAMESPACE as FLAT_NAMESPACE;
use serde_json::Value;

use super::{ALL, subnets::KnownSubnets};
use crate::{
    controller::{
        client::{CallError, Patch},
        owned::identify,
        store::Key,
    },
    migrate::{
        MigrateError,
        report::ObjectOutcome,
        session::{MigrationSession, PlannedChange},
        workload::{self, WorkloadChange, WorkloadKind, WorkloadPlan},
    },
};

/// How often a workload is read again because somebody else changed it.
const ATTEMPTS: usize = 5;

/// A workload whose pods are on macvlan or on flat-network.
#[derive(Debug)]
pub struct FlatWorkload {
    kind: WorkloadKind,
    key: Key,
    /// It is to be changed, and its pods have the addresses that it names.
    pub names_addresses: bool,
}

/// All such workloads of a kind.
pub async fn flat(session: &mut MigrationSession, kind: WorkloadKind) -> Vec<FlatWorkload> {
    let flat = |object: Value| {
        let names_addresses = match workload::plan(kind, &object) {
            WorkloadPlan::NotFlat => return None,
            WorkloadPlan::Skip { .. } => false,
            WorkloadPlan::Change(change) => change.names_addresses,
        };
        let (key, _) = identify(&object)?;
        Some(FlatWorkload {
            kind,
            key,
            names_addresses,
        })
    };
    match session.list(kind.kind(), flat).await {
        Ok(found) => found.unwrap_or_default(),
        Err(error) => {
            session.fail(kind.kind(), ALL, &error.to_string());
            Vec::new()
        }
    }
}

/// Migrates a workload as it is now: the list may be minutes old.
pub async fn migrate(
    session: &mut MigrationSession,
    workload: &FlatWorkload,
    known: &KnownSubnets,
) -> Result<(), MigrateError> {
    let (kind, key) = (workload.kind, &workload.key);
    let target = kind.kind().target(key);
    let mut agreed: Option<Vec<String>> = None;
    for _ in 0..ATTEMPTS {
        let Some((found, change)) = wanted(session, kind, key, known).await else {
            return Ok(());
        };
        let planned = PlannedChange {
            kind: kind.kind().kind.to_owned(),
            name: key.to_string(),
            changes: change.lines,
            notes: change.notes,
            outcome: ObjectOutcome::Migrated,
        };
        if agreed.as_ref() != Some(&planned.changes) {
            if !session.approved(&planned).await? {
                return Ok(());
            }
            agreed = Some(planned.changes.clone());
        }
        let mut patch = change.patch;
        // Nobody else's change is undone, and no other object of the name is changed.
        for field in ["uid", "resourceVersion"] {
            patch["metadata"][field] = found["metadata"][field].clone();
        }
        match session.remote.patch(&target, Patch::Merge, &patch).await {
            Err(CallError::Conflict(..)) => {}
            Err(CallError::Rejected(_, why)) if kind == WorkloadKind::Job => {
                let why = format!("the API server refuses to change it: {why}; delete it");
                session.skip(kind.kind(), key, &why, planned.notes);
                return Ok(());
            }
            made => {
                session.changed(planned, made);
                return Ok(());
            }
        }
    }
    let why = "somebody else keeps changing it; run it again";
    session.fail(kind.kind(), key, why);
    Ok(())
}

/// A workload by a fresh read, and its change; `None`: it is not to be changed, and reported.
async fn wanted(
    session: &mut MigrationSession,
    kind: WorkloadKind,
    key: &Key,
    known: &KnownSubnets,
) -> Option<(Value, WorkloadChange)> {
    let found = match session.remote.get::<Value>(&kind.kind().target(key)).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            session.skip(kind.kind(), key, "it was deleted meanwhile", Vec::new());
            return None;
        }
        Err(error) => {
            session.fail(kind.kind(), key, &error.to_string());
            return None;
        }
    };
    let change = match workload::plan(kind, &found) {
        WorkloadPlan::Change(change) => change,
        WorkloadPlan::NotFlat => {
            session.skip(
                kind.kind(),
                key,
                "its annotations went meanwhile",
                Vec::new(),
            );
            return None;
        }
        WorkloadPlan::Skip { why, notes } => {
            session.skip(kind.kind(), key, &why, notes);
            return None;
        }
    };
    let useless = change.subnets.iter().find_map(|name| {
        let why = match known.get(name) {
            Some(Ok(_)) => return None,
            Some(Err(why)) => format!("{why}; correct"),
            None => "does not exist; make".to_owned(),
        };
        Some((name, why))
    });
    if let Some((name, why)) = useless {
        let why = format!(
            "its pods would get no address: FlatNetworkSubnet {FLAT_NAMESPACE}/{name} {why} that first, and run it again"
        );
        session.fail(kind.kind(), key, &why);
        return None;
    }
    Some((found, change))
}
