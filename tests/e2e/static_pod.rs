//! fipd as a static pod: the manifest of the package, run by a real kubelet and containerd. What it has decided is on the host,
//! and survives that the pod is killed and that its image is another one; so does what the CNI plugin spools meanwhile.

#![expect(clippy::panic, reason = "in a test a panic is the verdict")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Method, Node, TestDirectory, UnixConnection, fipd_binary,
    get_unix, on_a_node, wait_until,
};
use fipd_tests::toolchain::debian;
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(90);
const MANIFEST: &str = include_str!("../../packaging/static-pod/fipd.yaml");
const FIRST: &str = "fipd.test/fipd:1";
const SECOND: &str = "fipd.test/fipd:2";
/// The file of the package.
const EXAMPLE: &str = include_str!("../../packaging/fipd.example.toml");
const RULES: &str = "[host]\n[[host.rules]]\nname = \"vips\"\npool = \"vips\"\ntable = 100\n";
/// Of the node, by the manifest.
const SPOOL: &str = "/var/lib/fipd-cni/spool";
const FILES: [(&str, &str); 4] = [
    ("/etc/fipd", "etc"),
    ("/var/lib/fipd", "state"),
    ("/var/backups/fipd", "backups"),
    ("/run/fipd", "run"),
];

/// The host's directories, which are of this test instead of this machine.
struct Host {
    node: Node,
    folder: TestDirectory,
    _plane: ControlPlane,
}

impl Host {
    async fn start() -> Result<Self> {
        let options = ControlPlaneOptions {
            // It takes the taint of new nodes off.
            controller_manager: true,
            nodes: true,
            ..ControlPlaneOptions::default()
        };
        let plane = ControlPlane::start("c", options).await?;
        let node = Node::start(&plane, "n1", FIRST).await?;
        node.load(SECOND, 1).await?;
        let folder = TestDirectory::new()?;
        for (_, name) in FILES {
            fs::create_dir(folder.path().join(name))?;
        }
        let config = EXAMPLE.replace("#directory", "directory") + RULES;
        fs::write(folder.path().join("etc/fipd.toml"), config)?;
        Ok(Self {
            node,
            folder,
            _plane: plane,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("run/fipd.sock")
    }

    /// Gives the kubelet the manifest of the package with this image and these directories, and nothing else changed.
    fn run(&self, image: &str) -> Result<()> {
        let mut text = MANIFEST.replace("image: fipd:0.1.0", &format!("image: {image}"));
        ensure!(text.contains(image), "the manifest names another image");
        // The mount for backups, which the configuration here wants.
        text = text.replace("#- {", "- {");
        for (there, name) in FILES {
            let (from, to) = (
                format!("hostPath: {{ path: {there},"),
                format!("hostPath: {{ path: {},", shown(&self.path(name))),
            );
            ensure!(text.contains(&from), "{from:?} is not in the manifest");
            text = text.replace(&from, &to);
        }
        self.node.place("fipd.yaml", &text)
    }

    /// Calls the CNI plugin as a runtime of the node does, about a container `web`.
    async fn call_plugin(&self, verb: &str) -> Result<String> {
        let plugin = fipd_binary().await?.with_file_name("fipd-cni");
        let conf = json!({
            "cniVersion": "1.1.0", "name": "shop", "type": "fipd-cni", "master": "eth0",
            "socket": self.path("run/cni.sock"), "ipam": { "type": "fipd", "pools": ["vips"] },
        });
        let environment = format!(
            "CNI_COMMAND={verb} CNI_CONTAINERID=web CNI_NETNS=/run/netns/web CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin \
             FIPD_CNI_SPOOL={SPOOL}"
        );
        let call = format!("echo '{conf}' | {environment} {}", shown(&plugin));
        self.node.run(&call).await
    }

    async fn until<T>(&self, what: &str, look: impl AsyncFn() -> Result<T>) -> T {
        let probe = || async { look().await.map_err(|error| format!("{error:#}")) };
        match wait_until(what, DEADLINE, probe).await {
            Ok(seen) => seen,
            Err(error) => {
                let pod = self
                    .node
                    .run("cat /var/log/pods/*/*/*.log | tail -n 40")
                    .await;
                let (pod, node) = (pod.unwrap_or_default(), self.node.log_tail());
                panic!("{error:#}\nthe pod:\n{pod}\nthe node:\n{node}")
            }
        }
    }

    /// The container of fipd that runs, and its image.
    async fn running(&self) -> Result<(String, String)> {
        let label = "labels.\"io.kubernetes.container.name\"==fipd";
        let all = self.node.ctr(&["containers", "list", label]).await?;
        let tasks = self.node.ctr(&["tasks", "list"]).await?;
        let runs = |id: &str| {
            let mut tasks = tasks.lines();
            tasks.any(|task| task.starts_with(id) && task.contains("RUNNING"))
        };
        let pairs = all.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        });
        let running: Vec<_> = pairs.filter(|(id, _)| runs(id)).collect();
        match running.as_slice() {
            [one] => Ok(one.clone()),
            all => anyhow::bail!("these run: {all:?}"),
        }
    }

