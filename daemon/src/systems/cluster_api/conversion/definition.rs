//! How the definition of a kind of pools says that fipd converts it. What adopting wrote there is kept in step with the URL and the CA.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::PATH;
use crate::{
    controller::{
        Reconciled,
        client::{CallError, Patch, Remote, Target},
        endpoint::{OwnEndpoint, client_config, is_same_client},
        kind::CUSTOM_RESOURCE_DEFINITION,
        site::Site,
    },
    systems::cluster_api::names::{GLOBAL_POOL, IPAM_GROUP, POOL},
};

/// How often the definitions are looked at.
const LOOK: Duration = Duration::from_secs(60);

/// The definition of the kind of this plural.
pub fn target(plural: &str) -> Target {
    CUSTOM_RESOURCE_DEFINITION.named("", &format!("{plural}.{IPAM_GROUP}"))
}

/// That nothing converts.
pub fn none() -> Value {
    json!({ "strategy": "None", "webhook": null })
}

/// That fipd converts; `None`: nobody knows where it is.
pub async fn by_fipd(own: &OwnEndpoint, cluster: &str) -> Reconciled<Option<Value>> {
    let Some(url) = own.hooks_url(cluster) else {
        return Ok(None);
    };
    let ca = own.ca().await?;
    let mut client = client_config(&format!("{url}/{PATH}"), &ca);
    // A merge patch is to leave nothing of what was there before.
    client["service"] = Value::Null;
    if ca.is_empty() {
        client["caBundle"] = Value::Null;
    }
    Ok(Some(json!({ "strategy": "Webhook", "webhook": {
        "clientConfig": client, "conversionReviewVersions": ["v1"],
    } })))
}

/// Whether a definition says that fipd converts, wherever that is or was.
pub fn is_by_fipd(definition: &Value) -> bool {
    let conversion = &definition["spec"]["conversion"];
    let url = conversion["webhook"]["clientConfig"]["url"].as_str();
    let path = |url: &str| url.contains("/hooks/") && url.ends_with(PATH);
    conversion["strategy"] == "Webhook" && url.is_some_and(path)
}

/// Changes a version of a definition, where it has that.
pub fn change_version(versions: &mut Value, name: &str, change: impl FnOnce(&mut Value)) {
    let mut all = versions.as_array_mut().into_iter().flatten();
    if let Some(one) = all.find(|one| one["name"] == name) {
        change(one);
    }
}

/// Keeps URL and CA in step for as long as the session of the site goes on.
pub fn keep(site: &Arc<Site>, own: &OwnEndpoint, tasks: &mut JoinSet<()>) {
    let (site, own) = (Arc::clone(site), own.clone());
    tasks.spawn(async move {
        let cancel = site.cancel();
        let remote = Remote::new(site.session.client.clone());
        let look = async {
            loop {
                for kind in [POOL, GLOBAL_POOL] {
                    if let Err(error) = look(&remote, &own, &site.name, kind.plural).await {
                        let name = kind.kind;
                        tracing::warn!(cluster = %site.name, "the conversion of {name} is not kept in step: {error}; it is tried again");
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let _: Option<()> = cancel.run_until_cancelled(look).await;
    });
}

async fn look(remote: &Remote, own: &OwnEndpoint, cluster: &str, plural: &str) -> Reconciled<()> {
    let target = target(plural);
    let found: Option<Value> = match remote.get(&target).await {
        // Without the right nothing was adopted either.
        Err(CallError::Rejected(..)) => return Ok(()),
        found => found?,
    };
    let Some(found) = found.filter(is_by_fipd) else {
        return Ok(());
    };
    let Some(wanted) = by_fipd(own, cluster).await? else {
        return Ok(());
    };
    let now = &found["spec"]["conversion"]["webhook"]["clientConfig"];
    if is_same_client(now, &wanted["webhook"]["clientConfig"]) {
        return Ok(());
    }
    let patch = json!({
        "metadata": { "resourceVersion": found["metadata"]["resourceVersion"] },
        "spec": { "conversion": { "webhook": wanted["webhook"] } },
    });
    remote.patch(&target, Patch::Merge, &patch).await?;
    tracing::info!(cluster, plural, "wrote where the pools are converted");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::client::testing::canned;

    fn own(url: &str) -> OwnEndpoint {
        OwnEndpoint {
            url: Some(url.to_owned()),
            ..OwnEndpoint::default()
        }
    }

    #[tokio::test]
    async fn where_fipd_is_is_kept_in_step_and_the_conversion_of_others_is_left_alone() {
        let by = by_fipd(&own("https://new:8443/"), "m")
            .await
            .unwrap()
            .unwrap();
        let url = &by["webhook"]["clientConfig"]["url"];
        assert_eq!(url, "https://new:8443/hooks/m/pools/convert");
        let definition = |conversion: Value| json!({ "metadata": { "resourceVersion": "7" }, "spec": { "conversion": conversion } });
        let other = json!({ "strategy": "Webhook", "webhook": { "clientConfig": { "service": { "name": "s" } } } });
        let old = by_fipd(&own("https://old"), "m").await.unwrap().unwrap();
        for (conversion, ours, asked) in [
            (none(), false, 1),
            (other, false, 1),
            (by, true, 1),
            (old, true, 2),
        ] {
            let definition = definition(conversion);
            assert_eq!(is_by_fipd(&definition), ours);
            let text: &'static str = definition.to_string().leak();
            let (remote, requests) = canned(&[("GET", 200, text), ("PATCH", 200, "{}")]);
            look(&remote, &own("https://new:8443"), "m", POOL.plural)
                .await
                .unwrap();
            let requests = requests.lock();
            assert_eq!(requests.len(), asked, "{definition}");
            if let Some(patch) = requests.get(1) {
                let client = &patch.body["spec"]["conversion"]["webhook"]["clientConfig"];
                assert_eq!(client["url"], "https://new:8443/hooks/m/pools/convert");
            }
        }
        let nowhere = by_fipd(&OwnEndpoint::default(), "m").await.unwrap();
        assert_eq!(nowhere, None);
    }
}
