//! Finds clusters through the kubeconfig Secrets that Rancher keeps for them.
//!
//! Watches only say when to look; what counts is a complete list.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::{ClusterId, Text};
use fipd_crds::names::is_object_name;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};

use super::{CallError, ClusterSession, absence::Presence, adoption::complete_list, watch::Watch};
use crate::{
    backoff::{Backoff, jittered},
    config::Discovery,
};

/// Between two lists when nothing is seen to change.
const PERIOD: Duration = Duration::from_secs(300);
/// Changes come in bursts; one list serves them all.
const CALM: Duration = Duration::from_millis(300);
const SUFFIX: &str = "-kubeconfig";

/// A cluster with at least one kubeconfig Secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FoundCluster {
    /// Rancher's id, or what the Secret is named after where Rancher has no such object.
    pub name: Text,
    pub names: Vec<Text>,
    pub rancher_id: Option<Text>,
    /// Kubeconfig texts by `namespace/name` of their Secret.
    pub secrets: BTreeMap<Text, Arc<str>>,
}

/// What one complete look brought.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Discovered {
    pub found: Vec<FoundCluster>,
    /// Discovered earlier, and now neither Secret nor Cluster object is there.
    pub gone: BTreeSet<ClusterId>,
}

/// Looks until the session ends, and tells what it sees.
pub(super) async fn run(
    session: ClusterSession,
    spec: Discovery,
    tell: impl Fn(Result<Discovered, String>) + Send,
) {
    let mut finder = Finder {
        session: &session,
        spec: &spec,
        texts: BTreeMap::new(),
        listed: Vec::new(),
    };
    let mut changes = std::pin::pin!(changes(&session, &spec));
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    loop {
        let pause = match finder.look().await {
            Ok(discovered) => {
                backoff.reset();
                tell(Ok(discovered));
                jittered(PERIOD)
            }
            Err(CallError::Cancelled { .. }) => return,
            Err(err) => {
                tell(Err(err.to_string()));
                backoff.pause()
            }
        };
        tokio::select! {
            () = session.cancel.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            Some(()) = changes.next() => tokio::time::sleep(CALM).await,
        }
    }
}

/// Speaks whenever a Secret of interest or a Cluster object changed.
fn changes(session: &ClusterSession, spec: &Discovery) -> impl Stream<Item = ()> + Send + use<> {
    let config = watcher::Config::default();
    let secrets = spec.namespaces.iter().map(|namespace| {
        let api: Api<PartialObjectMeta<Secret>> =
            Api::namespaced(session.client.clone(), namespace);
        Watch::new(api, config.clone())
            .into_stream()
            .touched_objects()
            .filter_map(|change| async move {
                let object: PartialObjectMeta<Secret> = change.ok()?;
                object.name_any().ends_with(SUFFIX).then_some(())
            })
            .boxed()
    });
    let clusters = watcher_of_clusters(session);
    stream::select_all(secrets.chain([clusters]))
}

/// Rancher writes to its Cluster objects all the time; only what counts for us is a change.
fn watcher_of_clusters(session: &ClusterSession) -> stream::BoxStream<'static, ()> {
    let api = rancher_clusters(session);
    let mut known: BTreeMap<Text, RancherCluster> = BTreeMap::new();
    Watch::new(api, watcher::Config::default())
        .into_stream()
        .filter_map(move |event| {
            let changed = match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    let cluster = RancherCluster::from(object);
                    known.insert(cluster.id.clone(), cluster.clone()) != Some(cluster)
                }
                Ok(Event::Delete(object)) => known.remove(&*object.name_any()).is_some(),
                Ok(Event::Init | Event::InitDone) | Err(_) => false,
            };
            futures::future::ready(changed.then_some(()))
        })
        .boxed()
}

fn rancher_clusters(session: &ClusterSession) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("management.cattle.io", "v3", "Cluster");
    let kind = ApiResource::from_gvk_with_plural(&kind, "clusters");
    Api::all_with(session.client.clone(), &kind)
}

