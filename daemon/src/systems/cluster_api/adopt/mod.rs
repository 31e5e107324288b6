//! Taking over from the in-cluster provider and from capi-vip-allocator: what is found of them, and what keeps fipd's pools from
//! being written once they are gone. The addresses are adopted when the system starts, all of them before the first new
//! one; here is told what becomes of each.

mod definitions;
mod webhooks;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use fipd_core::{System, Text};
use fipd_crds::cluster_api::{Cluster, IPAddress, IPAddressClaim};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;

use super::{
    claim::{observe::AddressView, wish},
    conversion::definition::by_fipd,
    leases,
    names::{ADDRESS_OBJECT, CLAIM, CLUSTER},
    settings::ClusterApiSettings,
    vip::{CapiClusterView, choose::VipSlot, leave::cluster_of, write::claim_key},
};
use crate::{
    adopt::{
        self, AdoptLog, FindingKind, OriginalWorkload, Takeover, TakeoverError, TakeoverFuture,
        TakeoverReport,
    },
    clusters::{ClusterSession, adoption::complete_list, lenient::Lenient},
    controller::{
        client::Remote,
        endpoint::OwnEndpoint,
        kind::{DEPLOYMENT, Kind},
        store::Key,
    },
    ipam::Ipam,
};

/// The programs that fipd stands in for, by the name of their Deployment.
const PROVIDER: &str = "capi-ipam-in-cluster-controller-manager";
const ALLOCATOR: &str = "capi-vip-allocator";

/// Looks at what the originals left in a management cluster.
pub struct IpamTakeover {
    pub ipam: Ipam,
    /// What this daemon calls itself in Leases.
    pub me: Text,
    pub own: OwnEndpoint,
}

/// What the takeover changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IpamAction {
    /// The definition of this kind is fipd's alone.
    Definition(&'static str),
    /// A webhook configuration of the original goes.
    Webhook {
        mutating: bool,
        name: String,
        uid: String,
    },
}

type IpamReport = TakeoverReport<IpamAction>;

impl IpamTakeover {
    async fn report(&self, session: &ClusterSession) -> Result<IpamReport, TakeoverError> {
        adopt::require(session, &System::cluster_api())?;
        session.verify_identity().await?;
        let mut report = IpamReport {
            wording: ("changes", "made"),
            ..IpamReport::default()
        };
        let remote = Remote::new(session.client.clone());
        let settings = session.settings.of::<ClusterApiSettings>();
        self.programs(&remote, settings, &mut report).await;
        if settings.serves_in_cluster_kinds() {
            let writable = webhooks::look(&remote, &mut report).await;
            definitions::look(&remote, writable, &mut report).await;
        }
        let claims = list(
            session,
            &remote,
            CLAIM,
            "list IPAddressClaims",
            |claim: IPAddressClaim| {
                let key = Key::of(&claim.metadata);
                let served = wish::sort_of(&claim.spec.pool_ref, settings).is_some();
                (served || cluster_of(&key).is_some()).then_some((key, served))
            },
            &mut report,
        );
        let claims: BTreeMap<Key, bool> = claims.await?.into_iter().collect();
        let addresses = list(
            session,
            &remote,
            ADDRESS_OBJECT,
            "list IPAddresses",
            |one: IPAddress| {
                let key = Key::of(&one.metadata);
                let served = wish::sort_of(&one.spec.pool_ref, settings).is_some();
                let view = (served || cluster_of(&key).is_some()).then(|| AddressView::of(one));
                Some((served, (key, view?)))
            },
            &mut report,
        );
        let (served, others): (Vec<_>, Vec<_>) = addresses
            .await?
            .into_iter()
            .partition(|(served, _)| *served);
        let mut addresses: Vec<_> = served.into_iter().map(|(_, one)| one).collect();
        let clusters = list(
            session,
            &remote,
            CLUSTER,
            "list Clusters",
            |cluster: Cluster| Some((Key::of(&cluster.metadata), CapiClusterView::of(cluster))),
            &mut report,
        );
        let clusters = clusters.await?;
        let served = claims.values().filter(|served| **served);
        report.count("IPAddressClaims", served.count());
        report.count("IPAddresses", addresses.len());
        report.count("Clusters", clusters.len());
        self.addresses(session, &addresses, &mut report);
        // Claims of Clusters may be another provider's to serve.
        addresses.extend(others.into_iter().map(|(_, one)| one));
        endpoints(&clusters, &claims, &addresses, &mut report);
        Ok(report)
    }

