//! The definitions of the in-cluster provider name its Service for conversion: once it is gone, nobody reads or writes a pool
//! of an older version. fipd converts in its place for as long as somebody writes pools in that.

use fipd_crds::cluster_api::{InClusterIPPoolV1Alpha1Spec, to_v1alpha2};
use serde_json::{Value, json};

use super::{IpamAction, IpamReport};
use crate::{
    adopt::FindingKind,
    controller::{
        client::{CallError, Patch, Remote},
        kind::{CUSTOM_RESOURCE_DEFINITION, Kind},
        owned::identify,
    },
    systems::cluster_api::{
        conversion::{
            OLDER, ONLY_OLDER,
            definition::{change_version, is_by_fipd, none, target},
        },
        names::{IN_CLUSTER, IPAM_GROUP, POOL_VERSION},
    },
};

/// In a schema: fields that it does not know are kept.
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const OLDER_API: &str = "apis/ipam.cluster.x-k8s.io/v1alpha1";

/// Which definitions have to change, and whether their objects are `writable`.
pub(super) async fn look(remote: &Remote, writable: bool, report: &mut IpamReport) {
    let does = "its objects are rewritten in v1alpha2, and the original's conversion webhook goes; v1alpha1 is served by fipd's own, which \
                needs [api] advertise, where somebody writes them in that, and no more elsewhere";
    for kind in IN_CLUSTER {
        let target = target(kind.plural);
        let name = format!("{} {}", CUSTOM_RESOURCE_DEFINITION.kind, target.name);
        let found: Result<Option<Value>, _> = remote.get(&target).await;
        match found {
            Ok(Some(found)) if is_by_fipd(&found) => match is_asked_for(remote, kind).await {
                Ok(true) if is_stored_in_older(&found) => {
                    report.act(name, does, IpamAction::Definition(kind.plural));
                }
                Ok(true) => {}
                Ok(false) => {
                    let does = "v1alpha1 is served no more: nobody writes its objects in that";
                    report.act(name, does, IpamAction::Definition(kind.plural));
                }
                Err(error) => report
                    .unseen
                    .push(format!("the objects of {}: {error}", kind.kind)),
            },
            Ok(Some(found)) if is_original(&found) => match writable {
                true => report.act(name, does, IpamAction::Definition(kind.plural)),
                false => report.cannot(
                    name,
                    does,
                    "the original's webhooks refuse every write of a pool until they are gone",
                ),
            },
            Ok(Some(_)) => {}
            Ok(None) => {
                let says = format!("there is no {}: run `fipd crds install`", kind.kind);
                report.wrong(FindingKind::Leftover, kind.plural, says);
            }
            Err(error) => report
                .unseen
                .push(format!("the definition of {}: {error}", kind.kind)),
        }
    }
}

/// Whether anything of the original's versions is left.
fn is_original(definition: &Value) -> bool {
    let versions = definition["spec"]["versions"].as_array();
    let served = versions.is_some_and(|all| {
        all.iter()
            .any(|one| one["name"] == OLDER && one["served"] == true)
    });
    let stored = definition["status"]["storedVersions"].as_array();
    let stored = stored.is_some_and(|all| all.iter().any(|one| one == OLDER));
    served || stored || definition["spec"]["conversion"]["strategy"] == "Webhook"
}