    /// Once it is ready and another one than before.
    async fn ready(&self, what: &str, not: Option<&(String, String)>) -> (String, String) {
        self.until(what, async || {
            let ready = get_unix(&self.socket(), "/readyz").await?;
            ensure!(ready.status == 200, "{ready:?}");
            let now = self.running().await?;
            ensure!(Some(&now) != not, "it is the one before");
            Ok(now)
        })
        .await
    }

    /// What REST says by the socket and the page by TLS, but for what differs from start to start.
    async fn seen(&self) -> Result<Vec<Value>> {
        let mut seen = Vec::new();
        for path in ["/api/v1/pools", "/api/v1/leases", "/api/v1/networks"] {
            let reply = get_unix(&self.socket(), path).await?;
            ensure!(reply.status == 200, "{path}: {reply:?}");
            seen.push(serde_json::from_str(&reply.body)?);
        }
        let trusted = shown(&self.path("state/tls/ca.crt"));
        let ask = "curl --silent --show-error --fail --noproxy '*' https://127.0.0.1:8443/ui/login";
        let page = self.node.run(&format!("{ask} --cacert {trusted}")).await?;
        ensure!(page.contains("<form"), "{page}");
        let lines = page.lines();
        let lasting: Vec<_> = lines
            .filter(|line| !line.contains("name=\"csrf\""))
            .collect();
        seen.push(json!(lasting));
        Ok(seen)
    }

    async fn rule(&self, source: &str) {
        self.until("the rule is in the node's kernel", async || {
            let rules = self.node.run("ip -N rule show").await?;
            ensure!(rules.contains(source), "{rules}");
            Ok(())
        })
        .await;
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A container has an address, and fipd is killed and comes back after the container is deleted.
async fn delete_while_down(host: &Host) -> Result<()> {
    let make = "touch /run/netns/web && unshare --net=/run/netns/web true";
    host.node.run(make).await?;
    host.call_plugin("ADD").await?;
    let leases = get_unix(&host.socket(), "/api/v1/leases").await?.body;
    ensure!(leases.contains("shop/web"), "{leases}");
    // It would start fipd again.
    host.node.run("kill -STOP $(pidof kubelet)").await?;
    host.node.run("kill -9 $(pidof fipd)").await?;
    host.call_plugin("DEL").await?;
    host.node.run(&format!("ls {SPOOL}/*.json")).await?;
    host.node.run("kill -CONT $(pidof kubelet)").await?;
    Ok(())
}

async fn decide(host: &Host) -> Result<()> {
    let mut fipd = UnixConnection::open(&host.socket()).await?;
    let pool = json!({ "name": "vips", "addresses": ["192.0.2.0/24"] });
    let made = fipd
        .call(Method::POST, "/api/v1/pools", Some(&pool))
        .await?;
    ensure!(made.status == 201, "{made:?}");
    let lease = json!({ "owner": "fipd/Host/lab/web", "wants": [{ "pool": "vips" }] });
    let given = fipd
        .call(Method::POST, "/api/v1/leases", Some(&lease))
        .await?;
    ensure!([200, 201].contains(&given.status), "{given:?}");
    let document = fipd.call(Method::GET, "/api/v1/openapi.json", None).await?;
    let document: Value = serde_json::from_str(&document.body)?;
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let copied = fipd.call(Method::POST, "/api/v1/backups", None).await?;
    ensure!(copied.status == 201, "{copied:?}");
    ensure!(fs::read_dir(host.path("backups"))?.count() > 0, "no copy");
    Ok(())
}

#[test]
fn state_on_the_host_survives_the_pod_and_its_image() {
    debian::ensure(&["curl"]).unwrap();
    on_a_node(story).unwrap();
}

async fn story() -> Result<()> {
    let host = Host::start().await?;
    host.run(FIRST)?;
    let first = host.ready("the pod is ready", None).await;
    decide(&host).await?;
    host.rule("from 192.0.2.1 lookup 100 proto 200").await;
    let before = host.seen().await?;

    delete_while_down(&host).await?;
    let second = host.ready("it is started anew", Some(&first)).await;
    host.until("the address is released", async || {
        let now = host.seen().await?;
        ensure!(now == before, "{now:?}");
        Ok(())
    })
    .await;
    host.call_plugin("STATUS").await?;
    host.node.run(&format!("! ls {SPOOL}/*.json")).await?;

    host.run(SECOND)?;
    let third = host.ready("the other image runs", Some(&second)).await;
    assert_eq!(first.1, second.1, "the same image");
    assert_ne!(third.1, second.1, "another image");
    assert_eq!(host.seen().await?, before);
    host.rule("from 192.0.2.1 lookup 100 proto 200").await;
    Ok(())
}
