//! Self-contained kubeconfigs: CA and token inlined, nothing to look up elsewhere.

use super::base64;

/// A kubeconfig with one cluster, user and context, all called `name`.
pub(super) fn kubeconfig(name: &str, server: &str, ca_pem: &str, token: &str) -> String {
    let ca = base64::encode(ca_pem.as_bytes());
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {name}\n  \
           cluster:\n    \
             certificate-authority-data: {ca}\n    \
             server: {server}\n\
         users:\n\
         - name: {name}\n  \
           user:\n    \
             token: {token}\n\
         contexts:\n\
         - name: {name}\n  \
           context:\n    \
             cluster: {name}\n    \
             user: {name}\n\
         current-context: {name}\n"
    )
}

/// The same kubeconfig with another server.
pub fn with_server(kubeconfig: &str, server: &str) -> String {
    let replaced = kubeconfig
        .lines()
        .map(|line| match line.split_once("server: ") {
            Some((indent, _old)) => format!("{indent}server: {server}\n"),
            None => format!("{line}\n"),
        });
    replaced.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_reads_what_we_write() {
        let text = with_server(
            &kubeconfig("blue", "https://127.0.0.1:1", "PEM", "secret"),
            "https://127.0.0.1:2",
        );
        let parsed = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        let cluster = parsed.clusters[0].cluster.clone().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:2"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("UEVN"));
        assert_eq!(parsed.current_context.as_deref(), Some("blue"));
    }
}
