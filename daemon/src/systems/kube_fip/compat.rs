//! Flags of kube-fip-operator. Everything else is in its ConfigMap.

use crate::config::compat::CompatFlag;

/// All of them.
pub(super) static FLAGS: &[CompatFlag] = &[CompatFlag::kubeconfig(
    "The cluster with `systems = [\"kube-fip\"]`, which is added where there is none.",
)];

#[cfg(test)]
mod tests {
    use crate::config::{Source, compat::tests::check_rows};

    const FILE: &str =
        "[[cluster]]\nname = \"rancher\"\nin-cluster = true\nsystems = [\"kube-fip\"]\n";

    #[test]
    fn the_flag_names_the_kubeconfig_of_rancher() {
        check_rows(
            "kube-fip",
            FILE,
            &[("kubeconfig", "/k", |config| {
                let source = &config.cluster("rancher").unwrap().source;
                matches!(source, Source::File { path, context: None } if path.ends_with("k"))
            })],
        );
    }
}
