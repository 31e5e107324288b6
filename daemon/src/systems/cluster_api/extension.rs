//! The ExtensionConfig by which Cluster API asks the hook: made, repaired, and removed where it is switched off.

use std::{sync::Arc, time::Duration};

use base64::Engine as _;
use fipd_crds::labels::{FIELD_MANAGER, MANAGED_BY};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{names::EXTENSION_CONFIG, settings::ClusterApiSettings};
use crate::controller::{
    Reconciled,
    client::{CallError, Patch, Remote},
    endpoint::OwnEndpoint,
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

/// Keeps it for as long as the session of the site goes on.
pub fn keep(site: &Arc<Site>, own: &OwnEndpoint, tasks: &mut JoinSet<()>) {
    let (site, own) = (Arc::clone(site), own.clone());
    tasks.spawn(async move {
        let cancel = site.cancel();
        let look = async {
            loop {
                let wrong = look(&site, &own).await.err();
                let text = wrong.map(|error| format!("the runtime hook is not in force: {error}"));
                let changed = site.session.troubled(PART, text.as_deref().map(Into::into));
                if let Some(text) = text.filter(|_| changed) {
                    tracing::warn!(cluster = %site.name, "{text}");
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let _: Option<()> = cancel.run_until_cancelled(look).await;
    });
}

/// Looks once, and writes what differs.
async fn look(site: &Site, own: &OwnEndpoint) -> Reconciled<()> {
    let settings = site.settings::<ClusterApiSettings>();
    let remote = Remote::new(site.session.client.clone());
    let hook = settings.hook.as_ref().filter(|_| settings.vips);
    let Some(kind) = served(&remote, hook.is_some()).await? else {
        return Ok(());
    };
    let target = kind.named("", NAME);
    let found: Option<Value> = remote.get(&target).await?;
    let Some(hook) = hook else {
        let ours = found.filter(is_marked);
        return match ours.as_ref().and_then(identify) {
            Some((_, uid)) => Ok(remote.delete(&target, &uid).await?),
            None => Ok(()),
        };
    };
    let Some(url) = &own.url else {
        let why = "[api] advertise does not say where Cluster API reaches fipd";
        return Err(crate::controller::ReconcileError::internal(why));
    };
    let ca = own.ca().await?;
    let base = url.trim_end_matches('/');
    let wanted = object(
        kind,
        &format!("{base}/hooks/{}", site.name),
        &ca,
        &hook.namespace_labels,
    );
    if found.as_ref().is_some_and(|found| is_so(found, &wanted)) {
        return Ok(());
    }
    let write = remote.patch_seen::<Value>(&target, Patch::Apply, &wanted);
    write.await?;
    tracing::info!(cluster = %site.name, name = NAME, "wrote the ExtensionConfig of the runtime hook");
    Ok(())
}

/// The kind, where the cluster has it; one that has not needs no hook removed.
async fn served(remote: &Remote, wanted: bool) -> Reconciled<Option<Kind>> {
    match EXTENSION_CONFIG.served(remote).await {
        Ok(None) if wanted => Err(crate::controller::ReconcileError::internal(
            "the cluster has no ExtensionConfig: Cluster API's gate RuntimeSDK is off",
        )),
        Ok(kind) => Ok(kind),
        Err(CallError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn object(
    kind: Kind,
    url: &str,
    ca: &str,
    labels: &std::collections::BTreeMap<String, String>,
) -> Value {
    let bundle = base64::engine::general_purpose::STANDARD.encode(ca);
    let mut client = json!({ "url": url });
    if !ca.is_empty() {
        client["caBundle"] = json!(bundle);
    }
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": { "name": NAME, "labels": { MANAGED_BY: FIELD_MANAGER } },
        "spec": { "clientConfig": client, "namespaceSelector": { "matchLabels": labels } },
    })
}

/// Whether the object has all of what is wanted.
fn is_so(found: &Value, wanted: &Value) -> bool {
    let labels = &found["spec"]["namespaceSelector"]["matchLabels"];
    let selected = labels == &wanted["spec"]["namespaceSelector"]["matchLabels"]
        || labels.is_null() && wanted["spec"]["namespaceSelector"]["matchLabels"] == json!({});
    is_marked(found)
        && found["spec"]["clientConfig"]["url"] == wanted["spec"]["clientConfig"]["url"]
        && found["spec"]["clientConfig"]["caBundle"] == wanted["spec"]["clientConfig"]["caBundle"]
        && selected
}

#[cfg(test)]
mod tests {
    use super::*;

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
