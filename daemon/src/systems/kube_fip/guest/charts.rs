//! The two releases of a guest: kube-vip, and the cloud provider that gives its addresses to Services.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use fipd_crds::{kube_fip::KUBE_VIP, provisioning::Cluster};
use serde_json::Value;

use super::{
    VipGuests, apply, observe,
    plan::VipPlan,
    serve::{guest_name, is_served},
};
use crate::{
    config::ChartEngine,
    controller::{
        client::{CallError, Remote},
        kind::SERVICE,
        queue::Next,
        store::{Key, Observed},
    },
    guests::{
        charts::{
            ChartError, ChartProgress, ChartRelease, InstalledReleases, ReachedGuest, ReleaseMark,
            ReleaseOwner,
            owner::{ChartOwner, ChartRemover},
            steps::ReleaseStep,
        },
        clusters::{ManagedCluster, PROVISIONED_CLUSTER},
        hosting::Provisioned,
    },
    systems::kube_fip::{metrics::GuestEvent, settings::KubeFipSettings},
};

/// Annotation of a Service: the addresses that kube-vip answers for, separated by commas.
const ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";
/// `spec.loadBalancerClass` of Services that are meant for kube-vip.
const CLASS: &str = "kube-vip.io/kube-vip-class";

/// Why no release gets the name of Harvester's own kube-vip: it would make objects of the same names, some of them for the whole
/// cluster, and helm refuses what is another release's.
const SAME_NAME: &str = "DaemonSet kube-system/kube-vip is that of Harvester's cloud provider, and stays as it is; the release kube-vip would make objects of the same names: set kubevipReleaseName to another name";

/// One look at what the releases of a guest are to be.
struct VipChartLook<'a> {
    guests: &'a VipGuests,
    id: &'a str,
    cluster: Arc<ManagedCluster>,
    releases: Vec<ChartRelease>,
}

/// A Service in a guest that has addresses of a load balancer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownService {
    /// Namespace and name.
    name: String,
    pub addresses: Vec<IpAddr>,
    /// It says itself that kube-vip answers for them.
    is_kube_vips: bool,
}

/// What is asked before the releases of a guest go.
struct VipChartLeave<'a> {
    guests: &'a VipGuests,
    id: &'a str,
}

impl VipGuests {
    pub(super) async fn reconcile_charts(self: Arc<Self>, key: Key) -> Next {
        let id = &*key.name;
        let turn = self.access.turn(id);
        let holds = turn.lock().await;
        let seen = self.seen.clusters.seen(&key);
        let may_be_there = seen.is_some() || self.noted(id).written;
        let cluster = match seen {
            Some(Observed::Parsed(cluster)) => Some(cluster).filter(|cluster| is_served(cluster)),
            Some(Observed::Malformed(_)) | None => None,
        };
        let made = self.made_by(id);
        let made = made.as_ref().map(|(key, made)| (key, &**made));
        let plan = match made {
            Some((key, made)) => Some((self.planned(id, key, made).await.0, (key, made))),
            None => None,
        };
        let (next, news) = match (cluster, plan) {
            (Some(cluster), Some((plan, made))) if plan.brings() => {
                let guest = Arc::clone(&cluster);
                let name = guest_name((id, &guest), made);
                let look = || self.chart_look(id, cluster, &plan);
                let (next, news) = self.charts.look_after((id, name), look).await;
                let releases = plan.releases.as_deref().unwrap_or_default();
                let done = self.charts.progress(id, releases) == ChartProgress::Done;
                let interval = Next::After(self.config().interval);
                (if done { interval } else { next }, news)
            }
            (Some(_), Some((plan, _))) if plan.removes() => {
                let leave = VipChartLeave { guests: &self, id };
                self.charts.uninstall(id, &leave).await
            }
            // What it is to have is not known now; afterwards it may be the same as before.
            _ if may_be_there => (Next::After(self.config().interval), false),
            _ => (Next::Done, false),
        };
        drop(holds);
        if news {
            // It says how the guest is doing.
            self.queue.add(key.clone());
        }
        next
    }

