//! Bringing everything to where it should be: names, expectations, sessions, orphans, views.
//!
//! Runs after every event and may run at any time: each step compares what is with what should be. The order
//! counts: what networks wait for is known to the ledger before any session may make it adopt.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{
    Answer, ClusterId, ClusterRecord, Expectation, Ledger, NetworkId, Refusal, Request, System,
    Text,
};

use super::{
    ClustersError,
    adoption::note_adopted,
    connect,
    identity::Verdict,
    registry::{ManagedSite, Registry},
    sites::{SiteSpec, drawing_from_own, pools_in},
};
use crate::{
    clusters::identity_conflicts::{self, Lead, SiteClaim, SiteDoubt, SiteStanding},
    config::Pattern,
};
use crate::{
    config::{self, Awaited, SightingMode},
    ipam::IpamError,
};

pub(super) type Standings = BTreeMap<Text, SiteStanding>;
pub(super) type Leads = BTreeMap<ClusterId, Lead>;

impl Registry {
    /// One pass. A store that does not take decisions is tried again with the next.
    pub async fn settle(&mut self) {
        self.arrange_sites();
        if let Err(err) = self.identify().await {
            tracing::error!("clusters cannot prove themselves, tried again soon: {err}");
        }
        let (standings, leads) = self.standings();
        self.tell_known(&standings);
        // Before anything is written there.
        self.note_held(&standings).await;
        if let Err(err) = self.settle_in(&standings, &leads).await {
            tracing::error!("clusters cannot be brought up to date, tried again soon: {err}");
        }
        self.show(&standings);
    }

    /// The first pass, before anything is connected: all that counts is that the ledger knows what to wait for.
    pub async fn expect_first(&mut self) -> Result<(), IpamError> {
        self.arrange_sites();
        let (standings, _) = self.standings();
        self.set_expectations(&standings).await?;
        self.show(&standings);
        Ok(())
    }

    fn tell_known(&self, standings: &Standings) {
        // Nobody is gone because nobody looked yet.
        if self.config.discovery.is_some() && self.found.is_none() {
            return;
        }
        // One whose identity is in doubt is stopped, and what it had stays.
        let own_name = |spec: &&SiteSpec| leads(standings, &spec.name);
        let specs = self.sites.values().map(|site| &site.spec);
        let known: Vec<_> = specs
            .filter(own_name)
            .map(|spec| (&spec.name, &spec.systems, &spec.settings))
            .collect();
        self.runner.known(&known);
    }

    async fn settle_in(&mut self, standings: &Standings, leads: &Leads) -> Result<(), IpamError> {
        self.record_names(standings, leads).await?;
        let awaited = self.set_expectations(standings).await?;
        self.end_sessions(leads);
        self.start_sessions(leads, &awaited);
        self.tell_networks(&awaited);
        self.arrange_discovery();
        self.mark_discovery(&awaited).await?;
        self.orphan_leavers(standings).await
    }

    pub(super) fn standings(&self) -> (Standings, Leads) {
        let sites = self.sites_in_order().into_iter();
        let claims: Vec<SiteClaim> = sites.map(|site| self.claim(site)).collect();
        identity_conflicts::decide(&claims)
    }

    /// In the order in which they count.
    pub(super) fn sites_in_order(&self) -> Vec<&ManagedSite> {
        let mut sites: Vec<&ManagedSite> = self.sites.values().collect();
        sites.sort_by_key(|site| (site.spec.order, &site.spec.name));
        sites
    }

    fn claim(&self, site: &ManagedSite) -> SiteClaim {
        let name = &site.spec.name;
        let (owner, rank) = self.ipam.read(|ledger| {
            let Some(record) = ledger.cluster_by_name(name) else {
                return (None, None);
            };
            let proof = record.proof.as_ref();
            let leads = proof.is_some_and(|proof| proof.lead == *name);
            let place = record.names.iter().position(|one| one == name);
            let rank = if leads {
                Some(0)
            } else {
                place.map(|place| place + 1)
            };
            (Some(record.id.clone()), rank)
        });
        let mut claim = SiteClaim {
            site: name.clone(),
            owner,
            rank,
            ..SiteClaim::default()
        };
        for (way, link) in &site.links {
            let Some(up) = &link.up else { continue };
            let key = (site.spec.name.clone(), way.clone());
            match self.proofs.verdicts.get(&key) {
                Some((id, Verdict::Proven | Verdict::Vouched)) => {
                    claim.ways.push((key.1, id.clone(), link.answers));
                }
                Some((id, Verdict::Compared)) => {
                    claim.compared.push((key.1, id.clone(), link.answers));
                }
                Some((id, Verdict::Waits(why))) => {
                    claim.pending = Some(id.clone());
                    claim
                        .doubt
                        .get_or_insert_with(|| SiteDoubt::Waits(why.clone()));
                }
                Some((_, Verdict::Conflict(why))) => {
                    if !matches!(claim.doubt, Some(SiteDoubt::Conflict(_))) {
                        claim.doubt = Some(SiteDoubt::Conflict(why.clone()));
                    }
                }
                // Its name is another cluster's.
                None => {
                    let stranger = |owner: &ClusterId| connect::uid(owner) != &*up.id.0;
                    if claim.owner.as_ref().is_some_and(stranger) {
                        claim.ways.push((key.1, up.id.clone(), link.answers));
                    }
                }
            }
        }
        claim
    }