    /// Whether an original still runs.
    async fn programs(
        &self,
        remote: &Remote,
        settings: &ClusterApiSettings,
        report: &mut IpamReport,
    ) {
        let provider = (&settings.in_cluster_lease_namespace, PROVIDER);
        let provider = settings.serves_in_cluster_kinds().then_some(provider);
        let allocator = (&settings.vip_allocator_lease_namespace, ALLOCATOR);
        let allocator = settings.vips.then_some(allocator);
        for (namespace, name) in provider.into_iter().chain(allocator) {
            let found = remote
                .get::<Deployment>(&DEPLOYMENT.named(namespace, name))
                .await;
            let found = match found {
                Ok(found) => found.map(|one| OriginalWorkload::deployment(&one)),
                Err(error) => {
                    let program = format!("Deployment {namespace}/{name}");
                    report.unseen.push(format!("{program}: {error}"));
                    let unknown = format!("it is not known whether {program} of an original runs");
                    report.blockers.push(unknown);
                    continue;
                }
            };
            let running = found.and_then(|one| Some((one.to_string(), one.gives_addresses()?)));
            if let Some((program, why)) = running {
                report.in_the_way(program, why);
            }
        }
        for lease in leases(settings) {
            if let Some(why) = adopt::leases::renewed_by_other(remote, &self.me, &lease).await {
                report.in_the_way(lease.to_string(), why);
            }
        }
    }

    /// Which addresses their claims keep. Of two with one address the first that was made keeps it.
    fn addresses(
        &self,
        session: &ClusterSession,
        addresses: &[(Key, AddressView)],
        report: &mut IpamReport,
    ) {
        for (key, there) in addresses {
            let Some(address) = there.address else {
                report.wrong(
                    FindingKind::Malformed,
                    key.to_string(),
                    "it shows no address",
                );
                continue;
            };
            // What it shows cools in the address book, and has no holder there.
            if there.grace_ends.is_some() {
                continue;
            }
            let claim = Key::new(&key.namespace, &there.claim);
            let identity = claim.identity(System::cluster_api(), &session.id, CLAIM.kind);
            let (held, contends) = self.ipam.read(|ledger| {
                let held = ledger.leases_of(&identity);
                let waits = ledger.contentions_of(&identity);
                (
                    held.iter().any(|lease| lease.key.address == address),
                    waits.iter().any(|lease| lease.key.address == address),
                )
            });
            let name = key.to_string();
            match (held, contends) {
                (true, _) => {
                    report.fine(FindingKind::Address, name, format!("{address} is adopted"))
                }
                (false, true) => {
                    let says = format!(
                        "{address} is held by another; this one gets it when that is released"
                    );
                    report.wrong(FindingKind::Conflict, name, says);
                }
                (false, false) => {
                    let why = format!(
                        "{address} is not adopted yet: `fipd clusters show {}` shows whether the adoption waits",
                        session.name
                    );
                    report.wrong(FindingKind::Address, name, why);
                }
            }
        }
    }

    async fn take_all(&self, log: AdoptLog<'_>) -> Result<IpamReport, TakeoverError> {
        let mut report = self.report(log.session).await?.unblocked()?;
        let remote = Remote::new(log.session.client.clone());
        let refuses = AtomicBool::new(false);
        let (remote, refuses) = (&remote, &refuses);
        let act = |action: IpamAction| async move {
            let is_webhook = matches!(action, IpamAction::Webhook { .. });
            if refuses.load(Ordering::Relaxed) && !is_webhook {
                let why = "not begun: the original's webhooks still refuse every write of a pool";
                return Err(why.to_owned());
            }
            let done = self.act(remote, &log.session.name, &action).await;
            refuses.fetch_or(is_webhook && done.is_err(), Ordering::Relaxed);
            done
        };
        log.carry_out(&mut report.changes, act).await;
        Ok(report)
    }

    async fn act(&self, remote: &Remote, cluster: &str, action: &IpamAction) -> Result<(), String> {
        match action {
            IpamAction::Definition(plural) => {
                let conversion = by_fipd(&self.own, cluster).await;
                let conversion = conversion.map_err(|error| error.to_string())?;
                let taken = definitions::take(remote, plural, conversion).await;
                taken.map_err(|error| error.to_string())
            }
            IpamAction::Webhook {
                mutating,
                name,
                uid,
            } => webhooks::remove(remote, cluster, (*mutating, name), uid).await,
        }
    }
}

