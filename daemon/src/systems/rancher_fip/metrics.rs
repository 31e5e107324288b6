//! The series of the original rancher-fip-manager, by its names and labels, so that its dashboards go on.
//!
//! Where several management clusters are connected every series has one label more, `cluster`: two of them may call
//! their pools alike.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{Ledger, PoolUsage, System, Tenant};
use fipd_crds::floating_ip::{FloatingIPPool, FloatingIPProjectQuota};
use prometheus_client::registry::Registry;

use crate::{
    controller::store::Key,
    ipam::Ipam,
    metrics::series::{Labels, Series, Values, encode_connected, live, with},
    systems::rancher_fip::{
        floating_ip::observe::Fip,
        rancher::{Data, Ranchers},
    },
};

/// Adds the family's series.
pub fn register(registry: &mut Registry, ipam: Ipam, ranchers: Ranchers) {
    let family = registry.sub_registry_with_prefix("rancherfipmanager");
    family.register_collector(live(move |encoder| {
        let add =
            |figures: &mut Figures, data: &Arc<Data>, more: &_| figures.add(&ipam, data, more);
        encode_connected(encoder, &ranchers.all(), add, Figures::series)
    }));
}

/// The values of all series.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    capacity: Values<'static>,
    available: Values<'static>,
    used: Values<'static>,
    created: Values<'static>,
    quota: Values<'static>,
    fips: Values<'static>,
}

impl Figures {
    fn add(&mut self, ipam: &Ipam, data: &Data, more: &Labels<'static>) {
        let (pools, quotas) = (data.pools.all(), data.quotas.all());
        let mut mirrors = BTreeMap::new();
        for some in pools.chunks(Ledger::SCAN) {
            let usages = ipam.read(|ledger| {
                let usage = |(key, _): &(Key, Arc<FloatingIPPool>)| {
                    let mirror = ledger.mirror(&System::rancher_fip(), &data.cluster, &key.name)?;
                    Some((mirror.id, ledger.usage(mirror.id)?))
                };
                some.iter().map(usage).collect::<Vec<_>>()
            });
            for ((key, pool), usage) in some.iter().zip(usages) {
                let Some((id, usage)) = usage else { continue };
                mirrors.insert(key.name.to_string(), id);
                self.pool(&key.name, pool, &usage, more);
            }
        }
        for (key, quota) in &quotas {
            let tenant = Tenant(key.name.clone());
            let pools = quota.spec.floating_ip_quota.iter();
            let used: Vec<u64> = ipam.read(|ledger| {
                let charged = |pool| ledger.charged(pool, &tenant);
                pools
                    .take(Ledger::SCAN)
                    .map(|(pool, _)| mirrors.get(pool).copied().map_or(0, charged))
                    .collect()
            });
            self.quota(&key.name, quota, &used, more);
        }
        for (_, fip) in data.fips.all() {
            self.fip(&fip, more);
        }
    }

    fn pool(
        &mut self,
        name: &str,
        pool: &FloatingIPPool,
        usage: &PoolUsage,
        more: &Labels<'static>,
    ) {
        let config = pool.spec.ip_config.as_ref();
        let labels = with(
            more,
            [
                ("fippool", name),
                ("subnet", config.map_or("", |config| config.subnet.as_str())),
                ("target_cluster", &pool.spec.target_cluster),
                ("target_network", &pool.spec.target_network),
            ],
        );
        let (used, free) = (usage.used.saturating_add(usage.excluded), usage.free);
        self.capacity
            .push((labels.clone(), used.saturating_add(free) as f64));
        self.available.push((labels.clone(), free as f64));
        self.used.push((labels, used as f64));
    }

    /// `used` is of the first pools of the quota, in their order.
    fn quota(
        &mut self,
        project: &str,
        quota: &FloatingIPProjectQuota,
        used: &[u64],
        more: &Labels<'static>,
    ) {
        if let Some(created) = &quota.metadata.creation_timestamp {
            let labels = with(more, [("project_id", project)]);
            self.created.push((labels, created.0.as_second() as f64));
        }
        for ((pool, hard), used) in quota.spec.floating_ip_quota.iter().zip(used) {
            for (kind, value) in [("hard", *hard as f64), ("used", *used as f64)] {
                let labels = [("project_id", project), ("fippool", pool), ("type", kind)];
                self.quota.push((with(more, labels), value));
            }
        }
    }

    /// One for each Service that uses the address, one without Service where there is none.
    fn fip(&mut self, fip: &Fip, more: &Labels<'static>) {
        let Ok(address) = fip.status.ip_addr.parse::<IpAddr>() else {
            return;
        };
        let assigned = fip.status.assigned.as_ref();
        let status = assigned.map_or("unassigned", |_| "assigned");
        let project = fip.project.as_ref().map_or("", |project| &*project.0);
        let group = assigned.map_or("", |assigned| assigned.floating_ip_group.as_str());
        let cluster = assigned.and(fip.cluster.as_deref()).unwrap_or_default();
        let services = assigned.map_or(&[][..], |assigned| &assigned.services);
        let mut add = |namespace: &str, name: &str| {
            let labels = [
                ("fippool", fip.pool.as_str()),
                ("ip", &address.to_string()),
                ("status", status),
                ("project_id", project),
                ("managed_cluster_id", cluster),
                ("floatingip_group", group),
                ("service_name", name),
                ("service_namespace", namespace),
            ];
            self.fips.push((with(more, labels), 1.0));
        };
        for service in services {
            add(&service.service_namespace, &service.service_name);
        }
        if services.is_empty() {
            add("", "");
        }
    }

