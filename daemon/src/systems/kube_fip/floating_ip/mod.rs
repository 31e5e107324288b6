//! FloatingIPs: each gets the address that it names of its range or the lowest free one, and shows it in its specification
//! as the original does.
//!
//! One that names another range or address keeps what it has until it has the other.

#[cfg(test)]
mod conformance_tests;
pub mod wish;

use std::{
    sync::{OnceLock, Weak},
    time::Duration,
};

use fipd_core::{Holder, LeaseKey, Ledger, NetworkId, Tenant};
use fipd_crds::{fipd_io::AddressClaimStatus, kube_fip::GuestFloatingIP};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};
use serde_json::json;

use super::{
    guest::VipGuests,
    names::{
        CLUSTER_NAME, FIP_CLEANUP, FIP_RANGE, FLOATING_IP, SERVICE_NAMESPACE, UPDATE_CONFIG_MAP,
        annotation,
    },
};
use crate::{
    config::compat::go_boolean,
    controller::{
        Reconciled,
        address_user::{
            AddressController, AddressHooks, AddressUser, Edits, ShownAddress, ShownNetwork,
            SpecWrite, claim_status,
            outcome::{AddressOutcome, ShownLease},
            settle::{Inheritance, Wished},
        },
        kind::Kind,
        meta::{Meta, View},
        queue::Next,
        site::Site,
        store::Key,
    },
};

/// A FloatingIP, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct FipView {
    pub meta: Meta,
    /// Name of the provisioning Cluster.
    pub cluster: Option<String>,
    /// Name of the range.
    pub range: Option<String>,
    /// `spec.ipaddress` as written; may be empty.
    pub wanted: String,
    /// The ConfigMap of the guest is kept in step.
    pub rewrites: bool,
    /// Only Services of this namespace of the guest may have the address.
    pub service_namespace: Option<String>,
    pub status: AddressClaimStatus,
}

/// Keeps what matters of the object.
pub fn view(object: GuestFloatingIP) -> FipView {
    let annotations = object.metadata.annotations.as_ref();
    let said = |key| annotation(annotations, key).map(str::to_owned);
    FipView {
        cluster: said(CLUSTER_NAME),
        range: said(FIP_RANGE),
        rewrites: said(UPDATE_CONFIG_MAP).and_then(|text| go_boolean(&text)) == Some(true),
        service_namespace: said(SERVICE_NAMESPACE),
        meta: Meta::of(&object.metadata),
        wanted: object.spec.ipaddress,
        status: object.status.unwrap_or_default(),
    }
}

impl View for FipView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

/// The FloatingIPs of guest clusters.
#[derive(Default)]
pub struct GuestFloatingIps {
    /// The guests that they are for.
    pub guests: OnceLock<Weak<VipGuests>>,
}

/// The controller of all FloatingIPs of a Rancher cluster.
pub type GuestFipController = AddressController<GuestFloatingIps>;

impl AddressHooks for GuestFloatingIps {
    /// What its guest keeps of an earlier one is its own again, once it has the finalizer.
    async fn before(
        fips: &GuestFipController,
        key: &Key,
        fip: &FipView,
    ) -> Reconciled<Option<Next>> {
        let Some(keeper) = Self::keeper(fips, key, fip) else {
            return Ok(None);
        };
        let site = &fips.context.site;
        let own = fips.context.holder(key, &fip.meta.uid);
        let back = site
            .ipam
            .read(|ledger| kept_for(ledger, &keeper, &own, site, fip));
        let Some(back) = back else {
            return Ok(None);
        };
        fips.mark(key, fip, None).await?;
        let reason = "its guest has a FloatingIP for it again";
        site.transfer(keeper, own, back, reason).await?;
        Ok(Some(Next::After(Duration::ZERO)))
    }

