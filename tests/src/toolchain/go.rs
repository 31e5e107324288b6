//! Components built from Go modules, by the small tool modules in `testbed-go/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{cache_dir, cached, run_logged};
use crate::say::progress;
use crate::versions;

/// For what the testbed starts: collects garbage at five times what is in use, not at two. A start of kube-apiserver takes a quarter
/// less of the processor, and 100 MB more.
pub const GARBAGE: (&str, &str) = ("GOGC", "400");

const CLUSTER_API: &str = "sigs.k8s.io/cluster-api";
const CNI_PLUGINS: &str = "github.com/containernetworking/plugins/plugins";

/// One Go program of the testbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubelet,
    Kubectl,
    /// The helm CLI.
    Helm,
    /// The same of version 4.
    Helm4,
    /// The helm-controller of RKE2 and K3s.
    HelmController,
    /// The core manager of Cluster API.
    ClusterApi,
    /// The CLI of Cluster API.
    Clusterctl,
    /// What plays nodes and pods.
    Kwok,
    /// An OCI registry that keeps what it has in memory.
    Registry,
    /// The runtime of the CNI project: libcni as a command.
    CniTool,
    /// The published CNI plugins; their folder is a `CNI_PATH`.
    CniMacvlan,
    CniBridge,
    CniLoopback,
    CniHostLocal,
    CniStatic,
    /// What stands in for Multus.
    Multus,
    /// What adds policy rules by the Go library for netlink; only `cargo bench-peers` takes it.
    NetlinkPeer,
}

