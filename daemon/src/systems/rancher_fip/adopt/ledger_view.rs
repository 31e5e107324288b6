//! Reads what the address book has of a site: where its pools are, and who holds their addresses.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{Lease, LeaseKey, LeaseState, Ledger, Pool, System, Text};
use fipd_crds::floating_ip::FloatingIPPool;

use super::inventory::{LedgerView, Placed, ProjectCharge};
use crate::{
    controller::{attachments::Attachments, pool_source::entries, store::Key},
    systems::rancher_fip::{
        Site,
        floating_ip::{names_service, observe::Fip},
        names::{self, KIND_FLOATING_IP, KIND_SERVICE},
        pool::{network_choice, status::MOST_ENTRIES, validate::validate},
    },
};

/// Rows read from the ledger at once; a reader must not hold it for longer.
const PAGE: usize = 1_000;
/// Overlaps with a pool that are looked at, and those with pools of others that are told.
const OVERLAPS: usize = 50;
const TOLD: usize = 3;

/// What there is of the pools.
pub fn read(
    site: &Site,
    pools: &BTreeMap<String, FloatingIPPool>,
    attachments: Option<&Attachments>,
) -> LedgerView {
    let placed = pools
        .iter()
        .map(|(name, pool)| (name.clone(), placed(site, name, pool, attachments)));
    let mut book = LedgerView {
        pools: placed.collect(),
        ..LedgerView::default()
    };
    charge(site, &mut book);
    book
}

/// As the pool controller does it.
fn placed(
    site: &Site,
    name: &str,
    pool: &FloatingIPPool,
    attachments: Option<&Attachments>,
) -> Placed {
    let ipam = &site.ipam;
    let mirror = ipam.read(|ledger| site.mirror_in(ledger, name).cloned());
    let choice = network_choice(site, name, pool, mirror.as_deref(), attachments);
    let usable = validate(pool.spec.ip_config.as_ref()).is_ok();
    let placed = Placed {
        network: choice.network,
        ignored_annotation: choice.ignored_annotation,
        ..Placed::default()
    };
    let Some(mirror) = mirror else { return placed };
    let entries = entries(ipam, mirror.id, MOST_ENTRIES, |_| String::new());
    let held: BTreeSet<_> = entries.into_iter().map(|(address, _)| address).collect();
    let (present, overlap, doubt) = ipam.read(|ledger| {
        let present = network_of(ledger, &mirror);
        let overlap = overlap(site, ledger, &mirror);
        (present, overlap, ledger.ambiguity(mirror.id))
    });
    // A pool that cannot be taken as written leaves its mirror where it is, and so does one with leases.
    let present = present.filter(|_| !usable || !held.is_empty());
    let network = present.unwrap_or_else(|| placed.network.clone());
    Placed {
        refused_move: (usable && network != placed.network).then_some(placed.network),
        network,
        mirrored: true,
        doubt,
        overlap,
        held,
        ..placed
    }
}

fn network_of(ledger: &Ledger, mirror: &Pool) -> Option<Text> {
    let network = ledger.network(mirror.spec.network);
    network.map(|network| Text::clone(&network.name))
}

/// The pools of others, of fipd or of another cluster, that may give its addresses as well.
fn overlap(site: &Site, ledger: &Ledger, mirror: &Pool) -> Option<String> {
    let overlaps = ledger.overlaps(mirror.id, OVERLAPS);
    let others = overlaps.iter().filter_map(|one| ledger.pool(one.pool));
    let others = others.filter(|pool| !site.is_mirror(pool) && !pool.spec.closed);
    let mut names: Vec<&str> = others.map(|pool| &*pool.spec.name).collect();
    names.dedup();
    names.truncate(TOLD);
    (!names.is_empty()).then(|| names.join(", "))
}

/// What each project has, as the statuses of quotas are made of it.
fn charge(site: &Site, book: &mut LedgerView) {
    site.ipam.in_steps(|ledger, after| {
        let page = ledger.tenancies(None, after, PAGE);
        for one in &page {
            let pool = ledger.pool(one.pool);
            let Some(name) = pool.and_then(|pool| site.object_of(pool)) else {
                continue;
            };
            // Its object is gone or cannot be read, and it stays where it is.
            let gone = || Placed {
                network: (pool.and_then(|pool| network_of(ledger, pool))).unwrap_or_default(),
                mirrored: true,
                ..Placed::default()
            };
            let placed = book.pools.entry(name).or_insert_with(gone);
            let (used, limit) = (one.used, one.limit);
            let project = one.tenant.0.to_string();
            placed
                .charged
                .insert(project, ProjectCharge { used, limit });
        }
        let last = page.last().filter(|_| page.len() == PAGE)?;
        Some((last.pool, last.tenant.clone()))
    });
}

