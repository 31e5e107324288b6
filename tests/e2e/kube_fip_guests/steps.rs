//! fipd dies after each single step of a guest.

use super::guest::KUBE_SYSTEM;
use super::*;

/// A step of serving a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    FloatingIpMade,
    AddressGiven,
    Noted,
    MapWritten,
    HarvesterOff,
    KubeVipBegun,
    KubeVipInstalled,
    CloudProviderBegun,
    CloudProviderInstalled,
    CloudProviderGone,
    KubeVipGone,
    HarvesterOn,
}

const STEPS: [Step; 12] = [
    Step::FloatingIpMade,
    Step::AddressGiven,
    Step::Noted,
    Step::MapWritten,
    Step::HarvesterOff,
    Step::KubeVipBegun,
    Step::KubeVipInstalled,
    Step::CloudProviderBegun,
    Step::CloudProviderInstalled,
    Step::CloudProviderGone,
    Step::KubeVipGone,
    Step::HarvesterOn,
];

/// Harvester's own kube-vip has the name that ours has by default.
const VIP: &str = "guest-vip";

impl Step {
    /// The label is taken away before it.
    fn leaves(self) -> bool {
        matches!(
            self,
            Self::CloudProviderGone | Self::KubeVipGone | Self::HarvesterOn
        )
    }

    /// What is done before it. The guest does not wait until the FloatingIP shows its address.
    fn earlier(self) -> impl Iterator<Item = Self> {
        let earlier = STEPS.into_iter().take_while(move |step| *step != self);
        earlier.filter(move |step| step.leaves() == self.leaves() && *step != Self::AddressGiven)
    }

    fn following(self) -> Option<Self> {
        let mut later = STEPS.into_iter().skip_while(|step| *step != self).skip(1);
        later.next().filter(|next| next.leaves() == self.leaves())
    }
}

