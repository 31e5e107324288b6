//! The one place that says which version of every foreign component the testbed uses.
//!
//! The Go versions are repeated in `testbed-go/*/go.mod`, because Go wants them there; a test compares the two.

/// Raised whenever the way of building changes although the version does not: it is part of the cache key.
pub const RECIPE: u32 = 1;

/// etcd, `go.etcd.io/etcd/server/v3`.
pub const ETCD: &str = "v3.6.8";

/// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl, `k8s.io/kubernetes`.
pub const KUBERNETES: &str = "v1.35.4";

/// helm, `helm.sh/helm/v3`.
pub const HELM: &str = "v3.22.0";

/// The other helm that fipd speaks to, `helm.sh/helm/v4`; only `cargo torture` takes it.
pub const HELM_4: &str = "v4.3.1";

/// The helm-controller of RKE2 and K3s, `github.com/k3s-io/helm-controller`.
pub const HELM_CONTROLLER: &str = "v0.17.9";

/// The core manager of Cluster API and its CRDs, `sigs.k8s.io/cluster-api`.
pub const CLUSTER_API: &str = "v1.14.2";

/// What plays nodes and pods, `sigs.k8s.io/kwok`.
pub const KWOK: &str = "v0.8.0";

/// The OCI registry, `github.com/google/go-containerregistry`.
pub const REGISTRY: &str = "v0.19.0";

/// `cnitool`, `github.com/containernetworking/cni`.
pub const CNI: &str = "v1.3.0";

/// The published CNI plugins, `github.com/containernetworking/plugins`.
pub const CNI_PLUGINS: &str = "v1.9.1";

/// The Multus whose behaviour `testbed-go/multus` has; raise [`RECIPE`] when that changes.
pub const MULTUS: &str = "v4.2.2";

/// The Go library for netlink that fipd's rules are measured against, `github.com/vishvananda/netlink`.
pub const GO_NETLINK: &str = "v1.3.1";

/// `cargo deny`.
pub const CARGO_DENY: &str = "0.20.2";

/// `cargo fuzz`.
pub const CARGO_FUZZ: &str = "0.13.2";

/// `cargo deb`.
pub const CARGO_DEB: &str = "3.8.0";

/// `cargo generate-rpm`.
pub const CARGO_GENERATE_RPM: &str = "0.21.1";

/// `cargo cyclonedx`.
pub const CARGO_CYCLONEDX: &str = "0.5.9";

/// `schemathesis`; `tests/schemathesis/requirements.txt` has it with what it needs.
pub const SCHEMATHESIS: &str = "4.32.5";

/// `axe-core`; `tests/axe/package-lock.json` has its checksum.
pub const AXE_CORE: &str = "4.14.1";

/// What the browser suite needs from Debian.
pub const BROWSER_PACKAGES: &[&str] = &["chromium-headless-shell", "chromium-driver"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_for_pypi_has_the_same_version() {
        let list = include_str!("../schemathesis/requirements.txt");
        let wanted = format!("schemathesis=={SCHEMATHESIS}");
        assert!(list.lines().any(|line| line == wanted));
    }

    #[test]
    fn the_lists_for_npm_have_the_same_version() {
        let list = include_str!("../axe/package.json");
        assert!(list.contains(&format!("\"axe-core\": \"{AXE_CORE}\"")));
        let lock = include_str!("../axe/package-lock.json");
        assert!(lock.contains(&format!("\"version\": \"{AXE_CORE}\"")));
        assert!(lock.contains("\"integrity\": \"sha512-"));
    }

    #[test]
    fn go_modules_require_the_same_versions() {
        let requires = |go_mod: &str, module: &str, version: &str| {
            let wanted = format!("{module} {version}");
            let mut lines = go_mod
                .lines()
                .map(|line| line.trim().trim_start_matches("require "));
            lines.any(|line| line.split(" //").next() == Some(&wanted))
        };
        let etcd = include_str!("../testbed-go/etcd/go.mod");
        assert!(
            requires(etcd, "go.etcd.io/etcd/server/v3", ETCD),
            "testbed-go/etcd/go.mod"
        );
        let helm = include_str!("../testbed-go/helm/go.mod");
        assert!(
            requires(helm, "helm.sh/helm/v3", HELM),
            "testbed-go/helm/go.mod"
        );
        let helm = include_str!("../testbed-go/helm4/go.mod");
        assert!(
            requires(helm, "helm.sh/helm/v4", HELM_4),
            "testbed-go/helm4/go.mod"
        );
        let controller = include_str!("../testbed-go/helm-controller/go.mod");
        let module = "github.com/k3s-io/helm-controller";
        assert!(
            requires(controller, module, HELM_CONTROLLER),
            "testbed-go/helm-controller/go.mod"
        );
        let cluster_api = include_str!("../testbed-go/cluster-api/go.mod");
        let module = "sigs.k8s.io/cluster-api";
        assert!(
            requires(cluster_api, module, CLUSTER_API),
            "testbed-go/cluster-api/go.mod"
        );
        let api = format!("replace {module}/api => {module}/api {CLUSTER_API}");
        assert!(
            cluster_api.lines().any(|line| line == api),
            "testbed-go/cluster-api/go.mod: {api}"
        );
        let registry = include_str!("../testbed-go/registry/go.mod");
        assert!(
            requires(registry, "github.com/google/go-containerregistry", REGISTRY),
            "testbed-go/registry/go.mod"
        );
        let kwok = include_str!("../testbed-go/kwok/go.mod");
        assert!(
            requires(kwok, "sigs.k8s.io/kwok", KWOK),
            "testbed-go/kwok/go.mod"
        );
        let tool = include_str!("../testbed-go/cnitool/go.mod");
        assert!(
            requires(tool, "github.com/containernetworking/cni", CNI),
            "testbed-go/cnitool/go.mod"
        );
        let stand_in = include_str!("../testbed-go/multus/go.mod");
        assert!(
            requires(stand_in, "github.com/containernetworking/cni", CNI),
            "testbed-go/multus/go.mod"
        );
        assert!(include_str!("../testbed-go/multus/main.go").contains(MULTUS));
        let plugins = include_str!("../testbed-go/cni-plugins/go.mod");
        assert!(
            requires(
                plugins,
                "github.com/containernetworking/plugins",
                CNI_PLUGINS
            ),
            "testbed-go/cni-plugins/go.mod"
        );
        let peer = include_str!("../testbed-go/netlink/go.mod");
        assert!(
            requires(peer, "github.com/vishvananda/netlink", GO_NETLINK),
            "testbed-go/netlink/go.mod"
        );
        let kubernetes = include_str!("../testbed-go/kubernetes/go.mod");
        assert!(
            requires(kubernetes, "k8s.io/kubernetes", KUBERNETES),
            "testbed-go/kubernetes/go.mod"
        );
        let staging = KUBERNETES.replacen("v1.", "v0.", 1);
        let replaced = kubernetes
            .lines()
            .filter(|line| line.contains(" => "))
            .collect::<Vec<_>>();
        assert!(
            replaced.len() > 20,
            "the staging modules are replaced, found {}",
            replaced.len()
        );
        for line in replaced {
            assert!(
                line.ends_with(&format!(" {staging}")),
                "{line} should name {staging}"
            );
        }
    }
}
