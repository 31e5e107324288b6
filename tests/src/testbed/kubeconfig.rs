//! Self-contained kubeconfigs: CA and token inlined, nothing to look up elsewhere.

/// A kubeconfig with one cluster, user and context, all called `name`.
pub(super) fn kubeconfig(name: &str, server: &str, ca_pem: &str, token: &str) -> String {
    let ca = base64(ca_pem.as_bytes());
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

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0u32, |group, byte| group << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = (group >> (18 - 6 * digit)) & 63;
            text.push(if digit <= chunk.len() {
                char::from(ALPHABET[index as usize])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_by_the_vectors_of_rfc_4648() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in vectors {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

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
