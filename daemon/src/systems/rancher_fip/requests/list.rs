//! What is shown: the addresses of a project, and the pools as `GET /ipam` of the original manager has them.

use fipd_core::{Lease, System};
use fipd_crds::floating_ip::{FloatingIPPool, IpConfig};
use ipnet::IpNet;

use super::decide::Known;
use crate::{
    controller::pool_source::entries,
    fip_v1::{Asker, PoolFigures, Row},
    ipam::Ipam,
    systems::rancher_fip::{pool::status::MOST_ENTRIES, rancher::Data},
};

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

/// The pools of a management cluster by name. One that is not understood is left out.
pub fn pools(ipam: &Ipam, data: &Data) -> Vec<(String, PoolFigures)> {
    let pools = data.pools.all().into_iter();
    pools
        .filter_map(|(key, pool)| {
            Some((key.name.to_string(), figures(ipam, data, &key.name, &pool)?))
        })
        .collect()
}

fn figures(ipam: &Ipam, data: &Data, name: &str, pool: &FloatingIPPool) -> Option<PoolFigures> {
    let config = pool.spec.ip_config.as_ref()?;
    let (mirror, usage) = ipam.read(|ledger| {
        let mirror = ledger.mirror(&System::rancher_fip(), &data.cluster, name)?;
        Some((mirror.id, ledger.usage(mirror.id)?))
    })?;
    let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    // The original counts what is excluded as used.
    let used = usage.used + usage.excluded;
    let text = |lease: &Lease| lease.key.address.to_string();
    let in_use = entries(ipam, mirror, MOST_ENTRIES, text).into_iter();
    let (used_ips, truncated) = used_ips(in_use.map(|(_, text)| text).collect(), config);
    Some(PoolFigures {
        cidr: config.subnet.clone(),
        start: config.pool.start.clone(),
        end: config.pool.end.clone(),
        broadcast: broadcast(&config.subnet),
        total: whole(usage.free + used),
        used: whole(used),
        available: whole(usage.free),
        used_ips,
        truncated,
    })
}

/// What is shown, and whether that is not all.
fn used_ips(mut leased: Vec<String>, config: &IpConfig) -> (Option<Vec<String>>, bool) {
    leased.extend(config.pool.exclude.iter().cloned());
    let truncated = leased.len() > MOST_ENTRIES;
    leased.truncate(MOST_ENTRIES);
    leased.sort();
    leased.dedup();
    (Some(leased).filter(|all| !all.is_empty()), truncated)
}

fn broadcast(subnet: &str) -> String {
    match subnet.parse() {
        Ok(IpNet::V4(net)) => net.broadcast().to_string(),
        Ok(IpNet::V6(_)) | Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fipd_crds::floating_ip::{FloatingIP, ServiceRef};

    use super::*;
    use crate::systems::rancher_fip::floating_ip::observe::view;

    fn known(cluster: Option<&str>, services: &[&str]) -> Known {
        let mut fip = view(FloatingIP::default());
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

    #[test]
    fn used_addresses_are_sorted_as_texts() {
        let mut config = IpConfig::default();
        assert_eq!(used_ips(Vec::new(), &config), (None, false));
        config.pool.exclude = vec!["10.0.0.9".to_owned()];
        let leased = vec!["10.0.0.2".to_owned(), "10.0.0.10".to_owned()];
        let sorted = ["10.0.0.10", "10.0.0.2", "10.0.0.9"].map(str::to_owned);
        assert_eq!(used_ips(leased, &config), (Some(sorted.to_vec()), false));
    }

    #[test]
    fn a_huge_pool_lists_as_many_as_its_status_does() {
        let config = IpConfig::default();
        let leased = (0..=MOST_ENTRIES).map(|number| number.to_string());
        let (shown, truncated) = used_ips(leased.collect(), &config);
        assert_eq!(
            (shown.map(|all| all.len()), truncated),
            (Some(MOST_ENTRIES), true)
        );
    }

    #[test]
    fn only_ipv4_has_a_broadcast() {
        assert_eq!(broadcast("10.0.0.7/24"), "10.0.0.255");
        assert_eq!(broadcast("2001:db8::/64"), "");
    }
}