    /// Whether more than a comparison says that its ways lead there.
    fn is_proven(&self, lead: &Lead) -> bool {
        let mut ways = lead.ways.iter();
        ways.any(|(site, way, _)| {
            let verdict = self.proofs.verdicts.get(&(site.clone(), way.clone()));
            matches!(verdict, Some((_, Verdict::Proven | Verdict::Vouched)))
        })
    }

    /// Remembers under which names each connected cluster goes.
    async fn record_names(&self, standings: &Standings, leads: &Leads) -> Result<(), IpamError> {
        for (id, lead) in leads {
            if !self.is_proven(lead) && self.proof(id).is_some() {
                continue;
            }
            let here: Vec<&SiteSpec> = self
                .sites
                .values()
                .map(|site| &site.spec)
                .filter(|spec| lead.ways.iter().any(|(site, _, _)| *site == spec.name))
                .collect();
            // An alias that is another site's own name may turn out to be another cluster.
            let free = |name: &Text| {
                let other = standings.get(name);
                other.is_none_or(|other| other.id.as_ref() == Some(id))
            };
            let mut names: Vec<Text> = Vec::new();
            let first = here.iter().filter(|spec| spec.name == lead.site);
            for name in first.chain(here.iter()).flat_map(|spec| &spec.names) {
                if free(name) && !names.contains(name) {
                    names.push(name.clone());
                }
            }
            let discovered = here.iter().all(|spec| spec.discovered);
            let news = self.ipam.read(|ledger| {
                names.retain(|name| {
                    let record = ledger.cluster_by_name(name);
                    record.is_none_or(|record| record.id == *id)
                });
                ledger.cluster(id).is_none_or(|record| {
                    names.iter().any(|name| !record.names.contains(name))
                        || (record.discovered && !discovered)
                })
            });
            if news {
                let record = ClusterRecord {
                    id: id.clone(),
                    names,
                    discovered,
                    first_seen: self.ipam.now(),
                    proof: None,
                };
                self.ipam.submit(Request::RecordCluster { record }).await?;
            }
        }
        Ok(())
    }

    /// Tells the ledger what each network waits for.
    async fn set_expectations(
        &mut self,
        standings: &Standings,
    ) -> Result<Vec<(NetworkId, Awaited)>, IpamError> {
        let mut offers = std::mem::take(&mut self.offers);
        let asked = self.claimants().into_iter().map(|(.., patterns)| patterns);
        offers.follow(&self.ipam, asked.collect());
        self.offers = offers;
        let mut awaited = Vec::new();
        for one in self.awaited(standings) {
            awaited.push((self.network(&one.network).await?, one));
        }
        let expected: Vec<Expectation> = awaited
            .iter()
            .map(|(network, one)| Expectation {
                network: *network,
                cluster: one.cluster.clone(),
                system: one.system.clone(),
            })
            .collect();
        self.open_previews(&awaited).await?;
        if self.expected != expected {
            self.ipam.set_expectations(expected.clone());
            self.expected = expected;
        }
        Ok(awaited)
    }

    /// Every name of a site: as it is configured, and as its cluster was called before.
    fn site_names(&self, spec: &SiteSpec) -> Vec<Text> {
        let recorded = self.names_of(&spec.name).into_iter();
        let more = recorded.filter(|name| !spec.names.contains(name));
        spec.names.iter().cloned().chain(more).collect()
    }

    fn awaited(&self, standings: &Standings) -> Vec<Awaited> {
        // Pools of a cluster that goes by two names are those of the leading one.
        let lead = |name: &Text| {
            let standing = standings.get(name);
            standing
                .and_then(|standing| standing.joined.clone())
                .unwrap_or_else(|| name.clone())
        };
        let led = |pools_in: &BTreeMap<System, Text>| -> BTreeMap<System, Text> {
            let pools_in = pools_in.iter();
            pools_in
                .map(|(system, name)| (system.clone(), lead(name)))
                .collect()
        };
        let sites: Vec<config::Site> = self
            .sites
            .values()
            .filter(|site| leads(standings, &site.spec.name))
            .map(|site| config::Site {
                name: site.spec.name.clone(),
                names: self.site_names(&site.spec),
                systems: led(&site.spec.pools_in),
                holds_sightings: site.spec.sightings() == SightingMode::Hold,
            })
            .collect();
        let discovery = self.config.discovery.as_ref();
        let unlisted = discovery.filter(|_| self.found.is_none()).map(|discovery| {
            let (cluster, systems) = (&discovery.cluster, &discovery.systems);
            let pools_in = pools_in(&self.config, cluster, systems, &discovery.settings);
            (cluster, led(&pools_in))
        });
        let unlisted = unlisted
            .as_ref()
            .map(|(cluster, systems)| (*cluster, systems));
        let mut seen = self.seen.clone();
        seen.extend(self.offered());
        config::awaited(&self.config.networks, &sites, &seen, unlisted)
    }

