//! Taking over from kube-fip-operator: what is found of it, and whether fipd may begin. The addresses are adopted when the
//! system starts, all of them before the first new one; here is told what becomes of each.

mod guests;

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::System;
use fipd_crds::kube_fip::{FloatingIPRange, GuestFloatingIP};
use futures::future::BoxFuture;
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{
    floating_ip::{self, FipView},
    names::FLOATING_IP,
    original,
    settings::KubeFipSettings,
};
use crate::{
    adopt::{self, AdoptLog, FindingKind, Takeover, TakeoverError, TakeoverReport},
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

    /// Which addresses their objects keep. Of two with one address the first that was made keeps it.
    fn addresses(
        &self,
        session: &ClusterSession,
        fips: &[(Key, FipView)],
        report: &mut TakeoverReport,
    ) {
        let mut users: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
        for (key, fip) in fips {
            let name = format!("{}/{}", key.namespace, key.name);
            let Some(address) = fip.named() else {
                let says = "it names no address, and gets one once all others are adopted";
                report.fine(FindingKind::Address, name, says);
                continue;
            };
            users.entry(address).or_default().push(name.clone());
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
        for (address, names) in users.into_iter().filter(|(_, names)| names.len() > 1) {
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
    fn look<'a>(
        &'a self,
        session: &'a ClusterSession,
    ) -> BoxFuture<'a, Result<TakeoverReport, TakeoverError>> {
        Box::pin(self.report(session))
    }

    /// Nothing is changed here: once the original is gone, fipd begins by itself.
    fn adopt<'a>(
        &'a self,
        log: AdoptLog<'a>,
    ) -> BoxFuture<'a, Result<TakeoverReport, TakeoverError>> {
        Box::pin(async move { self.report(log.session).await?.unblocked() })
    }
}
