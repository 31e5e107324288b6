//! The webhook configurations of the in-cluster provider refuse every write of a pool once nobody answers.

use std::time::Duration;

use serde_json::Value;

use super::{IpamAction, IpamReport};
use crate::{
    adopt::FindingKind,
    controller::{
        client::Remote,
        kind::{Kind, VALIDATING_WEBHOOK_CONFIGURATION},
        webhook,
    },
    systems::cluster_api::admission::{ASKS, VALIDATOR},
};

const MUTATING: Kind = Kind::cluster(
    "apis/admissionregistration.k8s.io/v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
);
/// Whether it mutates, and its name. The one that mutates goes first: nothing is asked behind it that could prove fipd's own, and
/// the other still refuses every write.
const ORIGINALS: [(bool, &str); 2] = [
    (true, "capi-ipam-in-cluster-mutating-webhook-configuration"),
    (
        false,
        "capi-ipam-in-cluster-validating-webhook-configuration",
    ),
];
/// How often the proof is tried: an API server goes by a change a moment later.
const PROOFS: usize = 5;
/// How far these are apart.
const PROOF_PAUSE: Duration = Duration::from_secs(1);

fn kind(mutating: bool) -> Kind {
    match mutating {
        true => MUTATING,
        false => VALIDATING_WEBHOOK_CONFIGURATION,
    }
}

/// They go where fipd's own is there, and before any pool is written. Says whether none is left that refuses that.
pub(super) async fn look(remote: &Remote, report: &mut IpamReport) -> bool {
    let mut goes = true;
    let own = VALIDATING_WEBHOOK_CONFIGURATION.named("", VALIDATOR);
    let is_there = remote
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
                match is_there {
                    true => report.act(object, does, action),
                    false => {
                        goes = false;
                        let why = "fipd's own webhook is not there: set [api] advertise, or delete it yourself";
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

/// The one that validates stays until the API server of the cluster has shown that it asks fipd.
pub(super) async fn remove(
    remote: &Remote,
    cluster: &str,
    (mutating, name): (bool, &str),
    uid: &str,
) -> Result<(), String> {
    if !mutating {
        prove(remote, cluster).await?;
    }
    let deleted = remote.delete(&kind(mutating).named("", name), uid).await;
    deleted.map_err(|error| error.to_string())
}

async fn prove(remote: &Remote, cluster: &str) -> Result<(), String> {
    for _ in 1..PROOFS {
        if webhook::prove(remote, &ASKS, cluster).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(PROOF_PAUSE).await;
    }
    let proved = webhook::prove(remote, &ASKS, cluster).await;
    proved.map_err(|why| format!("fipd's own webhook is not known to be in force: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{admission::proof::Proof, controller::client::testing::canned};

    #[tokio::test(start_paused = true)]
    async fn the_originals_stay_until_fipds_own_is_in_force() {
        const STORED: (&str, u16, &str) = ("POST", 200, "{}");
        let [(_, mutating), (_, validating)] = ORIGINALS;
        let (remote, asked) = canned(&[STORED; PROOFS]);
        let removed = remove(&remote, "m", (false, validating), "u").await;
        assert!(removed.is_err_and(|why| why.contains("would have stored")));
        assert_eq!(asked.lock().len(), PROOFS, "nothing is deleted");
        let refusal = Proof::own().expect("random numbers").refusal;
        let refusal: &'static str = refusal.leak();
        let (remote, asked) = canned(&[STORED, ("POST", 403, refusal), ("DELETE", 200, "{}")]);
        let removed = remove(&remote, "m", (false, validating), "u").await;
        assert_eq!(removed, Ok(()));
        assert_eq!(asked.lock()[2].body["preconditions"], json!({ "uid": "u" }));
        let (remote, _) = canned(&[("DELETE", 200, "{}")]);
        let removed = remove(&remote, "m", (true, mutating), "u").await;
        assert_eq!(removed, Ok(()), "behind it nothing can be proved");
    }
}
