//! Own pools that clusters may use and that are no objects there, for their names can be those of no object.

use std::sync::Arc;

use fipd_core::{Pool, Text};
use fipd_crds::names::is_object_name;

use super::wire::Checked;
use crate::{clusters::Clusters, config::ClusterSettings, ipam::Ipam};

/// One line for each such pool, with the clusters.
pub fn checks(ipam: &Ipam, clusters: &Clusters) -> Vec<Checked> {
    let sessions = clusters.sessions().into_iter();
    let clusters: Vec<(Text, ClusterSettings)> = sessions
        .map(|session| (session.name, session.settings))
        .collect();
    let pools = ipam.pools();
    let nameless = |pool: &&Arc<Pool>| !is_object_name(&pool.spec.name);
    let nameless = pools.iter().filter(nameless);
    nameless.filter_map(|pool| check(pool, &clusters)).collect()
}

fn check(pool: &Pool, clusters: &[(Text, ClusterSettings)]) -> Option<Checked> {
    let offers = |settings: &ClusterSettings| settings.all().any(|(_, one)| one.offers(pool));
    let takers = clusters.iter().filter(|(_, settings)| offers(settings));
    let names: Vec<&str> = takers.map(|(name, _)| &**name).collect();
    (!names.is_empty()).then(|| Checked {
        what: format!("pool {}", pool.spec.name),
        ok: true,
        detail: format!(
            "no Pool object can have its name, so it is none in {}; claims may name it all the same",
            names.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use fipd_core::{PoolId, PoolSpec, Timestamp};

    use super::*;
    use crate::{config::ClusterConfig, systems::SYSTEMS};

    #[test]
    fn it_names_the_clusters_that_may_use_the_pool() {
        let pool = Pool {
            id: PoolId(1),
            spec: PoolSpec::own("Lab_1", vec!["10.0.0.0/24".parse().unwrap()]),
            created: Timestamp(0),
            generation: 1,
        };
        let claims = |pools: &str| {
            let settings = format!("[claims]\npools = [{pools}]");
            let systems = ["claims".to_owned()];
            let read = ClusterConfig::uploaded(SYSTEMS, "a", &systems, &settings, &"k".into());
            read.unwrap().settings
        };
        let clusters = [
            ("a".into(), claims("\"Lab*\"")),
            ("b".into(), claims("\"other\"")),
            ("c".into(), claims("\"*\"")),
        ];
        let line = check(&pool, &clusters).unwrap();
        assert_eq!((&*line.what, line.ok), ("pool Lab_1", true));
        assert!(line.detail.contains("none in a, c;"), "{}", line.detail);
        assert!(check(&pool, &clusters[1..2]).is_none());
    }
}