/// What counts of a `management.cattle.io` Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RancherCluster {
    id: Text,
    display_name: Option<Text>,
    labels: BTreeMap<String, String>,
}

impl From<DynamicObject> for RancherCluster {
    fn from(object: DynamicObject) -> Self {
        let display_name = object
            .data
            .pointer("/spec/displayName")
            .and_then(|name| name.as_str());
        Self {
            id: object.name_any().into(),
            display_name: display_name.filter(|name| !name.is_empty()).map(Text::from),
            labels: object.metadata.labels.unwrap_or_default(),
        }
    }
}

struct Finder<'a> {
    session: &'a ClusterSession,
    spec: &'a Discovery,
    /// Texts of Secrets by `namespace/name`, with the version they were read at.
    texts: BTreeMap<Text, (String, Option<Arc<str>>)>,
    /// Rancher's clusters as last listed.
    listed: Vec<RancherCluster>,
}

impl Finder<'_> {
    async fn look(&mut self) -> Result<Discovered, CallError> {
        self.session.verify_identity().await?;
        let listed = self.clusters().await?;
        match &listed {
            Some(listed) => self.listed.clone_from(listed),
            // Which clusters fit is not known, and not that there are none.
            None if self.listed.is_empty() && !self.spec.match_labels.is_empty() => {
                let text = "the API server does not have Rancher's kind Cluster, which has the labels that match-labels names";
                return Err(CallError::service("list clusters", text.to_owned()));
            }
            None => {}
        }
        let mut secrets = BTreeMap::new();
        for namespace in &self.spec.namespaces {
            self.secrets(namespace, &mut secrets).await?;
        }
        self.texts
            .retain(|key, _| secrets.values().flatten().any(|(kept, _)| kept == key));
        self.session.verify_identity().await?;
        let found = group(&self.listed, secrets, &self.spec.match_labels);
        // Without the kind every cluster looks as if it were gone.
        let gone = match listed {
            Some(clusters) => self.gone(&clusters, &found).await?,
            None => BTreeSet::new(),
        };
        Ok(Discovered { found, gone })
    }

    /// `None` where the API server does not have Rancher's kind: it was never installed, or is lost. That says nothing about
    /// clusters.
    async fn clusters(&self) -> Result<Option<Vec<RancherCluster>>, CallError> {
        let api = rancher_clusters(self.session);
        let what = "list management.cattle.io Clusters";
        let keep = |object| Some(RancherCluster::from(object));
        match complete_list(self.session, &api, ListParams::default(), what, keep).await {
            Err(err) if err.status() == Some(404) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Adds the kubeconfigs of a namespace by what their Secrets are named after.
    async fn secrets(
        &mut self,
        namespace: &Text,
        into: &mut BTreeMap<Text, Vec<(Text, Arc<str>)>>,
    ) -> Result<(), CallError> {
        let api: Api<Secret> = Api::namespaced(self.session.client.clone(), namespace);
        let names: Api<PartialObjectMeta<Secret>> =
            Api::namespaced(self.session.client.clone(), namespace);
        let what = format!("list Secrets of namespace {namespace}");
        let keep = |object: PartialObjectMeta<Secret>| {
            let version = object.resource_version().unwrap_or_default();
            Some((object.name_any(), version))
        };
        let list = complete_list(self.session, &names, ListParams::default(), &what, keep);
        for (name, version) in list.await? {
            let Some(stem) = name.strip_suffix(SUFFIX).filter(|stem| !stem.is_empty()) else {
                continue;
            };
            let key: Text = format!("{namespace}/{name}").into();
            let text = match self.texts.get(&key) {
                Some((read, text)) if *read == version => text.clone(),
                Some(_) | None => {
                    let what = format!("read Secret {key}");
                    let secret = match self.session.call(&what, api.get(&name)).await {
                        // Deleted since the list: it is not there.
                        Err(err) if err.status() == Some(404) => continue,
                        result => result?,
                    };
                    let text = kubeconfig_of(secret);
                    self.texts.insert(key.clone(), (version, text.clone()));
                    text
                }
            };
            into.entry(stem.into())
                .or_default()
                .extend(text.map(|text| (key, text)));
        }
        Ok(())
    }

    /// Which of the clusters known from earlier discoveries are really gone: not found now, and a fresh read of the
    /// Cluster object under each of their names says so.
    async fn gone(
        &self,
        clusters: &[RancherCluster],
        found: &[FoundCluster],
    ) -> Result<BTreeSet<ClusterId>, CallError> {
        let mut known = Vec::new();
        self.session.ipam.for_each_cluster(|_, record| {
            let discovered = record.discovered;
            known.extend(discovered.then(|| (record.id.clone(), record.names.clone())));
        });
        let mut gone = BTreeSet::new();
        for (id, names) in not_seen(known, clusters, found) {
            let mut readings = Vec::new();
            // Display names need not be names of objects.
            for name in names.iter().filter(|name| is_object_name(name)) {
                readings.push(self.read(name).await?);
            }
            if says_gone(&readings) {
                gone.insert(id);
            }
        }
        Ok(gone)
    }

    /// A fresh read of a Cluster object. Only the end of the session is an error: what cannot be read of one cluster
    /// says nothing about the others.
    async fn read(&self, name: &Text) -> Result<Presence, CallError> {
        let api = rancher_clusters(self.session);
        let what = format!("read management.cattle.io Cluster {name}");
        match self.session.call(&what, api.get(name)).await {
            Ok(_) => Ok(Presence::Present),
            Err(err) if err.status() == Some(404) => Ok(Presence::Gone),
            Err(err @ CallError::Cancelled { .. }) => Err(err),
            Err(err) => {
                tracing::warn!(cluster = %name, "discovery: not known whether it is gone, its leases stay: {err}");
                Ok(Presence::Unknown)
            }
        }
    }
}

/// The known clusters that a complete look has no trace of, with their names.
fn not_seen(
    known: Vec<(ClusterId, Vec<Text>)>,
    clusters: &[RancherCluster],
    found: &[FoundCluster],
) -> Vec<(ClusterId, Vec<Text>)> {
    let here: BTreeSet<&Text> = clusters
        .iter()
        .flat_map(|cluster| [Some(&cluster.id), cluster.display_name.as_ref()])
        .flatten()
        .chain(found.iter().flat_map(|found| &found.names))
        .collect();
    known
        .into_iter()
        .filter(|(_, names)| !names.iter().any(|name| here.contains(name)))
        .collect()
}

/// Whether the reads of all names of a cluster say that it is gone. Without any read nothing is known.
fn says_gone(readings: &[Presence]) -> bool {
    !readings.is_empty() && readings.iter().all(|reading| *reading == Presence::Gone)
}

fn kubeconfig_of(secret: Secret) -> Option<Arc<str>> {
    let value = secret.data?.remove("value")?;
    String::from_utf8(value.0).ok().map(Arc::from)
}

/// Joins Secrets and Cluster objects: `<id>-kubeconfig` and `<display name>-kubeconfig` belong to one cluster.
fn group(
    clusters: &[RancherCluster],
    mut secrets: BTreeMap<Text, Vec<(Text, Arc<str>)>>,
    match_labels: &BTreeMap<String, String>,
) -> Vec<FoundCluster> {
    let mut found = Vec::new();
    for cluster in clusters {
        let mut names = vec![cluster.id.clone()];
        // Two clusters of one display name: it is nobody's alias.
        let unique = |name: &Text| {
            clusters
                .iter()
                .filter(|other| other.display_name.as_ref() == Some(name) || other.id == *name)
                .count()
                == 1
        };
        names.extend(cluster.display_name.clone().filter(unique));
        let own: BTreeMap<Text, Arc<str>> = names
            .iter()
            .filter_map(|name| secrets.remove(name))
            .flatten()
            .collect();
        let fits = match_labels
            .iter()
            .all(|(key, value)| cluster.labels.get(key) == Some(value));
        if fits && !own.is_empty() {
            let (name, rancher_id) = (cluster.id.clone(), Some(cluster.id.clone()));
            found.push(FoundCluster {
                name,
                names,
                rancher_id,
                secrets: own,
            });
        }
    }
    if match_labels.is_empty() {
        found.extend(
            secrets
                .into_iter()
                .filter(|(_, own)| !own.is_empty())
                .map(|(stem, own)| FoundCluster {
                    name: stem.clone(),
                    names: vec![stem],
                    rancher_id: None,
                    secrets: own.into_iter().collect(),
                }),
        );
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(id: &str, display_name: &str, label: Option<&str>) -> RancherCluster {
        let labels = label
            .map(|value| ("rancher-fip".to_owned(), value.to_owned()))
            .into_iter()
            .collect();
        RancherCluster {
            id: id.into(),
            display_name: Some(display_name.into()),
            labels,
        }
    }

    fn secrets(stems: &[&str]) -> BTreeMap<Text, Vec<(Text, Arc<str>)>> {
        let secret = |stem: &&str| {
            let key: Text = format!("fleet-default/{stem}-kubeconfig").into();
            (Text::from(*stem), vec![(key, Arc::from("text"))])
        };
        stems.iter().map(secret).collect()
    }

    fn lines(found: &[FoundCluster]) -> Vec<String> {
        let line = |found: &FoundCluster| {
            format!(
                "{} [{}] {}",
                found.name,
                found.names.join(" "),
                found.secrets.len()
            )
        };
        found.iter().map(line).collect()
    }

    #[tokio::test]
    async fn a_rancher_without_its_kind_says_nothing_about_clusters() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(crate::clock::now);
        let (ipam, _writer) = crate::ipam::Ipam::start(dir.path(), clock).unwrap();
        let record = fipd_core::ClusterRecord {
            id: ClusterId("uid-1".into()),
            names: vec!["c-m-1".into()],
            discovered: true,
            first_seen: fipd_core::Timestamp(1),
            proof: None,
        };
        let known = fipd_core::Request::RecordCluster { record };
        ipam.submit(known).await.unwrap();
        let is_lost = Arc::new(AtomicBool::new(false));
        let lost = Arc::clone(&is_lost);
        let answer = move |request: http::Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            let body = if path.ends_with("/kube-system") {
                r#"{"metadata":{"name":"kube-system","uid":"X"}}"#
            } else if path.ends_with("/clusters") && !lost.load(Ordering::Relaxed) {
                r#"{"kind":"ClusterList","apiVersion":"management.cattle.io/v3","metadata":{},
                    "items":[{"metadata":{"name":"c-m-1"},"spec":{"displayName":"a"}}]}"#
            } else if path.ends_with("/secrets") {
                r#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}"#
            } else {
                ""
            };
            let status = if body.is_empty() { 404 } else { 200 };
            let body = match body {
                "" => r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#,
                body => body,
            };
            let response = http::Response::builder().status(status);
            let body = kube::client::Body::from(body.as_bytes().to_vec());
            std::future::ready(response.body(body))
        };
        let client = kube::Client::new(tower::service_fn(answer), "default");
        let session = super::super::session::testing::session(client, &ipam).await;
        let spec = Discovery {
            cluster: "rancher".into(),
            namespaces: vec!["fleet-default".into()],
            match_labels: BTreeMap::new(),
            systems: BTreeSet::new(),
            insecure_skip_tls_verify: false,
            identity_namespace: "kube-system".into(),
            settings: crate::config::ClusterSettings::default(),
        };
        let mut finder = Finder {
            session: &session,
            spec: &spec,
            texts: BTreeMap::new(),
            listed: Vec::new(),
        };
        finder.look().await.unwrap();
        assert_eq!(finder.listed.len(), 1);
        is_lost.store(true, Ordering::Relaxed);
        let seen = finder.look().await.unwrap();
        assert_eq!(
            seen.gone,
            BTreeSet::new(),
            "its kind is lost, not its clusters"
        );
        assert_eq!(finder.listed.len(), 1, "what was listed before counts");

        // A start that never saw the labels cannot choose by them.
        let spec = Discovery {
            match_labels: BTreeMap::from([("rancher-fip".to_owned(), "enabled".to_owned())]),
            ..spec.clone()
        };
        let mut finder = Finder {
            session: &session,
            spec: &spec,
            texts: BTreeMap::new(),
            listed: Vec::new(),
        };
        let error = finder.look().await.err().unwrap().to_string();
        assert!(error.contains("match-labels"), "{error}");
    }

    #[test]
    fn both_secrets_of_a_cluster_are_joined() {
        let found = group(
            &[cluster("c-m-1", "rke2-a", None)],
            secrets(&["c-m-1", "rke2-a", "other"]),
            &BTreeMap::new(),
        );
        assert_eq!(lines(&found), ["c-m-1 [c-m-1 rke2-a] 2", "other [other] 1"]);
    }

    #[test]
    fn a_cluster_without_secrets_is_not_found() {
        let found = group(
            &[cluster("local", "local", None)],
            BTreeMap::new(),
            &BTreeMap::new(),
        );
        assert_eq!(lines(&found), Vec::<String>::new());
    }

    #[test]
    fn a_display_name_of_two_clusters_is_an_alias_of_neither() {
        let clusters = [
            cluster("c-m-1", "same", None),
            cluster("c-m-2", "same", None),
        ];
        let found = group(
            &clusters,
            secrets(&["c-m-1", "c-m-2", "same"]),
            &BTreeMap::new(),
        );
        assert_eq!(
            lines(&found),
            ["c-m-1 [c-m-1] 1", "c-m-2 [c-m-2] 1", "same [same] 1"]
        );
    }

    #[test]
    fn only_clusters_without_any_trace_are_asked_for() {
        let known = ["c-m-1", "c-m-2", "c-m-3", "c-m-4"].map(|id| {
            let names = vec![id.into(), format!("Display of {id}").into()];
            (ClusterId(format!("uid-{id}").into()), names)
        });
        let renamed = cluster("c-m-9", "Display of c-m-2", None);
        let clusters = [cluster("c-m-1", "other", None), renamed];
        let found = group(&[], secrets(&["c-m-3"]), &BTreeMap::new());
        let missing = not_seen(known.to_vec(), &clusters, &found);
        let ids: Vec<String> = missing.iter().map(|(id, _)| id.to_string()).collect();
        assert_eq!(ids, ["uid-c-m-4"]);
    }

    #[test]
    fn a_cluster_is_gone_only_if_every_read_says_so() {
        use Presence::{Gone, Present, Unknown};
        assert!(says_gone(&[Gone]) && says_gone(&[Gone, Gone]));
        for readings in [&[][..], &[Present], &[Gone, Present], &[Gone, Unknown]] {
            assert!(!says_gone(readings), "{readings:?}");
        }
    }

    #[test]
    fn labels_choose_clusters_and_leave_strange_secrets_alone() {
        let clusters = [
            cluster("c-m-1", "a", Some("enabled")),
            cluster("c-m-2", "b", None),
            cluster("c-m-3", "c", Some("no")),
        ];
        let labels = BTreeMap::from([("rancher-fip".to_owned(), "enabled".to_owned())]);
        let found = group(&clusters, secrets(&["c-m-1", "b", "c", "other"]), &labels);
        assert_eq!(lines(&found), ["c-m-1 [c-m-1 a] 1"]);
    }
}
