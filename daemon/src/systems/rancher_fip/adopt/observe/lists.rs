//! Complete lists of what counts.

use std::{collections::BTreeSet, fmt::Debug};

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

/// Kind and name of an object that does not fit its schema, and why.
type Malformed = ((String, Key), String);

/// Lists of one cluster.
pub struct SiteLists<'a> {
    pub session: &'a ClusterSession,
}

impl SiteLists<'_> {
    pub async fn fill(&self, found: &mut SiteInventory) -> Result<(), CallError> {
        let (pools, bad) = self.all::<FloatingIPPool>("list pools").await?;
        found.malformed.extend(bad);
        let named = |pool: FloatingIPPool| (pool.name_any(), pool);
        found.pools = pools.into_iter().map(named).collect();
        let (quotas, bad) = self.all::<FloatingIPProjectQuota>("list quotas").await?;
        found.malformed.extend(bad);
        let named = |quota: FloatingIPProjectQuota| (quota.name_any(), quota);
        found.quotas = quotas.into_iter().map(named).collect();
        let (fips, bad) = self.all::<FloatingIP>("list FloatingIPs").await?;
        found.malformed.extend(bad);
        let keyed = |fip: FloatingIP| (Key::of(&fip.metadata), slim(fip));
        found.fips = fips.into_iter().map(keyed).collect();
        let (clusters, bad) = self.all::<Cluster>("list clusters").await?;
        found.malformed.extend(bad);
        let named = |one: Cluster| (one.name_any(), RancherCluster::slim(one));
        found.clusters = clusters.into_iter().map(named).collect();
        let api: Api<Project> = Api::all(self.session.client.clone());
        let keep = |project: PartialObjectMeta<Project>| Some(Key::of(&project.metadata));
        let projects = complete_metadata(self.session, &api, "list projects", keep).await?;
        found.projects = projects.into_iter().collect();
        Ok(())
    }

    /// The objects of a kind, and what is wrong with those that do not fit it.
    async fn all<K>(&self, what: &str) -> Result<(Vec<K>, Vec<Malformed>), CallError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<Lenient<K>> = Api::all(self.session.client.clone());
        let params = ListParams::default();
        let listed = complete_list(self.session, &api, params, what, |one| Some(one.0)).await?;
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for one in listed {
            match one {
                Ok(object) => good.push(object),
                Err(invalid) => {
                    let what = (K::kind(&()).into_owned(), Key::of(&invalid.metadata));
                    bad.push((what, invalid.error));
                }
            }
        }
        Ok((good, bad))
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
