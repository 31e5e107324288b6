//! Claims of Cluster API whose addresses are checked on the wire: a real API server, fipd, its helper and a squatter.

use std::time::Duration;

use fipd_tests::cluster_api::IpamObjects;
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::cluster_api::{Versions, install_definitions};
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER, wait_until,
};
use fipd_tests::toolchain;
use serde_json::{Value, json};

use super::bed::{SQUATTER, V4, Wire, in_namespace, ip};
use super::stand_in::{Behaviour, StandIn};

const DEADLINE: Duration = Duration::from_secs(60);
const CLAIM: &str = "IPAddressClaim";
const GLOBAL: (&str, &str) = ("GlobalInClusterIPPool", "here");
const CONFIG: &str = "[[cluster]]\nname = \"management\"\nkubeconfig = \"management.kubeconfig\"\nsystems = [\"cluster-api\"]\n\
     [cluster.cluster-api]\nconflict-probe = true\n";

struct Bed {
    fipd: Fipd,
    objects: IpamObjects,
    _plane: ControlPlane,
}

impl Bed {
    /// A pool that begins with the squatter's address, on the wire, and one elsewhere.
    async fn prepare() -> Self {
        let options = ControlPlaneOptions::default();
        let mut plane = ControlPlane::start("management", options).await.unwrap();
        let versions = Versions::OnlyV1Beta2;
        install_definitions(&plane, versions).await.unwrap();
        plane.install_fipd_crds().await.unwrap();
        plane.restrict_cluster_api().await.unwrap();
        plane.start_controller_manager().await.unwrap();
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "one" },
        });
        plane.apply(&namespace.to_string()).await.unwrap();
        let objects = IpamObjects {
            client: plane.client().await.unwrap(),
            version: "v1beta2",
        };
        for (name, addresses) in [
            ("here", "10.0.0.5-10.0.0.9"),
            ("far", "192.0.2.5-192.0.2.9"),
        ] {
            let spec = json!({ "addresses": [addresses], "prefix": 24 });
            objects.pool(name, spec).await.unwrap();
        }
        let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&fipd, "management", &kubeconfig).unwrap();
        fipd.write_config(CONFIG).unwrap();
        Self {
            fipd,
            objects,
            _plane: plane,
        }
    }

    async fn restart(&mut self) {
        self.fipd.restart().await.unwrap();
        self.fipd.wait_ready(DEADLINE).await.unwrap();
    }

    /// The state of the lease of an address; empty where nobody has it.
    async fn state(&self, address: &str) -> String {
        let listed = self.fipd.cli(["lease", "list", "-o", "json"]).await;
        let listed = listed.unwrap().json().unwrap();
        let leases = listed["leases"].as_array().unwrap().iter();
        let mut found = leases.filter(|lease| lease["address"] == address);
        let state = found.next().map(|lease| lease["state"].clone());
        state
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    /// No IPAddress and no reference to one.
    async fn shows_nothing(&self, path: &str) {
        let address = self.objects.get("IPAddress", path).await.unwrap();
        assert_eq!(address, None, "nothing is shown yet");
        let claim = self.objects.get(CLAIM, path).await.unwrap().unwrap();
        assert_eq!(claim["status"]["addressRef"], Value::Null);
    }

    async fn condition(&self, path: &str, kind: &str) -> Option<Value> {
        let claim = self.objects.get(CLAIM, path).await.unwrap().unwrap();
        let all = claim["status"]["conditions"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["type"] == kind)
    }
}

#[test]
fn e_28_what_somebody_on_the_wire_uses_is_quarantined_and_the_claim_gets_the_next() {
    // The components are fetched from outside.
    toolchain::prepare().unwrap();
    in_namespace(async || {
        let wire = Wire::new();
        wire.squat();
        ip("address add 10.0.0.2/24 dev probe");
        let mut bed = Bed::prepare().await;
        let helper = StandIn::start(&bed.fipd.socket(), Behaviour::Silent).await;
        bed.restart().await;
        dies_during_a_check(&mut bed, &helper).await;
        is_not_checked_elsewhere(&bed).await;
        gets_nothing_while_the_helper_fails(&bed, &helper).await;
        is_not_checked_when_it_is_there_already(&bed, &helper).await;
        has_an_address_of_this_host(&bed, &helper).await;
    });
}

