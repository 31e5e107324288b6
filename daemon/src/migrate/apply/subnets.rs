//! Subnets of flat-network for those of macvlan.

use std::collections::BTreeMap;

use fipd_crds::{
    flat_network::{FlatNetworkSubnetSpec, names::NAMESPACE as FLAT_NAMESPACE},
    macvlan::names::NAMESPACE as MACVLAN_NAMESPACE,
};
use serde_json::{Value, json};

use super::addresses::MacvlanAddresses;
use crate::{
    controller::{
        client::CallError,
        conditions::{INVALID, READY, REFUSED},
        owned::identify,
        pool_source::OBSTRUCTED,
        store::Key,
    },
    migrate::{
        MigrateError,
        kinds::{FLAT_NETWORK_SUBNET, MACVLAN_IP, MACVLAN_SUBNET},
        report::{MigratedObject, ObjectOutcome},
        session::{ALL, Consent, MigrationSession},
        subnet,
        workload::WorkloadKind,
    },
    validation::{
        Wrong,
        flat_network::{clash, subnet::FlatSubnet},
    },
};

/// Subnets by their names, or why pods would get no address of one.
pub type KnownSubnets = BTreeMap<String, Result<FlatSubnet, String>>;

/// Migrates all subnets; those that are there afterwards, or would be. Workloads of these kinds are migrated next.
pub async fn migrate(
    session: &mut MigrationSession,
    workloads: &[WorkloadKind],
) -> Result<KnownSubnets, MigrateError> {
    let there = match list(session).await {
        Ok(there) => there,
        Err(error) => {
            session.fail(FLAT_NETWORK_SUBNET, ALL, &error.to_string());
            return Ok(KnownSubnets::new());
        }
    };
    let mut known: KnownSubnets = there.iter().filter_map(serves).collect();
    let old = match session.list(MACVLAN_SUBNET, Some).await {
        Ok(old) => old,
        Err(error) => {
            session.fail(MACVLAN_SUBNET, ALL, &error.to_string());
            return Ok(known);
        }
    };
    // A subnet is not made before it is known what it must not give.
    let addresses = match MacvlanAddresses::read(session, workloads).await {
        Ok(addresses) => addresses,
        Err(error) => {
            session.fail(MACVLAN_IP, ALL, &error.to_string());
            return Ok(known);
        }
    };
    for subnet in &there {
        addresses.lift(session, subnet).await?;
    }
    for object in old {
        one(session, &object, &addresses, &mut known).await?;
    }
    Ok(known)
}

/// Takes away what migrations excluded from subnets, once macvlan has no addresses any more.
pub async fn lift_all(session: &mut MigrationSession) -> Result<(), MigrateError> {
    match list(session).await {
        Ok(subnets) => {
            for subnet in &subnets {
                MacvlanAddresses::default().lift(session, subnet).await?;
            }
        }
        Err(CallError::NotFound(_)) => {}
        Err(error) => session.fail(FLAT_NETWORK_SUBNET, ALL, &error.to_string()),
    }
    Ok(())
}

/// A subnet, or why pods get no address of it.
fn serves(subnet: &Value) -> Option<(String, Result<FlatSubnet, String>)> {
    let name = subnet["metadata"]["name"].as_str()?.to_owned();
    let status = &subnet["status"];
    if let Some(accepted) = in_force(status) {
        return Some((name, read(accepted)));
    }
    if status["phase"] == "Failed" {
        let why = status["failureMessage"].as_str().unwrap_or_default();
        return Some((name, Err(format!("is refused: {why}"))));
    }
    Some((name, read(&subnet["spec"])))
}

/// What is in force of a subnet whose edit is refused: its phase is `Failed`, but its pods get addresses as before.
fn in_force(status: &Value) -> Option<&Value> {
    let conditions = status["conditions"].as_array()?;
    let ready = conditions.iter().find(|one| one["type"] == READY)?;
    let reason = ready["reason"].as_str()?;
    let is_refused = [INVALID, REFUSED, OBSTRUCTED].contains(&reason);
    Some(&status["accepted"]).filter(|accepted| is_refused && !accepted.is_null())
}

