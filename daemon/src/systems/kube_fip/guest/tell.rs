//! What is told of a guest: on its page, and as Events on its provisioning Cluster.

use super::{
    SYSTEM, VipGuests,
    plan::{VipPlan, VipWait},
};
use crate::{
    clock,
    controller::{client::Target, store::Key},
    guests::{
        DetailValue, GuestDetail, GuestStatus, GuestUpdate, ReleaseView,
        clusters::{ManagedCluster, PROVISIONED_CLUSTER},
    },
};

impl VipGuests {
    /// How a guest stands whose part in Rancher is known.
    pub(super) fn says(&self, id: &str, plan: &VipPlan, wait: Option<&VipWait>) -> GuestStatus {
        let releases = plan.releases.as_deref().unwrap_or_default();
        let charts = self.charts.progress(id, releases);
        GuestStatus::of(wait.map(VipWait::status), charts)
    }

    /// An Event on the provisioning Cluster about the FloatingIP that it got, its range, and what is to be said of that.
    pub(super) fn tell_first(
        &self,
        (key, uid): (&Key, &str),
        fip: &Target,
        (range, note): (&str, Option<String>),
    ) {
        let note = note.map(|note| format!(": {note}")).unwrap_or_default();
        let made = format!(
            "FloatingIP {}/{} of range {range} is made{note}",
            fip.namespace, fip.name
        );
        let object = PROVISIONED_CLUSTER.reference(key, uid);
        self.events.normal(&object, "FloatingIPMade", made);
    }

    pub(super) fn say(
        &self,
        id: &str,
        cluster: &ManagedCluster,
        plan: Option<&VipPlan>,
        says: GuestStatus,
    ) {
        let made = self.made_by(id);
        // A cluster without a provisioning one is no guest yet; one that lost it has no object for Events.
        if made.is_none() && self.board.get(&self.site.name, id, SYSTEM).is_none() {
            return;
        }
        let releases = plan.map(|plan| plan.releases.iter().flatten());
        let name = made.as_ref().map_or("", |(key, _)| &*key.name);
        let update = GuestUpdate {
            rancher: &self.site.name,
            id,
            system: SYSTEM,
            display_name: &cluster.display_name,
            says,
            details: self.details(id, name),
            releases: releases.map(|all| all.map(ReleaseView::of).collect()),
        };
        let Some((key, made)) = made else {
            self.board.say(update, clock::now());
            return;
        };
        let object = PROVISIONED_CLUSTER.reference(&key, &made.uid);
        self.board
            .report(update, &self.events, (&object, "KubeVipReady"));
    }

    /// Its addresses and their ranges, one for each FloatingIP, and what it may use although no FloatingIP has it.
    fn details(&self, id: &str, cluster: &str) -> Vec<GuestDetail> {
        let fips = self.fips_of(id, cluster);
        let leases = fips.iter().filter_map(|(key, fip)| self.lease(key, fip));
        let ranges = fips.iter().filter_map(|(_, fip)| fip.range.clone());
        let site = &self.site;
        let pools = site.ipam.read(|ledger| {
            let pool = |range: String| {
                let pool = site.mirror_in(ledger, &range).map(|pool| pool.id);
                (range, pool)
            };
            ranges.map(pool).collect()
        });
        let detail = |field, label, value| GuestDetail {
            field,
            label,
            value,
        };
        let (leases, kept) = (leases.collect(), self.kept(id));
        vec![
            detail("addresses", "Addresses", DetailValue::Leases(leases)),
            detail(
                "kept_addresses",
                "Kept addresses",
                DetailValue::Leases(kept),
            ),
            detail("ranges", "Ranges", DetailValue::Pools(pools)),
        ]
    }
}
