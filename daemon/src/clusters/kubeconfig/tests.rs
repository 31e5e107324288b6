use std::os::unix::fs::PermissionsExt;

use super::*;

const NOTHING: Allow = Allow {
    code: false,
    insecure: false,
};
const CODE: Allow = Allow {
    code: true,
    insecure: false,
};

fn text(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: main\n\
         contexts: [{{name: main, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:6443'{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    )
}

async fn refused(text: &str, allow: Allow) -> String {
    match accept(text, None, "test", Some(Path::new("/somewhere")), allow).await {
        Ok(_) => panic!("this must be refused: {text}"),
        Err(err) => err.to_string(),
    }
}

#[tokio::test]
async fn a_self_contained_kubeconfig_is_accepted() {
    let loaded = accept(&text("", "token: secret"), None, "test", None, NOTHING)
        .await
        .unwrap();
    assert_eq!(
        loaded.config.cluster_url.to_string(),
        "https://127.0.0.1:6443/"
    );
    assert!(loaded.files.is_empty());
}

#[tokio::test]
async fn programs_and_paths_are_refused_by_field_and_value() {
    let asked = [
        (
            "",
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: evil}",
            "exec",
            "evil",
        ),
        (
            "",
            "auth-provider: {name: gcp, config: {}}",
            "auth-provider",
            "gcp",
        ),
        ("", "tokenFile: /etc/shadow", "tokenFile", "/etc/shadow"),
        (
            "",
            "client-certificate: a.pem",
            "client-certificate",
            "a.pem",
        ),
        ("", "client-key: b.pem", "client-key", "b.pem"),
        (
            ", certificate-authority: ca.pem",
            "",
            "certificate-authority",
            "ca.pem",
        ),
    ];
    for (cluster, user, field, value) in asked {
        let what = refused(&text(cluster, user), NOTHING).await;
        assert!(
            what.contains(field) && what.contains(value) && what.contains("/etc/fipd"),
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_trusted_file_may_name_files_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "secret").unwrap();
    let loaded = accept(
        &text("", "tokenFile: token"),
        None,
        "test",
        Some(dir.path()),
        CODE,
    )
    .await
    .unwrap();
    let token = loaded.config.auth_info.token_file.unwrap();
    assert_eq!(Path::new(&token), dir.path().join("token"));
}

#[tokio::test]
async fn unverified_tls_needs_the_configuration_to_say_so() {
    let insecure = text(", insecure-skip-tls-verify: true", "token: x");
    assert!(
        refused(&insecure, CODE)
            .await
            .contains("insecure-skip-tls-verify")
    );
    let allow = Allow {
        insecure: true,
        ..NOTHING
    };
    assert!(
        accept(&insecure, None, "test", None, allow)
            .await
            .unwrap()
            .config
            .accept_invalid_certs
    );
}

#[tokio::test]
async fn proxies_and_plain_http_are_refused() {
    let proxied = text(", proxy-url: 'http://127.0.0.1:3128'", "token: x");
    assert!(refused(&proxied, CODE).await.contains("proxy-url"));
    let plain = text("", "token: x").replace("https://", "http://");
    assert!(
        refused(&plain, CODE)
            .await
            .contains("must start with https://")
    );
}

#[tokio::test]
async fn only_the_chosen_context_is_looked_at() {
    let two = "apiVersion: v1\nkind: Config\n\
        contexts: [{name: good, context: {cluster: c, user: u}}, {name: bad, context: {cluster: c, user: e}}]\n\
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
        users: [{name: u, user: {token: x}}, {name: e, user: {exec: {command: evil}}}]\n";
    assert!(
        refused(two, NOTHING).await.contains("good, bad"),
        "no context chosen: the names are shown"
    );
    assert!(
        accept(two, Some("good"), "test", None, NOTHING)
            .await
            .is_ok()
    );
    assert!(
        accept(two, Some("bad"), "test", None, NOTHING)
            .await
            .is_err()
    );
    let Err(err) = accept(two, Some("third"), "test", None, NOTHING).await else {
        panic!("unknown context")
    };
    assert!(err.to_string().contains("good, bad"), "{err}");
}

#[tokio::test]
async fn what_is_no_kubeconfig_is_refused_with_its_origin() {
    assert!(refused("{{{", NOTHING).await.contains("kubeconfig test"));
    assert!(
        refused(&"#".repeat(2 << 20), NOTHING)
            .await
            .contains("larger")
    );
}

/// A trusted directory with one file, owned by whoever runs the test.
fn place() -> (tempfile::TempDir, PathBuf, Trust) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("a.kubeconfig");
    std::fs::write(&path, "x").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let owner = path.metadata().unwrap().uid();
    let trust = Trust {
        dir: dir.path().to_owned(),
        owner,
        credentials: None,
    };
    (dir, path, trust)
}

fn trusted(path: &Path, trust: &Trust) -> bool {
    read_file(path, trust).unwrap().1
}

#[test]
fn trust_needs_place_owner_and_nobody_else_writing() {
    let (dir, path, trust) = place();
    assert!(trusted(&path, &trust));
    assert!(!trusted(
        &path,
        &Trust {
            owner: trust.owner + 1,
            ..trust.clone()
        }
    ));
    assert!(!trusted(
        &path,
        &Trust {
            dir: dir.path().join("elsewhere"),
            ..trust.clone()
        }
    ));
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    mode(&path, 0o660);
    assert!(!trusted(&path, &trust), "its group may write");
    mode(&path, 0o644);
    assert!(trusted(&path, &trust));
    mode(dir.path(), 0o777);
    assert!(!trusted(&path, &trust), "everybody may replace it");
}

#[test]
fn a_credential_is_as_good_as_a_file_of_root() {
    let (dir, path, trust) = place();
    let elsewhere = Trust {
        dir: "/etc/fipd".into(),
        owner: trust.owner + 1,
        credentials: Some(dir.path().to_owned()),
    };
    assert!(trusted(&path, &elsewhere));
    let below = dir.path().join("below");
    std::fs::create_dir(&below).unwrap();
    std::fs::copy(&path, below.join("a")).unwrap();
    assert!(!trusted(&below.join("a"), &elsewhere));
}

#[test]
fn a_link_out_of_the_trusted_place_is_not_trusted() {
    let (_dir, path, trust) = place();
    let other = tempfile::tempdir().unwrap();
    let outside = other.path().join("b.kubeconfig");
    std::fs::copy(&path, &outside).unwrap();
    let link = trust.dir.join("link");
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    assert!(!trusted(&link, &trust));
}
