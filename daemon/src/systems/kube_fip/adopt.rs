//! Taking over from kube-fip-operator: what is found of it, and whether fipd may begin. The addresses are adopted when the
//! system starts, all of them before the first new one; here is told what becomes of each.

mod guests;

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::{NetworkId, System};
use fipd_crds::kube_fip::{FloatingIPRange, GuestFloatingIP};
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{
    floating_ip::{self, FipView},
    names::FLOATING_IP,
    original,
    settings::KubeFipSettings,
};
use crate::{
    adopt::{self, AdoptLog, FindingKind, Takeover, TakeoverError, TakeoverFuture, TakeoverReport},
    clusters::{ClusterSession, adoption::complete_list},
    controller::{client::Remote, store::Key},
    guests::GuestBoard,
    ipam::Ipam,
};

/// Looks at what the original left in a Rancher cluster.
pub struct KubeFipTakeover {
    pub ipam: Ipam,
    pub guests: GuestBoard,
}

impl KubeFipTakeover {
    async fn report(&self, session: &ClusterSession) -> Result<TakeoverReport, TakeoverError> {
        adopt::require(session, &System::kube_fip())?;
        session.verify_identity().await?;
        let (client, all) = (|| session.client.clone(), ListParams::default);
        let ranges: Api<FloatingIPRange> = Api::all(client());
        let ranges = complete_list(session, &ranges, all(), "list FloatingIPRanges", Some).await?;
        let fips: Api<GuestFloatingIP> = Api::all(client());
        let keep = |fip: GuestFloatingIP| Some((Key::of(&fip.metadata), floating_ip::view(fip)));
        let fips = complete_list(session, &fips, all(), "list FloatingIPs", keep).await?;
        let mut report = TakeoverReport {
            wording: ("addresses", "adopted"),
            ..TakeoverReport::default()
        };
        report.count("FloatingIPRanges", ranges.len());
        report.count("FloatingIPs", fips.len());
        let remote = Remote::new(session.client.clone());
        program(session, &remote, &mut report).await;
        match original::without_status(&remote).await {
            Ok(kinds) if kinds.is_empty() => {}
            Ok(kinds) => report
                .blockers
                .push(original::statusless(&kinds, &session.name)),
            Err(error) => report.unseen.push(format!("the definitions: {error}")),
        }
        self.ranges(session, &ranges, &mut report);
        self.addresses(session, &fips, &mut report);
        guests::report(session, &self.guests, &fips, &mut report).await;
        Ok(report)
    }

    fn ranges(
        &self,
        session: &ClusterSession,
        ranges: &[FloatingIPRange],
        report: &mut TakeoverReport,
    ) {
        for range in ranges {
            let name = range.name_any();
            let pool = self.ipam.read(|ledger| {
                let pool = ledger.mirror(&System::kube_fip(), &session.id, &name);
                pool.filter(|pool| !pool.spec.closed)
                    .map(|pool| pool.spec.name.clone())
            });
            match pool {
                Some(pool) => report.fine(FindingKind::Pool, name, format!("it is pool {pool}")),
                None => {
                    let why = "it is no pool: its condition Ready says why";
                    report.wrong(FindingKind::Pool, name, why);
                }
            }
        }
    }

