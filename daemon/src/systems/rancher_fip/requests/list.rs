//! What a project has.

use super::decide::Known;
use crate::fip_v1::{Asker, Row};

/// A row for each Service of the asker's cluster that uses an address, and one for each address that nobody uses.
pub fn rows(asker: &Asker, known: &[Known]) -> Vec<Row> {
    let seen = known
        .iter()
        .filter(|one| one.fip.cluster.is_none() || one.is_of(&asker.cluster));
    seen.flat_map(|one| rows_of(asker, one)).collect()
}

fn rows_of(asker: &Asker, one: &Known) -> Vec<Row> {
    let row = |namespace: &str, name: &str| Row {
        project: asker.project.clone(),
        cluster: one.fip.cluster.clone().unwrap_or_default(),
        pool: one.fip.pool.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        address: one.address.map(|at| at.to_string()).unwrap_or_default(),
        group: one.fip.group.clone(),
    };
    let services = one
        .fip
        .services
        .iter()
        .filter(|_| one.fip.cluster.is_some());
    let rows: Vec<Row> = services
        .map(|service| row(&service.service_namespace, &service.service_name))
        .collect();
    if rows.is_empty() {
        vec![row("", "")]
    } else {
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fipd_crds::floating_ip::{FloatingIP, ServiceRef};

    use super::*;
    use crate::systems::rancher_fip::floating_ip::observe::slim;

    fn known(cluster: Option<&str>, services: &[&str]) -> Known {
        let mut fip = slim(FloatingIP::default());
        fip.cluster = cluster.map(str::to_owned);
        let assignee = |name: &&str| ServiceRef {
            service_namespace: "shop".to_owned(),
            service_name: (*name).to_owned(),
        };
        fip.services = services.iter().map(assignee).collect();
        Known {
            name: "fip-1".into(),
            labels: BTreeMap::new(),
            fip,
            address: "10.0.0.5".parse().ok(),
            held: true,
            contended: false,
            network: None,
            left: String::new(),
        }
    }

    #[test]
    fn defect_19_addresses_that_nobody_uses_are_listed_and_those_of_other_clusters_are_not() {
        let asker = Asker {
            management: "rancher".into(),
            project: "p-a".to_owned(),
            namespace: "c-m-a".to_owned(),
            cluster: "c-m-a".to_owned(),
        };
        let all = [
            known(Some("c-m-a"), &["web", "api"]),
            known(Some("c-m-b"), &["web"]),
            known(None, &["ghost"]),
        ];
        let rows = rows(&asker, &all);
        let texts: Vec<_> = rows
            .iter()
            .map(|row| (&*row.cluster, &*row.namespace, &*row.name, &*row.address))
            .collect();
        assert_eq!(
            texts,
            [
                ("c-m-a", "shop", "web", "10.0.0.5"),
                ("c-m-a", "shop", "api", "10.0.0.5"),
                ("", "", "", "10.0.0.5"),
            ]
        );
    }
}
