//! Ranges and FloatingIPs of kube-fip on a real API server.
//!
//! All tests have one Rancher, one after another; each has a fipd and a store of its own, and begins without objects.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "kube_fip/adoption.rs"]
mod adoption;
#[path = "kube_fip/crash.rs"]
mod crash;
#[path = "kube_fip/edits.rs"]
mod edits;
#[path = "kube_fip/networks.rs"]
mod networks;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fipd_tests::kube_fip::{KubeFipObjects, condition, next_second, reason};
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::{
    Fipd, FipdOptions, ForAllTests, RESTRICTED_USER, Site, SiteOptions, wait_until,
};
use serde_json::{Value, json};
use tokio::sync::MappedMutexGuard;

const DEADLINE: Duration = Duration::from_secs(120);
const KIND: &str = "FloatingIP";
const RANGE: &str = "FloatingIPRange";

static RANCHER: ForAllTests<Site> = ForAllTests::new();

struct Bed {
    // Dropped in this order: fipd ends before the next test has the Rancher.
    fipd: Fipd,
    objects: KubeFipObjects,
    site: MappedMutexGuard<'static, Site>,
}

impl Bed {
    /// fipd runs, with these lines in `[cluster.kube-fip]`.
    async fn start(settings: &str) -> Self {
        let mut bed =
            Self::prepare(&["kube-fip"], &format!("[cluster.kube-fip]\n{settings}")).await;
        bed.restart().await;
        bed
    }

    /// All but the daemon's process, with these lines for the cluster of Rancher.
    async fn prepare(systems: &[&str], settings: &str) -> Self {
        let site = RANCHER.take(async || {
            let mut site = Site::start(&SiteOptions::of(&[])).await?;
            site.rancher.install_fipd_crds().await?;
            site.restrict_kube_fip().await?;
            site.rancher.start_controller_manager().await?;
            Ok(site)
        });
        let site = site.await.unwrap();
        let client = site.rancher.client().await.unwrap();
        let objects = KubeFipObjects { client };
        objects.remove_all().await.unwrap();
        let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
        // With the rights of the manifests and no other.
        let kubeconfig = match systems {
            ["kube-fip"] => site.rancher.kubeconfig_of(RESTRICTED_USER),
            _ => site.rancher.kubeconfig_yaml().to_owned(),
        };
        write_kubeconfig(&fipd, "rancher", &kubeconfig).unwrap();
        fipd.write_config(&format!(
            "[[cluster]]\nname = \"rancher\"\nkubeconfig = \"rancher.kubeconfig\"\nsystems = {systems:?}\n{settings}\n"
        ))
        .unwrap();
        let bed = Self {
            fipd,
            objects,
            site,
        };
        for namespace in ["c-m-a", "c-m-b"] {
            bed.namespace(namespace).await;
        }
        bed
    }

    async fn restart(&mut self) {
        self.fipd.restart().await.unwrap();
        self.fipd.wait_ready(DEADLINE).await.unwrap();
    }

    async fn namespace(&self, name: &str) {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let rancher = &self.site.rancher;
        rancher.apply(&namespace.to_string()).await.unwrap();
    }

    /// A range for which only its addresses are given.
    async fn range(&self, name: &str, cidr: &str) {
        let spec = json!({ "iprange": cidr });
        self.objects.make_range(name, spec).await.unwrap();
    }

    async fn fip(&self, path: &str, range: &str, address: &str) {
        self.objects.make_fip(path, range, address).await.unwrap();
    }

    async fn wait_address(&self, path: &str, address: &str) -> Value {
        self.objects.wait_address(path, address).await.unwrap()
    }

    /// Waits until the object is not served for this reason, which an Event says as well; the message.
    async fn wait_refused(&self, path: &str, why: &str) -> String {
        let said = self.objects.wait_reason(path, why).await.unwrap();
        let kind = if path.contains('/') { KIND } else { RANGE };
        let told = self.objects.wait_event(kind, path, why).await.unwrap();
        assert!(!said.is_empty() && !told.is_empty(), "{said:?} {told:?}");
        said
    }

