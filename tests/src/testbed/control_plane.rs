//! A simulated cluster: a real kube-apiserver over a shared etcd, with a real kube-controller-manager where a test wants one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::Api;
use rcgen::KeyPair;
use serde_json::Value;

use super::audit_log;
use super::certificates::CertificateAuthority;
use super::directory::TestDirectory;
use super::etcd::Etcd;
use super::fault_proxy::FaultProxy;
use super::kubeconfig::kubeconfig;
use super::ports::free_port;
use crate::process::Process;
use crate::toolchain::Component;
use crate::toolchain::go::GARBAGE;
use crate::wait::wait_until;

/// A user every API server knows who has no rights until a test's RBAC objects give it some.
pub const RESTRICTED_USER: &str = "restricted";

/// Where pods find the API server of a control plane for nodes: the first address of the Services.
pub const SERVICE_ADDRESS: &str = "10.96.0.1";
/// The port of its Service, without a proxy between.
const SERVICE_PORT: u16 = 443;

const ADMIN_USER: &str = "admin";
const READY_WITHIN: Duration = Duration::from_secs(120);
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Only nodes and a scheduler need these kinds. For each, a start makes storage, a cache and documentation.
const UNSERVED: [&str; 2] = [
    "--runtime-config=autoscaling/v1=false,autoscaling/v2=false,certificates.k8s.io/v1=false,node.k8s.io/v1=false,policy/v1=false,\
     flowcontrol.apiserver.k8s.io/v1=false,resource.k8s.io/v1=false,storage.k8s.io/v1=false",
    // The server would wait for what these plugins want to know.
    "--disable-admission-plugins=DefaultStorageClass,PersistentVolumeClaimResize,RuntimeClass",
];

/// The controllers a test can need; those that need nodes or a cloud stay off.
const CONTROLLERS: &str = "--controllers=namespace-controller,garbage-collector-controller,serviceaccount-controller,\
     serviceaccount-token-controller,endpoints-controller,endpointslice-controller,deployment-controller,\
     replicaset-controller,daemonset-controller,statefulset-controller,job-controller,cronjob-controller";
/// Beside those where there are nodes: pods find the CA, and a node that is ready takes pods.
const NODE_CONTROLLERS: &str =
    ",root-ca-certificate-publisher-controller,node-lifecycle-controller";

/// What a group of control planes shares: a directory, a certificate authority and one etcd.
pub struct Foundation {
    // Dropped in this order: the process ends before its directory goes.
    etcd: Etcd,
    authority: CertificateAuthority,
    directory: TestDirectory,
}

impl Foundation {
    pub async fn start() -> Result<Arc<Self>> {
        let directory = TestDirectory::new()?;
        let authority = CertificateAuthority::new()?;
        let etcd = Etcd::start(directory.path()).await?;
        Ok(Arc::new(Self {
            etcd,
            authority,
            directory,
        }))
    }

    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// How a control plane differs from the others.
#[derive(Debug, Clone)]
pub struct ControlPlaneOptions {
    /// Run a kube-controller-manager: garbage collection, namespace deletion, endpoints, workloads.
    pub controller_manager: bool,
    /// Service addresses, IPv4 and IPv6, so that Services can be dual-stack.
    pub service_cidr: String,
    /// Run a kube-scheduler.
    pub scheduler: bool,
    /// Have a scheduler and be reached by nodes, at [`SERVICE_ADDRESS`], which this host is given: only in a network namespace
    /// of the test's own ([`crate::namespace`]). With `controller_manager`.
    pub nodes: bool,
    /// Users without any group, as [`RESTRICTED_USER`], which is always there.
    pub users: Vec<String>,
    /// Keep a log of all writes, for [`ControlPlane::audited`].
    pub audit_log: bool,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self {
            controller_manager: false,
            service_cidr: "10.96.0.0/16,fd00:96::/108".to_string(),
            scheduler: false,
            nodes: false,
            users: Vec::new(),
            audit_log: false,
        }
    }
}

