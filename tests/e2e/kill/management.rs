//! A management cluster of Cluster API under load, of which fipd, the core manager and the API server are killed at random. An
//! independent reader follows what the cluster shows and replays what fipd's audit log says.
//!
//! Numbers of invariants are those of the design.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fipd_tests::cluster_api::IpamObjects;
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::cluster_api::{
    Class, ClusterApiObjects, CoreManager, StandInProviders, Versions, install_definitions,
    install_stand_ins,
};
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER, wait_until,
};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::management_load::{Asked, CLAIM, CLUSTER, Load};
use crate::management_reader::{AuditBook, Reader, Shown};
use crate::{Dice, check_offline};

pub const NAMESPACE: &str = "chaos";
pub const NODES: (&str, &str) = ("GlobalInClusterIPPool", "nodes");
/// Fewer than the load may have claims at once, so that some wait.
const ADDRESSES: &str = "10.80.0.1-10.80.0.30";
/// Claims that another provider served before fipd's first start.
const BEFORE: u32 = 3;
/// Addresses that are allocated, and those that are released, before each strike.
const SERVED: (usize, usize) = (12, 4);
/// Claims that are left at the end, at most: all of them have an address then.
const LEFT: usize = 20;
/// What a claim without a finalizer leaves is taken away after a second look, and its address after two lists.
const DEADLINE: Duration = Duration::from_secs(300);

/// What can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Fipd,
    Manager,
    Api,
}

struct Site {
    // Dropped in this order: clients end before the API server.
    fipd: Fipd,
    _providers: StandInProviders,
    manager: CoreManager,
    objects: IpamObjects,
    plane: ControlPlane,
}

impl Site {
    /// Everything but fipd runs, and some claims have addresses by another provider.
    async fn prepare() -> anyhow::Result<Self> {
        let mut plane = ControlPlane::start("management", ControlPlaneOptions::default()).await?;
        install_definitions(&plane, Versions::Both).await?;
        install_stand_ins(&plane).await?;
        plane.install_fipd_crds().await?;
        plane.restrict_cluster_api().await?;
        plane.start_controller_manager().await?;
        let manager = CoreManager::start(&plane).await?;
        let providers = StandInProviders::start(&plane)?;
        let core = ClusterApiObjects::of(&plane, NAMESPACE).await?;
        core.make_class(&Class::with_cluster_vip(NAMESPACE)).await?;
        let objects = IpamObjects {
            client: plane.client().await?,
            version: "v1beta2",
        };
        make_pools(&objects).await?;
        for number in 1..=BEFORE {
            let path = format!("{NAMESPACE}/before-{number}");
            let address = format!("10.80.0.{number}");
            objects.fulfilled(&path, NODES, &address).await?;
        }
        let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
        write_kubeconfig(&fipd, "management", &plane.kubeconfig_of(RESTRICTED_USER))?;
        fipd.write_config(
            "[[cluster]]\nname = \"management\"\nkubeconfig = \"management.kubeconfig\"\nsystems = [\"cluster-api\"]\n",
        )?;
        Ok(Self {
            fipd,
            _providers: providers,
            manager,
            objects,
            plane,
        })
    }

    fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::Fipd => self.fipd.kill9().unwrap(),
            Victim::Manager => self.manager.kill().unwrap(),
            Victim::Api => self.plane.kill_api().unwrap(),
        }
    }

    async fn restart(&mut self, victim: Victim) {
        match victim {
            Victim::Fipd => self.fipd.restart().await.unwrap(),
            Victim::Manager => self.manager.restart(&self.plane).await.unwrap(),
            Victim::Api => self.plane.restart_api().await.unwrap(),
        }
    }

    /// Waits until the load of so many strikes is served.
    async fn served(&self, strikes: usize) {
        self.fipd.wait_ready(DEADLINE).await.unwrap();
        let (allocated, released) = (SERVED.0 * strikes, SERVED.1 * strikes);
        wait_until("the load is served", DEADLINE, || async {
            let book = AuditBook::read(&self.fipd).await;
            let seen = (book.allocations, book.released.len());
            let enough = seen.0 >= allocated && seen.1 >= released;
            enough.then_some(()).ok_or_else(|| format!("{seen:?}"))
        })
        .await
        .unwrap_or_else(|missed| panic!("{missed}\n{}", self.fipd.log_tail()));
    }

    /// Kills all three the first time and later one, two or three, one soon after the other, and starts them again.
    async fn strike(&mut self, strike: usize, dice: &mut Dice) {
        let mut victims = [Victim::Fipd, Victim::Manager, Victim::Api];
        victims.rotate_left(dice.roll(3) as usize);
        let count = match strike {
            1 => 3,
            _ => 1 + dice.roll(3) as usize,
        };
        let victims = &mut victims[..count];
        for victim in victims.iter() {
            pause(dice, 800).await;
            self.kill(*victim);
        }
        pause(dice, 400).await;
        // The manager is ready once the API server answers; fipd does not wait for either.
        let early = dice.roll(2) == 0;
        victims.sort_by_key(|victim| match victim {
            Victim::Fipd if early => 0,
            Victim::Api => 1,
            Victim::Manager => 2,
            Victim::Fipd => 3,
        });
        for victim in victims.iter() {
            self.restart(*victim).await;
        }
    }

    /// Names of the objects of a kind, and what each shows.
    async fn shown(&self, kind: &str, field: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let api = self.objects.of(kind, Some(NAMESPACE));
        let all = api.list(&ListParams::default()).await?.items.into_iter();
        let shown = all.map(|object| {
            let value = object.data.pointer(field).and_then(Value::as_str);
            let value = value.unwrap_or_default().to_owned();
            (object.metadata.name.unwrap_or_default(), value)
        });
        Ok(shown.collect())
    }

    /// Waits until every claim and Cluster has its address, and nobody else has one.
    async fn settle(&self) -> BTreeMap<String, String> {
        let settled = wait_until("all is served and nothing left over", DEADLINE, || async {
            self.settled().await.map_err(|error| format!("{error:#}"))
        });
        settled
            .await
            .unwrap_or_else(|missed| panic!("{missed}\n{}", self.fipd.log_tail()))
    }

    /// Name and address of each IPAddress.
    async fn settled(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let claims = self.shown(CLAIM, "/status/addressRef/name").await?;
        let waiting: Vec<_> = claims.iter().filter(|(name, at)| name != at).collect();
        if let Some((name, _)) = waiting.first() {
            // For an address that is held back, it may be.
            let held = self.confirm_releases().await?;
            let leases = leases(&self.fipd).await?;
            let path = format!("{NAMESPACE}/{name}");
            let claim = self.objects.get(CLAIM, &path).await?;
            anyhow::bail!(
                "claims wait: {waiting:?}; held back: {held}; {} leases: {leases:?}; the first: {claim:?}",
                leases.len()
            );
        }
        let addresses = self.shown("IPAddress", "/spec/address").await?;
        let names = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<BTreeSet<_>>();
        anyhow::ensure!(
            names(&addresses) == names(&claims),
            "{addresses:?} for {claims:?}"
        );
        let endpoint = "/spec/controlPlaneEndpoint/host";
        for (cluster, host) in self.shown(CLUSTER, endpoint).await? {
            let of_claim = addresses.get(&format!("vip-cp-{cluster}"));
            anyhow::ensure!(of_claim == Some(&host), "{cluster}: {host:?}, {of_claim:?}");
        }
        let leases = leases(&self.fipd).await?;
        if leases != addresses {
            self.confirm_releases().await?;
        }
        anyhow::ensure!(leases == addresses, "{leases:?} for {addresses:?}");
        Ok(addresses)
    }

    /// Where more than five claims went before they had a finalizer, their leases wait for an admin's word. Answers what waited.
    async fn confirm_releases(&self) -> anyhow::Result<Value> {
        let show = ["clusters", "show", "management", "-o", "json"];
        let shown = self.fipd.cli(show).await?.json()?;
        let held = shown["held_back"].clone();
        if held.as_array().is_some_and(|held| !held.is_empty()) {
            let confirm = ["clusters", "confirm-release", "management"];
            self.fipd.cli(confirm).await?;
        }
        Ok(held)
    }
}

