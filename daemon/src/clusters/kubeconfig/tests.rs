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
async fn programs_and_paths_are_refused_by_field() {
    let asked = [
        (
            "",
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: hunter2}",
            "exec",
        ),
        (
            "",
            "auth-provider: {name: hunter2, config: {}}",
            "auth-provider",
        ),
        ("", "tokenFile: hunter2", "tokenFile"),
        ("", "client-certificate: hunter2", "client-certificate"),
        ("", "client-key: hunter2", "client-key"),
        (
            ", certificate-authority: hunter2",
            "",
            "certificate-authority",
        ),
    ];
    for (cluster, user, field) in asked {
        let what = refused(&text(cluster, user), NOTHING).await;
        assert!(what.contains(field) && what.contains("/etc/fipd"), "{what}");
        assert!(!what.contains("hunter2"), "{what}");
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
    let proxied = text(
        ", proxy-url: 'http://me:hunter2@127.0.0.1:3128'",
        "token: x",
    );
    let what = refused(&proxied, CODE).await;
    assert!(
        what.contains("proxy-url") && !what.contains("hunter2"),
        "{what}"
    );
    for (scheme, word) in [
        ("http", "must start with https://"),
        ("https", "names a user"),
    ] {
        let server = format!("{scheme}://me:hunter2@");
        let with_user = text("", "token: x").replace("https://", &server);
        let what = refused(&with_user, CODE).await;
        assert!(what.contains("server") && what.contains(word), "{what}");
        assert!(!what.contains("hunter2"), "{what}");
    }
}

#[tokio::test]
async fn only_the_chosen_context_is_looked_at() {
    let two = "apiVersion: v1\nkind: Config\n\
        contexts: [{name: good, context: {cluster: c, user: u}}, {name: bad, context: {cluster: c, user: e}}]\n\
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
        users: [{name: u, user: {token: x}}, {name: e, user: {exec: {command: evil}}}]\n";
    let unchosen = refused(two, NOTHING).await;
    assert!(
        unchosen.contains("current-context is not set"),
        "{unchosen}"
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
    assert!(
        err.to_string().contains("context \"third\" is not there"),
        "{err}"
    );
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

#[tokio::test]
async fn what_is_malformed_is_told_by_its_place_and_without_what_is_there() {
    let indent = "users:\n- name: u\n  user:\n    token: hunter2\n   client-key-data: hunter2\n";
    let whole = |rest: &str| format!("apiVersion: v1\nkind: Config\n{rest}");
    for (text, word) in [
        (whole(indent), " in line "),
        (
            whole("users: [{name: u, user: {token: \"hunter2"),
            " in line ",
        ),
        (whole("users: hunter2\n"), "is no kubeconfig in line 3"),
        (text("", "token: [hunter2]"), "is no kubeconfig in line 6"),
        (
            text(", insecure-skip-tls-verify: hunter2", "token: hunter2"),
            "is no kubeconfig in line 5",
        ),
        (
            whole("users:\n- user: {token: hunter2}\n"),
            "name is missing",
        ),
        // The label is the secret.
        (
            text(
                ", certificate-authority-data: LS0tLS1CRUdJTiBodW50ZXIyLS0tLS0KQUFBQQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg==",
                "token: hunter2",
            ),
            "certificate-authority-data holds no certificates in PEM",
        ),
        (
            text(", certificate-authority-data: 'hunter2'", "token: hunter2"),
            "certificate-authority-data is no base64",
        ),
        (
            text("", "token: x").replace("current-context: main", "current-context: hunter2"),
            "the context of current-context is not there",
        ),
        (
            text("", "token: x").replace("name: main", "name: hunter2"),
            "the context of current-context is not there",
        ),
        (
            text("", "token: x")
                .replace("main", "hunter2")
                .replace("{cluster: c,", "{cluster: hunter2,"),
            "names a cluster that is not there",
        ),
    ] {
        let what = refused(&text, NOTHING).await;
        assert!(what.contains(word), "{what}");
        assert!(!what.contains("hunter2"), "{what}");
        assert_eq!(what.lines().count(), 1, "{what}");
    }
    let place = Some(Path::new("/somewhere"));
    let misplaced = text("", "client-key: hunter2, client-certificate: hunter2");
    let loaded = accept(&misplaced, None, "test", place, CODE).await.unwrap();
    let home = Path::new("/nonexistent");
    let client = crate::clusters::connect::client(loaded.config, home, Default::default()).await;
    let Err(error) = client else {
        panic!("the file is not there")
    };
    let what = error.to_string();
    assert!(
        what.contains("cannot be read") && !what.contains("hunter2"),
        "{what}"
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
        home: dir.path().join("programs"),
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
        home: dir.path().join("programs"),
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

#[tokio::test]
async fn a_fifo_in_place_of_a_file_is_refused_and_waits_for_nobody() {
    let (dir, path, trust) = place();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = read_file(&fifo, &trust).unwrap_err().to_string();
    assert!(refused.contains("not a regular file"), "{refused}");

    let ca = text(", certificate-authority: fifo", "token: x");
    let Err(refused) = accept(&ca, None, "test", path.parent(), CODE).await else {
        panic!("the CA is a FIFO")
    };
    let refused = refused.to_string();
    assert!(
        refused.contains("certificate-authority names") && refused.contains("not a regular file"),
        "{refused}"
    );
    for (user, field) in [
        ("tokenFile: fifo", "tokenFile"),
        (
            "client-certificate: fifo, client-key: fifo",
            "client-certificate",
        ),
    ] {
        let text = text("", user);
        let loaded = accept(&text, None, "test", path.parent(), CODE).await;
        let config = loaded.unwrap().config;
        let client =
            crate::clusters::connect::client(config, &trust.home, Default::default()).await;
        let refused = client.err().unwrap().to_string();
        assert!(
            refused.contains(field) && refused.contains("not a regular file"),
            "{refused}"
        );
    }
}