/// What a complete list shows, in the version that the cluster serves; nothing where it has no such kind.
async fn list<K, T>(
    session: &ClusterSession,
    remote: &Remote,
    kind: Kind,
    what: &str,
    keep: impl Fn(K) -> Option<T>,
    report: &mut IpamReport,
) -> Result<Vec<T>, TakeoverError>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    T: std::fmt::Debug,
{
    let kind = match kind.served(remote).await {
        Ok(Some(kind)) => kind,
        Ok(None) => return Ok(Vec::new()),
        Err(error) => {
            report.unseen.push(format!("{what}: {error}"));
            return Ok(Vec::new());
        }
    };
    let api = kind.all_as::<K>(session.client.clone());
    let read = |one: Lenient<K>| match one.0 {
        Ok(object) => keep(object).map(Ok),
        Err(malformed) => Some(Err(Key::of(&malformed.metadata))),
    };
    let mut kept = Vec::new();
    for one in complete_list(session, &api, ListParams::default(), what, read).await? {
        match one {
            Ok(one) => kept.push(one),
            Err(key) => {
                let name = format!("{} {key}", kind.kind);
                report.wrong(FindingKind::Malformed, name, "it does not fit its schema");
            }
        }
    }
    Ok(kept)
}

/// Addresses that the original wrote and whose claim is gone, and claims that it burnt beside one given by hand.
fn endpoints(
    clusters: &[(Key, CapiClusterView)],
    claims: &BTreeMap<Key, bool>,
    addresses: &[(Key, AddressView)],
    report: &mut IpamReport,
) {
    let shown: BTreeMap<&Key, &AddressView> =
        addresses.iter().map(|(key, one)| (key, one)).collect();
    for (key, cluster) in clusters {
        let shows = [
            ("endpoint", VipSlot::ENDPOINT, cluster.host()),
            ("ingress address", VipSlot::INGRESS, cluster.ingress_host()),
        ];
        let claimed = |slot| {
            let claim = claim_key(key, slot);
            let there = shown.get(&claim).filter(|_| claims.contains_key(&claim));
            let address = there.and_then(|one| one.address);
            (claim, address)
        };
        for (what, slot, address) in shows {
            let Some(address) = address else {
                continue;
            };
            let (claim, own) = claimed(slot);
            judge(what, (key, address), &claim, own, report);
        }
        let named = cluster
            .endpoint
            .as_ref()
            .filter(|_| cluster.host().is_none());
        if let Some(endpoint) = named
            && let (claim, Some(own)) = claimed(VipSlot::ENDPOINT)
        {
            let says = format!(
                "its endpoint is {}, and the claim {} has {own}; delete the claim where the name does not lead to that",
                endpoint.host, claim.name
            );
            report.wrong(FindingKind::Orphan, key.to_string(), says);
        }
    }
}

/// What becomes of an address that a Cluster shows, and of that of its claim.
fn judge(
    what: &str,
    (cluster, address): (&Key, IpAddr),
    claim: &Key,
    claimed: Option<IpAddr>,
    report: &mut IpamReport,
) {
    let name = cluster.to_string();
    match claimed {
        Some(own) if own == address => {
            let says = format!("its {what} {address} is the address of its claim");
            report.fine(FindingKind::Address, name, says);
        }
        Some(other) => {
            let says = format!(
                "its {what} is {address}, and the claim {} keeps {other} for nothing; delete the claim",
                claim.name
            );
            report.wrong(FindingKind::Orphan, name, says);
        }
        None => {
            let says =
                format!("its {what} {address} has no claim; fipd reserves it where a pool has it");
            report.fine(FindingKind::Address, name, says);
        }
    }
}

impl Takeover for IpamTakeover {
    fn look<'a>(&'a self, session: &'a ClusterSession) -> TakeoverFuture<'a> {
        Box::pin(async { Ok(self.report(session).await?.shown()) })
    }

    fn adopt<'a>(&'a self, log: AdoptLog<'a>) -> TakeoverFuture<'a> {
        Box::pin(async move { Ok(self.take_all(log).await?.shown()) })
    }
}
