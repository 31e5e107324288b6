//! Own pools that clusters may use and that are no objects there, for their names can be those of no object.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{Pool, System, Text};
use fipd_crds::names::is_object_name;

use super::wire::Checked;
use crate::{
    clusters::{ClusterSession, Clusters},
    config::ClusterSettings,
    ipam::Ipam,
};

/// One line for each such pool, with the clusters.
pub fn checks(ipam: &Ipam, clusters: &Clusters) -> Vec<Checked> {
    let sessions = clusters.sessions().into_iter();
    let site = |session: ClusterSession| (session.name, session.systems, session.settings);
    let clusters: Vec<Offering> = sessions.map(site).collect();
    let pools = ipam.pools();
    let nameless = |pool: &&Arc<Pool>| !is_object_name(&pool.spec.name);
    let nameless = pools.iter().filter(nameless);
    nameless.filter_map(|pool| check(pool, &clusters)).collect()
}

/// A cluster, what is on there and what it is set to: one that is detached keeps its settings.
type Offering = (Text, BTreeSet<System>, ClusterSettings);

fn check(pool: &Pool, clusters: &[Offering]) -> Option<Checked> {
    let offers = |(_, systems, settings): &&Offering| {
        let is_on = |name| systems.iter().any(|system| system.as_str() == name);
        let mut all = settings.all();
        all.any(|(name, one)| is_on(name) && one.offers(pool))
    };
    let takers = clusters.iter().filter(offers);
    let names: Vec<&str> = takers.map(|(name, ..)| &**name).collect();
    (!names.is_empty()).then(|| {
        let detail = format!(
            "no Pool object can have its name, so it is none in {}; claims may name it all the same",
            names.join(", ")
        );
        Checked::new(format!("pool {}", pool.spec.name), true, detail)
    })
}

#[cfg(test)]
mod tests {
    use fipd_core::testing;

    use super::*;
    use crate::{config::ClusterConfig, systems::SYSTEMS};

    #[test]
    fn it_names_the_clusters_whose_systems_may_use_the_pool() {
        let pool = testing::pool(testing::pool_spec("Lab_1", &["10.0.0.0/24"]));
        let claims = |cluster: &str, pools: &str| -> Offering {
            let settings = format!("[claims]\npools = [{pools}]");
            let systems = ["claims".to_owned()];
            let read = ClusterConfig::uploaded(*SYSTEMS, "a", &systems, &settings, &"k".into());
            let systems = systems.map(|system| system.parse().unwrap()).into();
            (cluster.into(), systems, read.unwrap().settings)
        };
        let mut detached: Offering = claims("d", "\"*\"");
        detached.1.clear();
        let clusters = [
            claims("a", "\"Lab*\""),
            claims("b", "\"other\""),
            claims("c", "\"*\""),
            detached,
        ];
        let line = check(&pool, &clusters).unwrap();
        assert_eq!((&*line.what, line.ok), ("pool Lab_1", true));
        assert!(line.detail.contains("none in a, c;"), "{}", line.detail);
        assert!(check(&pool, &clusters[1..2]).is_none());
    }
}