    fn chart_look<'a>(
        &'a self,
        id: &'a str,
        cluster: Arc<ManagedCluster>,
        plan: &VipPlan,
    ) -> Option<VipChartLook<'a>> {
        Some(VipChartLook {
            guests: self,
            id,
            cluster,
            releases: plan.releases.clone()?,
        })
    }

    /// Whether a release is that of the cloud provider: by its chart, else by the names in force, else by its own name.
    fn is_provider(&self, mark: &ReleaseMark) -> bool {
        let config = self.config();
        let named = config.releases.iter().find(|one| one.name == mark.name);
        let named = named.map_or(&mark.name, |named| &named.chart);
        is_cloud_provider(mark.chart.as_ref().unwrap_or(named))
    }

    fn count_removal(&self, mark: &ReleaseMark, well: bool) {
        let event = match self.is_provider(mark) {
            true => GuestEvent::CloudProvider,
            false => GuestEvent::KubeVip,
        };
        self.counts.operation(event, "uninstall", well);
    }

    /// kube-vip answers for the addresses of Services: it stays while one has one of the guest's, or says that it is for kube-vip.
    /// What other load balancers give is not its concern.
    pub(super) async fn check_unused(&self, id: &str, remote: &Remote) -> Result<(), ChartError> {
        let (offers, services) = offered_and_shown(remote).await.map_err(|error| {
            let why = "charts are uninstalled once it is known that no Service there has an address; Services or the ConfigMap kubevip cannot be read";
            ChartError::new("ServicesUnreadable", format!("{why}: {error}"))
        })?;
        let own = self.addresses_of(id);
        let is_own = |address: &IpAddr| own.contains(address) || offers(*address);
        let served = services.into_iter().filter_map(|service| {
            let mut addresses = service.addresses.iter().copied();
            let of_guest = addresses.find(is_own);
            let first = service.addresses.first().copied();
            let address = of_guest.or(first.filter(|_| service.is_kube_vips))?;
            Some((service.name, address))
        });
        check_none_served(&served.collect::<Vec<_>>())
    }

    /// What its FloatingIPs have or show, and what the guest keeps.
    fn addresses_of(&self, id: &str) -> BTreeSet<IpAddr> {
        let keys = self.fips.keys_in(id);
        let leased = keys.iter().flat_map(|key| self.leases(key));
        let leased = leased.chain(self.kept(id)).map(|lease| lease.address);
        let shown = keys.iter().filter_map(|key| self.fips.get(key)?.recorded());
        leased.chain(shown).collect()
    }

    /// What a fresh read of the provisioning Cluster asks for; `None`: there is none any more.
    async fn fresh_plan(&self, id: &str) -> Result<Option<VipPlan>, ChartError> {
        let Some((key, _)) = self.made_by(id) else {
            return Ok(None);
        };
        let target = PROVISIONED_CLUSTER.target(&key);
        let found: Option<Cluster> = self.remote.get(&target).await.map_err(unconfirmed)?;
        let Some(found) = found else {
            return Ok(None);
        };
        let made = Provisioned::view(found, observe::READS);
        Ok(Some(self.planned(id, &key, &made).await.0))
    }
}

