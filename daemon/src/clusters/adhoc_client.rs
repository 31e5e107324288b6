//! Clients for clusters that are reached now and then only, by kubeconfigs out of Secrets or of whoever runs a command.

use std::path::Path;

use kube::Client;

use super::{
    connect,
    kubeconfig::{self, Allow, KubeconfigRefused},
    memory::Memory,
};
use crate::foreign_file;

/// No program is run: the kubeconfig may not name one.
const NO_HOME: &str = "/";

/// A client for the text of a kubeconfig, which must be self-contained. `origin` is what errors call it. Its calls
/// have no deadline of their own.
///
/// # Errors
/// A kubeconfig that is refused, or credentials that cannot be used.
pub async fn client_of(text: &str, origin: &str, insecure: bool) -> Result<Client, String> {
    let allow = Allow::no_code(insecure);
    let loaded = kubeconfig::accept(text, None, origin, None, allow).await;
    let config = loaded.map_err(|refused| refused.to_string())?.config;
    let client = connect::client(config, Path::new(NO_HOME), Memory::default()).await;
    client.map_err(|error| error.to_string())
}

/// A client for the kubeconfig file of whoever runs a command. As with kubectl it may name programs and other files, and leave
/// the server unverified: it does so with the rights of who names it. `home` is that of programs.
///
/// # Errors
/// A kubeconfig that cannot be read or is refused, or credentials that cannot be used.
pub async fn client_of_file(
    path: &Path,
    context: Option<&str>,
    home: &Path,
) -> Result<Client, String> {
    let unreadable = |error| KubeconfigRefused::unreadable(path, &error).to_string();
    let text = foreign_file::read_text(path, foreign_file::LONGEST).await;
    let text = text.map_err(unreadable)?;
    let (origin, allow) = (
        path.display().to_string(),
        Allow {
            code: true,
            insecure: true,
        },
    );
    let loaded = kubeconfig::accept(&text, context, &origin, path.parent(), allow).await;
    let config = loaded.map_err(|refused| refused.to_string())?.config;
    let client = connect::client(config, home, Memory::default()).await;
    client.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_BASE64: &str = "aHVudGVyMh==";
    const NO_PEM: &str = "aHVudGVyMg==";
    /// The line breaks of the PEM are lost.
    const ONE_LINE: &str =
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tIGFIVnVkR1Z5TWc9PSAtLS0tLUVORCBLRVkK";
    const CERTIFICATE: &str =
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

    /// Why there is no client with this key.
    async fn wrong(key: &str) -> String {
        let text = format!(
            "current-context: a\n\
             clusters: [{{ name: a, cluster: {{ server: 'https://127.0.0.1:1', certificate-authority-data: bm9uZQ== }} }}]\n\
             users: [{{ name: a, user: {{ client-certificate-data: {CERTIFICATE}, client-key-data: '{key}' }} }}]\n\
             contexts: [{{ name: a, context: {{ cluster: a, user: a }} }}]\n"
        );
        client_of(&text, "test", false).await.err().unwrap()
    }

    #[tokio::test]
    async fn a_file_that_makes_no_client_is_named_with_the_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "current-context: a\ncontexts: []\nclusters: []\nusers: []\n";
        std::fs::write(file.path(), text).unwrap();
        for (path, context, says) in [
            (Path::new("/nowhere/at/all"), None, "cannot be read"),
            (file.path(), None, "is not there"),
            (file.path(), Some("blue"), "context \"blue\" is not there"),
        ] {
            let said = client_of_file(path, context, Path::new("/")).await;
            let said = said.err().unwrap();
            assert!(said.contains(says), "{said}");
            assert!(said.contains(&*path.display().to_string()), "{said}");
        }
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_used_is_not_told() {
        assert_eq!(wrong(NOT_BASE64).await, "client-key-data is no base64");
        for key in [NO_PEM, ONE_LINE] {
            let said = wrong(key).await;
            assert!(
                !said.contains("hunter2") && !said.contains("45, 45"),
                "{said}"
            );
        }
        assert!(wrong(ONE_LINE).await.contains("is no PEM"));
    }
}