    /// Its guest may use the address still.
    async fn before_release(
        fips: &GuestFipController,
        key: &Key,
        fip: &FipView,
    ) -> Reconciled<Option<Next>> {
        if Self::keeper(fips, key, fip).is_none() {
            return Ok(None);
        }
        let identity = fips.context.identity(key);
        // Also what it contends for: its guest may use that as well.
        let leases = |ledger: &Ledger| ledger.leases_with(&identity, None, usize::MAX);
        let mut leases = fips.context.read(leases);
        leases.retain(|lease| lease.prefix().is_address());
        let held: Vec<LeaseKey> = leases.iter().map(|lease| lease.key).collect();
        let reason = "its FloatingIP is deleted, and the guest may use it still";
        fips.give_up(key, fip, &held, reason).await?;
        for LeaseKey { address, .. } in held {
            let note = format!(
                "{address} stays with the guest {} until no Service of it has the address and its ConfigMap kubevip offers it to none",
                key.namespace
            );
            fips.context.note(key, &fip.meta.uid, "AddressKept", note);
        }
        Ok(None)
    }

    fn keeper(fips: &GuestFipController, key: &Key, fip: &FipView) -> Option<Holder> {
        let guests = fips.user.guests.get().and_then(Weak::upgrade)?;
        guests
            .may_use(&key.namespace, fip)
            .then(|| guests.keeper(&key.namespace))
    }

    /// One that somebody tore away.
    fn heir(fips: &GuestFipController, place: LeaseKey) -> Option<Holder> {
        let guests = fips.user.guests.get().and_then(Weak::upgrade)?;
        let lease = fips
            .context
            .site
            .ipam
            .read(|ledger| ledger.lease(place).cloned())?;
        let namespace = &lease.owner()?.identity.namespace;
        guests.is_there(namespace).then(|| guests.keeper(namespace))
    }
}

/// The address that the guest keeps and the object names, or one of its range where it names none and has none. Services of any
/// namespace may have what the guest keeps: an object for one namespace has to name it.
fn kept_for(
    ledger: &Ledger,
    keeper: &Holder,
    own: &Holder,
    site: &Site,
    fip: &FipView,
) -> Option<LeaseKey> {
    let pool = site.mirror_in(ledger, fip.range.as_deref()?)?;
    let kept = ledger.addresses_of(&keeper.identity);
    let mut kept = kept.iter().filter(|lease| lease.pool == Some(pool.id));
    let back = match fip.named() {
        Some(named) => kept.find(|lease| lease.key.address == named),
        None if fip.service_namespace.is_some() => None,
        None if ledger.addresses_of(&own.identity).is_empty() => kept.next(),
        None => None,
    };
    back.map(|lease| lease.key)
}

impl AddressUser for GuestFloatingIps {
    type Raw = GuestFloatingIP;
    type View = FipView;
    type Status = AddressClaimStatus;

    const KIND: Kind = FLOATING_IP;
    const METRIC: &'static str = "guestfloatingip";
    const FINALIZER: &'static str = FIP_CLEANUP;
    const FINALIZER_FIRST: bool = false;
    const SPEC_FIRST: bool = true;
    const INHERITS: Inheritance = Inheritance::Anything;
    const EDITS: Edits<FipView> = Edits::Followed;
    const SHOWS_POOL: bool = true;
    const TENANT: &'static str = "tenant";
    const CHARGE_REASON: &'static str = "its cluster goes by another name";

    fn view(raw: GuestFloatingIP) -> FipView {
        view(raw)
    }

    fn tenant(site: &Site, key: &Key, _: &FipView) -> Option<Tenant> {
        Some(site.tenant_of(&key.namespace))
    }

    fn wish(&self, ledger: &Ledger, site: &Site, key: &Key, fip: &FipView) -> Wished {
        let own = key.identity(site.system.clone(), &site.id, FLOATING_IP.kind);
        wish::wish(ledger, &own, site.tenant_of(&key.namespace), fip)
    }

    fn conditions(fip: &FipView) -> &[Condition] {
        &fip.status.conditions
    }

    fn shows_address(fip: &FipView) -> bool {
        fip.recorded().is_some()
    }

