//! Workloads of every kind: labels, and addresses of their pods.

use super::*;

const SELECTOR: &str = "workload.user.cattle.io/workloadselector";
/// Kind and name of one of each.
const KINDS: [(&str, &str); 5] = [
    ("Deployment", "web"),
    ("StatefulSet", "db"),
    ("DaemonSet", "agent"),
    ("Job", "once"),
    ("CronJob", "nightly"),
];
/// A CronJob begins at the next minute.
const NEXT_MINUTE: Duration = Duration::from_secs(150);

/// A workload whose pods ask for these addresses of the subnet that is called like the namespace.
fn workload((kind, name): (&str, &str), namespace: &str, ip: &str, idle: bool) -> Value {
    let mut metadata = json!({
        "labels": { "app": name },
        "annotations": { "flatnetwork.pandaria.io/ip": ip, "flatnetwork.pandaria.io/subnet": namespace },
    });
    let mut pod = json!({
        "containers": [{ "name": "c", "image": "none" }], "terminationGracePeriodSeconds": 0,
        "tolerations": [{ "operator": "Exists" }],
    });
    if kind.ends_with("Job") {
        pod["restartPolicy"] = json!("Never");
    } else {
        let selector = format!("apps.{}-{namespace}-{name}", kind.to_lowercase());
        metadata["labels"][SELECTOR] = json!(selector);
    }
    if kind == "DaemonSet" {
        let node = if idle { "none" } else { namespace };
        pod["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    }
    let template = json!({ "metadata": metadata, "spec": pod });
    let selector = json!({ "matchLabels": { "app": name } });
    let replicas = u8::from(!idle);
    let spec = match kind {
        "Deployment" => {
            json!({ "replicas": replicas, "selector": selector, "template": template })
        }
        "StatefulSet" => json!({
            "replicas": replicas, "serviceName": name, "selector": selector, "template": template,
        }),
        "DaemonSet" => json!({ "selector": selector, "template": template }),
        "Job" => json!({ "suspend": idle, "template": template }),
        _ => json!({
            "suspend": idle, "schedule": "* * * * *",
            "jobTemplate": { "spec": { "template": template } },
        }),
    };
    json!({ "spec": spec })
}

/// b.8, and defects 13 and 14 of g.1: each kind and its pods have the labels, CronJobs too, and each pod has an address.
#[tokio::test]
async fn g1_13_workloads_of_every_kind_have_labels_and_their_pods_addresses() {
    let bed = PodBed::share(&["kinds"]).await.unwrap();
    let objects = &bed.objects;
    let made = objects.subnet("kinds", "10.142.0.0/24", json!({ "vlan": 142 }));
    made.await.unwrap();
    bed.node("kinds").await.unwrap();
    let path = |name: &str| format!("kinds/{name}");
    for one in KINDS {
        let object = workload(one, "kinds", "auto", false);
        objects.make(one.0, &path(one.1), object).await.unwrap();
    }
    let label = |one: &Value, key: &str| {
        one["metadata"]["labels"][format!("flatnetwork.pandaria.io/{key}")].clone()
    };
    let is_labelled = |one: &Value| {
        let keys = ["flatNetworkIPType", "subnet", "flatMode"];
        keys.map(|key| label(one, key)) == ["auto", "kinds", "macvlan"]
    };
    for (kind, name) in KINDS {
        let path = path(name);
        let seen = objects.wait(kind, &path, "has its labels", is_labelled);
        seen.await.unwrap();
    }
    let mut addresses = BTreeMap::new();
    for (kind, name) in KINDS {
        let what = format!("a pod of {kind} {name} has an address");
        let found = wait_until(&what, NEXT_MINUTE, || async {
            let all = objects.list(IP, "kinds").await?;
            let mut all = all.into_iter();
            let of = |ip: &Value| {
                let pod = ip["metadata"]["name"].as_str().unwrap_or_default();
                pod.starts_with(&format!("{name}-")) && ip["status"]["addr"].is_string()
            };
            all.find(of).ok_or_else(|| anyhow::anyhow!("there is none"))
        });
        let ip = found.await.unwrap();
        let selector = match kind {
            "Job" => "job-kinds-once".to_owned(),
            "CronJob" => "cronjob-kinds-nightly".to_owned(),
            _ => format!("apps.{}-kinds-{name}", kind.to_lowercase()),
        };
        assert_eq!(ip["metadata"]["labels"][SELECTOR], json!(selector), "{ip}");
        let pod = path(ip["metadata"]["name"].as_str().unwrap());
        let address = ip["status"]["addr"].as_str().unwrap().to_owned();
        objects.attach(&pod).await.unwrap();
        let labelled = objects.wait("Pod", &pod, "has its labels", |pod| {
            is_labelled(pod) && label(pod, "selectedIP") == json!(address)
        });
        labelled.await.unwrap();
        let before = addresses.insert(address.clone(), kind);
        assert_eq!(before, None, "{addresses:?}");
        if kind == "Job" {
            // Over for good: it needs its address no more.
            let over = json!({ "phase": "Succeeded" });
            objects.merge_status("Pod", &pod, over).await.unwrap();
            objects.wait_gone(IP, &pod).await.unwrap();
            addresses.remove(&address);
        }
    }
    for (kind, name) in KINDS {
        objects.delete(kind, &path(name)).await.unwrap();
    }
}

/// b.8, and defects 8 and 13 of g.1: addresses that a workload of any kind names are kept for its pods.
#[tokio::test]
async fn g1_8_13_addresses_are_kept_for_workloads_of_every_kind() {
    let bed = PodBed::share(&["keeps"]).await.unwrap();
    let objects = &bed.objects;
    let made = objects.subnet("keeps", "10.143.0.0/24", json!({ "vlan": 143 }));
    made.await.unwrap();
    let mut wanted = json!({});
    for (number, one) in KINDS.into_iter().enumerate() {
        let address = format!("10.143.0.{}", number + 1);
        let (kind, name) = one;
        let object = workload(one, "keeps", &address, true);
        let path = format!("keeps/{name}");
        objects.make(kind, &path, object).await.unwrap();
        wanted[format!("{kind}/{path}")] = json!([{ "from": address, "to": address }]);
    }
    let lists = |one: &Value| one["status"]["reservedIP"] == wanted;
    let keeps = subnet("keeps");
    let seen = objects.wait(SUBNET, &keeps, "lists all", lists);
    seen.await.unwrap();
    objects
        .pod("keeps/any", "keeps", "auto", json!({}))
        .await
        .unwrap();
    assert_eq!(
        objects.wait_address("keeps/any").await.unwrap(),
        "10.143.0.6"
    );
    for (kind, name) in KINDS {
        objects
            .delete(kind, &format!("keeps/{name}"))
            .await
            .unwrap();
    }
}
