//! The ExtensionConfig by which Cluster API asks the hook: made, repaired, and removed where it is switched off.

use std::{sync::Arc, time::Duration};

use fipd_crds::labels::{FIELD_MANAGER, MANAGED_BY};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{names::EXTENSION_CONFIG, settings::ClusterApiSettings};
use crate::controller::{
    ReconcileError, Reconciled,
    client::{CallError, Patch, Remote},
    endpoint::{OwnEndpoint, client_config, is_same_client},
    kind::Kind,
    owned::{identify, is_marked},
    site::Site,
};

/// Its name.
pub const NAME: &str = "fipd-vip";
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// The part of the cluster's state that says what is wrong.
const PART: &str = "runtime-hook";

/// Keeps it for as long as the session of the site goes on; where it is switched off, until none of fipd's is there.
pub fn keep(site: &Arc<Site>, own: &OwnEndpoint, tasks: &mut JoinSet<()>) {
    let (site, own) = (Arc::clone(site), own.clone());
    tasks.spawn(async move {
        let cancel = site.cancel();
        let look = async {
            loop {
                let looked = look(&site, &own).await;
                let ends = matches!(looked, Ok(Looked::Unneeded));
                let wrong = looked.err();
                let text = wrong.map(|error| format!("the runtime hook is not in force: {error}"));
                let changed = site.session.troubled(PART, text.as_deref().map(Into::into));
                if let Some(text) = text.filter(|_| changed) {
                    tracing::warn!(cluster = %site.name, "{text}");
                }
                if ends {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let _: Option<()> = cancel.run_until_cancelled(look).await;
    });
}

/// What a look came to.
#[derive(Debug, PartialEq)]
enum Looked {
    /// It matches the settings now.
    Kept,
    /// It was there and is switched off.
    Removed,
    /// It is switched off, and there is none that fipd could have made.
    Unneeded,
}

/// Looks once, and writes what differs.
async fn look(site: &Site, own: &OwnEndpoint) -> Reconciled<Looked> {
    let settings = site.settings::<ClusterApiSettings>();
    let remote = Remote::new(site.session.client.clone());
    let Some(hook) = settings.hook.as_ref().filter(|_| settings.vips) else {
        return remove(&remote).await;
    };
    let Some(kind) = EXTENSION_CONFIG.served(&remote).await? else {
        let why = "the cluster has no ExtensionConfig: Cluster API's gate RuntimeSDK is off";
        return Err(ReconcileError::internal(why));
    };
    let target = kind.named("", NAME);
    let found: Option<Value> = remote.get(&target).await?;
    let Some(url) = own.hooks_url(&site.name) else {
        let why = "[api] advertise does not say where Cluster API reaches fipd";
        return Err(ReconcileError::internal(why));
    };
    let ca = own.ca().await?;
    let wanted = object(kind, &url, &ca, &hook.namespace_labels);
    if found.as_ref().is_some_and(|found| is_so(found, &wanted)) {
        return Ok(Looked::Kept);
    }
    let write = remote.patch_seen::<Value>(&target, Patch::Apply, &wanted);
    write.await?;
    tracing::info!(cluster = %site.name, name = NAME, "wrote the ExtensionConfig of the runtime hook");
    Ok(Looked::Kept)
}

/// Removes the object where it is fipd's. Without the role of the hook, which other sites do not need, there is nothing to look for.
async fn remove(remote: &Remote) -> Reconciled<Looked> {
    let Some(kind) = EXTENSION_CONFIG.served(remote).await? else {
        return Ok(Looked::Unneeded);
    };
    let target = kind.named("", NAME);
    let found: Option<Value> = match remote.get(&target).await {
        Err(CallError::Rejected(..)) => return Ok(Looked::Unneeded),
        found => found?,
    };
    match found.filter(is_marked).as_ref().and_then(identify) {
        Some((_, uid)) => {
            remote.delete(&target, &uid).await?;
            Ok(Looked::Removed)
        }
        None => Ok(Looked::Unneeded),
    }
}

fn object(
    kind: Kind,
    url: &str,
    ca: &str,
    labels: &std::collections::BTreeMap<String, String>,
) -> Value {
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": { "name": NAME, "labels": { MANAGED_BY: FIELD_MANAGER } },
        "spec": { "clientConfig": client_config(url, ca), "namespaceSelector": { "matchLabels": labels } },
    })
}

/// Whether the object has all of what is wanted.
fn is_so(found: &Value, wanted: &Value) -> bool {
    let selector = |object: &Value| {
        let selector = &object["spec"]["namespaceSelector"];
        let labels = selector["matchLabels"].as_object().cloned();
        let expressions = selector["matchExpressions"].as_array().cloned();
        (labels.unwrap_or_default(), expressions.unwrap_or_default())
    };
    let selected = selector(found) == selector(wanted);
    is_marked(found)
        && is_same_client(
            &found["spec"]["clientConfig"],
            &wanted["spec"]["clientConfig"],
        )
        && selected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::client::testing::serving;

    /// A site without the hook has no role for it, and no trouble by that.
    #[tokio::test]
    async fn what_is_switched_off_is_looked_for_once() {
        const SERVED: &str = "/apis/runtime.cluster.x-k8s.io/v1beta2/";
        let own = json!({ "name": NAME, "uid": "u", "labels": { MANAGED_BY: FIELD_MANAGER } });
        let other = json!({ "name": NAME, "uid": "u" });
        for (code, body, looked, calls) in [
            (200, json!({ "metadata": own }), Looked::Removed, 3),
            (200, json!({ "metadata": other }), Looked::Unneeded, 2),
            (403, json!("forbidden"), Looked::Unneeded, 2),
            (404, json!("not found"), Looked::Unneeded, 2),
        ] {
            let (remote, asked) = serving(move |path| match path {
                SERVED => (
                    200,
                    json!({ "resources": [{ "name": "extensionconfigs" }] }),
                ),
                _ => (code, body.clone()),
            });
            assert_eq!(remove(&remote).await.expect("an answer"), looked, "{code}");
            assert_eq!(asked.lock().len(), calls, "{looked:?}");
        }
        let (remote, _) = serving(|_| (404, json!("no such version")));
        assert_eq!(remove(&remote).await.expect("an answer"), Looked::Unneeded);
        let (remote, _) = serving(|_| (503, json!("down")));
        assert!(remove(&remote).await.is_err(), "it is looked for again");
    }

    /// The original needs cert-manager, which puts no CA where Cluster API looks for one.
    #[test]
    fn e_30_the_object_has_the_ca_itself_and_needs_no_other_program() {
        let wanted = object(
            EXTENSION_CONFIG,
            "https://fipd:8443/hooks/m",
            "PEM",
            &Default::default(),
        );
        let client = &wanted["spec"]["clientConfig"];
        assert_eq!(client["caBundle"], "UEVN");
        assert_eq!(
            client["service"],
            Value::Null,
            "nothing of it is in the cluster"
        );
        assert_eq!(wanted["metadata"]["annotations"], Value::Null);
        // What an injector does is put right.
        let mut injected = wanted.clone();
        injected["spec"]["clientConfig"]["caBundle"] = json!("");
        assert!(!is_so(&injected, &wanted));
    }

    #[test]
    fn what_somebody_changed_is_put_right() {
        let labels = [("team".to_owned(), "a".to_owned())].into();
        let wanted = object(
            EXTENSION_CONFIG,
            "https://fipd:8443/hooks/m",
            "PEM",
            &labels,
        );
        assert!(is_so(&wanted, &wanted));
        for (path, value) in [
            ("/spec/clientConfig/url", json!("https://other")),
            ("/spec/clientConfig/caBundle", json!("")),
            ("/spec/namespaceSelector/matchLabels", json!({})),
            (
                "/spec/namespaceSelector",
                json!({ "matchLabels": labels, "matchExpressions": [{ "key": "a", "operator": "Exists" }] }),
            ),
            ("/metadata/labels", json!({})),
        ] {
            let mut changed = wanted.clone();
            *changed.pointer_mut(path).expect("a field") = value;
            assert!(!is_so(&changed, &wanted), "{path}");
        }
        let all = object(
            EXTENSION_CONFIG,
            "https://fipd:8443/hooks/m",
            "",
            &Default::default(),
        );
        let mut stored = all.clone();
        stored["spec"]["namespaceSelector"] = json!({});
        assert!(is_so(&stored, &all), "an empty selector is all namespaces");
    }
}