/// Nothing is converted while its objects are rewritten, so each is read as it was stored; and whoever writes one meanwhile, such
/// as a controller of fipd's, keeps the fields of the older form.
/// Afterwards `conversion` is in force where somebody writes them in the older version.
pub(super) async fn take(
    remote: &Remote,
    plural: &'static str,
    conversion: Option<Value>,
) -> Result<(), CallError> {
    let Some(kind) = IN_CLUSTER.into_iter().find(|kind| kind.plural == plural) else {
        return Ok(());
    };
    let keep = |versions: &mut Value| keep_unknown(versions, true);
    edit(remote, plural, keep, none()).await?;
    let older = Kind {
        api: OLDER_API,
        ..kind
    };
    let read_as = if older.is_served(remote).await? {
        older
    } else {
        kind
    };
    let mut asked = false;
    for object in remote.list(&read_as.all(), "").await? {
        asked |= is_written_in_older(&object);
        let Some((key, uid)) = identify(&object) else {
            continue;
        };
        let mut patch = json!({ "metadata": { "uid": uid } });
        if let Some(spec) = converted(&object["spec"]) {
            patch["spec"] = spec;
        }
        match remote.patch(&kind.target(&key), Patch::Merge, &patch).await {
            Ok(()) | Err(CallError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let conversion = conversion.filter(|_| asked);
    let is_served = conversion.is_some();
    let change = |versions: &mut Value| {
        keep_unknown(versions, false);
        change_version(versions, OLDER, |one| one["served"] = json!(is_served));
    };
    edit(remote, plural, change, conversion.unwrap_or_else(none)).await?;
    let stored = json!({ "status": { "storedVersions": [POOL_VERSION] } });
    remote
        .patch_status_seen::<Value>(&target(plural), Patch::Merge, &stored)
        .await
        .map(drop)
}

/// Whether somebody writes objects of the kind in the older version.
async fn is_asked_for(remote: &Remote, kind: Kind) -> Result<bool, CallError> {
    let written = |object: Value| is_written_in_older(&object).then_some(());
    let written = remote.list_kept(&kind.all(), "", written).await?;
    Ok(!written.is_empty())
}

/// Whether somebody wrote fields of the object in the older version.
fn is_written_in_older(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array();
    let older = format!("{IPAM_GROUP}/{OLDER}");
    let mut managers = managers.into_iter().flatten();
    managers.any(|one| one["apiVersion"] == older)
}

/// Whether objects may be stored in the older version still: an earlier run ended before it could say that none is.
fn is_stored_in_older(definition: &Value) -> bool {
    let stored = definition["status"]["storedVersions"].as_array();
    stored.into_iter().flatten().any(|one| one == OLDER)
}

/// Changes the versions of a definition and how it converts; not over an edit that was not read.
async fn edit(
    remote: &Remote,
    plural: &str,
    change: impl FnOnce(&mut Value),
    conversion: Value,
) -> Result<(), CallError> {
    let target = target(plural);
    let now: Option<Value> = remote.get(&target).await?;
    let now = now.ok_or_else(|| CallError::NotFound(target.name.clone()))?;
    let mut versions = now["spec"]["versions"].clone();
    change(&mut versions);
    let version = &now["metadata"]["resourceVersion"];
    let patch = json!({
        "metadata": { "resourceVersion": version },
        "spec": { "versions": versions, "conversion": conversion },
    });
    remote.patch(&target, Patch::Merge, &patch).await
}

/// Whether an object of the newer version keeps fields that its schema does not know.
fn keep_unknown(versions: &mut Value, keep: bool) {
    change_version(versions, POOL_VERSION, |one| {
        let spec = one.pointer_mut("/schema/openAPIV3Schema/properties/spec");
        let Some(spec) = spec.and_then(Value::as_object_mut) else {
            return;
        };
        match keep {
            true => spec.insert(PRESERVE.to_owned(), json!(true)),
            false => spec.remove(PRESERVE),
        };
    });
}

/// What a pool of the older form is in the newer one; `None`: it has that form already.
fn converted(spec: &Value) -> Option<Value> {
    let is_older = ONLY_OLDER.iter().any(|field| spec.get(field).is_some());
    let older: InClusterIPPoolV1Alpha1Spec = serde_json::from_value(spec.clone()).ok()?;
    let newer = to_v1alpha2(&older).ok().filter(|_| is_older)?;
    let mut newer = serde_json::to_value(newer).ok()?;
    for field in ONLY_OLDER {
        newer[field] = Value::Null;
    }
    Some(newer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_the_originals_versions_is_found() {
        let definition = |served, stored: Value, strategy: &str| {
            json!({
                "spec": {
                    "versions": [{ "name": "v1alpha1", "served": served }, { "name": "v1alpha2", "served": true }],
                    "conversion": { "strategy": strategy },
                },
                "status": { "storedVersions": stored },
            })
        };
        let newer = || json!(["v1alpha2"]);
        assert!(is_original(&definition(true, newer(), "None")));
        assert!(is_original(&definition(
            false,
            json!(["v1alpha1", "v1alpha2"]),
            "None"
        )));
        assert!(is_original(&definition(false, newer(), "Webhook")));
        assert!(!is_original(&definition(false, newer(), "None")));
        assert!(!is_original(
            &json!({ "spec": { "versions": [{ "name": "v1alpha2" }] } })
        ));
    }

    #[test]
    fn while_pools_are_rewritten_whoever_writes_one_keeps_what_the_older_form_says() {
        let spec = || json!({ "type": "object" });
        let mut versions = json!([
            { "name": "v1alpha1", "served": true, "schema": { "openAPIV3Schema": { "properties": { "spec": spec() } } } },
            { "name": "v1alpha2", "served": true, "schema": { "openAPIV3Schema": { "properties": { "spec": spec() } } } },
            { "name": "v1alpha2" },
        ]);
        let before = versions.clone();
        keep_unknown(&mut versions, true);
        let path = "/1/schema/openAPIV3Schema/properties/spec/x-kubernetes-preserve-unknown-fields";
        assert_eq!(versions.pointer(path), Some(&json!(true)));
        assert_eq!(versions[0], before[0]);
        keep_unknown(&mut versions, false);
        assert_eq!(versions, before);
        keep_unknown(&mut json!(null), true);
    }

    #[test]
    fn a_pool_of_the_older_form_is_rewritten() {
        let older = json!({ "subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "start": "10.0.0.10", "end": "10.0.0.20" });
        let newer = converted(&older).expect("a newer form");
        assert_eq!(newer["addresses"], json!(["10.0.0.10-10.0.0.20"]));
        assert_eq!(
            (&newer["prefix"], &newer["start"]),
            (&json!(24), &Value::Null)
        );
        assert_eq!(
            converted(&json!({ "addresses": ["10.0.0.5"], "prefix": 24 })),
            None
        );
    }
}
