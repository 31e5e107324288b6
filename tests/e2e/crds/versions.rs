//! A kind that a server has in two versions or in the older one alone.

use std::sync::Arc;

use fipd::clusters::memory::Memory;
use fipd::controller::client::{Patch, Remote};
use fipd::controller::kind::Kind;
use fipd::controller::store::{Key, Objects, follow};
use kube::{CustomResource, runtime::watcher};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{NAMESPACE, SOON, cluster, wait_until};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "e2e.fipd.io",
    version = "v2",
    kind = "Brush",
    plural = "brushes",
    namespaced,
    schema = "disabled"
)]
struct BrushSpec {
    colour: String,
}

const BRUSH: Kind =
    Kind::namespaced("apis/e2e.fipd.io/v2", "brushes", "Brush").or(&["apis/e2e.fipd.io/v1"]);

/// The definition with these versions served; `v1` is stored.
fn definition(served: &[&str]) -> String {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let versions = ["v1", "v2"].map(|name| {
        json!({ "name": name, "served": served.contains(&name), "storage": name == "v1", "schema": schema })
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "brushes.e2e.fipd.io" },
        "spec": {
            "group": "e2e.fipd.io", "scope": "Namespaced", "versions": versions,
            "names": { "plural": "brushes", "singular": "brush", "kind": "Brush", "listKind": "BrushList" },
        },
    });
    definition.to_string()
}

#[tokio::test]
async fn the_first_version_that_is_served_is_watched_and_written() {
    let (plane, client) = cluster("versions").await;
    let remote = Remote::new(client.clone());
    assert_eq!(BRUSH.served(&remote).await.unwrap(), None);
    let key = Key::new(NAMESPACE, "wide");
    for (served, used, colour) in [
        (&["v1"][..], "e2e.fipd.io/v1", "red"),
        (&["v1", "v2"], "e2e.fipd.io/v2", "green"),
        (&["v1"], "e2e.fipd.io/v1", "blue"),
    ] {
        plane.install_crds(&definition(served)).await.unwrap();
        let what = format!("{used} is used");
        let settled = wait_until(&what, SOON, || async {
            let kind = BRUSH.served(&remote).await;
            let kind = kind.map_err(|error| error.to_string())?;
            let found = kind.filter(|kind| kind.api_version() == used);
            found.ok_or_else(|| format!("{kind:?}"))
        });
        let kind = settled.await.unwrap();
        let (objects, over) = (Objects::new(), CancellationToken::new());
        let view = |brush: Brush| Some(brush.spec.colour);
        tokio::spawn(follow(
            kind.all_as(client.clone()),
            watcher::Config::default(),
            Arc::clone(&objects),
            view,
            |_| {},
            Memory::default(),
            over.clone(),
        ));
        objects.completed().await;
        let brush = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": { "name": &*key.name }, "spec": { "colour": colour },
        });
        let target = kind.target(&key);
        let now: Value = remote
            .patch_seen(&target, Patch::Apply, &brush)
            .await
            .unwrap();
        assert_eq!(now["apiVersion"], used);
        wait_until("the watch has it", SOON, || async {
            let seen = objects.get(&key).map(|colour| String::clone(&colour));
            (seen.as_deref() == Some(colour))
                .then_some(())
                .ok_or_else(|| format!("{seen:?}"))
        })
        .await
        .unwrap();
        over.cancel();
    }
}
