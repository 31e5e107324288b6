//! One guest: what it is to have is found out, written, and told.

use std::{sync::Arc, time::Duration};

use fipd_core::{LeaseKey, LeaseState};
use fipd_crds::labels::FLEET_NAMESPACE;

use super::{
    SYSTEM, Stop, VipGuests,
    address_map::{GuestAddress, is_namespace},
    apply,
    notes::VipNote,
    observe::is_guest,
    plan::{self, VipFacts, VipPlan, VipWait},
};
use crate::{
    controller::{
        client::Remote,
        queue::Next,
        store::{Key, Observed},
    },
    guests::{
        self, GuestPhase, GuestStatus, GuestUnready, access::GuestName, charts::ChartProgress,
        clusters::ManagedCluster, hosting::Provisioned,
    },
    systems::kube_fip::{
        floating_ip::FipView, metrics::GuestEvent, names::FLOATING_IP, settings::KubeFipSettings,
    },
};

/// The deadline of a look at one guest. Each of its requests has one of its own, a list a minute.
pub const LOOK: Duration = Duration::from_secs(120);

/// What a look at a guest came to: what it is to have, and what that waits for.
type VipLook = (VipPlan, Option<VipWait>);

/// Rancher calls the kubeconfig Secret of a guest as its provisioning Cluster; the display name may be that of several.
pub(super) fn guest_name<'a>(
    (id, cluster): (&str, &'a ManagedCluster),
    (key, made): (&'a Key, &Provisioned),
) -> GuestName<'a> {
    let is_its_own = made.id.as_deref() == Some(id) && &*key.namespace == FLEET_NAMESPACE;
    match is_its_own {
        true => GuestName::Provisioned(&key.name),
        false => GuestName::Displayed(&cluster.display_name),
    }
}

/// Whether it is a guest that something is done for. The namespace of one that ends goes, and its addresses with it.
pub(super) fn is_served(cluster: &ManagedCluster) -> bool {
    !cluster.harvester && !cluster.local && !cluster.ending
}

