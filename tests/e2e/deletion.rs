//! Deleting what is in use, with a real kube-controller-manager: no address is freed that a Service shows, and nothing stays
//! Terminating.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::time::{Duration, Instant};

use fipd_crds::floating_ip::{FloatingIP, FloatingIPPool, FloatingIPProjectQuota};
use fipd_crds::management::Project;
use fipd_tests::scenario::{Scenario, addresses, config, service, write_kubeconfig};
use fipd_tests::stock;
use fipd_tests::testbed::{Fault, RESTRICTED_USER, SiteOptions, wait_until};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const GROUP: &str = "rancher.k8s.binbash.org";
const ROLES: &str = include_str!("../../packaging/rbac/rancher-fip-management.yaml");
/// What the test sets in place of ten minutes.
const RELEASE_WAIT: Duration = Duration::from_secs(10);

/// The clusters: one stays up, one goes down, and Rancher's object of the third is deleted.
const CLUSTERS: [&str; 3] = ["up", "down", "gone"];

struct Bed {
    scenario: Scenario,
    rancher: Client,
}

impl Bed {
    /// Each cluster has a Service `web` that fipd serves, but `gone`, which is not connected; and a FloatingIP `stock` that the
    /// stock LB controller got for its Service `other`.
    async fn start() -> Self {
        let options = SiteOptions {
            proxied: true,
            ..SiteOptions::of(&["up", "down"])
        };
        let mut scenario = Scenario::prepare(&options).await.unwrap();
        let plane = &mut scenario.site.rancher;
        plane.start_controller_manager().await.unwrap();
        plane.apply(ROLES).await.unwrap();
        let role = "fipd-rancher-fip-management";
        plane.bind_role(role, None).await.unwrap();
        let mut objects = vec![stock::pool(
            "net",
            "10.60.0.0/24",
            "10.60.0.10",
            "10.60.0.30",
        )];
        objects.extend(stock::cluster("c-m-gone"));
        let quota = json!({ "net": 20 });
        for name in CLUSTERS {
            objects.extend(stock::project(
                &format!("c-m-{name}"),
                &format!("p-{name}"),
                &quota,
            ));
        }
        let texts = objects.iter().map(|object| format!("---\n{object}\n"));
        plane.apply(&texts.collect::<String>()).await.unwrap();
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&scenario.fipd, "rancher", &kubeconfig).unwrap();
        let wait = format!(
            "role = \"management\"\nrelease-wait = \"{}s\"",
            RELEASE_WAIT.as_secs()
        );
        let text = config(&scenario.site, "").replace("role = \"management\"", &wait);
        let text = format!("[api]\nadvertise = \"{}\"\n{text}", scenario.fipd.url());
        scenario.fipd.write_config(&text).unwrap();
        scenario.fipd.restart().await.unwrap();
        scenario.fipd.wait_ready(DEADLINE).await.unwrap();
        let rancher = scenario.site.rancher.client().await.unwrap();
        let bed = Self { scenario, rancher };
        for name in CLUSTERS {
            let address = bed.add_stock(name).await;
            if name != "gone" {
                bed.add_services(name, &address).await;
            }
        }
        bed
    }

    fn fips(&self, cluster: &str) -> Api<FloatingIP> {
        Api::namespaced(self.rancher.clone(), &format!("c-m-{cluster}"))
    }

    async fn services(&self, cluster: &str) -> Api<Service> {
        Api::namespaced(self.scenario.client(cluster).await.unwrap(), "apps")
    }

    /// The address of the FloatingIP `stock`.
    async fn add_stock(&self, cluster: &str) -> String {
        let id = format!("c-m-{cluster}");
        let object = json!({
            "apiVersion": format!("{GROUP}/v1beta2"), "kind": "FloatingIP",
            "metadata": { "name": "stock", "namespace": id, "labels": {
                format!("{GROUP}/project-name"): format!("p-{cluster}"),
                format!("{GROUP}/cluster-name"): id,
                format!("{GROUP}/service-0-namespace"): "apps",
                format!("{GROUP}/service-0-name"): "other",
            } },
            "spec": { "floatingIPPool": "net" },
        });
        self.scenario
            .site
            .rancher
            .apply(&object.to_string())
            .await
            .unwrap();
        let fips = self.fips(cluster);
        wait_until("the FloatingIP has an address", DEADLINE, || async {
            let fip = fips.get("stock").await.map_err(|error| error.to_string())?;
            let status = fip.status.unwrap_or_default();
            Some(status.ip_addr.clone())
                .filter(|address| !address.is_empty())
                .ok_or_else(|| json!(status).to_string())
        })
        .await
        .unwrap()
    }

    async fn add_services(&self, cluster: &str, address: &str) {
        self.scenario
            .site
            .cluster(cluster)
            .unwrap()
            .add_namespace("apps")
            .await
            .unwrap();
        let services = self.services(cluster).await;
        let mut other = service("other", "net").unwrap();
        other.metadata.annotations = None;
        other.spec.as_mut().unwrap().load_balancer_class = Some("other.example.net/lb".to_owned());
        let params = PostParams::default();
        services.create(&params, &other).await.unwrap();
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
        let merge = Patch::Merge(&status);
        services
            .patch_status("other", &PatchParams::default(), &merge)
            .await
            .unwrap();
        services
            .create(&params, &service("web", "net").unwrap())
            .await
            .unwrap();
        let fips = self.fips(cluster);
        wait_until(
            "the Service has an address, shown in Rancher",
            DEADLINE,
            || async {
                let web = services
                    .get("web")
                    .await
                    .map_err(|error| error.to_string())?;
                let list = fips.list(&ListParams::default()).await;
                let count = list.map_err(|error| error.to_string())?.items.len();
                match addresses(&web).len() + count {
                    3 => Ok(()),
                    _ => Err(json!([web.status, count]).to_string()),
                }
            },
        )
        .await
        .unwrap();
    }

    /// Who has the address, by the command line.
    async fn owner(&self, address: &str) -> String {
        let listed = self
            .scenario
            .fipd
            .cli(["lease", "list", "-o", "json"])
            .await;
        let listed = listed.unwrap().json().unwrap();
        let leases = listed["leases"].as_array().unwrap().iter();
        let mut lease = leases.filter(|lease| lease["address"] == address);
        let lease = lease.next();
        lease.map_or_else(String::new, |lease| lease.to_string())
    }

    async fn wait_owner(&self, address: &str, part: &str) {
        wait_until(&format!("{address} is of {part}"), DEADLINE, || async {
            let owner = self.owner(address).await;
            owner.contains(part).then_some(()).ok_or(owner)
        })
        .await
        .unwrap();
    }
}