    /// What fipd showed last, or what the original wrote, which has no status.
    fn shown(&self, ledger: &Ledger, site: &Site, _: &Key, fip: &FipView) -> Option<ShownAddress> {
        let range = fip.range.as_deref();
        let pool = range.and_then(|range| site.mirror_in(ledger, range));
        let of_pool = pool.filter(|pool| fip.shown_of(&pool.spec).is_some());
        let (address, network) = match (fip.recorded(), of_pool) {
            // It may have been adopted elsewhere, while its range was no pool.
            (Some(address), Some(pool)) => (address, ShownNetwork::Known(pool.spec.network)),
            (Some(address), None) => {
                let network = fip.status.network.clone();
                (address, ShownNetwork::Named(network))
            }
            (None, _) => {
                let network = pool.map_or(NetworkId::DEFAULT, |pool| pool.spec.network);
                (fip.named()?, ShownNetwork::Known(network))
            }
        };
        Some(ShownAddress {
            length: None,
            address,
            network,
            user: None,
        })
    }

    fn last_status(fip: &FipView) -> &AddressClaimStatus {
        &fip.status
    }

    fn status(fip: &FipView, outcome: &AddressOutcome, now: jiff::Timestamp) -> AddressClaimStatus {
        claim_status::desired(&fip.status, fip.meta.generation, outcome, now)
    }

    /// The address, as the original writes it; not over a wish that is still to be fulfilled.
    fn spec(fip: &FipView, shown: &ShownLease) -> Option<SpecWrite> {
        let address = shown.address();
        let differs = shown.refused.is_none() && fip.named() != Some(address);
        differs.then(|| SpecWrite {
            spec: json!({ "ipaddress": address.to_string() }),
            overrules: None,
        })
    }

    fn news(fip: &FipView, shown: &ShownLease) -> Option<String> {
        let note = || format!("{} of pool {} is allocated", shown.address(), shown.pool);
        (fip.recorded() != Some(shown.address())).then(note)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{Answer, Origin, PoolSpec, Request, System, testing};
    use fipd_crds::kube_fip::GuestFloatingIPSpec;

    use super::*;
    use crate::{
        clock,
        clusters::testing::{new_network, session},
        controller::{
            address_user::outcome::testing::shown, fake_api_tests::client, unserved::Unserved,
        },
        ipam::Ipam,
    };

    fn fip(address: &str) -> FipView {
        view(GuestFloatingIP::new(
            "guest-kubevip",
            GuestFloatingIPSpec {
                ipaddress: address.into(),
            },
        ))
    }

    /// The pool of the range `net`.
    fn range(site: &Site, network: NetworkId) -> PoolSpec {
        PoolSpec {
            network,
            origin: Origin::Mirror {
                system: System::kube_fip(),
                cluster: site.id.clone(),
                object: "net".into(),
                uid: "u".into(),
            },
            ..testing::pool_spec("kube-fip/rancher/net", &["10.0.0.0/24"])
        }
    }

    #[tokio::test]
    async fn what_a_guest_keeps_is_for_one_namespace_only_where_that_names_the_address() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let session = session(client(&Arc::default()), &ipam).await;
        let site = Site::new(session, System::kube_fip());
        let submit = async |request| ipam.submit(request).await.expect("it is granted");
        let made = submit(testing::create_pool(range(&site, NetworkId::DEFAULT))).await;
        let Answer::Pool(pool) = made else {
            panic!("{made:?}");
        };
        let holder = |name: &str, kind: &str, instance: &str| {
            let key = Key::new("c-m-1", name);
            Holder {
                identity: key.identity(site.system.clone(), &site.id, kind),
                instance: instance.into(),
            }
        };
        let keeper = holder("in-use", VipGuests::KEEPER, "");
        let own = holder("guest-kubevip", FLOATING_IP.kind, "u");
        let ask = testing::allocate(keeper.clone(), [testing::want(pool.id, None)]);
        submit(Request::Allocate(ask)).await;
        let kept = ipam.read(|ledger| ledger.addresses_of(&keeper.identity));
        let kept = kept.first().expect("it is kept").key;
        let back = |wanted: &str, namespace: Option<&str>| {
            let fip = FipView {
                range: Some("net".into()),
                service_namespace: namespace.map(str::to_owned),
                ..fip(wanted)
            };
            ipam.read(|ledger| kept_for(ledger, &keeper, &own, &site, &fip))
        };
        let address = kept.address.to_string();
        assert_eq!(back("", None), Some(kept));
        assert_eq!(back("", Some("shop")), None);
        assert_eq!(back(&address, Some("shop")), Some(kept));
    }

