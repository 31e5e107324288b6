//! What the system leaves in a cluster. Addresses stay in their objects, valid for the originals.
//!
//! What fipd made and nobody keeps up to date any more goes: companions, EndpointSlices and NetworkAttachmentDefinitions, which
//! the original's operator makes again. Endpoints go with their companion, which owns them. A companion that was there before
//! gets its selector back, so that the controllers of Kubernetes keep its endpoints.

use fipd_core::System;
use fipd_crds::{
    flat_network::names::{ATTACHMENT, COMPANION_SUFFIX, NETWORKS},
    labels::{FIELD_MANAGER, MANAGED_BY},
};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{
    lease,
    names::{FLAT_IP, IP_REMOVE, SUBNET_OBJECT, SUBNET_REMOVE},
    service::observe::{NETWORKS_SET_BY, SELECTOR_BEFORE},
    settings::FlatNetworkSettings,
};
use crate::{
    controller::{
        attachments::NETWORK_ATTACHMENT,
        client::Remote,
        kind::{ENDPOINT_SLICE, SERVICE},
        store::Key,
    },
    detach::{Found, Leaving, Leftover, Marks, Past, has_webhook},
};

/// See the module.
pub struct FlatNetworkLeaving;

impl Leaving for FlatNetworkLeaving {
    fn leftovers(&self) -> &'static [Leftover] {
        static LEFTOVERS: [Leftover; 5] = [
            Leftover::validator(&[super::admission::ASKS.name], |past| {
                was_on(past) && has_webhook(&past.settings.of::<FlatNetworkSettings>().webhook)
            }),
            Leftover::of(FLAT_IP, was_on),
            Leftover::of(SUBNET_OBJECT, was_on),
            Leftover {
                own: true,
                ..Leftover::of(ENDPOINT_SLICE, was_on)
            },
            Leftover {
                own: true,
                ..Leftover::of(NETWORK_ATTACHMENT, was_on)
            },
        ];
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec![IP_REMOVE, SUBNET_REMOVE],
            // On Services, which rancher-fip's leftovers list anyway.
            annotations: vec![NETWORKS_SET_BY],
            ..Marks::default()
        }
    }

    fn locks(&self, past: &Past) -> Vec<(Key, bool)> {
        let settings = past.settings.of::<FlatNetworkSettings>();
        let held = was_on(past) && settings.leader_elect;
        vec![(lease(settings), held)]
    }

    fn first<'a>(&'a self, remote: &'a Remote, past: &'a Past) -> BoxFuture<'a, Found> {
        Box::pin(companions(remote, past))
    }
}

fn was_on(past: &Past) -> bool {
    past.systems.contains(&System::flat_network())
}

/// Companions alone. They come first: other systems leave Services too, and would take off what says which selector there was.
static COMPANIONS: Leftover = Leftover {
    goes: is_made,
    restore: selector,
    ..Leftover::of(SERVICE, was_on)
};

async fn companions(remote: &Remote, past: &Past) -> Found {
    let mut found = Found::default();
    let marks = Marks {
        annotations: vec![SELECTOR_BEFORE],
        ..Marks::default()
    };
    let listed = remote.list_meta(&SERVICE.all(), "").await;
    let listed = listed.map(|all| all.into_iter().filter(|one| is_companion(&one["metadata"])));
    found.take(listed, (&COMPANIONS, &marks), was_on(past));
    found
}

fn is_companion(meta: &Value) -> bool {
    let name = meta["name"].as_str().unwrap_or_default();
    name.ends_with(COMPANION_SUFFIX) && meta["annotations"][NETWORKS] == ATTACHMENT
}

/// Whether fipd has made the companion.
fn is_made(meta: &Value) -> bool {
    is_companion(meta) && meta["labels"][MANAGED_BY] == FIELD_MANAGER
}

/// What the companion selected before fipd kept it.
fn selector(annotations: &Map<String, Value>) -> Option<Value> {
    let noted = annotations.get(SELECTOR_BEFORE)?.as_str()?;
    let selector: Value = serde_json::from_str(noted).ok()?;
    Some(json!({ "spec": { "selector": selector } }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::ClusterSettings,
        controller::client::testing::serving,
        detach::{Does, Step},
    };

    #[tokio::test]
    async fn companions_of_fipd_go_and_those_of_the_original_select_pods_again() {
        let service = |name: &str, labels: Value, noted: Option<&str>| {
            let mut annotations = json!({ NETWORKS: ATTACHMENT });
            if let Some(noted) = noted {
                annotations[SELECTOR_BEFORE] = json!(noted);
            }
            json!({ "metadata": {
                "namespace": "shop", "name": name, "uid": name, "labels": labels, "annotations": annotations,
            } })
        };
        let made = json!({ MANAGED_BY: FIELD_MANAGER });
        let noted = r#"{"app":"db"}"#;
        let all = json!({ "items": [
            service("web-flat-network", made.clone(), None),
            service("db-flat-network", json!({}), Some(noted)),
            service("untouched-flat-network", json!({}), None),
            service("other", made, Some(noted)),
        ] });
        let (remote, _) = serving(move |_| (200, all.clone()));
        let past = Past {
            systems: [System::flat_network()].into(),
            settings: ClusterSettings::default(),
            guest: false,
            unheard: std::collections::BTreeSet::new(),
        };
        let found = companions(&remote, &past).await;
        assert_eq!(found.unseen, Vec::<String>::new());
        let text = |step: &Step| format!("{}: {}", step.object, step.does.text());
        let steps: Vec<String> = found.steps.iter().map(text).collect();
        assert_eq!(
            steps,
            [
                "Service shop/web-flat-network: delete".to_owned(),
                format!("Service shop/db-flat-network: take off {SELECTOR_BEFORE}"),
            ]
        );
        let Does::Marks(_, patch) = &found.steps[1].does else {
            panic!("{:?}", found.steps)
        };
        assert_eq!(patch["spec"], json!({ "selector": { "app": "db" } }));
    }
}