/// Rows read from the ledger at once.
const ROWS: usize = 500;

/// Notes which addresses are in the address book, and which of them somebody else has.
pub fn note_holders(site: &Site, fips: &BTreeMap<Key, Fip>, book: &mut LedgerView) {
    let all: Vec<(&Key, &Fip)> = fips.iter().collect();
    // A reader holds the ledger for at most 1,000 rows.
    for some in all.chunks(ROWS) {
        let leases = site.ipam.read(|ledger| {
            let lease = |(key, fip): &(&Key, &Fip)| {
                let address = fip.shown().filter(|_| fip.meta.deleted.is_none())?;
                let network = ledger.network_by_name(book.network(&fip.pool))?.id;
                let lease = ledger.lease_around(LeaseKey { network, address })?;
                let used = lease.state != LeaseState::Quarantined;
                Some(((*key).clone(), used, stranger(site, lease, key, fip)))
            };
            some.iter().filter_map(lease).collect::<Vec<_>>()
        });
        for (key, used, stranger) in leases {
            if let Some(stranger) = stranger {
                book.held_by_others.insert(key.clone(), stranger);
            }
            if used {
                book.taken.insert(key);
            }
        }
    }
}

/// Who has the object's address, if it is neither itself nor a Service that it is for.
fn stranger(site: &Site, lease: &Lease, key: &Key, fip: &Fip) -> Option<String> {
    let owner = &lease.owner()?.identity;
    let own = names::identity(&site.id, KIND_FLOATING_IP, key);
    let of_service = owner.system == System::rancher_fip()
        && (names_service(fip, owner) || (fip.holder.is_some() && &*owner.kind == KIND_SERVICE));
    (*owner != own && !of_service).then(|| owner.to_string())
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

    use fipd_core::{Adopt, Holder, LeaseKey, Request, System, Tenant, Timestamp};
    use fipd_crds::floating_ip::FloatingIP;
    use kube::Client;
    use serde_json::json;

    use super::*;
    use crate::{
        clock,
        clusters::testing,
        config::Config,
        controller::{client::Remote, events::Events, store::Key},
        ipam::Ipam,
        systems::rancher_fip::{
            adopt::{
                SiteReport, holders,
                inventory::SiteInventory,
                pool_ranges::{PoolRanges, Uses},
            },
            floating_ip::observe,
            names::{self, KIND_SERVICE},
            pool::{FloatingIpPoolSource, FloatingIpPools},
            rancher::Data,
        },
    };

    const RULES: &str = "[[network]]\nname = \"lab\"\nmatch = [{ pool = \"lab-*\" }]\n\
        [[network]]\nname = \"wan\"\nmatch = [{ interface = \"eth9\" }]\n";

    async fn unused(
        _: http::Request<kube::client::Body>,
    ) -> Result<http::Response<kube::client::Body>, Infallible> {
        std::future::pending().await
    }

    fn pools() -> BTreeMap<String, FloatingIPPool> {
        let pool = |name: &str, interface: &str, network: Option<&str>| {
            let notes = network.map(|network| json!({ "fipd.io/network": network }));
            let range = json!({ "start": "10.0.0.10", "end": "10.0.0.19" });
            let pool = serde_json::from_value(json!({
                "metadata": { "name": name, "uid": name, "annotations": notes },
                "spec": {
                    "ipConfig": { "subnet": "10.0.0.0/24", "pool": range },
                    "targetNetworkInterface": interface,
                },
            }));
            (name.to_owned(), pool.expect("a pool"))
        };
        let all = [
            pool("lab-a", "", None),
            pool("named", "", Some("vip")),
            pool("plain", "", None),
            pool("wide", "eth9", None),
        ];
        all.into()
    }

    fn networks(book: &LedgerView) -> Vec<(&str, &str)> {
        let all = book.pools.iter();
        all.map(|(name, placed)| (&**name, &*placed.network))
            .collect()
    }

    /// What the report says of the quota `p-1` that limits the project in the pool `lab-a`.
    fn said(book: LedgerView, pools: BTreeMap<String, FloatingIPPool>) -> String {
        let quota = serde_json::from_value(json!({
            "metadata": { "name": "p-1" }, "spec": { "floatingIPQuota": { "lab-a": 5 } },
            "status": { "fips": { "lab-a": { "used": 1 } } },
        }));
        let found = SiteInventory {
            book,
            pools,
            quotas: [("p-1".to_owned(), quota.expect("a quota"))].into(),
            ..SiteInventory::default()
        };
        let known = PoolRanges::of(&found);
        let mut report = SiteReport::default();
        holders::judge(&found, &known, &Uses::of(&found, &known), &mut report);
        report.findings.remove(0).says
    }

    #[tokio::test]
    async fn pools_are_where_the_pool_controller_puts_them_and_leases_are_what_quotas_count() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let client = Client::new(tower::service_fn(unused), "default");
        let config = Config::parse(RULES, Path::new("/")).expect("a configuration");
        let session = testing::session_under(client, &ipam, config).await;
        let site = Arc::new(Site::new(session, System::rancher_fip()));
        let pools = pools();
        let expected = [
            ("lab-a", "lab"),
            ("named", "vip"),
            ("plain", "default"),
            ("wide", "wan"),
        ];
        let before = async {
            loop {
                let book = read(&site, &pools, None);
                if networks(&book) == expected {
                    break book;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let before = tokio::time::timeout(Duration::from_secs(5), before).await;
        let before = before.expect("the rules are known");
        assert!(!before.is_mirrored("lab-a"));

        let remote = Remote::new(site.session.client.clone());
        let data = Data::new(site.id.clone(), remote, site.cancel());
        for (name, pool) in &pools {
            data.pools.set(&Key::new("", name), pool.clone());
        }
        let quiet = || std::future::ready(());
        let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
        let context = data.context(
            crate::systems::rancher_fip::kinds::POOL,
            &site,
            &Arc::new(events),
            &data.pools,
        );
        let source = FloatingIpPoolSource::new(&site, &data);
        let controller = FloatingIpPools::new(context, source);
        assert!(controller.define_all().await.is_ok());
        let book = read(&site, &pools, None);
        assert_eq!(networks(&book), expected);
        for (name, network) in expected {
            let of = ipam.read(|ledger| {
                let mirror = site.mirror_in(ledger, name).expect("a mirror");
                ledger
                    .network(mirror.spec.network)
                    .map(|one| one.name.clone())
            });
            assert_eq!(of.as_deref(), Some(network), "{name}");
        }

        // Two Services have addresses that no FloatingIP shows.
        let network = ipam.read(|ledger| ledger.network_by_name("lab").map(|one| one.id));
        for last in [10, 11] {
            let key = Key::new("shop", &format!("web-{last}"));
            let adopt = Adopt {
                length: None,
                key: LeaseKey {
                    network: network.expect("a network"),
                    address: [10, 0, 0, last].into(),
                },
                holder: Holder {
                    identity: names::identity(&site.id, KIND_SERVICE, &key),
                    instance: "u".into(),
                },
                tenant: Some(Tenant("p-1".into())),
                since: Timestamp(1),
                actor: "test".into(),
            };
            ipam.submit(Request::Adopt(adopt)).await.expect("adopted");
        }
        let book = read(&site, &pools, None);
        assert_eq!(book.pools["lab-a"].held.len(), 2);
        let mut moved = pools.clone();
        let notes = &mut moved.get_mut("lab-a").expect("a pool").metadata.annotations;
        *notes = Some([("fipd.io/network".to_owned(), "vip".to_owned())].into());
        let placed = &read(&site, &moved, None).pools["lab-a"];
        assert_eq!(&*placed.network, "lab", "its leases keep it");
        assert_eq!(placed.refused_move.as_deref(), Some("vip"));
        moved.remove("lab-a");
        let placed = &read(&site, &moved, None).pools["lab-a"];
        assert_eq!((&*placed.network, placed.mirrored), ("lab", true));

        // What a FloatingIP shows is in a prefix that somebody else has.
        let prefix = Adopt {
            length: Some(30),
            key: LeaseKey {
                network: network.expect("a network"),
                address: [10, 0, 0, 16].into(),
            },
            holder: fipd_core::testing::holder("rancher-fip/Y/Service/ns/web", "1"),
            tenant: None,
            since: Timestamp(1),
            actor: "test".into(),
        };
        ipam.submit(Request::Adopt(prefix)).await.expect("adopted");
        let mut fip = observe::view(FloatingIP::default());
        fip.pool = "lab-a".into();
        fip.status.ip_addr = "10.0.0.17".into();
        let key = Key::new("c-1", "fip");
        let mut around = read(&site, &pools, None);
        note_holders(&site, &BTreeMap::from([(key.clone(), fip)]), &mut around);
        let other = around.held_by_others.get(&key).map(String::as_str);
        assert_eq!(other, Some("rancher-fip/Y/Service/ns/web"));
        assert!(around.taken.contains(&key));

        assert_eq!(
            said(book, pools),
            "2 of 5 in lab-a; its status says 1 of lab-a, 2 are there"
        );
    }
}