/// One running cluster. Dropping it kills its processes.
pub struct ControlPlane {
    name: String,
    port: u16,
    options: ControlPlaneOptions,
    directory: PathBuf,
    kubeconfig: String,
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    api: Option<Process>,
    foundation: Arc<Foundation>,
}

impl ControlPlane {
    /// Starts one with an etcd of its own.
    pub async fn start(name: &str, options: ControlPlaneOptions) -> Result<Self> {
        Self::start_on(Foundation::start().await?, name, options).await
    }

    /// Starts several at once over one etcd.
    pub async fn start_many(names: &[&str], options: &ControlPlaneOptions) -> Result<Vec<Self>> {
        let foundation = Foundation::start().await?;
        try_join_all(
            names
                .iter()
                .map(|name| Self::start_on(Arc::clone(&foundation), name, options.clone())),
        )
        .await
    }

    /// Starts one over an etcd that others use too. Names are unique per foundation; another one of the same name would be
    /// the same cluster.
    pub async fn start_on(
        foundation: Arc<Foundation>,
        name: &str,
        options: ControlPlaneOptions,
    ) -> Result<Self> {
        let directory = foundation.directory().join(name);
        fs::create_dir_all(&directory)
            .with_context(|| format!("create {}", directory.display()))?;
        let port = match options.nodes {
            true => SERVICE_PORT,
            false => free_port()?,
        };
        write_keys(&directory, &foundation.authority)?;
        write_tokens(&directory, &options.users)?;
        if options.audit_log {
            audit_log::prepare(&directory)?;
        }
        let server = format!("https://127.0.0.1:{port}");
        let text = kubeconfig(
            name,
            &server,
            &foundation.authority.pem(),
            &token(name, ADMIN_USER),
        );
        fs::write(directory.join("kubeconfig"), &text)?;
        let mut plane = Self {
            name: name.to_string(),
            port,
            options,
            directory,
            kubeconfig: text,
            scheduler: None,
            controller_manager: None,
            api: None,
            foundation,
        };
        plane.start_api().await?;
        if plane.options.controller_manager {
            plane.start_controller_manager().await?;
        }
        if plane.options.nodes || plane.options.scheduler {
            plane.start_scheduler().await?;
        }
        Ok(plane)
    }

    /// Starts another cluster whose etcd begins as a copy of this one's, as a clone does: the same UIDs, the same Secrets.
    pub async fn clone_as(&self, name: &str) -> Result<Self> {
        self.copy(&self.name, name).await?;
        Self::start_on(Arc::clone(&self.foundation), name, self.options.clone()).await
    }

    /// Keeps what etcd has now; the latest one is restored.
    pub async fn snapshot(&self) -> Result<()> {
        self.copy(&self.name, &self.snapshot_name()).await
    }

    /// Brings etcd back to the snapshot; the API server is down meanwhile.
    pub async fn restore_snapshot(&mut self) -> Result<()> {
        self.kill_api()?;
        self.copy(&self.snapshot_name(), &self.name).await?;
        self.start_api().await
    }

    fn snapshot_name(&self) -> String {
        format!("{}-snapshot", self.name)
    }

