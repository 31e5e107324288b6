//! The webhook configurations of the in-cluster provider refuse every write of a pool once nobody answers.

use serde_json::Value;

use super::{IpamAction, IpamReport};
use crate::{
    adopt::FindingKind,
    controller::{
        client::{CallError, Remote},
        kind::{Kind, VALIDATING_WEBHOOK_CONFIGURATION},
    },
    systems::cluster_api::admission::VALIDATOR,
};

const MUTATING: Kind = Kind::cluster(
    "apis/admissionregistration.k8s.io/v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
);
/// Whether it mutates, and its name.
const ORIGINALS: [(bool, &str); 2] = [
    (
        false,
        "capi-ipam-in-cluster-validating-webhook-configuration",
    ),
    (true, "capi-ipam-in-cluster-mutating-webhook-configuration"),
];

fn kind(mutating: bool) -> Kind {
    match mutating {
        true => MUTATING,
        false => VALIDATING_WEBHOOK_CONFIGURATION,
    }
}

/// They go once fipd's own judges pools, and before any pool is written. Says whether none is left that refuses that.
pub(super) async fn look(remote: &Remote, report: &mut IpamReport) -> bool {
    let mut goes = true;
    let own = VALIDATING_WEBHOOK_CONFIGURATION.named("", VALIDATOR);
    let in_force = remote
        .get::<Value>(&own)
        .await
        .is_ok_and(|found| found.is_some());
    for (mutating, name) in ORIGINALS {
        let found = remote.get::<Value>(&kind(mutating).named("", name)).await;
        let object = format!("{} {name}", kind(mutating).kind);
        match found {
            Ok(None) => {}
            Ok(Some(found)) => {
                let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
                let action = IpamAction::Webhook {
                    mutating,
                    name: name.to_owned(),
                    uid: uid.to_owned(),
                };
                let does =
                    "it is deleted: it refuses every write of a pool once the original is gone";
                match in_force {
                    true => report.act(object, does, action),
                    false => {
                        goes = false;
                        let why = "fipd's own webhook is not in force: set [api] advertise, or delete it yourself";
                        report.wrong(FindingKind::Leftover, object.clone(), why);
                        report.cannot(object, does, why);
                    }
                }
            }
            Err(error) => report.unseen.push(format!("{object}: {error}")),
        }
    }
    goes
}

pub(super) async fn remove(
    remote: &Remote,
    mutating: bool,
    name: &str,
    uid: &str,
) -> Result<(), CallError> {
    remote.delete(&kind(mutating).named("", name), uid).await
}