impl ChartOwner for VipChartLook<'_> {
    async fn wanted(&mut self, _: &InstalledReleases) -> Result<Vec<ChartRelease>, ChartError> {
        Ok(self.releases.clone())
    }

    fn engine(&self) -> Result<ChartEngine, ChartError> {
        let settings = self.guests.site.settings::<KubeFipSettings>();
        self.cluster.engine_or(settings.engine)
    }

    /// Under another name a chart would be there twice.
    fn excludes(&self, release: &ChartRelease, other: &ReleaseMark) -> bool {
        is_cloud_provider(&release.chart) == self.guests.is_provider(other)
    }

    fn makes_room(&self) -> bool {
        true
    }

    /// Harvester's own kube-vip makes room, once nothing else keeps ours out.
    async fn check_room(
        &self,
        guest: &ReachedGuest<'_>,
        installed: &InstalledReleases,
        step: &ReleaseStep<'_>,
    ) -> Result<(), ChartError> {
        let release = step.brings;
        let there = installed.is_complete(guest.remote, &release.namespace, &release.name);
        let is_there = there.await.map_err(ChartError::unreadable)?;
        let same = match step.kept_out_by.first() {
            Some(mark) => Some((*mark).clone()),
            None => same_chart((guest.remote, installed), release, is_there).await?,
        };
        if let Some(mark) = same {
            return Err(ChartError::elsewhere(&mark, &release.name));
        }
        if is_cloud_provider(&release.chart) {
            return Ok(());
        }
        let off = match !is_there && &*release.name == KUBE_VIP {
            true => apply::has_harvesters(guest.remote)
                .await
                .map(|there| !there),
            false => apply::harvester(guest.remote, true).await.map(|()| true),
        };
        match off {
            Ok(true) => Ok(()),
            Ok(false) => Err(ChartError::new("HarvesterKubeVip", SAME_NAME)),
            Err(error) => {
                let why = "Harvester's own kube-vip is not switched off yet";
                let why = format!("{why}: {error}");
                Err(ChartError::new("HarvesterNotSwitchedOff", why))
            }
        }
    }

    async fn confirm_removal(&self, guest: &ReachedGuest<'_>) -> Result<(), ChartError> {
        let now = self.guests.fresh_plan(self.id).await?;
        if now.is_none_or(|plan| plan.releases.as_ref() != Some(&self.releases)) {
            return Err(changed());
        }
        self.guests.check_unused(self.id, guest.remote).await
    }

    fn begins(&self) {
        self.guests.queue.add(Key::new("", self.id));
    }

    /// Nobody would answer for what the cloud provider gives.
    fn in_order(&self) -> bool {
        true
    }

    fn ended(&self, release: &ChartRelease, well: bool) {
        let event = match is_cloud_provider(&release.chart) {
            true => GuestEvent::CloudProvider,
            false => GuestEvent::KubeVip,
        };
        self.guests.counts.note(self.id, event, well);
        self.guests.counts.operation(event, "install", well);
    }

    fn removed(&self, mark: &ReleaseMark, well: bool) {
        self.guests.count_removal(mark, well);
    }
}

impl ChartRemover for VipChartLeave<'_> {
    /// kube-vip answers for the addresses of Services, and nobody else would.
    async fn check_unused(
        &self,
        guest: &ReachedGuest<'_>,
        installed: &InstalledReleases,
    ) -> Result<(), ChartError> {
        let ours = |mark: &ReleaseMark| mark.owner == ReleaseOwner::Fipd;
        if !installed.marks.iter().any(ours) {
            return Ok(());
        }
        self.guests.check_unused(self.id, guest.remote).await
    }

    /// The cloud provider: what it would give a Service meanwhile nobody would answer for.
    fn goes_first(&self, mark: &ReleaseMark) -> bool {
        self.guests.is_provider(mark)
    }

    async fn confirm_leaving(&self) -> Result<(), ChartError> {
        let now = self.guests.fresh_plan(self.id).await?;
        match now.is_some_and(|plan| plan.removes()) {
            true => Ok(()),
            false => Err(changed()),
        }
    }

    fn removed(&self, mark: &ReleaseMark, well: bool) {
        self.guests.count_removal(mark, well);
    }
}

/// Releases stay while kube-vip answers for Services.
fn check_none_served(served: &[(String, IpAddr)]) -> Result<(), ChartError> {
    let [(service, address), rest @ ..] = served else {
        return Ok(());
    };
    let more = match rest.len() {
        0 => String::new(),
        more => format!(" and {more} more have one"),
    };
    let why = format!(
        "Service {service} has the address {address}{more}, and kube-vip answers for it: delete the Service, or have another load balancer give it an address of its own, without the annotation {ADDRESSES}; charts are uninstalled once kube-vip answers for none"
    );
    Err(ChartError::new("ServicesHoldAddresses", why))
}