async fn wait_gone<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    wait_until(&format!("{name} is gone"), DEADLINE, || async {
        match api.get_opt(name).await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(object) => Err(json!(object).to_string()),
        }
    })
    .await
    .unwrap();
}

/// `kubectl delete` of a FloatingIP, and of the pool, is refused by name; an annotation forces it, and the Service keeps the
/// address.
async fn refused_and_forced(bed: &Bed, address: &str) {
    let (fips, params) = (bed.fips("up"), DeleteParams::default());
    wait_until(
        "the API server asks fipd about deletes",
        DEADLINE,
        || async {
            let dry = DeleteParams::default().dry_run();
            match fips.delete("stock", &dry).await {
                Err(_) => Ok(()),
                Ok(_) => Err("it may be deleted".to_owned()),
            }
        },
    )
    .await
    .unwrap();
    let refused = fips.delete("stock", &params).await.unwrap_err().to_string();
    assert!(
        refused.contains(&format!(
            "{address} is in use by Service apps/other of cluster c-m-up"
        )),
        "{refused}"
    );
    let list = fips.list(&ListParams::default()).await.unwrap();
    let shown = list
        .iter()
        .map(ResourceExt::name_any)
        .find(|name| name != "stock");
    let refused = fips.delete(&shown.unwrap(), &params).await.unwrap_err();
    assert!(
        refused.to_string().contains("Service apps/web of cluster"),
        "{refused}"
    );
    let pools: Api<FloatingIPPool> = Api::all(bed.rancher.clone());
    let refused = pools.delete("net", &params).await.unwrap_err().to_string();
    assert!(refused.contains("FloatingIP/c-m-up/stock"), "{refused}");

    let force = json!({ "metadata": { "annotations": { "fipd.io/force-delete": "true" } } });
    let patch = PatchParams::default();
    fips.patch("stock", &patch, &Patch::Merge(&force))
        .await
        .unwrap();
    fips.delete("stock", &params).await.unwrap();
    wait_gone(&fips, "stock").await;
    bed.wait_owner(address, "Service/apps/other").await;
    let services = bed.services("up").await;
    let next = service("next", "net").unwrap();
    services
        .create(&PostParams::default(), &next)
        .await
        .unwrap();
    wait_until("the next Service has another address", DEADLINE, || async {
        let next = services
            .get("next")
            .await
            .map_err(|error| error.to_string())?;
        let text = addresses(&next).first().map(ToString::to_string);
        let text = text.ok_or("it has none")?;
        assert_ne!(text, address, "it is in use");
        Ok::<_, String>(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_services_show_outlives_namespace_project_and_quota_and_nothing_stays_terminating() {
    let bed = Bed::start().await;
    let mut stock = Vec::new();
    for name in CLUSTERS {
        let fip = bed.fips(name).get("stock").await.unwrap();
        stock.push(fip.status.unwrap().ip_addr);
    }
    refused_and_forced(&bed, &stock[0]).await;
    let mut served = Vec::new();
    for name in ["up", "down"] {
        let web = bed.services(name).await.get("web").await.unwrap();
        served.push(addresses(&web)[0].to_string());
    }

    bed.scenario
        .site
        .cluster("down")
        .unwrap()
        .proxy
        .as_ref()
        .unwrap()
        .set(Fault::Cut);
    let clusters: Api<fipd_crds::management::Cluster> = Api::all(bed.rancher.clone());
    let params = DeleteParams::default();
    clusters.delete("c-m-gone", &params).await.unwrap();
    let quotas: Api<FloatingIPProjectQuota> = Api::all(bed.rancher.clone());
    let began = Instant::now();
    for name in CLUSTERS {
        let id = format!("c-m-{name}");
        let projects: Api<Project> = Api::namespaced(bed.rancher.clone(), &id);
        projects
            .delete(&format!("p-{name}"), &params)
            .await
            .unwrap();
        quotas.delete(&format!("p-{name}"), &params).await.unwrap();
    }
    for name in ["down", "gone", "up"] {
        wait_gone(&quotas, &format!("p-{name}")).await;
    }
    assert!(
        began.elapsed() >= RELEASE_WAIT - Duration::from_secs(1),
        "the cluster that is up is waited for: {:?}",
        began.elapsed()
    );
    bed.wait_owner(&stock[1], "Service/apps/other").await;

    let namespaces: Api<Namespace> = Api::all(bed.rancher.clone());
    for name in CLUSTERS {
        namespaces
            .delete(&format!("c-m-{name}"), &params)
            .await
            .unwrap();
    }
    for name in CLUSTERS {
        wait_gone(&namespaces, &format!("c-m-{name}")).await;
    }
    for address in [&stock[0], &stock[1]] {
        let owner = bed.owner(address).await;
        assert!(owner.contains("Service/apps/other"), "{address}: {owner}");
    }
    for address in &served {
        let owner = bed.owner(address).await;
        assert!(owner.contains("Service/apps/web"), "{address}: {owner}");
    }
    let web: Value = json!(bed.services("up").await.get("web").await.unwrap().status);
    assert!(
        web.to_string().contains(&served[0]),
        "it is served on: {web}"
    );
}