    /// Which addresses their objects keep. Of two with one address of one network the first that was made keeps it.
    fn addresses(
        &self,
        session: &ClusterSession,
        fips: &[(Key, FipView)],
        report: &mut TakeoverReport,
    ) {
        let mut users: BTreeMap<(NetworkId, IpAddr), Vec<String>> = BTreeMap::new();
        for (key, fip) in fips {
            let name = format!("{}/{}", key.namespace, key.name);
            let Some(address) = fip.named() else {
                let says = "it names no address, and gets one once all others are adopted";
                report.fine(FindingKind::Address, name, says);
                continue;
            };
            let network = self.ipam.read(|ledger| {
                let range = fip.range.as_deref()?;
                let pool = ledger.mirror(&System::kube_fip(), &session.id, range)?;
                Some(pool.spec.network)
            });
            let place = (network.unwrap_or(NetworkId::DEFAULT), address);
            users.entry(place).or_default().push(name.clone());
            let identity = key.identity(System::kube_fip(), &session.id, FLOATING_IP.kind);
            let held = self.ipam.read(|ledger| {
                let leases = ledger.leases_of(&identity);
                leases.iter().any(|lease| lease.key.address == address)
            });
            match held {
                true => report.fine(FindingKind::Address, name, format!("{address} is adopted")),
                false => {
                    let why = format!(
                        "{address} is not its own yet: `fipd clusters show {}` shows whether the adoption waits, and its condition Ready what is wrong",
                        session.name
                    );
                    report.wrong(FindingKind::Address, name, why);
                }
            }
        }
        for ((_, address), names) in users.into_iter().filter(|(_, names)| names.len() > 1) {
            let says = format!(
                "{} have it: one keeps it, the others get it once it is free, or the free one that their spec.ipaddress names",
                names.join(" and ")
            );
            report.wrong(FindingKind::Conflict, address.to_string(), says);
        }
    }
}

/// Whether the original still runs.
async fn program(session: &ClusterSession, remote: &Remote, report: &mut TakeoverReport) {
    let settings = session.settings.of::<KubeFipSettings>();
    match original::running(remote, settings).await {
        Ok(None) => {}
        Ok(Some(program)) => {
            report.in_the_way(program.to_string(), original::in_the_way(&program));
        }
        Err(error) => {
            report
                .unseen
                .push(format!("the program of the original: {error}"));
            let unknown = "it is not known whether the original still runs";
            report.blockers.push(unknown.to_owned());
        }
    }
}

impl Takeover for KubeFipTakeover {
    fn look<'a>(&'a self, session: &'a ClusterSession) -> TakeoverFuture<'a> {
        Box::pin(self.report(session))
    }

    /// Nothing is changed here: once the original is gone, fipd begins by itself.
    fn adopt<'a>(&'a self, log: AdoptLog<'a>) -> TakeoverFuture<'a> {
        Box::pin(async move { self.report(log.session).await?.unblocked() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{Origin, PoolSpec, testing};
    use serde_json::json;

    use super::*;
    use crate::{
        clock,
        clusters::testing::{new_network, session},
        controller::fake_api_tests::client,
    };

    #[tokio::test]
    async fn one_address_of_two_networks_is_no_conflict() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let session = session(client(&Arc::default()), &ipam).await;
        let takeover = KubeFipTakeover {
            ipam: ipam.clone(),
            guests: GuestBoard::default(),
        };
        let fips = ["a", "b"].map(|range| {
            let object = json!({
                "apiVersion": "kubefip.k8s.binbash.org/v1", "kind": "FloatingIP",
                "metadata": { "annotations": { "clustername": "guest", "fiprange": range } },
                "spec": { "ipaddress": "10.0.0.5" },
            });
            let object = serde_json::from_value(object).expect("a FloatingIP");
            (Key::new("c-m-1", range), floating_ip::view(object))
        });
        let conflicts = || {
            let mut report = TakeoverReport::default();
            takeover.addresses(&session, &fips, &mut report);
            let findings = report.findings.iter();
            findings
                .filter(|one| one.kind == FindingKind::Conflict)
                .count()
        };
        assert_eq!(conflicts(), 1, "their ranges are no pools yet");
        let blue = new_network(&ipam, "blue").await;
        for (range, network) in [("a", NetworkId::DEFAULT), ("b", blue)] {
            let spec = PoolSpec {
                network,
                origin: Origin::Mirror {
                    system: System::kube_fip(),
                    cluster: session.id.clone(),
                    object: range.into(),
                    uid: range.into(),
                },
                ..testing::pool_spec(&format!("kube-fip/home/{range}"), &["10.0.0.0/24"])
            };
            let made = ipam.submit(testing::create_pool(spec)).await;
            made.expect("a pool");
        }
        assert_eq!(conflicts(), 0);
    }
}
