//! What leads to pods on the flat network: companions of Services, their endpoints, and Ingresses.

use super::*;

const SERVICE: &str = "Service";
const ENDPOINTS: &str = "Endpoints";
const SLICE: &str = "EndpointSlice";
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
const KEEPER: &str = "endpointslice.kubernetes.io/managed-by";

/// A namespace with a subnet of its name on a VLAN, and a node that nobody runs.
struct Shop<'a> {
    bed: &'a PodBed,
    namespace: &'a str,
}

impl<'a> Shop<'a> {
    async fn new(bed: &'a PodBed, namespace: &'a str, vlan: u16) -> Self {
        let cidr = format!("10.{vlan}.0.0/24");
        let made = bed
            .objects
            .subnet(namespace, &cidr, json!({ "vlan": vlan }));
        made.await.unwrap();
        bed.node(namespace).await.unwrap();
        Self { bed, namespace }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// A pod of the application, whose port `http` is this one; its address.
    async fn pod(&self, name: &str, port: u16) -> String {
        let object = json!({
            "metadata": { "labels": { "app": "web" }, "annotations": {
                "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": self.namespace,
            } },
            "spec": {
                "nodeName": self.namespace, "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "c", "image": "none", "ports": [{ "name": "http", "containerPort": port }],
                }],
            },
        });
        let path = self.path(name);
        self.bed.objects.make_pod(&path, &object).await.unwrap();
        let address = self.bed.objects.wait_address(&path).await.unwrap();
        self.bed.objects.attach(&path).await.unwrap();
        address
    }

    /// Stands in for Multus and the kubelet: the pod has these addresses, and is ready or not.
    async fn run(&self, name: &str, primary: &str, flat: &[&str], ready: bool) {
        let (objects, path) = (&self.bed.objects, self.path(name));
        let status = json!([
            { "name": "cbr0", "interface": "eth0", "ips": [primary], "default": true, "dns": {} },
            {
                "name": self.path("rancher-flat-network"), "interface": "eth1", "ips": flat,
                "mac": "02:00:00:00:00:01", "dns": {},
            },
        ]);
        let annotation = json!({ "k8s.v1.cni.cncf.io/network-status": status.to_string() });
        let annotation = json!({ "metadata": { "annotations": annotation } });
        objects.merge("Pod", &path, annotation).await.unwrap();
        let ready = if ready { "True" } else { "False" };
        let status = json!({
            "phase": "Running", "podIP": primary, "podIPs": [{ "ip": primary }],
            "conditions": [{ "type": "Ready", "status": ready }],
        });
        objects.merge_status("Pod", &path, status).await.unwrap();
    }

    async fn service(&self, name: &str, mut spec: Value) {
        spec["selector"] = json!({ "app": "web" });
        let made = self
            .bed
            .objects
            .make(SERVICE, &self.path(name), json!({ "spec": spec }))
            .await;
        made.unwrap();
    }

    /// The slices of a Service that its keeper has, each endpoint as `address:port`, with `!` where it is not ready.
    async fn slices(&self, service: &str, keeper: &str) -> anyhow::Result<Vec<String>> {
        let all = self.bed.objects.list(SLICE, self.namespace).await?;
        let of = |one: &&Value| {
            let labels = &one["metadata"]["labels"];
            labels["kubernetes.io/service-name"] == service && labels[KEEPER] == keeper
        };
        let mut found = Vec::new();
        for slice in all.iter().filter(of) {
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                let ready = endpoint["conditions"]["ready"] == true;
                let mark = if ready { "" } else { "!" };
                let address = endpoint["addresses"][0].as_str().unwrap_or_default();
                found.push(format!("{mark}{address}:{}", slice["ports"][0]["port"]));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Waits until fipd's slices of a Service lead there.
    async fn leads(&self, service: &str, wanted: &[String]) {
        let what = format!("{service} leads to {wanted:?}");
        wait_until(&what, DEADLINE, || async {
            let found = self
                .slices(service, "rancher-flat-network-controller")
                .await?;
            anyhow::ensure!(found == wanted, "{found:?}");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Waits for a Service.
    async fn wait(&self, service: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let path = self.path(service);
        let seen = self.bed.objects.wait(SERVICE, &path, what, test);
        seen.await.unwrap()
    }

    async fn gone(&self, service: &str) {
        let path = self.path(service);
        self.bed.objects.wait_gone(SERVICE, &path).await.unwrap();
    }

    async fn end(&self) {
        for name in self.bed.objects.names("Pod", self.namespace).await.unwrap() {
            let gone = self.bed.objects.delete("Pod", &self.path(&name)).await;
            gone.unwrap();
        }
        for name in self
            .bed
            .objects
            .names(SERVICE, self.namespace)
            .await
            .unwrap()
        {
            let _ = self.bed.objects.delete(SERVICE, &self.path(&name)).await;
        }
    }
}

/// Rows 59 and 62, b.5, b.6, and defects 15 and 16 of g.1: a companion leads to the flat addresses of ready pods alone, at the port
/// that each has under the name, and the controllers of Kubernetes keep what is theirs.
#[tokio::test]
async fn rows_59_62_g1_15_16_a_companion_leads_to_flat_addresses_of_ready_pods() {
    let bed = PodBed::share(&["companions"]).await.unwrap();
    let shop = Shop::new(&bed, "companions", 140).await;
    let ports = json!([{ "name": "http", "port": 80, "targetPort": "http" }]);
    shop.service("web", json!({ "type": "NodePort", "ports": ports }))
        .await;
    shop.service("head", json!({ "clusterIP": "None", "ports": ports }))
        .await;
    let (one, two) = (shop.pod("one", 8080).await, shop.pod("two", 9090).await);
    let web = shop.wait("web", "is there", |_| true).await;
    for (name, original) in [("web-flat-network", "web"), ("head-flat-network", "head")] {
        let made = shop.wait(name, "is there", |_| true).await;
        let spec = &made["spec"];
        assert_eq!(
            (&spec["type"], &spec["clusterIP"]),
            (&json!("ClusterIP"), &json!("None"))
        );
        let port = &spec["ports"][0];
        assert_eq!(
            (&port["port"], &port["targetPort"]),
            (&json!(80), &json!("http"))
        );
        assert_eq!(port["nodePort"], Value::Null);
        let metadata = &made["metadata"];
        assert_eq!(metadata["annotations"][NETWORKS], "rancher-flat-network");
        assert_eq!(metadata["ownerReferences"][0]["name"], original);
    }
    // The pod says that it has an address that nobody gave it.
    shop.run("one", "10.42.140.1", &[&one, "fd00:140::1"], true)
        .await;
    shop.run("two", "10.42.140.2", &[&two], false).await;
    let (ready, other) = (format!("{one}:8080"), format!("{two}:9090"));
    let wanted = [format!("!{other}"), ready.clone()];
    for name in ["web-flat-network", "head-flat-network"] {
        shop.leads(name, &wanted).await;
    }
    let companion = shop.path("web-flat-network");
    let of_both = |endpoints: &Value| {
        let text = endpoints["subsets"].to_string();
        text.contains("notReadyAddresses") && text.contains(&one)
    };
    let seen = bed
        .objects
        .wait(ENDPOINTS, &companion, "lead to both", of_both);
    let subsets = seen.await.unwrap()["subsets"].take();
    for other in ["10.42.", "fd00:"] {
        assert!(!subsets.to_string().contains(other), "{subsets}");
    }
    assert_eq!(subsets[0]["ports"][0]["port"], 8080, "{subsets}");
    assert_eq!(
        subsets[1]["notReadyAddresses"][0]["ip"],
        json!(two),
        "{subsets}"
    );

    shop.run("two", "10.42.140.2", &[&two], true).await;
    let wanted = [ready.clone(), other];
    shop.leads("web-flat-network", &wanted).await;
    // Those of Kubernetes lead to the primary addresses, and nobody changes them.
    let stock = "endpointslice-controller.k8s.io";
    wait_until("the stock slices are complete", DEADLINE, || async {
        let found = shop.slices("web", stock).await?;
        anyhow::ensure!(
            found == ["10.42.140.1:8080", "10.42.140.2:9090"],
            "{found:?}"
        );
        Ok(())
    })
    .await
    .unwrap();
    assert!(
        shop.slices("web-flat-network", stock)
            .await
            .unwrap()
            .is_empty()
    );
    let slices = bed.objects.list(SLICE, "companions").await.unwrap();
    for slice in &slices {
        let generation = slice["metadata"]["generation"].as_i64().unwrap();
        assert!(
            generation <= 8,
            "somebody undoes what another writes: {slice}"
        );
    }
    bed.objects.delete("Pod", &shop.path("two")).await.unwrap();
    shop.leads("web-flat-network", &[ready]).await;

    let out = json!({ "metadata": { "annotations": { "flatnetwork.pandaria.io/flatNetworkService": "disabled" } } });
    bed.objects
        .merge("Pod", &shop.path("one"), out)
        .await
        .unwrap();
    shop.gone("web-flat-network").await;
    let back = json!({ "metadata": { "annotations": { "flatnetwork.pandaria.io/flatNetworkService": null } } });
    bed.objects
        .merge("Pod", &shop.path("one"), back)
        .await
        .unwrap();
    let made = shop
        .wait("web-flat-network", "is there again", |_| true)
        .await;
    assert_eq!(
        made["metadata"]["ownerReferences"][0]["uid"],
        web["metadata"]["uid"]
    );
    bed.objects
        .delete(SERVICE, &shop.path("web"))
        .await
        .unwrap();
    shop.gone("web-flat-network").await;
    let none = json!({ "spec": { "selector": null } });
    bed.objects
        .merge(SERVICE, &shop.path("head"), none)
        .await
        .unwrap();
    shop.gone("head-flat-network").await;
    shop.end().await;
}

/// b.7 and defect 12 of g.1: the backend of an Ingress that asks for it names the attachment that exists, and leads there.
#[tokio::test]
async fn g1_12_the_backend_of_an_ingress_leads_to_flat_addresses_for_as_long_as_it_asks() {
    let bed = PodBed::share(&["fronts"]).await.unwrap();
    let shop = Shop::new(&bed, "fronts", 141).await;
    let one = shop.pod("one", 8080).await;
    shop.run("one", "10.42.141.1", &[&one], true).await;
    let ports = json!([{ "port": 80, "targetPort": "http" }]);
    shop.service("front", json!({ "ports": ports })).await;
    // What the original writes.
    let former = json!({ "metadata": { "annotations": { NETWORKS: "rancher-flat-network-cni" } } });
    bed.objects
        .merge(SERVICE, &shop.path("front"), former)
        .await
        .unwrap();
    let backend = json!({ "service": { "name": "front", "port": { "number": 80 } } });
    let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
    let ingress = json!({
        "metadata": { "annotations": { "flatnetwork.pandaria.io/ingress": "true" } },
        "spec": { "rules": [{ "http": { "paths": [path] } }] },
    });
    let (objects, front) = (&bed.objects, shop.path("front"));
    let made = objects.make("Ingress", &front, ingress);
    made.await.unwrap();
    let networks = |one: &Value| one["metadata"]["annotations"][NETWORKS].clone();
    let named = |one: &Value| networks(one) == "rancher-flat-network";
    shop.wait("front", "names the network", named).await;
    shop.leads("front", &[format!("{one}:8080")]).await;
    let asks_no_more =
        json!({ "metadata": { "annotations": { "flatnetwork.pandaria.io/ingress": "false" } } });
    let edited = objects.merge("Ingress", &front, asks_no_more);
    edited.await.unwrap();
    shop.wait("front", "names none", |one| networks(one).is_null())
        .await;
    shop.leads("front", &[]).await;
    bed.objects
        .delete("Ingress", &shop.path("front"))
        .await
        .unwrap();
    shop.end().await;
}