impl Guest<'_> {
    /// Helm has begun with the release, or has it deployed.
    async fn has_release(&self, release: &str, deployed: bool) -> bool {
        let secrets: Api<Secret> = Api::namespaced(self.client().await, KUBE_SYSTEM);
        let mut labels = format!("owner=helm,name={release}");
        if deployed {
            labels.push_str(",status=deployed");
        }
        let found = secrets.list(&ListParams::default().labels(&labels)).await;
        !found.unwrap().items.is_empty()
    }

    fn link(&self, fault: Fault) {
        self.cluster.proxy.as_ref().unwrap().set(fault);
    }

    async fn harvester_is_off(&self) -> bool {
        let found = self.daemon_set(KUBE_VIP).await.unwrap();
        let selector = found.spec.template.spec.unwrap().node_selector;
        selector.is_some_and(|all| all.len() > 1)
    }

    async fn has_come_to(&self, step: Step) -> bool {
        let fip = async || self.bed.objects.get(&self.fip()).await.ok();
        match step {
            Step::FloatingIpMade => fip().await.is_some(),
            Step::AddressGiven => {
                let shown = fip().await.map(|fip| fip["status"]["address"].is_string());
                shown.unwrap_or_default()
            }
            Step::Noted => {
                let client = self.bed.objects.client.clone();
                let maps = Api::namespaced(client, NAMESPACE);
                let notes = texts(&maps, "fipd-kube-fip-guests").await;
                notes.is_some_and(|notes| {
                    let note = notes.get(&self.id);
                    note.is_some_and(|note| note.contains("written"))
                })
            }
            Step::MapWritten => texts(&self.maps().await, "kubevip").await.is_some(),
            Step::HarvesterOff => self.harvester_is_off().await,
            Step::KubeVipBegun => self.has_release(VIP, false).await,
            Step::KubeVipInstalled => self.has_release(VIP, true).await,
            Step::CloudProviderBegun => self.has_release(CLOUD_PROVIDER, false).await,
            Step::CloudProviderInstalled => self.has_release(CLOUD_PROVIDER, true).await,
            Step::CloudProviderGone => !self.has_release(CLOUD_PROVIDER, true).await,
            Step::KubeVipGone => !self.has_release(VIP, true).await,
            Step::HarvesterOn => !self.harvester_is_off().await,
        }
    }

    async fn wait_step(&self, step: Step) {
        let what = format!("{} comes to {step:?}", self.name());
        wait_until(&what, DEADLINE, || async {
            self.has_come_to(step).await.then_some(()).ok_or("not yet")
        })
        .await
        .unwrap();
    }

    /// fipd died after a step. Whether it had not done the next one yet.
    async fn was_left_at(&self, step: Step) -> bool {
        let went_on = match step.following() {
            Some(next) => self.has_come_to(next).await,
            None => false,
        };
        for done in step.earlier().chain([step]) {
            assert!(self.has_come_to(done).await, "{step:?}: no {done:?}");
        }
        !went_on
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_each_step_it_ends_as_if_nothing_had_been() {
    let mut bed = Bed::start(&[("kubevipReleaseName", VIP)]).await;
    let mut hit = Vec::new();
    for (number, step) in STEPS.into_iter().enumerate() {
        let name = format!("step-{number}");
        let on = json!({ "kube-vip": "true" });
        let cluster = CLUSTERS[number % CLUSTERS.len()];
        guest::clean(bed.cluster(cluster)).await;
        let mut guest = bed.guest(&name, cluster, on);
        guest.add_harvester_kube_vip().await;
        if step == Step::AddressGiven {
            // Milliseconds later it would be written into the guest.
            guest.link(Fault::BlackHole);
        }
        guest.make().await;
        if step.leaves() {
            guest.wait_reason("Ready").await;
            guest.label(None).await;
        }
        // Looks come fast at first.
        for awaited in step.earlier().last().into_iter().chain([step]) {
            guest.wait_step(awaited).await;
        }
        let machines = guest.machines;
        bed.fipd.kill9().unwrap();
        let guest = bed.guest(&name, cluster, json!({}));
        if guest.was_left_at(step).await {
            hit.push(step);
        }
        guest.link(Fault::Pass);
        bed.restart().await;

        let mut guest = bed.guest(&name, cluster, json!({}));
        guest.machines = machines;
        guest.wait_reason("Ready").await;
        let address = guest.wait_address().await;
        let fips = bed.objects.fips(&guest.id);
        let fips = fips.list(&ListParams::default()).await.unwrap().items;
        assert_eq!(fips.len(), 1, "{step:?}: {fips:?}");
        let map = [("cidr-global", &*format!("{address}/32"))];
        guest.wait_map("its address", &map).await;
        let releases: &[&str] = if step.leaves() {
            &[]
        } else {
            &[VIP, CLOUD_PROVIDER]
        };
        guest.wait_releases(releases).await;
        guest.wait_harvester_kube_vip(!step.leaves()).await;
        let leases = bed.fipd.cli(["lease", "list", "-o", "json"]).await;
        let leases = leases.unwrap().json().unwrap();
        // A guest that was before keeps its address for a minute.
        let mut leases = leases["leases"].as_array().unwrap().clone();
        leases.retain(|lease| lease["owner"].as_str().unwrap().contains(&guest.id));
        assert_eq!(leases.len(), 1, "{step:?}: {leases:?}");
        // Rancher has it no more, and another is to be made on the cluster.
        let clusters: Api<fipd_crds::management::Cluster> = Api::all(bed.objects.client.clone());
        clusters
            .delete(&guest.id, &DeleteParams::default())
            .await
            .unwrap();
        bed.objects.delete(&guest.fip()).await.unwrap();
        bed.objects.wait_gone(&guest.fip()).await.unwrap();
    }
    println!("killed before the next step: {hit:?}");
    // Of these it is sure; a few others follow each other faster than anybody looks.
    let sure = [
        Step::AddressGiven,
        Step::CloudProviderInstalled,
        Step::HarvesterOn,
    ];
    assert!(sure.iter().all(|step| hit.contains(step)), "{hit:?}");
    assert!(hit.len() >= sure.len() + 2, "{hit:?}");
}