    /// The clusters that may use pools of fipd's own, and their patterns for these.
    fn claimants(&self) -> Vec<(&Text, &System, &[Pattern])> {
        let specs = self.sites.values().map(|site| &site.spec);
        let of_sites =
            specs.flat_map(|one| drawing_from_own(&one.name, &one.systems, &one.settings));
        // What a discovery may bring counts until it has.
        let discovery = self
            .config
            .discovery
            .iter()
            .filter(|_| self.found.is_none());
        let of_found =
            discovery.flat_map(|one| drawing_from_own(&one.cluster, &one.systems, &one.settings));
        of_sites.chain(of_found).collect()
    }

    /// The networks of fipd's own pools that clusters may use.
    fn offered(&self) -> Vec<(Text, System, Text)> {
        let mut offered = Vec::new();
        for (cluster, system, patterns) in self.claimants() {
            let networks: Vec<NetworkId> = self.offers.networks(patterns).collect();
            let name = |ledger: &Ledger, id: &NetworkId| Some(ledger.network(*id)?.name.clone());
            let names = self.ipam.map_in_steps(&networks, name).into_iter();
            let row = |name| (cluster.clone(), system.clone(), name);
            offered.extend(names.flatten().map(row));
        }
        offered
    }

    /// The network of that name, made if it is new.
    pub async fn network(&self, name: &Text) -> Result<NetworkId, IpamError> {
        let known = |ledger: &Ledger| ledger.network_by_name(name).map(|network| network.id);
        if let Some(id) = self.ipam.read(known) {
            return Ok(id);
        }
        let request = Request::CreateNetwork {
            name: name.clone(),
            actor: "fipd".into(),
        };
        if let Answer::Network(network) = self.ipam.submit(request).await? {
            return Ok(network.id);
        }
        let allowed = "a network was made but not answered; this is a defect of fipd".to_owned();
        Err(Refusal::Invalid {
            field: "network",
            value: name.to_string(),
            allowed,
        }
        .into())
    }

    /// Once every cluster of the first complete list was adopted, the source itself counts as adopted: should fipd
    /// start again before that, it waits for the list again, for those clusters are known only from it.
    async fn mark_discovery(&self, awaited: &[(NetworkId, Awaited)]) -> Result<(), IpamError> {
        let (Some(discovery), Some(_)) = (&self.config.discovery, &self.found) else {
            return Ok(());
        };
        let networks: BTreeSet<NetworkId> = awaited.iter().map(|(network, _)| *network).collect();
        let source = |ledger: &Ledger| Some(ledger.cluster_by_name(&discovery.cluster)?.id.clone());
        let Some(id) = self.ipam.read(source) else {
            return Ok(());
        };
        let networks: Vec<NetworkId> = networks.into_iter().collect();
        let open = self.ipam.map_in_steps(&networks, |ledger, network| {
            let is_open = !ledger.adopted(*network, &id, &System::discovery())
                && ledger.holds(*network).is_empty();
            is_open.then_some(*network)
        });
        for network in open.into_iter().flatten() {
            let place = (network, id.0.clone(), System::discovery());
            note_adopted(&self.ipam, place, false, "fipd".into()).await?;
        }
        Ok(())
    }

    /// A pool of the cluster is in this network: from now on the network waits for all who use the cluster's pools.
    pub async fn take_network(
        &mut self,
        cluster: Text,
        system: System,
        name: Text,
    ) -> Result<NetworkId, ClustersError> {
        let network = self.network(&name).await?;
        if self.seen.insert((cluster, system, name)) {
            let (standings, _) = self.standings();
            let awaited = self.set_expectations(&standings).await?;
            self.tell_networks(&awaited);
        }
        Ok(network)
    }
}

/// Whether its cluster does not go by the name of another site.
pub(super) fn leads(standings: &Standings, name: &Text) -> bool {
    let standing = standings.get(name);
    standing.is_none_or(|one| one.joined.is_none())
}

pub(super) fn networks_of(
    site: &Text,
    awaited: &[(NetworkId, Awaited)],
) -> BTreeMap<System, BTreeSet<NetworkId>> {
    let mut networks: BTreeMap<System, BTreeSet<NetworkId>> = BTreeMap::new();
    for (network, one) in awaited.iter().filter(|(_, one)| one.cluster == *site) {
        networks
            .entry(one.system.clone())
            .or_default()
            .insert(*network);
    }
    networks
}