/// What the ConfigMap of a guest offers, and the Services there. In this order: what is offered no more goes to no Service of which
/// the list does not know.
pub(super) async fn offered_and_shown(
    remote: &Remote,
) -> Result<(impl Fn(IpAddr) -> bool, Vec<ShownService>), CallError> {
    let offers = apply::offers(remote).await?;
    Ok((offers, shown(remote).await?))
}

/// The Services in a guest that have addresses of a load balancer. kube-vip answers for an address from the moment when the cloud
/// provider names it in the Service; the status may never show it.
async fn shown(remote: &Remote) -> Result<Vec<ShownService>, CallError> {
    remote.list_kept(&SERVICE.all(), "", shows).await
}

fn shows(service: Value) -> Option<ShownService> {
    let text = |path: &str| service.pointer(path).and_then(Value::as_str);
    if text("/spec/type") != Some("LoadBalancer") {
        return None;
    }
    let ingress = service.pointer("/status/loadBalancer/ingress");
    let ingress = ingress.and_then(Value::as_array).into_iter().flatten();
    let annotations = &service["metadata"]["annotations"];
    let named = annotations[ADDRESSES].as_str().unwrap_or_default();
    let asked = text("/spec/loadBalancerIP").into_iter();
    let texts = ingress.filter_map(|one| one["ip"].as_str());
    let texts = texts.chain(named.split(',').map(str::trim)).chain(asked);
    let addresses: BTreeSet<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let (namespace, name) = (text("/metadata/namespace")?, text("/metadata/name")?);
    (!addresses.is_empty()).then(|| ShownService {
        name: format!("{namespace}/{name}"),
        addresses,
        is_kube_vips: !named.is_empty() || text("/spec/loadBalancerClass") == Some(CLASS),
    })
}

/// The chart has it in its name, and so has its release unless somebody names it otherwise.
fn is_cloud_provider(name: &str) -> bool {
    name.contains("cloud-provider")
}

/// A release of the same chart that fipd did not install: by the name that the original gives it, and before one is brought that is
/// not there by the chart, since the original takes any name.
async fn same_chart(
    (remote, installed): (&Remote, &InstalledReleases),
    release: &ChartRelease,
    is_there: bool,
) -> Result<Option<ReleaseMark>, ChartError> {
    let original = original_name(&release.chart);
    let place = (&*release.namespace, &*release.name);
    let is_named =
        |mark: &ReleaseMark| mark.name == original && (&*mark.namespace, &*mark.name) != place;
    let named = installed.unmarked().find(is_named);
    if is_there || named.is_some() {
        return Ok(named);
    }
    let wanted = release.parse().ok();
    let own = wanted.as_ref().and_then(|wanted| wanted.chart.own_name());
    let charts = [original, own.unwrap_or(original)];
    installed.unmarked_of(remote, place, &charts).await
}

/// What the original calls the release of a chart where nobody names it otherwise, as the chart is called. One of this name that
/// fipd did not install is the same chart.
fn original_name(chart: &str) -> &'static str {
    match is_cloud_provider(chart) {
        true => "kube-vip-cloud-provider",
        false => KUBE_VIP,
    }
}

/// Nothing is removed on what was read some time ago.
fn unconfirmed(error: CallError) -> ChartError {
    let why = "no release is removed before the provisioning.cattle.io Cluster is read again";
    ChartError::new("LabelUnreadable", format!("{why}: {error}"))
}

