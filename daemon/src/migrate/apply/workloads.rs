//! Workloads, by their templates.

use std::collections::{BTreeMap, BTreeSet};

use fipd_crds::flat_network::names::NAMESPACE as FLAT_NAMESPACE;
use serde_json::Value;

use super::subnets::KnownSubnets;
use crate::{
    controller::{client::CallError, owned::identify, store::Key},
    migrate::{
        MigrateError,
        report::{MigratedObject, ObjectOutcome},
        session::MigrationSession,
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
    /// The subnets that its pods need, where it is to be changed.
    subnets: BTreeSet<String>,
}

/// Workloads that name addresses and were not migrated, by their subnets, which do not exclude the addresses of their pods.
type LeftWorkloads = BTreeMap<String, String>;

impl FlatWorkload {
    /// Notes it where it was not migrated. Subnets exclude the addresses of pods of Jobs.
    fn note_left(&self, session: &MigrationSession, left: &mut LeftWorkloads) {
        let is_of_job = [WorkloadKind::Job, WorkloadKind::CronJob].contains(&self.kind);
        let fine = [ObjectOutcome::Migrated, ObjectOutcome::WouldChange];
        let last = session.report.objects.last();
        let migrated = last.is_some_and(|last| fine.contains(&last.outcome));
        if self.names_addresses && !is_of_job && !migrated {
            let name = format!("{} {}", self.kind.kind().kind, self.key);
            let subnets = self.subnets.iter().cloned();
            left.extend(subnets.map(|subnet| (subnet, name.clone())));
        }
    }

    /// Why its pods may get addresses that others have.
    fn endangers(&self, left: &LeftWorkloads) -> Option<String> {
        let mut subnets = self.subnets.iter().filter(|_| !self.names_addresses);
        let (subnet, other) = subnets.find_map(|subnet| left.get_key_value(subnet))?;
        Some(format!(
            "its pods could get addresses that those of {other} have on macvlan: that names addresses of subnet {subnet} and was not migrated; migrate that first, and run it again"
        ))
    }
}

/// All such workloads of a kind.
pub async fn flat(session: &mut MigrationSession, kind: WorkloadKind) -> Vec<FlatWorkload> {
    let flat = |object: Value| {
        let (names_addresses, subnets) = match workload::plan(kind, &object) {
            WorkloadPlan::NotFlat => return None,
            WorkloadPlan::Skip { .. } => (false, BTreeSet::new()),
            WorkloadPlan::Change(change) => (change.names_addresses, change.subnets),
        };
        let (key, _) = identify(&object)?;
        Some(FlatWorkload {
            kind,
            key,
            names_addresses,
            subnets,
        })
    };
    session.list_or_fail(kind.kind(), flat).await
}

/// Migrates workloads in this order: first those that name addresses.
pub async fn migrate(
    session: &mut MigrationSession,
    workloads: &[FlatWorkload],
    known: &KnownSubnets,
) -> Result<(), MigrateError> {
    let mut left = LeftWorkloads::new();
    for workload in workloads {
        if let Some(why) = workload.endangers(&left) {
            session.fail(workload.kind.kind(), &workload.key, &why);
            continue;
        }
        one(session, workload, known).await?;
        workload.note_left(session, &mut left);
    }
    Ok(())
}

/// Migrates a workload as it is now: the list may be minutes old.
async fn one(
    session: &mut MigrationSession,
    workload: &FlatWorkload,
    known: &KnownSubnets,
) -> Result<(), MigrateError> {
    let (kind, key) = (workload.kind, &workload.key);
    let mut agreed: Option<Vec<String>> = None;
    for _ in 0..ATTEMPTS {
        let Some((found, change)) = wanted(session, kind, key, known).await else {
            return Ok(());
        };
        let planned = MigratedObject {
            notes: change.notes,
            ..MigratedObject::new(kind.kind(), key, ObjectOutcome::Migrated, change.lines)
        };
        if agreed.as_ref() != Some(&planned.changes) {
            if !session.approved(&planned).await? {
                return Ok(());
            }
            agreed = Some(planned.changes.clone());
        }
        let made = session.patch((kind.kind(), key), &found, change.patch);
        match made.await {
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