    async fn copy(&self, from: &str, to: &str) -> Result<()> {
        let prefix = |name: &str| format!("/registry-{name}/");
        let etcd = &self.foundation.etcd;
        etcd.copy(&prefix(from), &prefix(to)).await
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The loopback port of the API server; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn server_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// An administrator's kubeconfig with CA and token inlined.
    pub fn kubeconfig_yaml(&self) -> &str {
        &self.kubeconfig
    }

    /// The same as a file.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// The kubeconfig of one of the users without rights, e.g. [`RESTRICTED_USER`].
    pub fn kubeconfig_of(&self, user: &str) -> String {
        kubeconfig(
            &self.name,
            &self.server_url(),
            &self.foundation.authority.pem(),
            &token(&self.name, user),
        )
    }

    pub fn foundation(&self) -> &Arc<Foundation> {
        &self.foundation
    }

    /// The writes so far, over all starts of the API server, as its audit log has them at level `Metadata`.
    pub fn audited(&self) -> Result<Vec<Value>> {
        audit_log::read(&self.directory)
    }

    /// A client with all rights. It belongs to the runtime it is made in.
    pub async fn client(&self) -> Result<Client> {
        client_of(&self.kubeconfig).await
    }

    /// A client of one of the users without rights.
    pub async fn client_of(&self, user: &str) -> Result<Client> {
        client_of(&self.kubeconfig_of(user)).await
    }

    /// A proxy in front of this API server, passing everything until told otherwise.
    pub fn fault_proxy(&self) -> Result<FaultProxy> {
        FaultProxy::start(
            self.port,
            &self.foundation.authority,
            self.kubeconfig.clone(),
        )
    }

    /// Ends the API server as an administrator would, gracefully; etcd keeps its data.
    pub async fn stop_api(&mut self) -> Result<()> {
        if let Some(api) = self.api.take() {
            api.stop(STOP_PATIENCE).await?;
        }
        Ok(())
    }

    /// Ends the API server at once, with SIGKILL.
    pub fn kill_api(&mut self) -> Result<()> {
        if let Some(api) = self.api.take() {
            api.kill()?;
        }
        Ok(())
    }

    /// Starts the API server again on the same port with the same data, ending it first when it runs.
    pub async fn restart_api(&mut self) -> Result<()> {
        self.kill_api()?;
        self.start_api().await
    }

    /// The process ids of the API server, the controller manager and the scheduler, as far as they run.
    pub fn pids(&self) -> Vec<u32> {
        self.api
            .iter()
            .chain(&self.controller_manager)
            .chain(&self.scheduler)
            .map(Process::pid)
            .collect()
    }

    async fn start_api(&mut self) -> Result<()> {
        let binary = tokio::task::spawn_blocking(|| Component::KubeApiserver.path()).await??;
        let process = Process::spawn(
            &format!("kube-apiserver of {}", self.name),
            self.api_command(&binary),
            &self.directory.join("kube-apiserver.log"),
        )?;
        let client = self.client().await?;
        let what = format!("{} is ready", process.name());
        let ready = wait_until(&what, READY_WITHIN, || async {
            match process.still_running() {
                Ok(()) => api_ready(&client).await.map(Ok),
                Err(ended) => Ok(Err(ended)),
            }
        });
        ready.await.with_context(|| process.log_tail())??;
        self.api = Some(process);
        Ok(())
    }

    fn api_command(&self, binary: &Path) -> Command {
        let file = |name: &str| self.directory.join(name).display().to_string();
        let mut command = Command::new(binary);
        command.env(GARBAGE.0, GARBAGE.1);
        let (bind, advertise) = match self.options.nodes {
            true => ("0.0.0.0", SERVICE_ADDRESS),
            false => ("127.0.0.1", "127.0.0.1"),
        };
        command
            .arg(format!("--etcd-servers={}", self.foundation.etcd.url()))
            .arg(format!("--etcd-prefix=/registry-{}", self.name))
            .arg(format!("--bind-address={bind}"))
            .arg(format!("--advertise-address={advertise}"))
            .arg("--endpoint-reconciler-type=none")
            .arg(format!("--secure-port={}", self.port))
            .arg(format!("--cert-dir={}", self.directory.display()))
            .arg(format!("--tls-cert-file={}", file("server.crt")))
            .arg(format!("--tls-private-key-file={}", file("server.key")))
            .arg(format!(
                "--service-cluster-ip-range={}",
                self.options.service_cidr
            ))
            .args([
                "--authorization-mode=RBAC",
                "--allow-privileged=true",
                "--profiling=false",
                // A start takes an eighth less of the processor without queues for each kind of client, which no test is about.
                "--enable-priority-and-fairness=false",
            ])
            .arg(format!("--token-auth-file={}", file("tokens.csv")))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!(
                "--service-account-key-file={}",
                file("accounts.pub")
            ))
            .arg(format!(
                "--service-account-signing-key-file={}",
                file("accounts.key")
            ));
        if self.options.audit_log {
            command.args(audit_log::arguments(&self.directory));
        }
        if !self.options.nodes && !self.options.scheduler {
            command.args(UNSERVED);
        }
        command
    }