fn changed() -> ChartError {
    let why = "label, settings or addresses changed meanwhile; no release is removed";
    ChartError::new("LabelChanged", why)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        controller::client::testing::serving,
        guests::objects::Texts,
        helm,
        systems::kube_fip::guest::{SYSTEM, config::GuestConfig},
    };

    /// The name of what keeps fipd's release of kube-vip out of a guest, where somebody installed one of this name and chart there.
    async fn kept_out_by(name: &'static str, chart: &str, is_there: bool) -> Option<String> {
        let labels = json!({ "name": name, "version": "1", "status": "deployed" });
        let mut secret = helm::secret(1, "deployed", (chart, "0.6.4"), &json!({}));
        secret["metadata"] = json!({
            "namespace": "vips", "name": "v1", "resourceVersion": "7", "labels": labels,
        });
        let (remote, _) = serving(move |path| match path.rsplit('/').next() {
            Some("v1") => (200, secret.clone()),
            Some("secrets") => (200, json!({ "metadata": {}, "items": [secret] })),
            Some(_) | None => (404, json!("no")),
        });
        let keys = [
            ("kubevipReleaseName", "vip"),
            ("kubevipChartRef", "oci://r/charts/our-vip"),
        ];
        let keys = keys.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let config = GuestConfig::new(&Texts::from(keys), &KubeFipSettings::default());
        let release = config.releases.iter().find(|one| one.name == "vip");
        let release = release.expect("kube-vip");
        let installed = InstalledReleases::read(&remote, SYSTEM).await;
        let installed = installed.expect("a list");
        let same = same_chart((&remote, &installed), release, is_there).await;
        same.expect("it is known").map(|mark| mark.name)
    }

    #[tokio::test]
    async fn a_release_of_the_original_with_a_name_of_its_own_keeps_a_second_kube_vip_out() {
        for chart in [KUBE_VIP, "our-vip"] {
            let kept_out = kept_out_by("their-vip", chart, false).await;
            assert_eq!(kept_out.as_deref(), Some("their-vip"), "{chart}");
        }
        for other in ["kube-vip-cloud-provider", "harvester-cloud-provider"] {
            assert_eq!(kept_out_by("their-vip", other, false).await, None);
        }
        // Nothing is read for one that is there, beside what its name says.
        assert_eq!(kept_out_by("their-vip", KUBE_VIP, true).await, None);
        let named = kept_out_by(KUBE_VIP, "any", true).await;
        assert_eq!(named.as_deref(), Some(KUBE_VIP));
    }

    #[test]
    fn a_service_holds_an_address_once_a_load_balancer_gave_it_one() {
        let service = |kind: &str, ip: Value| {
            shows(json!({
                "metadata": { "namespace": "shop", "name": "web" }, "spec": { "type": kind },
                "status": { "loadBalancer": { "ingress": ip } },
            }))
        };
        let given = json!([{ "hostname": "x" }, { "ip": "10.0.0.5" }, { "ip": "10.0.0.6" }]);
        let held = service("LoadBalancer", given.clone());
        let of_another = ShownService {
            name: "shop/web".to_owned(),
            addresses: vec![[10, 0, 0, 5].into(), [10, 0, 0, 6].into()],
            is_kube_vips: false,
        };
        assert_eq!(held, Some(of_another));
        assert_eq!(service("LoadBalancer", json!([])), None);
        let named = |annotation: &str, asked: &str| {
            let service = shows(json!({
                "metadata": { "namespace": "shop", "name": "web", "annotations": { ADDRESSES: annotation } },
                "spec": { "type": "LoadBalancer", "loadBalancerIP": asked }, "status": { "loadBalancer": {} },
            }));
            service.map(|service| service.addresses)
        };
        let both = || Some(vec![[10, 0, 0, 5].into(), [10, 0, 0, 6].into()]);
        assert_eq!(named("10.0.0.6, 10.0.0.5", ""), both());
        assert_eq!(named("10.0.0.5", "10.0.0.6"), both());
        assert_eq!(named("", ""), None);
        assert_eq!(named("dhcp", "0.0.0.0"), Some(vec![[0, 0, 0, 0].into()]));
        assert_eq!(service("ClusterIP", given), None);
    }

    #[test]
    fn a_service_says_by_annotation_or_class_that_it_is_kube_vips() {
        let is_kube_vips = |annotation: &str, class: &str| {
            let service = shows(json!({
                "metadata": { "namespace": "shop", "name": "web", "annotations": { ADDRESSES: annotation } },
                "spec": { "type": "LoadBalancer", "loadBalancerClass": class },
                "status": { "loadBalancer": { "ingress": [{ "ip": "10.0.0.5" }] } },
            }));
            service.expect("it has an address").is_kube_vips
        };
        assert!(is_kube_vips("10.0.0.5", "") && is_kube_vips("", CLASS));
        assert!(!is_kube_vips("", "metallb.example/lb"));
    }
}