impl Component {
    /// Those of `cargo verify`, in the order in which they are built.
    pub const ALL: [Self; 19] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubelet,
        Self::Kubectl,
        Self::Helm,
        Self::HelmController,
        Self::ClusterApi,
        Self::Clusterctl,
        Self::Kwok,
        Self::Registry,
        Self::CniTool,
        Self::CniMacvlan,
        Self::CniBridge,
        Self::CniLoopback,
        Self::CniHostLocal,
        Self::CniStatic,
        Self::Multus,
    ];

    /// The path of the binary, built first when the cache has none.
    pub fn path(self) -> Result<PathBuf> {
        let dir = cache_dir(self.module(), self.version())?;
        cached(&dir, self.binary(), |half| self.build(half))
    }

    fn build(self, output: &Path) -> Result<()> {
        check_go()?;
        progress(format_args!(
            "building {} {} (minutes, once per machine)",
            self.binary(),
            self.version()
        ));
        let mut command = self.go();
        command.env("CGO_ENABLED", "0");
        command.args([
            "build",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            &self.linker_flags(),
            "-o",
        ]);
        command.arg(output).arg(self.package());
        run_logged(command, &output.with_extension("log"))
    }

    /// `go` in the folder of the tool module.
    fn go(self) -> Command {
        let module = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("testbed-go")
            .join(self.module());
        let mut command = Command::new("go");
        command.current_dir(module);
        command
    }

    fn module(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::Kubectl => "kubernetes",
            Self::Helm => "helm",
            Self::Helm4 => "helm4",
            Self::HelmController => "helm-controller",
            Self::ClusterApi | Self::Clusterctl => "cluster-api",
            Self::Kwok => "kwok",
            Self::Registry => "registry",
            Self::CniTool => "cnitool",
            Self::CniMacvlan
            | Self::CniBridge
            | Self::CniLoopback
            | Self::CniHostLocal
            | Self::CniStatic => "cni-plugins",
            Self::Multus => "multus",
            Self::NetlinkPeer => "netlink",
        }
    }

    fn version(self) -> &'static str {
        match self {
            Self::Etcd => versions::ETCD,
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::Kubectl => versions::KUBERNETES,
            Self::Helm => versions::HELM,
            Self::Helm4 => versions::HELM_4,
            Self::HelmController => versions::HELM_CONTROLLER,
            Self::ClusterApi | Self::Clusterctl => versions::CLUSTER_API,
            Self::Kwok => versions::KWOK,
            Self::Registry => versions::REGISTRY,
            Self::CniTool => versions::CNI,
            Self::CniMacvlan
            | Self::CniBridge
            | Self::CniLoopback
            | Self::CniHostLocal
            | Self::CniStatic => versions::CNI_PLUGINS,
            Self::Multus => versions::MULTUS,
            Self::NetlinkPeer => versions::GO_NETLINK,
        }
    }

    fn binary(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::Kubectl => "kubectl",
            Self::Helm | Self::Helm4 => "helm",
            Self::HelmController => "helm-controller",
            Self::ClusterApi => "cluster-api-manager",
            Self::Clusterctl => "clusterctl",
            Self::Kwok => "kwok",
            Self::Registry => "registry",
            Self::CniTool => "cnitool",
            Self::CniMacvlan => "macvlan",
            Self::CniBridge => "bridge",
            Self::CniLoopback => "loopback",
            Self::CniHostLocal => "host-local",
            Self::CniStatic => "static",
            Self::Multus => "multus",
            Self::NetlinkPeer => "netlink",
        }
    }

    fn package(self) -> String {
        match self {
            Self::Etcd | Self::Registry | Self::Multus | Self::NetlinkPeer => ".".to_string(),
            Self::Helm => "helm.sh/helm/v3/cmd/helm".to_string(),
            Self::Helm4 => "helm.sh/helm/v4/cmd/helm".to_string(),
            Self::HelmController => "github.com/k3s-io/helm-controller".to_string(),
            Self::ClusterApi => format!("{CLUSTER_API}/core"),
            Self::Clusterctl => format!("{CLUSTER_API}/cmd/clusterctl"),
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok".to_string(),
            Self::CniTool => "github.com/containernetworking/cni/cnitool".to_string(),
            Self::CniMacvlan | Self::CniBridge | Self::CniLoopback => {
                format!("{CNI_PLUGINS}/main/{}", self.binary())
            }
            Self::CniHostLocal | Self::CniStatic => {
                format!("{CNI_PLUGINS}/ipam/{}", self.binary())
            }
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::Kubectl => {
                format!("k8s.io/kubernetes/cmd/{}", self.binary())
            }
        }
    }

    /// Without symbols, and with the version the components would have as released binaries.
    fn linker_flags(self) -> String {
        let mut flags = "-s -w".to_string();
        let package = match self.module() {
            "kubernetes" => Some("k8s.io/component-base/version".to_string()),
            "cluster-api" => Some(format!("{CLUSTER_API}/version")),
            _ => None,
        };
        if let Some(package) = package {
            flags.push_str(&format!(" -X {package}.gitVersion={}", self.version()));
            let numbers = self.version().trim_start_matches('v').split('.');
            for (name, number) in ["gitMajor", "gitMinor"].into_iter().zip(numbers) {
                flags.push_str(&format!(" -X {package}.{name}={number}"));
            }
        }
        if let Some((module, _)) = self.package().split_once("/cmd/helm") {
            let variable = format!("{module}/internal/version.version");
            flags.push_str(&format!(" -X {variable}={}", self.version()));
        }
        flags
    }
}

/// The sources of Cluster API in Go's module cache, downloaded when they are not there.
pub fn cluster_api_sources() -> Result<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Module {
        dir: PathBuf,
    }
    check_go()?;
    let mut command = Component::ClusterApi.go();
    command.args(["mod", "download", "-json", CLUSTER_API]);
    let output = command.output().context("start go mod download")?;
    if !output.status.success() {
        bail!(
            "go mod download {CLUSTER_API}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let module: Module =
        serde_json::from_slice(&output.stdout).context("answer of go mod download")?;
    Ok(module.dir)
}

fn check_go() -> Result<()> {
    let output = Command::new("go").arg("version").output().context(
        "the testbed builds etcd, Kubernetes and helm from Go modules, but no `go` is on PATH: install Go 1.26 or newer",
    )?;
    if !output.status.success() {
        bail!("go version: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_binaries_know_their_version() {
        let flags = Component::KubeApiserver.linker_flags();
        assert!(
            flags.contains(&format!("gitVersion={}", versions::KUBERNETES)),
            "{flags}"
        );
        assert!(
            flags.contains(".gitMajor=1 ") && flags.contains(".gitMinor=3"),
            "{flags}"
        );
        assert_eq!(Component::Etcd.linker_flags(), "-s -w");
    }
}
