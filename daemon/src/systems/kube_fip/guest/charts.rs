//! The two releases of a guest: kube-vip, and the cloud provider that gives its addresses to Services.

use std::{net::IpAddr, sync::Arc};

use fipd_crds::provisioning::Cluster;
use serde_json::Value;

use super::{SYSTEM, VipGuests, apply, observe, plan::VipPlan};
use crate::{
    config::ChartEngine,
    controller::{
        client::CallError,
        kind::SERVICE,
        queue::Next,
        store::{Key, Observed},
    },
    guests::{
        charts::{
            ChartError, ChartRelease, InstalledReleases, ReachedGuest, ReleaseMark, ReleaseOwner,
            owner::{ChartOwner, ChartRemover},
            steps::ReleaseStep,
        },
        clusters::{ManagedCluster, PROVISIONED_CLUSTER},
        hosting::Provisioned,
        releases::ReleaseState,
    },
    systems::kube_fip::{metrics::GuestEvent, settings::KubeFipSettings},
};

/// One look at what the releases of a guest are to be.
struct VipChartLook<'a> {
    guests: &'a VipGuests,
    id: &'a str,
    cluster: Arc<ManagedCluster>,
    releases: Vec<ChartRelease>,
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
        let cluster = match self.seen.clusters.seen(&key) {
            Some(Observed::Parsed(cluster)) => Some(cluster),
            Some(Observed::Malformed(_)) | None => None,
        };
        let plan = self
            .made_by(id)
            .map(|(key, made)| self.planned(id, &key, &made).0);
        let (next, news) = match (cluster, plan) {
            (Some(cluster), Some(plan)) if plan.brings() => {
                let display = cluster.display_name.clone();
                let look = || self.chart_look(id, cluster, &plan);
                self.charts.look_after((id, &display), look).await
            }
            (Some(_), Some(plan)) if plan.removes() => {
                let leave = VipChartLeave { guests: &self, id };
                self.charts.uninstall(id, &leave).await
            }
            _ => (Next::Done, false),
        };
        drop(holds);
        if news {
            self.count_releases(id);
            // It says how the guest is doing.
            self.queue.add(key.clone());
        }
        next
    }

    /// Counts what became of the releases that were worked on.
    fn count_releases(&self, id: &str) {
        let Some(guest) = self.board.get(&self.site.name, id, SYSTEM) else {
            return;
        };
        for release in &guest.releases {
            let event = match is_cloud_provider(&release.chart) {
                true => GuestEvent::CloudProvider,
                false => GuestEvent::KubeVip,
            };
            match ReleaseState::look(self.helm.as_ref(), &guest, release).state {
                "deployed" => self.counts.note(id, event, true),
                "failed" => self.counts.note(id, event, false),
                _ => {}
            }
        }
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

    /// What a fresh read of the provisioning Cluster asks for; `None`: there is none any more.
    async fn fresh_plan(&self, id: &str) -> Result<Option<VipPlan>, ChartError> {
        let Some((key, _)) = self.made_by(id) else {
            return Ok(None);
        };
        let target = PROVISIONED_CLUSTER.target(&key);
        let found: Option<Cluster> = self.remote.get(&target).await.map_err(unconfirmed)?;
        let made = found.map(|found| Provisioned::view(found, observe::READS));
        Ok(made.map(|made| self.planned(id, &key, &made).0))
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
        is_cloud_provider(&release.chart) == is_cloud_provider(&other.name)
    }

    fn makes_room(&self) -> bool {
        true
    }

    /// Harvester's own kube-vip makes room, once nothing else keeps ours out.
    async fn check_room(
        &self,
        guest: &ReachedGuest<'_>,
        _: &InstalledReleases,
        step: &ReleaseStep<'_>,
    ) -> Result<(), ChartError> {
        if let Some(mark) = step.kept_out_by.first() {
            return Err(ChartError::elsewhere(mark, &step.brings.name));
        }
        if is_cloud_provider(&step.brings.chart) {
            return Ok(());
        }
        let off = apply::harvester(guest.remote, true).await;
        off.map_err(|error| {
            let why = "Harvester's own kube-vip is not switched off yet";
            ChartError::new("HarvesterKubeVip", format!("{why}: {error}"))
        })
    }

    async fn confirm_removal(&self) -> Result<(), ChartError> {
        let now = self.guests.fresh_plan(self.id).await?;
        match now.is_some_and(|plan| plan.releases.as_ref() == Some(&self.releases)) {
            true => Ok(()),
            false => Err(changed()),
        }
    }

    fn begins(&self) {
        self.guests.queue.add(Key::new("", self.id));
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
        let services = guest.remote.list_kept(&SERVICE.all(), "", shown).await;
        let services = services.map_err(|error| {
            let why = "charts are uninstalled once it is known that no Service there has an address; Services cannot be listed";
            ChartError::new("ServicesUnreadable", format!("{why}: {error}"))
        })?;
        match services.as_slice() {
            [] => Ok(()),
            [(service, address), rest @ ..] => {
                let more = match rest.len() {
                    0 => String::new(),
                    more => format!(" and {more} more have one"),
                };
                let why = format!(
                    "Service {service} has the address {address}{more}: delete it, or give it another load balancer; charts are uninstalled once none has one"
                );
                Err(ChartError::new("ServicesHoldAddresses", why))
            }
        }
    }

    async fn confirm_leaving(&self) -> Result<(), ChartError> {
        let now = self.guests.fresh_plan(self.id).await?;
        match now.is_some_and(|plan| plan.removes()) {
            true => Ok(()),
            false => Err(changed()),
        }
    }
}

/// Namespace and name of a Service that shows an address of a load balancer, and the address.
fn shown(service: Value) -> Option<(String, IpAddr)> {
    let text = |path: &str| service.pointer(path).and_then(Value::as_str);
    if text("/spec/type") != Some("LoadBalancer") {
        return None;
    }
    let address = text("/status/loadBalancer/ingress/0/ip")?.parse().ok()?;
    let (namespace, name) = (text("/metadata/namespace")?, text("/metadata/name")?);
    Some((format!("{namespace}/{name}"), address))
}

/// Both the chart and its releases have it in their names.
fn is_cloud_provider(name: &str) -> bool {
    name.contains("cloud-provider")
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

    #[test]
    fn a_service_holds_an_address_once_a_load_balancer_gave_it_one() {
        let service = |kind: &str, ip: Value| {
            shown(json!({
                "metadata": { "namespace": "shop", "name": "web" }, "spec": { "type": kind },
                "status": { "loadBalancer": { "ingress": ip } },
            }))
        };
        let address = [10, 0, 0, 5].into();
        let given = json!([{ "ip": "10.0.0.5" }]);
        let held = service("LoadBalancer", given.clone());
        assert_eq!(held, Some(("shop/web".to_owned(), address)));
        assert_eq!(service("LoadBalancer", json!([])), None);
        assert_eq!(service("ClusterIP", given), None);
    }

    #[test]
    fn a_release_under_another_name_is_the_same_chart() {
        for (one, other, same) in [
            ("kube-vip", "vip", true),
            ("kube-vip-cloud-provider", "vip-cloud-provider", true),
            ("kube-vip-cloud-provider", "kube-vip", false),
        ] {
            assert_eq!(is_cloud_provider(one) == is_cloud_provider(other), same);
        }
    }
}