    #[test]
    fn the_address_is_written_back_but_not_over_a_wish() {
        let written = |wanted: &str, shown: &ShownLease| {
            GuestFloatingIps::spec(&fip(wanted), shown).map(|write| write.spec.to_string())
        };
        let back = Some(r#"{"ipaddress":"10.0.0.5"}"#.to_owned());
        assert_eq!(written("", &shown()), back);
        assert_eq!(
            written("10.0.1.9", &shown()),
            back,
            "it is of another range"
        );
        for same in ["10.0.0.5", "::ffff:10.0.0.5"] {
            assert_eq!(written(same, &shown()), None, "{same}");
        }
        let refused = ShownLease {
            refused: Some(Unserved::new("AddressTaken", "", None)),
            ..shown()
        };
        assert_eq!(written("10.0.0.9", &refused), None);
    }

    #[test]
    fn the_status_shows_the_lease_and_why_a_wish_waits() {
        let now = jiff::Timestamp::from_second(1_000).expect("a time");
        let mut fip = fip("");
        fip.status = GuestFloatingIps::status(&fip, &Ok(shown()), now);
        assert_eq!(
            (&*fip.status.address, &*fip.status.pool),
            ("10.0.0.5", "lab")
        );
        assert_eq!(fip.status.conditions[0].status, "True");
        assert!(
            GuestFloatingIps::news(&fip, &shown()).is_none(),
            "it is shown"
        );
        let refused = ShownLease {
            refused: Some(Unserved::new("AddressTaken", "10.0.0.5 stays", None)),
            ..shown()
        };
        let status = GuestFloatingIps::status(&fip, &Ok(refused), now);
        let ready = &status.conditions[0];
        assert_eq!((&*status.address, &*ready.status), ("10.0.0.5", "False"));
        assert_eq!(
            (&*ready.reason, &*ready.message),
            ("AddressTaken", "10.0.0.5 stays")
        );
    }

    #[tokio::test]
    async fn what_was_adopted_while_its_range_was_no_pool_is_in_the_network_of_the_range() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let session = session(client(&Arc::default()), &ipam).await;
        let site = Site::new(session, System::kube_fip());
        let submit = async |request| ipam.submit(request).await.expect("it is granted");
        let blue = new_network(&ipam, "blue").await;
        let key = Key::new("c-m-1", "guest-kubevip");
        let network = |address: &str, pool: &str| {
            let mut fip = fip("");
            fip.range = Some("net".into());
            fip.status.address = address.into();
            fip.status.pool = pool.into();
            fip.status.network = "default".into();
            let user = GuestFloatingIps::default();
            let shown = ipam.read(|ledger| user.shown(ledger, &site, &key, &fip));
            match shown.expect("an address").network {
                ShownNetwork::Known(network) => format!("{network:?}"),
                ShownNetwork::Named(name) => name,
            }
        };
        assert_eq!(network("10.0.0.5", ""), "default");
        submit(testing::create_pool(range(&site, blue))).await;
        let of_range = format!("{blue:?}");
        assert_eq!(network("10.0.0.5", ""), of_range);
        assert_eq!(network("10.0.0.5", "kube-fip/rancher/net"), of_range);
        assert_eq!(network("10.0.1.5", ""), "default");
        let before = "it shows what it had of another range";
        assert_eq!(
            network("10.0.0.5", "kube-fip/rancher/other"),
            "default",
            "{before}"
        );
    }
}