    /// Starts a kube-controller-manager, where the options did not ask for one.
    pub async fn start_controller_manager(&mut self) -> Result<()> {
        let binary =
            tokio::task::spawn_blocking(|| Component::KubeControllerManager.path()).await??;
        let mut command = Command::new(binary);
        command
            .env(GARBAGE.0, GARBAGE.1)
            .arg(format!("--kubeconfig={}", self.kubeconfig_path().display()))
            .args([
                "--leader-elect=false",
                "--use-service-account-credentials=true",
                "--secure-port=0",
            ])
            .arg(format!(
                "--service-account-private-key-file={}",
                self.directory.join("accounts.key").display()
            ));
        match self.options.nodes {
            true => command
                .arg(format!("{CONTROLLERS}{NODE_CONTROLLERS}"))
                .arg(format!(
                    "--root-ca-file={}",
                    self.directory.join("ca.crt").display()
                )),
            false => command.arg(CONTROLLERS),
        };
        let process = Process::spawn(
            &format!("kube-controller-manager of {}", self.name),
            command,
            &self.directory.join("kube-controller-manager.log"),
        )?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        let what = format!(
            "{} works (makes the default service account)",
            process.name()
        );
        let works = wait_until(&what, READY_WITHIN, || async {
            match process.still_running() {
                Ok(()) => accounts.get("default").await.map(|_| Ok(())),
                Err(ended) => Ok(Err(ended)),
            }
        });
        works.await.with_context(|| process.log_tail())??;
        self.controller_manager = Some(process);
        Ok(())
    }

    /// Starts a kube-scheduler. Whether it works is seen by the first pod.
    async fn start_scheduler(&mut self) -> Result<()> {
        let binary = tokio::task::spawn_blocking(|| Component::KubeScheduler.path()).await??;
        let mut command = Command::new(binary);
        command
            .env(GARBAGE.0, GARBAGE.1)
            .arg(format!("--kubeconfig={}", self.kubeconfig_path().display()))
            .args(["--leader-elect=false", "--secure-port=0"])
            .args(["--kube-api-qps=1000", "--kube-api-burst=1000"]);
        self.scheduler = Some(Process::spawn(
            &format!("kube-scheduler of {}", self.name),
            command,
            &self.directory.join("kube-scheduler.log"),
        )?);
        Ok(())
    }
}

/// Ready to serve, and with the namespace that is the cluster's identity.
async fn api_ready(client: &Client) -> Result<(), kube::Error> {
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await?;
    Api::<Namespace>::all(client.clone())
        .get("kube-system")
        .await?;
    Api::<Namespace>::all(client.clone()).get("default").await?;
    Ok(())
}

/// It belongs to the runtime it is made in.
pub(super) async fn client_of(kubeconfig: &str) -> Result<Client> {
    let client = fipd::clusters::client_of(kubeconfig, "of the testbed", false).await;
    client.map_err(anyhow::Error::msg)
}

/// The static token of a user: told apart by cluster, so that a kubeconfig used against the wrong one fails.
fn token(cluster: &str, user: &str) -> String {
    format!("token-of-{user}-in-{cluster}")
}

fn write_keys(directory: &Path, authority: &CertificateAuthority) -> Result<()> {
    authority.write_server_pair(&directory.join("server.crt"), &directory.join("server.key"))?;
    fs::write(directory.join("ca.crt"), authority.pem())?;
    let accounts = KeyPair::generate()?;
    fs::write(directory.join("accounts.key"), accounts.serialize_pem())?;
    fs::write(directory.join("accounts.pub"), accounts.public_key_pem())?;
    Ok(())
}

fn write_tokens(directory: &Path, users: &[String]) -> Result<()> {
    let name = directory
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut lines = format!(
        "{},{ADMIN_USER},{ADMIN_USER},\"system:masters\"\n",
        token(&name, ADMIN_USER)
    );
    for user in users.iter().map(String::as_str).chain([RESTRICTED_USER]) {
        lines.push_str(&format!("{},{user},{user}\n", token(&name, user)));
    }
    fs::write(directory.join("tokens.csv"), lines)?;
    Ok(())
}
