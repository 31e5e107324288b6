//! `migrate`: subnets, then workloads kind by kind, then Services and Ingresses.

mod addresses;
mod ingresses;
mod subnets;
mod workloads;

pub(super) use subnets::lift_all;

use fipd_crds::flat_network::names::NAMESPACE as FLAT_NAMESPACE;
use serde_json::{Value, json};

use super::{
    MigrateError,
    kinds::FLAT_NETWORK_SUBNET,
    report::{MigratedObject, ObjectOutcome},
    service,
    session::MigrationSession,
    workload::WorkloadKind,
};
use crate::controller::{
    kind::{NAMESPACE, SERVICE},
    owned::identify,
    store::Key,
};

/// What is migrated beside subnets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratedParts {
    /// Workloads of these kinds, in this order.
    pub workloads: Vec<WorkloadKind>,
    /// Companion Services, and Ingresses.
    pub services: bool,
}

/// Migrates a cluster.
///
/// # Errors
/// The cluster does not answer or lacks the definition of subnets, or nobody answers a question.
pub async fn migrate(
    session: &mut MigrationSession,
    parts: &MigratedParts,
) -> Result<(), MigrateError> {
    session.reach().await?;
    match FLAT_NETWORK_SUBNET.is_served(&session.remote).await {
        Ok(true) => {}
        Ok(false) => {
            return Err(MigrateError::Failed(
                "the cluster has no FlatNetworkSubnets: apply what `fipd crds` prints, and run it again".to_owned(),
            ));
        }
        Err(error) => return Err(error.into()),
    }
    namespace(session).await?;
    let known = subnets::migrate(session, &parts.workloads).await?;
    let mut workloads = Vec::new();
    for kind in &parts.workloads {
        workloads.extend(workloads::flat(session, *kind).await);
    }
    // Those that name addresses reserve them before the pods of others get any.
    workloads.sort_by_key(|one| !one.names_addresses);
    workloads::migrate(session, &workloads, &known).await?;
    if parts.services {
        services(session).await?;
        ingresses::migrate(session).await?;
    }
    Ok(())
}

/// Makes the namespace of subnets where it is missing.
async fn namespace(session: &mut MigrationSession) -> Result<(), MigrateError> {
    let target = NAMESPACE.named("", FLAT_NAMESPACE);
    match session.remote.get::<Value>(&target).await {
        Ok(Some(_)) => return Ok(()),
        Ok(None) => {}
        Err(error) => {
            session.fail(NAMESPACE, FLAT_NAMESPACE, &error.to_string());
            return Ok(());
        }
    }
    let key = Key::new("", FLAT_NAMESPACE);
    let change = vec![format!("make the namespace {FLAT_NAMESPACE}")];
    let planned = MigratedObject::new(NAMESPACE, &key, ObjectOutcome::Migrated, change);
    if session.approved(&planned).await? {
        let body = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": FLAT_NAMESPACE },
        });
        let made = session.remote.create(&target, &body).await;
        session.created(planned, made);
    }
    Ok(())
}

/// Makes a companion of flat-network beside each of macvlan.
async fn services(session: &mut MigrationSession) -> Result<(), MigrateError> {
    let companions = |found: Value| Some(found).filter(service::is_companion);
    for object in session.list_or_fail(SERVICE, companions).await {
        companion(session, &object).await?;
    }
    Ok(())
}

async fn companion(session: &mut MigrationSession, object: &Value) -> Result<(), MigrateError> {
    let Some((key, _)) = identify(object) else {
        return Ok(());
    };
    let body = match service::convert(object) {
        Ok(body) => body,
        Err(why) => {
            session.fail(SERVICE, &key, &why);
            return Ok(());
        }
    };
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let new = Key::new(&key.namespace, name);
    let target = SERVICE.target(&new);
    match session.remote.get::<Value>(&target).await {
        Ok(None) => {}
        Ok(Some(_)) => {
            let why = format!("Service {new} exists already");
            session.skip(SERVICE, &key, &why, Vec::new());
            return Ok(());
        }
        Err(error) => {
            session.fail(SERVICE, &key, &error.to_string());
            return Ok(());
        }
    }
    let change = vec![format!("make Service {new} with spec {}", body["spec"])];
    let planned = MigratedObject::new(SERVICE, &key, ObjectOutcome::Migrated, change);
    if session.approved(&planned).await? {
        let made = session.remote.create(&target, &body).await;
        session.created(planned, made);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