impl VipGuests {
    pub(super) async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        let id = &*key.name;
        let seen = self.seen.clusters.seen(&key);
        if seen.is_some() {
            self.absent.forget(&key.name.to_string());
        }
        match seen {
            _ if !is_guest(id) => Next::Done,
            // It may mean anything: everything stays as it is.
            Some(Observed::Malformed(_)) => Next::Done,
            Some(Observed::Parsed(cluster)) if is_served(&cluster) => {
                self.serve(id, &cluster).await
            }
            Some(Observed::Parsed(_)) => Next::Done,
            None => self.gone(id).await,
        }
    }

    async fn serve(&self, id: &str, cluster: &ManagedCluster) -> Next {
        let config = self.config();
        let interval = config.interval;
        let look = tokio::time::timeout(LOOK, self.try_serve(id, cluster)).await;
        let looked = match look {
            Ok(looked) => looked,
            Err(_) => {
                self.access.rest(id);
                if let Some((key, _)) = self.made_by(id) {
                    let harvester = self.harvester_of(id, &key.name);
                    self.counts.connected(id, (&key.name, &harvester), false);
                }
                let why = format!("a look takes longer than {} s", LOOK.as_secs());
                Err(GuestUnready::Unreachable(why).into())
            }
        };
        let (says, plan, next) = match looked {
            // Nobody gives addresses where it runs.
            Ok(None) => {
                self.board.remove(&self.site.name, id, SYSTEM);
                return Next::Done;
            }
            Ok(Some((plan, wait))) => {
                let says = self.says(id, &plan, wait.as_ref());
                let pause = wait.as_ref().map_or(interval, VipWait::pause);
                (says, Some(plan), self.next_look(id, pause))
            }
            Err(Stop::Wait(wait)) => (wait.status(), None, self.next_look(id, wait.pause())),
            Err(Stop::Reconcile(trouble)) => {
                let next = trouble.next("Cluster", &Key::new("", id));
                let says = GuestStatus::new(GuestPhase::Failed, "WriteFailed", trouble.to_string());
                (says, None, next)
            }
        };
        tracing::debug!(
            cluster = id,
            reason = says.reason,
            ?next,
            "looked at a guest"
        );
        if config.trace_ipam_data {
            self.trace(id);
        }
        self.say(id, cluster, plan.as_ref(), says);
        next
    }

    /// Brings the guest in step with what is known of it.
    async fn try_serve(&self, id: &str, cluster: &ManagedCluster) -> Result<Option<VipLook>, Stop> {
        let (key, made) = self
            .made_by(id)
            .ok_or(GuestUnready::NoProvisioningCluster)?;
        let note = self.noted(id);
        let keeps = !self.kept(id).is_empty();
        // What it keeps is looked at in any case.
        let unserved = match self.serve_first(id, (&key, &*made)).await {
            Ok(false) if !note.written && !keeps => return Ok(None),
            Err(stop) if !keeps => return Err(stop),
            served => served.err(),
        };
        let (plan, wait) = self.planned(id, &key, &made).await;
        if plan.is_nothing() && !note.written && !keeps {
            // It is not asked any more, and whether it answers is not known.
            self.counts.forget(id);
            return Ok(Some((plan, wait)));
        }
        let remote = match self.reach((id, cluster), (&key, &*made)).await {
            // Nothing runs there yet that could use one.
            Err(Stop::Wait(VipWait::Guest(
                GuestUnready::NoKubeconfig(_) | GuestUnready::StillDeploying(_),
            ))) if keeps && self.is_untouched(id) => {
                self.release_kept(id, "its guest was never written to")
                    .await?;
                return Ok(Some((plan, wait)));
            }
            reached => reached?,
        };
        self.note(id, |note| VipNote {
            written: true,
            ..note
        })
        .await?;
        self.write_addresses(id, &remote, &plan).await?;
        self.release_unused(id, &remote).await?;
        if plan.brings() {
            // That queue comes back to those that are done by itself.
            let releases = plan.releases.as_deref().unwrap_or_default();
            if self.charts.progress(id, releases) != ChartProgress::Done {
                self.chart_queue.add(Key::new("", id));
            }
        } else if plan.removes() {
            self.leave(id, &remote, &plan).await?;
        }
        self.access.rest(id);
        match unserved {
            Some(stop) => Err(stop),
            None => Ok(Some((plan, wait))),
        }
    }

    /// Has the guest get its first FloatingIP; whether it is one that gets any.
    async fn serve_first(&self, id: &str, (key, made): (&Key, &Provisioned)) -> Result<bool, Stop> {
        if self.noted(id).served {
            return Ok(true);
        }
        // One that somebody deletes is not made anew.
        if !self.fips.keys_in(id).is_empty() {
            self.found_first(id, (key, made)).await?;
            return Ok(true);
        }
        self.first_address(id, (key, made)).await
    }

    /// Neither fipd nor an original can have written to the guest.
    pub(super) fn is_untouched(&self, id: &str) -> bool {
        let note = self.noted(id);
        note.made && !note.written
    }

    /// A client of the guest. One that Rancher still deploys is neither up nor down.
    async fn reach(
        &self,
        (id, cluster): (&str, &ManagedCluster),
        (key, made): (&Key, &Provisioned),
    ) -> Result<Remote, Stop> {
        let name = guest_name((id, cluster), (key, made));
        let reached = self.access.client(id, name).await;
        let is_down = match &reached {
            Ok(_) => Some(false),
            Err(guests::Stop::Wait(GuestUnready::StillDeploying(_))) => None,
            // It had one before, or Rancher is yet to make it.
            Err(guests::Stop::Wait(GuestUnready::NoKubeconfig(_))) => {
                self.counts.knows(id).then_some(true)
            }
            Err(guests::Stop::Wait(_)) => Some(true),
            Err(guests::Stop::Reconcile(_)) => None,
        };
        if let Some(is_down) = is_down {
            let harvester = self.harvester_of(id, &key.name);
            self.counts.connected(id, (&key.name, &harvester), !is_down);
        }
        Ok(reached?)
    }

    async fn write_addresses(&self, id: &str, remote: &Remote, plan: &VipPlan) -> Result<(), Stop> {
        let written = apply::addresses(remote, plan.map, &plan.keys).await;
        if let Ok(true) | Err(_) = written {
            self.counts.note(id, GuestEvent::ConfigMap, written.is_ok());
        }
        written?;
        Ok(())
    }

    /// Display name of the Harvester cluster that the first range of the guest is for.
    fn harvester_of(&self, id: &str, cluster: &str) -> String {
        let fips = self.fips_of(id, cluster);
        let range = fips.iter().find_map(|(_, fip)| {
            let range = self.ranges.get(&Key::new("", fip.range.as_deref()?))?;
            range.harvester.clone()
        });
        range.unwrap_or_default()
    }

    /// What the guest is to have, as far as it is known.
    pub(super) async fn planned(&self, id: &str, key: &Key, made: &Provisioned) -> VipLook {
        let malformed = self.fips.keys_in(id).into_iter();
        let mut malformed =
            malformed.filter(|key| matches!(self.fips.seen(key), Some(Observed::Malformed(_))));
        if let Some(key) = malformed.next() {
            // It may be the one whose address is in use.
            return (
                VipPlan::default(),
                Some(VipWait::Malformed(key.name.to_string())),
            );
        }
        let fips = self.fips_of(id, &key.name);
        let unclear = fips.iter().find_map(|(key, fip)| {
            let namespace = fip.service_namespace.as_ref()?;
            (!is_namespace(namespace)).then(|| VipWait::ServiceNamespace(key.name.to_string()))
        });
        let unclear = unclear
            .or_else(|| self.misnamed(id, &key.name).filter(|_| fips.is_empty()))
            .or_else(|| self.undecided(&fips));
        let unclear = match unclear {
            None => self.unlisted(id).await,
            unclear => unclear,
        };
        if unclear.is_some() {
            // Everything stays as it is.
            return (VipPlan::default(), unclear);
        }
        let addresses: Vec<GuestAddress> = fips
            .iter()
            .filter_map(|(key, fip)| {
                Some(GuestAddress {
                    address: self.lease(key, fip)?.address,
                    namespace: fip.service_namespace.clone(),
                })
            })
            .collect();
        let label = made.marks.get(fipd_crds::kube_fip::KUBE_VIP);
        plan::plan(&VipFacts {
            config: &self.config(),
            label: label.map(String::as_str),
            addresses: &addresses,
            rewrites: fips.iter().any(|(_, fip)| fip.rewrites),
            map_when_disabled: self
                .site
                .settings::<KubeFipSettings>()
                .write_config_map_when_disabled,
        })
    }

    /// A FloatingIP in the namespace of the guest that names another cluster, or none.
    fn misnamed(&self, id: &str, cluster: &str) -> Option<VipWait> {
        let mut fips = self.fips_in(id);
        let (key, fip) = fips.find(|(_, fip)| fip.cluster.as_deref() != Some(cluster))?;
        Some(VipWait::OtherCluster {
            fip: key.name.to_string(),
            named: fip.cluster.clone().unwrap_or_default(),
            cluster: cluster.to_owned(),
        })
    }

    /// A FloatingIP that shows an address which is not its lease now, and may be in use all the same. After a start guests are
    /// looked at before some of their FloatingIPs, whose last condition may be an old one.
    fn undecided(&self, fips: &[(Key, Arc<FipView>)]) -> Option<VipWait> {
        fips.iter().find_map(|(key, fip)| {
            let is_shown = fip.recorded().is_some() && fip.may_be_in_use();
            let is_unclear = is_shown && self.lease(key, fip).is_none();
            let why = fip.waits().unwrap_or("fipd has not looked at it yet");
            is_unclear.then(|| VipWait::AddressUnclear(key.name.to_string(), why.to_owned()))
        })
    }

    /// A FloatingIP that holds an address and is not listed: a list may be short, or Rancher restored from before it was made.
    async fn unlisted(&self, id: &str) -> Option<VipWait> {
        let owners = self.owners.in_namespace(&self.site, id).await;
        let mut owners = owners.into_iter();
        let lost = owners.find(|key| self.fips.seen(key).is_none())?;
        Some(VipWait::Unlisted(lost.name.to_string()))
    }

    /// Its FloatingIPs, by name. One of another cluster's name is not its own: the namespace may be an older guest's.
    pub(super) fn fips_of(&self, id: &str, cluster: &str) -> Vec<(Key, Arc<FipView>)> {
        let fips = self.fips_in(id);
        fips.filter(|(_, fip)| fip.cluster.as_deref() == Some(cluster))
            .collect()
    }

    /// The FloatingIPs in the namespace of a guest, by name.
    pub(super) fn fips_in(&self, id: &str) -> impl Iterator<Item = (Key, Arc<FipView>)> {
        let keys = self.fips.keys_in(id).into_iter();
        let fips = keys.filter_map(|key| Some((key.clone(), self.fips.get(&key)?)));
        fips.filter(|(_, fip)| fip.meta.deleted.is_none())
    }

    /// What a FloatingIP holds by the ledger: its status may be old.
    pub(super) fn lease(&self, key: &Key, fip: &FipView) -> Option<LeaseKey> {
        // It has two while it moves.
        let (held, shown) = (self.leases(key), fip.recorded());
        let shown = held.iter().find(|held| Some(held.address) == shown);
        shown.or(held.first()).copied()
    }

    pub(super) fn leases(&self, key: &Key) -> Vec<LeaseKey> {
        let site = &self.site;
        let identity = key.identity(site.system.clone(), &site.id, FLOATING_IP.kind);
        let held = site.ipam.read(|ledger| ledger.addresses_of(&identity));
        let held = held.iter();
        held.filter(|lease| lease.state == LeaseState::Allocated)
            .map(|lease| lease.key)
            .collect()
    }
}
