//! Complete lists of what counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use fipd_crds::{
    floating_ip::{FloatingIP, FloatingIPPool, FloatingIPProjectQuota},
    labels::PROJECT_SECRET_PREFIX,
    management::{Cluster, Project},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Resource, ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use serde::de::DeserializeOwned;

use crate::{
    adopt::Looked,
    clusters::{
        CallError, ClusterSession,
        adoption::{complete_list, complete_metadata},
        lenient::Lenient,
    },
    controller::store::Key,
    systems::rancher_fip::{
        adopt::inventory::SiteInventory, clusters::RancherCluster, floating_ip::observe::slim,
    },
};

/// Kind and name of objects that do not fit their schema, and why.
type Malformed = BTreeMap<(String, Key), String>;

/// Lists of one cluster.
pub struct SiteLists<'a> {
    pub session: &'a ClusterSession,
}

impl SiteLists<'_> {
    pub async fn fill(&self, found: &mut SiteInventory) -> Result<(), CallError> {
        let bad = &mut found.malformed;
        let named = |pool: FloatingIPPool| (pool.name_any(), pool);
        found.pools = self.all("list pools", bad, named).await?;
        let named = |quota: FloatingIPProjectQuota| (quota.name_any(), quota);
        found.quotas = self.all("list quotas", bad, named).await?;
        let keyed = |fip: FloatingIP| (Key::of(&fip.metadata), slim(fip));
        found.fips = self.all("list FloatingIPs", bad, keyed).await?;
        let named = |one: Cluster| (one.name_any(), RancherCluster::slim(one));
        found.clusters = self.all("list clusters", bad, named).await?;
        let api: Api<Project> = Api::all(self.session.client.clone());
        let keep = |project: PartialObjectMeta<Project>| Some(Key::of(&project.metadata));
        let projects = complete_metadata(self.session, &api, "list projects", keep).await?;
        found.projects = projects.into_iter().collect();
        Ok(())
    }

    /// The objects of a kind, as `entry` keeps them; `bad` gets those that do not fit it.
    async fn all<K, N, V>(
        &self,
        what: &str,
        bad: &mut Malformed,
        entry: impl Fn(K) -> (N, V),
    ) -> Result<BTreeMap<N, V>, CallError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
        N: Ord,
    {
        let api: Api<Lenient<K>> = Api::all(self.session.client.clone());
        let params = ListParams::default();
        let listed = complete_list(self.session, &api, params, what, |one| Some(one.0)).await?;
        let good = listed.into_iter().filter_map(|one| match one {
            Ok(object) => Some(entry(object)),
            Err(invalid) => {
                let what = (K::kind(&()).into_owned(), Key::of(&invalid.metadata));
                bad.insert(what, invalid.error);
                None
            }
        });
        Ok(good.collect())
    }

    /// The Secrets of projects, by name alone.
    pub async fn secrets(&self) -> Looked<BTreeSet<Key>> {
        let api: Api<Secret> = Api::all(self.session.client.clone());
        let keep = |secret: PartialObjectMeta<Secret>| {
            let ours = secret.name_any().starts_with(PROJECT_SECRET_PREFIX);
            ours.then(|| Key::of(&secret.metadata))
        };
        let listed = complete_metadata(self.session, &api, "list Secrets", keep).await;
        let keys = listed.map_err(|error| error.to_string())?;
        Ok(keys.into_iter().collect())
    }
}