    fn series(self) -> [Series<'static>; 6] {
        let series = Series::new;
        [
            series(
                "ippool_capacity",
                "Addresses of the pool, excluded ones among them",
                self.capacity,
            ),
            series("ippool_available", "Of these, free", self.available),
            series("ippool_used", "Of these, in use or excluded", self.used),
            series(
                "floatingipprojectquota_created",
                "When the quota of the project was made, in Unix time",
                self.created,
            ),
            series(
                "floatingipprojectquota",
                "Addresses of a pool that a project may hold (hard) and holds (used)",
                self.quota,
            ),
            series("floatingips", "Addresses by who uses them", self.fips),
        ]
    }
}

#[cfg(test)]
mod tests {
    use fipd_crds::floating_ip::FloatingIP;
    use serde_json::{Value, json};

    use super::*;
    use crate::systems::rancher_fip::floating_ip::observe;

    fn text(values: &Values<'static>) -> Vec<String> {
        let one = |(labels, value): &(Labels<'static>, f64)| {
            let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
            format!("{} {value}", labels.collect::<Vec<_>>().join(","))
        };
        values.iter().map(one).collect()
    }

    fn fip(status: &Value) -> Fip {
        let labels = json!({
            "rancher.k8s.binbash.org/project-name": "p-a", "rancher.k8s.binbash.org/cluster-name": "c-m-a",
        });
        let object: FloatingIP = serde_json::from_value(json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIP",
            "metadata": { "name": "x", "namespace": "c-m-a", "labels": labels },
            "spec": { "floatingIPPool": "net" }, "status": status,
        }))
        .expect("a FloatingIP");
        observe::view(object)
    }

    #[test]
    fn an_address_has_one_series_for_each_service() {
        let mut figures = Figures::default();
        let services = json!([
            { "serviceNamespace": "shop", "serviceName": "web" },
            { "serviceNamespace": "shop", "serviceName": "dns" },
        ]);
        let assigned =
            json!({ "clusterName": "c-m-a", "floatingIPGroup": "g", "services": services });
        let status = json!({ "ipAddr": "10.0.0.5", "assigned": assigned });
        figures.fip(&fip(&status), &Vec::new());
        figures.fip(&fip(&json!({ "ipAddr": "10.0.0.6" })), &Vec::new());
        figures.fip(&fip(&json!({})), &Vec::new());
        let of = |ip, status, cluster, group, name, namespace| {
            format!(
                "fippool=net,ip={ip},status={status},project_id=p-a,managed_cluster_id={cluster},floatingip_group={group},\
                 service_name={name},service_namespace={namespace} 1"
            )
        };
        let expected = [
            of("10.0.0.5", "assigned", "c-m-a", "g", "web", "shop"),
            of("10.0.0.5", "assigned", "c-m-a", "g", "dns", "shop"),
            of("10.0.0.6", "unassigned", "", "", "", ""),
        ];
        assert_eq!(text(&figures.fips), expected);
    }

    #[test]
    fn a_quota_has_what_may_be_and_what_is_held() {
        let quota: FloatingIPProjectQuota = serde_json::from_value(json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPProjectQuota",
            "metadata": { "name": "p-a", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "displayName": "Shop", "floatingIPQuota": { "dmz": 2, "net": 9 } },
        }))
        .expect("a quota");
        let mut figures = Figures::default();
        let more = vec![("cluster", "west".to_owned())];
        figures.quota("p-a", &quota, &[1, 0], &more);
        let created = ["project_id=p-a,cluster=west 1767225600"];
        assert_eq!(text(&figures.created), created);
        let expected = [
            "project_id=p-a,fippool=dmz,type=hard,cluster=west 2",
            "project_id=p-a,fippool=dmz,type=used,cluster=west 1",
            "project_id=p-a,fippool=net,type=hard,cluster=west 9",
            "project_id=p-a,fippool=net,type=used,cluster=west 0",
        ];
        assert_eq!(text(&figures.quota), expected);
    }

    #[test]
    fn what_is_used_of_a_pool_takes_in_what_it_excludes() {
        let pool: FloatingIPPool = serde_json::from_value(json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPPool", "metadata": { "name": "net" },
            "spec": {
                "targetCluster": "west", "targetNetwork": "vips",
                "ipConfig": { "subnet": "10.0.0.0/24", "pool": { "start": "10.0.0.10", "end": "10.0.0.19" } },
            },
        }))
        .expect("a pool");
        let usage = PoolUsage {
            size: 8,
            used: 3,
            free: 5,
            quarantined: 0,
            excluded: 2,
            reserved: 0,
            withheld: 0,
            withheld_in_use: 0,
            out_of_range: 0,
            attributed: 0,
        };
        let mut figures = Figures::default();
        figures.pool("net", &pool, &usage, &Vec::new());
        let labels = "fippool=net,subnet=10.0.0.0/24,target_cluster=west,target_network=vips";
        assert_eq!(text(&figures.capacity), [format!("{labels} 10")]);
        assert_eq!(text(&figures.available), [format!("{labels} 5")]);
        assert_eq!(text(&figures.used), [format!("{labels} 5")]);
    }
}
