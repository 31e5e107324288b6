//! What a management cluster showed over time, and what fipd's audit log says, read without fipd's help and judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fipd_tests::cluster_api::IpamObjects;
use fipd_tests::testbed::{Fipd, UnixConnection};
use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::get;
use crate::management::NAMESPACE;

/// Follows the IPAddresses and the Clusters.
pub struct Reader {
    stop: watch::Sender<bool>,
    tasks: [JoinHandle<Shown>; 2],
}

/// What objects of a kind showed.
#[derive(Debug, Default)]
pub struct Shown {
    now: BTreeMap<String, String>,
    /// Each value that an object ever showed, by its name.
    pub ever: BTreeMap<String, BTreeSet<String>>,
    /// Two objects with one value at one time.
    pub twice: Vec<String>,
}

impl Shown {
    fn set(&mut self, name: String, value: Option<String>) {
        self.now.remove(&name);
        let Some(value) = value else { return };
        let mut others = self.now.iter();
        if let Some((other, _)) = others.find(|(_, one)| **one == value) {
            self.twice.push(format!("{value}: {name} beside {other}"));
        }
        self.ever
            .entry(name.clone())
            .or_default()
            .insert(value.clone());
        self.now.insert(name, value);
    }
}

type Field = fn(&DynamicObject) -> Option<String>;

/// Of an IPAddress whose claim is there.
fn address(object: &DynamicObject) -> Option<String> {
    let ends = object.annotations().get("fipd.io/grace-ends");
    text(object, "/spec/address").filter(|_| ends.is_none())
}

fn endpoint(object: &DynamicObject) -> Option<String> {
    text(object, "/spec/controlPlaneEndpoint/host")
}

fn text(object: &DynamicObject, field: &str) -> Option<String> {
    let text = object.data.pointer(field)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

impl Reader {
    pub fn start(objects: &IpamObjects) -> Self {
        let (stop, stopped) = watch::channel(false);
        let follow = |kind: &str, field: Field| {
            let api = objects.of(kind, Some(NAMESPACE));
            tokio::spawn(follow(api, field, stopped.clone()))
        };
        Self {
            tasks: [follow("IPAddress", address), follow("Cluster", endpoint)],
            stop,
        }
    }

    /// What IPAddresses showed, and the endpoints of Clusters.
    pub async fn stop(self) -> [Shown; 2] {
        self.stop.send_replace(true);
        let [addresses, endpoints] = self.tasks;
        [addresses.await.unwrap(), endpoints.await.unwrap()]
    }
}

async fn follow(
    api: Api<DynamicObject>,
    field: Field,
    mut stopped: watch::Receiver<bool>,
) -> Shown {
    let mut shown = Shown::default();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return shown,
            // The server is dead, or the watch is over.
            _ended = observe(&api, field, &mut shown) => {}
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What is there, and every change from then on.
async fn observe(api: &Api<DynamicObject>, field: Field, shown: &mut Shown) -> kube::Result<()> {
    let all = api.list(&ListParams::default()).await?;
    let version = all.metadata.resource_version.clone().unwrap_or_default();
    shown.now.clear();
    for object in all.items {
        shown.set(object.name_any(), field(&object));
    }
    let parameters = WatchParams::default().timeout(290);
    let mut events = api.watch(&parameters, &version).await?.boxed();
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                shown.set(object.name_any(), field(&object));
            }
            WatchEvent::Deleted(object) => shown.set(object.name_any(), None),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        }
    }
    Ok(())
}

/// fipd's audit log, replayed from its beginning.
#[derive(Debug, Default)]
pub struct AuditBook {
    /// Name of each owner, and its address.
    pub held: BTreeMap<String, String>,
    /// Addresses and names of all who were ever given one.
    pub given: BTreeSet<(String, String)>,
    /// Names of those who were taken over from another provider, before anything was allocated.
    pub adopted_first: BTreeSet<String>,
    pub allocations: usize,
    pub released: BTreeSet<String>,
    /// Decisions that contradict each other.
    pub wrong: Vec<Value>,
}

impl AuditBook {
    pub async fn read(fipd: &Fipd) -> Self {
        let mut connection = UnixConnection::open(&fipd.socket()).await.unwrap();
        let (mut rows, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/api/v1/audit?limit=1000{cursor}");
            let page = get(&mut connection, &path).await;
            rows.extend(page["entries"].as_array().unwrap().iter().cloned());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let mut book = Self::default();
        rows.iter().rev().for_each(|row| book.replay(row));
        book
    }

    fn replay(&mut self, row: &Value) {
        let (Some(address), Some(owner)) = (row["address"].as_str(), row["owner"].as_str()) else {
            return;
        };
        let name = owner.rsplit('/').next().unwrap_or_default().to_owned();
        let address = address.to_owned();
        match row["action"].as_str().unwrap_or_default() {
            action @ ("allocated" | "adopted" | "reserved" | "passed-on" | "handed-over") => {
                self.allocations += usize::from(action == "allocated");
                if action == "adopted" && self.allocations == 0 {
                    self.adopted_first.insert(name.clone());
                }
                let others = self.held.iter();
                let mut others = others.filter(|(other, at)| **at == address && **other != name);
                let before = self.held.get(&name);
                if others.next().is_some() || before.is_some_and(|before| *before != address) {
                    self.wrong.push(row.clone());
                }
                self.given.insert((name.clone(), address.clone()));
                self.held.insert(name, address);
            }
            "released" | "expired" => {
                if self.held.remove(&name) != Some(address) {
                    self.wrong.push(row.clone());
                }
                self.released.insert(name);
            }
            "contended" | "orphaned" | "forgotten" => self.wrong.push(row.clone()),
            _ => {}
        }
    }
}

#[test]
fn the_reader_sees_what_is_given_twice_and_what_contradicts() {
    let mut shown = Shown::default();
    for (name, value) in [
        ("a", Some("10.0.0.1")),
        ("a", None),
        ("b", Some("10.0.0.1")),
    ] {
        shown.set(name.to_owned(), value.map(str::to_owned));
    }
    assert_eq!(shown.twice, [""; 0]);
    shown.set("c".to_owned(), Some("10.0.0.1".to_owned()));
    assert_eq!(shown.twice, ["10.0.0.1: c beside b"]);

    let row = |action: &str, name: &str| {
        let owner = format!("cluster-api/c/IPAddressClaim/ns/{name}");
        json!({ "action": action, "address": "10.0.0.1", "owner": owner })
    };
    let mut book = AuditBook::default();
    for (action, name, wrong) in [
        ("adopted", "a", 0),
        ("released", "a", 0),
        ("allocated", "b", 0),
        ("allocated", "c", 1),
        ("released", "a", 2),
    ] {
        book.replay(&row(action, name));
        assert_eq!(book.wrong.len(), wrong, "{action} {name}");
    }
    assert_eq!(book.adopted_first, BTreeSet::from(["a".to_owned()]));
}
