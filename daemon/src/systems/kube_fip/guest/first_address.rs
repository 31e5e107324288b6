//! The FloatingIP that a new guest gets.

use fipd_crds::{
    kube_fip::{CLUSTER_NAME, FIP_RANGE, GUEST_RANGE, UPDATE_CONFIG_MAP},
    labels::FIELD_MANAGER,
};
use serde_json::{Value, json};

use super::{
    Stop, VipGuests,
    notes::VipNote,
    plan::VipWait,
    range_choice::{self, RangeChoice, RangeOffer, choose, credential, networks},
};
use crate::{
    controller::{
        client::{CallError, Target},
        store::Key,
    },
    guests::hosting::Provisioned,
    systems::kube_fip::{names::FLOATING_IP, range::RangeView},
};

impl VipGuests {
    /// Creates the first FloatingIP of the guest and sends an Event about it. Returns `false` where the guest runs outside Harvester
    /// and names no range.
    pub(super) async fn first_address(
        &self,
        id: &str,
        (key, provisioned): (&Key, &Provisioned),
    ) -> Result<bool, Stop> {
        let Some(RangeChoice { range, note }) = self.choose_range(key, provisioned).await? else {
            return Ok(false);
        };
        let target = FLOATING_IP.target(&range_choice::first_floating_ip(id, &key.name));
        let body = json!({
            "apiVersion": FLOATING_IP.api_version(), "kind": FLOATING_IP.kind,
            "metadata": {
                "name": target.name, "namespace": id,
                "annotations": {
                    CLUSTER_NAME: &*key.name, FIP_RANGE: range, UPDATE_CONFIG_MAP: "true",
                },
            },
            "spec": {},
        });
        let is_made = match self.remote.create(&target, &body).await {
            Ok(()) => true,
            // Somebody was faster, or this is the second attempt.
            Err(CallError::Conflict(..)) => self.is_made_by_fipd(&target).await?,
            Err(CallError::NotFound(_)) => return Err(VipWait::NoNamespace.into()),
            Err(error) => return Err(error.into()),
        };
        if is_made {
            self.tell_first((key, &provisioned.uid), &target, (&range, note));
        }
        self.note_served(id, is_made, false).await?;
        Ok(true)
    }

    /// Notes that a guest has its first FloatingIP, which was there at this look. An earlier fipd may have made it and ended
    /// before it could tell. Where it shows an address already, the note may have been lost, and the guest written to.
    pub(super) async fn found_first(
        &self,
        id: &str,
        (key, provisioned): (&Key, &Provisioned),
    ) -> Result<(), Stop> {
        let first = range_choice::first_floating_ip(id, &key.name);
        let is_there = self.fips.get(&first);
        let shows = is_there
            .as_ref()
            .is_some_and(|fip| fip.recorded().is_some());
        let range = is_there.and_then(|fip| fip.range.clone());
        let target = FLOATING_IP.target(&first);
        let made_of = match range {
            Some(range) => self.is_made_by_fipd(&target).await?.then_some(range),
            None => None,
        };
        if let Some(range) = &made_of {
            // The guest is served even where the choice cannot be explained now.
            let choice = self.choose_range(key, provisioned).await.ok().flatten();
            let choice = choice.filter(|choice| choice.range == *range);
            let note = choice.and_then(|choice| choice.note);
            self.tell_first((key, &provisioned.uid), &target, (range, note));
        }
        let is_made = made_of.is_some();
        self.note_served(id, is_made, is_made && shows).await
    }

    async fn note_served(&self, id: &str, is_made: bool, is_written: bool) -> Result<(), Stop> {
        self.note(id, |note| VipNote {
            served: true,
            made: note.made || is_made,
            written: note.written || is_written,
        })
        .await
    }

    /// Whether the FloatingIP has its annotations from fipd, which writes those of no other one.
    async fn is_made_by_fipd(&self, target: &Target) -> Result<bool, CallError> {
        let found: Option<Value> = self.remote.get(target).await?;
        let managers = found.as_ref();
        let managers = managers.and_then(|found| found["metadata"]["managedFields"].as_array());
        let mut managers = managers.into_iter().flatten();
        let annotates = |one: &Value| {
            let annotations = &one["fieldsV1"]["f:metadata"]["f:annotations"];
            annotations[format!("f:{CLUSTER_NAME}")].is_object()
        };
        Ok(managers.any(|one| one["manager"] == FIELD_MANAGER && annotates(one)))
    }

    /// The range that the annotation names, else the one of the guest's Harvester cluster.
    async fn choose_range(
        &self,
        key: &Key,
        provisioned: &Provisioned,
    ) -> Result<Option<RangeChoice>, Stop> {
        let offers = self.offers();
        if let Some(named) = provisioned.marks.get(GUEST_RANGE) {
            let named = named.trim();
            return match offers.iter().any(|offer| offer.name == named) {
                true => Ok(Some(RangeChoice {
                    range: named.to_owned(),
                    note: None,
                })),
                false => Err(VipWait::UnknownRange(named.to_owned()).into()),
            };
        }
        let Some(credential) = credential(&provisioned.hosting)? else {
            return Ok(None);
        };
        let pools = networks(provisioned.machines(), |config| {
            self.sources.machine(key, config)
        })?;
        let display_name = |id: &str| {
            let cluster = self.seen.clusters.get(&Key::new("", id))?;
            Some(cluster.display_name.clone())
        };
        let (_, harvester) = self.access.harvester(credential, display_name).await?;
        let choice = choose(&harvester, &pools, &offers)?;
        let choice = choice.ok_or(VipWait::NoRange(harvester))?;
        Ok(Some(choice))
    }

    /// The ranges, by name.
    fn offers(&self) -> Vec<RangeOffer> {
        let ranges = self.ranges.all().into_iter();
        ranges
            .filter_map(|(key, range)| RangeOffer::of(&key, &range))
            .collect()
    }
}

impl RangeOffer {
    /// `None`: the range is being deleted.
    pub(super) fn of(key: &Key, range: &RangeView) -> Option<Self> {
        range.meta.deleted.is_none().then(|| Self {
            name: key.name.to_string(),
            harvester: range.harvester.clone().unwrap_or_default(),
            network: range.network.clone().unwrap_or_default(),
        })
    }
}