/// The subnet that a spec describes, or why fipd refuses the spec.
fn read(spec: &Value) -> Result<FlatSubnet, String> {
    let spec: Result<FlatNetworkSubnetSpec, _> = serde_json::from_value(spec.clone());
    let spec = spec.map_err(|error| format!("cannot be read: {error}"))?;
    FlatSubnet::read(&spec).map_err(refused)
}

/// The subnet that a spec describes, beside those that are known: fipd knows of further pools, and may refuse it all the same.
fn judged(spec: &Value, known: &KnownSubnets) -> Result<FlatSubnet, String> {
    let subnet = read(spec)?;
    let others = known
        .iter()
        .filter_map(|(name, other)| Some((name.as_str(), other.as_ref().ok()?)));
    let clashes = clash::clashes(&subnet, others);
    clash::refuse(&clashes).map_err(refused)?;
    Ok(subnet)
}

fn refused(wrong: Wrong) -> String {
    format!("is refused: {wrong}")
}

/// The subnets of flat-network.
async fn list(session: &MigrationSession) -> Result<Vec<Value>, CallError> {
    let all = FLAT_NETWORK_SUBNET.all_in(FLAT_NAMESPACE);
    let page = session.options.page;
    session.remote.list_paged(&all, page, Some).await
}

async fn one(
    session: &mut MigrationSession,
    object: &Value,
    addresses: &MacvlanAddresses,
    known: &mut KnownSubnets,
) -> Result<(), MigrateError> {
    let Some((key, _)) = identify(object) else {
        return Ok(());
    };
    if &*key.namespace != MACVLAN_NAMESPACE {
        let why = format!("macvlan uses subnets of {MACVLAN_NAMESPACE} only");
        session.skip(MACVLAN_SUBNET, &key, &why, Vec::new());
        return Ok(());
    }
    let mut converted = match subnet::convert(object) {
        Ok(converted) => converted,
        Err(why) => {
            session.fail(MACVLAN_SUBNET, &key, &why);
            return Ok(());
        }
    };
    let new = Key::new(FLAT_NAMESPACE, &key.name);
    if known.contains_key(&*key.name) {
        let why = format!("FlatNetworkSubnet {new} exists already");
        session.skip(MACVLAN_SUBNET, &key, &why, converted.notes);
        return Ok(());
    }
    let note = addresses.exclude_from(&mut converted.subnet);
    converted.notes.extend(note);
    let body = json!(converted.subnet);
    let subnet = match judged(&body["spec"], known) {
        Ok(subnet) => subnet,
        Err(why) => {
            let text = format!("FlatNetworkSubnet {new} {why}; correct it in the MacvlanSubnet");
            session.fail(MACVLAN_SUBNET, &key, &text);
            known.insert(key.name.to_string(), Err(why));
            return Ok(());
        }
    };
    let change = format!(
        "make FlatNetworkSubnet {new} with labels {}, annotations {}, spec {}",
        body["metadata"]["labels"], body["metadata"]["annotations"], body["spec"]
    );
    let planned = MigratedObject {
        notes: converted.notes,
        ..MigratedObject::new(MACVLAN_SUBNET, &key, ObjectOutcome::Migrated, vec![change])
    };
    if session.approved(&planned).await? {
        let made = session
            .remote
            .create(&FLAT_NETWORK_SUBNET.target(&new), &body)
            .await;
        if matches!(made, Ok(()) | Err(CallError::Conflict(..))) {
            known.insert(key.name.to_string(), Ok(subnet));
        }
        session.created(planned, made);
    } else if session.options.consent == Consent::DryRun {
        known.insert(key.name.to_string(), Ok(subnet));
    }
    Ok(())
}