    /// The owner of each address.
    async fn leases(&self) -> Result<BTreeMap<String, String>, String> {
        let listed = self.fipd.cli(["lease", "list", "-o", "json"]).await;
        let listed = listed.and_then(|output| output.json());
        let listed = listed.map_err(|error| format!("{error:#}"))?;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let leases = listed["leases"].as_array().unwrap().iter();
        Ok(leases
            .map(|lease| (text(&lease["address"]), text(&lease["owner"])))
            .collect())
    }

    /// Waits until exactly these addresses are leased.
    async fn wait_leases(&self, what: &str, wanted: &[&str]) {
        self.wait_leases_within(DEADLINE, what, wanted).await;
    }

    async fn wait_leases_within(&self, deadline: Duration, what: &str, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|one| (*one).to_owned()).collect();
        wait_until(what, deadline, || async {
            let leases = self.leases().await?;
            let have: BTreeSet<String> = leases.keys().cloned().collect();
            if have == wanted {
                Ok(())
            } else {
                Err(format!("{leases:?}"))
            }
        })
        .await
        .unwrap();
    }

    /// The value of a series of a range.
    async fn series(&self, name: &str, range: &str) -> Option<f64> {
        let text = self.fipd.get("/metrics").await.unwrap().body;
        let label = format!("fiprangename=\"{range}\"");
        let mut lines = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(&label));
        lines.next()?.rsplit_once(' ')?.1.parse().ok()
    }

    async fn wait_series(&self, name: &str, range: &str, wanted: f64) {
        let what = format!("{name} of {range} is {wanted}");
        wait_until(&what, DEADLINE, || async {
            match self.series(name, range).await {
                Some(value) if (value - wanted).abs() < f64::EPSILON => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_13_the_lowest_address_comes_next_and_neither_network_nor_gateway() {
    let bed = Bed::start("").await;
    let spec = json!({ "iprange": "10.81.0.0/29", "gateway": "10.81.0.1", "region": "none" });
    bed.objects.make_range("one", spec).await.unwrap();
    bed.fip("c-m-a/dynamic", "one", "").await;
    let fip = bed.wait_address("c-m-a/dynamic", "10.81.0.2").await;
    let status = &fip["status"];
    assert_eq!(
        (&status["prefixLength"], &status["gateway"]),
        (&json!(29), &json!("10.81.0.1"))
    );
    bed.objects
        .wait_event(KIND, "c-m-a/dynamic", "Allocated")
        .await
        .unwrap();
    bed.fip("c-m-b/static", "one", "10.81.0.5").await;
    bed.wait_address("c-m-b/static", "10.81.0.5").await;
    bed.fip("c-m-b/next", "one", "").await;
    bed.wait_address("c-m-b/next", "10.81.0.3").await;
    bed.fip("c-m-b/gateway", "one", "10.81.0.1").await;
    bed.wait_refused("c-m-b/gateway", "AddressNotAssignable")
        .await;

    let used = [2, 3, 5].map(|last| format!("10.81.0.{last}"));
    let used: Vec<&str> = used.iter().map(String::as_str).collect();
    bed.wait_leases("nothing else is leased", &used).await;
    let counted = |range: &Value| {
        range["status"]["total"] == 5 && range["status"]["used"] == 3 && reason(range) == "Mirrored"
    };
    bed.objects.wait("one", "counts", counted).await.unwrap();
    bed.wait_series("kubefipoperator_fipranges_capacity", "one", 5.0)
        .await;
    bed.wait_series("kubefipoperator_fipranges_reserved", "one", 3.0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_13_what_is_written_back_is_no_edit() {
    let bed = Bed::start("").await;
    bed.range("one", "10.88.0.0/29").await;
    // As the programs of the original write it: with an empty status, and the whole object at once.
    let annotations = json!({ "clustername": "guest", "fiprange": "one" });
    let original = json!({
        "metadata": { "creationTimestamp": null, "annotations": annotations },
        "spec": {}, "status": {},
    });
    let (path, address) = ("c-m-a/original", "10.88.0.1");
    bed.objects.create(path, original).await.unwrap();
    let mut fip = bed.wait_address(path, address).await;
    let warned = bed.objects.warnings(path).await.unwrap();
    fip["status"] = json!({});
    fip["metadata"]["annotations"]["updateConfigMap"] = json!("true");
    let fip = serde_json::from_value(fip).unwrap();
    let fips = bed.objects.fips("c-m-a");
    fips.replace("original", &Default::default(), &fip)
        .await
        .unwrap();
    bed.wait_address(path, address).await;
    // The one after it was decided later than anything that the write back could have led to, and so was its Event.
    bed.fip("c-m-b/next", "one", "").await;
    bed.wait_address("c-m-b/next", "10.88.0.2").await;
    bed.objects
        .wait_event(KIND, "c-m-b/next", "Allocated")
        .await
        .unwrap();
    let both = [address, "10.88.0.2"];
    bed.wait_leases("nothing else is leased", &both).await;
    let audit = bed.fipd.cli(["audit", "--address", address, "-o", "json"]);
    let audit = audit.await.unwrap().json().unwrap();
    let entries = audit["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{audit}");
    assert_eq!(bed.objects.warnings(path).await.unwrap(), warned);
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_25_a_range_may_be_of_ipv6() {
    let bed = Bed::start("").await;
    bed.range("six", "2001:db8:81::/64").await;
    bed.fip("c-m-a/six", "six", "").await;
    bed.wait_address("c-m-a/six", "2001:db8:81::1").await;
    bed.fip("c-m-b/static", "six", "2001:db8:81::a").await;
    bed.wait_address("c-m-b/static", "2001:db8:81::a").await;
}

/// The conditions that are on the object beside `Ready`.
fn others(object: &Value) -> Vec<&str> {
    let conditions = object["status"]["conditions"].as_array();
    let types = conditions.into_iter().flatten();
    let types = types.filter_map(|one| one["type"].as_str());
    types.filter(|kind| *kind != "Ready").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_25_what_is_wrong_is_said_on_the_object_and_served_once_it_is_right() {
    let bed = Bed::start("").await;
    let objects = &bed.objects;
    bed.range("one", "10.84.0.0/29").await;
    objects
        .create("c-m-a/bare", json!({ "metadata": {} }))
        .await
        .unwrap();
    let said = bed.wait_refused("c-m-a/bare", "AnnotationMissing").await;
    assert!(said.contains("clustername"), "{said}");
    let half = json!({ "metadata": { "annotations": { "clustername": "guest" } } });
    objects.merge("c-m-a/bare", half).await.unwrap();
    let names_range = |fip: &Value| {
        let said = condition(fip, "Ready")["message"].as_str();
        said.is_some_and(|said| said.contains("fiprange"))
    };
    objects
        .wait("c-m-a/bare", "misses its range", names_range)
        .await
        .unwrap();
    // Without a specification it asks for any address.
    objects.name_range("c-m-a/bare", "one").await.unwrap();
    bed.wait_address("c-m-a/bare", "10.84.0.1").await;

    bed.fip("c-m-a/early", "later", "").await;
    let said = bed.wait_refused("c-m-a/early", "RangeNotFound").await;
    assert!(said.contains("later"), "{said}");
    // The definition takes prefix lengths that there are not.
    bed.range("later", "10.84.1.0/99").await;
    let said = bed.wait_refused("later", "Invalid").await;
    assert!(said.contains("10.84.1.0/99"), "{said}");
    assert_eq!(
        reason(&objects.get("c-m-a/early").await.unwrap()),
        "RangeNotFound"
    );
    objects.edit_range("later", "10.84.1.0/30").await.unwrap();
    objects.wait_reason("later", "Mirrored").await.unwrap();
    bed.wait_address("c-m-a/early", "10.84.1.1").await;

    objects
        .create("empty", json!({ "metadata": {} }))
        .await
        .unwrap();
    bed.wait_refused("empty", "Invalid").await;
    objects.edit_range("empty", "10.84.2.1/32").await.unwrap();
    objects.wait_reason("empty", "Mirrored").await.unwrap();
    bed.fip("c-m-b/single", "empty", "").await;
    bed.wait_address("c-m-b/single", "10.84.2.1").await;

    // A mistake in a range that is in use changes nothing.
    objects.edit_range("one", "10.84.0.0/33").await.unwrap();
    let said = bed.wait_refused("one", "Refused").await;
    assert!(said.contains("10.84.0.0/33"), "{said}");
    bed.fip("c-m-b/beside", "one", "").await;
    let fip = bed.wait_address("c-m-b/beside", "10.84.0.2").await;
    assert_eq!(others(&fip), [""; 0]);
    bed.wait_address("c-m-a/bare", "10.84.0.1").await;
}