async fn make_pools(objects: &IpamObjects) -> anyhow::Result<()> {
    let (kind, nodes) = NODES;
    let spec = json!({ "addresses": [ADDRESSES], "prefix": 24 });
    objects.make(kind, nodes, json!({ "spec": spec })).await?;
    for (role, range) in [
        ("control-plane", "10.81.0.1-10.81.0.200"),
        ("ingress", "10.82.0.1-10.82.0.200"),
    ] {
        let labels = json!({
            "vip.capi.gorizond.io/cluster-class": NAMESPACE, "vip.capi.gorizond.io/role": role,
        });
        let spec = json!({ "addresses": [range], "prefix": 24 });
        let pool = json!({ "metadata": { "labels": labels }, "spec": spec });
        objects.make(kind, role, pool).await?;
    }
    Ok(())
}

/// Name of each owner, and its address.
async fn leases(fipd: &Fipd) -> anyhow::Result<BTreeMap<String, String>> {
    let listed = fipd.cli(["lease", "list", "-o", "json", "--limit", "1000"]);
    let listed = listed.await?.json()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = listed["leases"].as_array().into_iter().flatten();
    let named = all.map(|lease| {
        let owner = text(&lease["owner"]);
        let name = owner.rsplit('/').next().unwrap_or_default().to_owned();
        (name, text(&lease["address"]))
    });
    let named: Vec<_> = named.collect();
    let leases: BTreeMap<_, _> = named.iter().cloned().collect();
    anyhow::ensure!(leases.len() == named.len(), "one holds two: {named:?}");
    Ok(leases)
}

async fn pause(dice: &mut Dice, most: u32) {
    tokio::time::sleep(Duration::from_millis(dice.roll(most).into())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_dies_no_address_of_cluster_api_is_given_twice_or_lost() {
    let rounds: u32 = std::env::var("FIPD_KILL_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    // Each takes a third of a minute at most; those of the test without clusters take a second.
    let strikes = (rounds / 3).max(2) as usize;
    let mut site = Site::prepare().await.unwrap();
    let reader = Reader::start(&site.objects);
    site.fipd.restart().await.unwrap();
    site.fipd.wait_ready(DEADLINE).await.unwrap();
    let asked = Arc::new(Mutex::new(Asked::default()));
    let load = Load::start(&site.objects, &asked);
    let mut dice = Dice(0x00c1_a551_f1ed ^ u64::from(rounds));
    for strike in 1..=strikes {
        site.served(strike).await;
        pause(&mut dice, 1_500).await;
        site.strike(strike, &mut dice).await;
    }
    load.stop().await;
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    let asked = asked.finish(&site.objects, LEFT).await;
    let addresses = site.settle().await;
    let seen = reader.stop().await;
    let book = AuditBook::read(&site.fipd).await;
    check(&asked, &addresses, &seen, &book);
    println!(
        "{} objects made, {} allocations, {} released, {} left",
        asked.made(),
        book.allocations,
        book.released.len(),
        addresses.len()
    );
    site.fipd.terminate(Duration::from_secs(10)).await.unwrap();
    check_offline(&site.fipd).await;
}

/// Invariants 1 to 5 over the whole history.
fn check(asked: &Asked, addresses: &BTreeMap<String, String>, seen: &[Shown; 2], book: &AuditBook) {
    let [shown, endpoints] = seen;
    let none: [String; 0] = [];
    // 1: an address has one owner at a time, by the cluster and by the log.
    assert_eq!(shown.twice, none, "two IPAddresses show one address");
    assert_eq!(endpoints.twice, none, "two Clusters have one endpoint");
    assert!(book.wrong.is_empty(), "{:?}", book.wrong);
    assert_eq!(&book.held, addresses, "the log and the cluster differ");
    // 2: what was shown had been written down.
    for (name, values) in &shown.ever {
        for address in values {
            let decided = book.given.contains(&(name.clone(), address.clone()));
            assert!(decided, "{name} showed {address}, which nobody decided");
        }
    }
    // 3: who asked again got the same.
    for (name, values) in shown.ever.iter().chain(&endpoints.ever) {
        assert_eq!(values.len(), 1, "{name} showed {values:?}");
    }
    // 4: what was there came before anything new, and stays.
    for number in 1..=BEFORE {
        let name = format!("before-{number}");
        assert!(book.adopted_first.contains(&name), "{name}: {book:?}");
        assert_eq!(addresses[&name], format!("10.80.0.{number}"));
    }
    // 5: only who was deleted lost an address.
    for name in &book.released {
        assert!(asked.was_deleted(name), "{name} was released and lives");
    }
    assert!(book.allocations > 20 && book.released.len() > 5, "{book:?}");
}
