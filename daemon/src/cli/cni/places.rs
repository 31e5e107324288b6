//! Where container runtimes look for plugins and networks, and where the package has its plugin.

use std::path::Path;

/// What the plugin is called: by fipd's own configuration, and by that of rancher-flat-network.
pub const NAMES: [&str; 2] = ["fipd-cni", "rancher-flat-network-cni"];
/// The end of the name of another program's plugin that fipd's has replaced.
pub const SAVED: &str = ".fipd-saved";
/// The packaged plugin, of the .deb and of the .rpm.
pub const PACKAGED: [&str; 2] = ["/usr/lib/cni/fipd-cni", "/usr/libexec/cni/fipd-cni"];
/// Where the plugin notes deletes while the daemon is down.
pub use fipd_cni::spool::SPOOL;

/// The directories of a container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// A directory that is there where the runtime is installed.
    sign: &'static str,
    pub bin_dir: &'static str,
    pub conf_dir: &'static str,
}

/// The first that is there counts. The last is RKE2's too, and there on every host.
pub const RUNTIMES: [Runtime; 2] = [
    Runtime {
        sign: "/var/lib/rancher/k3s/agent",
        bin_dir: "/var/lib/rancher/k3s/data/cni",
        conf_dir: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
    },
    Runtime {
        sign: "/",
        bin_dir: "/opt/cni/bin",
        conf_dir: "/etc/cni/net.d",
    },
];

/// The runtimes of a host, the one that pods use first.
pub fn runtimes(is_directory: impl Fn(&Path) -> bool) -> impl Iterator<Item = Runtime> {
    let all = RUNTIMES.into_iter();
    all.filter(move |runtime| is_directory(Path::new(runtime.sign)))
}

/// The saved name of a plugin.
pub fn saved(name: &str) -> String {
    format!("{name}{SAVED}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k3s_has_its_own_directories_and_everything_else_the_usual_ones() {
        let first = |there: &[&str]| {
            let mut all = runtimes(|path| there.iter().any(|one| Path::new(one) == path));
            all.next().map(|runtime| runtime.bin_dir)
        };
        assert_eq!(first(&["/"]), Some("/opt/cni/bin"));
        assert_eq!(
            first(&["/", "/var/lib/rancher/rke2/agent"]),
            Some("/opt/cni/bin")
        );
        let k3s = ["/", "/var/lib/rancher/k3s/agent"];
        assert_eq!(first(&k3s), Some("/var/lib/rancher/k3s/data/cni"));
    }
}