/// The daemon dies while the first address is checked, takes the check up again and finds the squatter.
async fn dies_during_a_check(bed: &mut Bed, helper: &StandIn) {
    bed.objects.claim("one/first", GLOBAL).await.unwrap();
    let reason = bed
        .objects
        .wait_reason(CLAIM, "one/first", "AddressProbing");
    reason.await.unwrap();
    assert_eq!(bed.state(V4).await, "probing");
    bed.shows_nothing("one/first").await;
    wait_until("the helper is asked", DEADLINE, || async {
        match helper.asked() {
            1 => Ok(()),
            times => Err(times.to_string()),
        }
    })
    .await
    .unwrap();
    bed.fipd.kill9().unwrap();
    helper.becomes(Behaviour::Real);
    bed.restart().await;
    let address = bed.objects.wait_address("one/first").await.unwrap();
    assert_eq!(address, "10.0.0.6");
    assert_eq!(bed.state(V4).await, "quarantined");
    assert_eq!(bed.state("10.0.0.6").await, "allocated");
    let told = bed.objects.wait_event(CLAIM, "first", "AddressInUse");
    let told = told.await.unwrap();
    let mac = SQUATTER.to_string();
    assert!(told.contains(V4) && told.contains(&mac), "{told}");
    let audit = bed
        .fipd
        .cli(["audit", "-o", "json"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let by = format!("{mac} answered for it");
    assert!(audit.contains(&by), "{audit}");
    let unchecked = bed.condition("one/first", "AddressChecked").await;
    assert_eq!(unchecked, None, "it was");
}

async fn is_not_checked_elsewhere(bed: &Bed) {
    let far = ("GlobalInClusterIPPool", "far");
    bed.objects.claim("one/far", far).await.unwrap();
    let address = bed.objects.wait_address("one/far").await.unwrap();
    assert_eq!(address, "192.0.2.5");
    wait_until(
        "the claim says that it was not checked",
        DEADLINE,
        || async {
            let said = bed.condition("one/far", "AddressChecked").await;
            let said = said.ok_or_else(|| "no condition".to_owned())?;
            match (&said["status"], &said["reason"]) {
                (status, reason) if status == "False" && reason == "NoInterface" => Ok(()),
                _ => Err(said.to_string()),
            }
        },
    )
    .await
    .unwrap();
}

/// What is not known is not free.
async fn gets_nothing_while_the_helper_fails(bed: &Bed, helper: &StandIn) {
    helper.becomes(Behaviour::Says(b"{\"result\":\"maybe\"}\n"));
    bed.objects.claim("one/second", GLOBAL).await.unwrap();
    let said = bed
        .objects
        .wait_reason(CLAIM, "one/second", "AllocationFailed");
    let said = said.await.unwrap();
    assert!(said.contains("cannot be read"), "{said}");
    assert!(said.contains("nothing is allocated unchecked"), "{said}");
    let told = bed
        .objects
        .wait_event(CLAIM, "second", "AddressProbeFailed");
    told.await.unwrap();
    bed.shows_nothing("one/second").await;
    helper.becomes(Behaviour::Says(b"{\"result\":\"free\"}\n"));
    let address = bed.objects.wait_address("one/second").await.unwrap();
    assert_eq!(address, "10.0.0.7");
    let said = bed
        .objects
        .wait_reason(CLAIM, "one/second", "AddressAllocated");
    said.await.unwrap();
}

/// An IPAddress that was made before its claim is in use: restores and moves keep it, whoever answers.
async fn is_not_checked_when_it_is_there_already(bed: &Bed, helper: &StandIn) {
    let before = helper.asked();
    let address = json!({ "spec": {
        "claimRef": { "name": "moved" }, "address": "10.0.0.9", "prefix": 24,
        "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": GLOBAL.0, "name": GLOBAL.1 },
    } });
    bed.objects
        .make("IPAddress", "one/moved", address)
        .await
        .unwrap();
    wait_until("its lease", DEADLINE, || async {
        match &*bed.state("10.0.0.9").await {
            "allocated" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await
    .unwrap();
    bed.objects.claim("one/moved", GLOBAL).await.unwrap();
    let address = bed.objects.wait_address("one/moved").await.unwrap();
    assert_eq!((&*address, helper.asked()), ("10.0.0.9", before));
}

/// The kernel does not answer the host's own probes: its addresses are known without.
async fn has_an_address_of_this_host(bed: &Bed, helper: &StandIn) {
    ip("address add 10.0.0.8/24 dev probe");
    let before = helper.asked();
    bed.objects.claim("one/third", GLOBAL).await.unwrap();
    let said = bed.objects.wait_reason(CLAIM, "one/third", "PoolExhausted");
    said.await.unwrap();
    assert_eq!(bed.state("10.0.0.8").await, "quarantined");
    let told = bed.objects.wait_event(CLAIM, "third", "AddressInUse");
    let told = told.await.unwrap();
    assert!(told.contains("interface probe of this host"), "{told}");
    assert_eq!(helper.asked(), before);
}
