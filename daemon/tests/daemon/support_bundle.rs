//! What is handed on has no secret in it.

use std::{collections::BTreeMap, io::Read as _, os::unix::fs::PermissionsExt as _, sync::Arc};

use serde_json::json;

use crate::harness::{Daemon, program, run};

const HOOK: &str = "hook-secret-0123456789abcdef01234567";
const OIDC: &str = "oidc-secret-0123456789abcdef";
const CHART: &str = "chart-values-secret-0123456789";
const PATH: &str = "T0PATHSECRET99";
const PASSWORD: &str = "a-password-of-ann-77";
const KUBE: &str = "kubeconfig-token-0123456789abcdef";

fn config(home: &std::path::Path) -> String {
    let write = |name: &str, text: &str| {
        let path = home.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("hook", HOOK);
    write("oidc", OIDC);
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{ name: a, context: {{ cluster: a, user: a }} }}]\n\
         clusters: [{{ name: a, cluster: {{ server: \"https://127.0.0.1:9\" }} }}]\nusers: [{{ name: a, user: {{ token: {KUBE} }} }}]\n"
    );
    write("kubeconfig", &kubeconfig);
    format!(
        "# a secret in a comment: {HOOK}\n[api]\nadvertise = \"https://127.0.0.1:8443\"\n\
         [[webhook]]\nname = \"ops\"\nurl = \"http://127.0.0.1:9/{PATH}?key={PATH}\"\nsecret-file = \"hook\"\n\
         [oidc]\nissuer = \"http://127.0.0.1:9\"\nclient-id = \"fipd\"\nclient-secret-file = \"oidc\"\n[oidc.roles]\nadmin = [\"root\"]\n\
         [[cluster]]\nname = \"rancher\"\nkubeconfig = \"kubeconfig\"\nsystems = [\"rancher-fip\"]\n\
         [cluster.rancher-fip.cluster-manager]\nenabled = true\nmetallb = {{ values = \"password: {CHART}\" }}\n"
    )
}

fn unpacked(path: &std::path::Path) -> BTreeMap<String, String> {
    let file = std::fs::File::open(path).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name, text)
    };
    archive.entries().unwrap().map(read).collect()
}

#[test]
fn a_bundle_has_what_helps_and_no_secret_of_any_kind() {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let file = home.path().join("fipd.toml");
    std::fs::write(&file, config(home.path())).unwrap();
    let fipd = Daemon::start_in(home, &["--config", file.to_str().unwrap()]);
    fipd.json("pool create vips --cidr 10.0.0.0/24");
    assert_eq!(fipd.fed("user create ann --role viewer", PASSWORD).code, 0);
    let token = fipd.token("ci", "operator");
    // Tried once, so that it is in what the daemon says of it.
    fipd.cli("webhooks test ops");
    let jwt = fipd
        .rest(None)
        .post("/v1/auth/token", json!({ "clientID": "c-1" }))
        .json();
    let jwt = jwt["token"].as_str().unwrap().to_owned();
    let out = fipd.home().path().join("bundle.tar.gz");
    let made = run(program().args(["--socket"]).arg(fipd.socket()).args([
        "support-bundle",
        "--file",
        out.to_str().unwrap(),
        "--config",
        file.to_str().unwrap(),
    ]));
    assert_eq!(made.code, 0, "{made:?}");
    let mode = std::fs::metadata(&out).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let all = unpacked(&out);
    let part = |name: &str| {
        let found = all.get(&format!("fipd-support/{name}"));
        found.unwrap_or_else(|| panic!("no {name}: {:?}", all.keys()))
    };
    assert!(part("versions.txt").contains("fipd 0."));
    assert!(part("config.toml").contains("secret-file") && part("config.toml").contains("issuer"));
    assert!(part("pools.json").contains("vips"));
    assert!(part("clusters.json").contains("rancher"));
    assert!(part("metrics.txt").contains("fipd_pool_free{pool=\"vips\""));
    assert!(part("check.json").contains("\"ok\"") && part("webhooks.json").contains("ops"));
    part("rules.json");
    let first = std::fs::read_to_string(fipd.data_dir().join("initial-admin")).unwrap();
    let (_, first) = first.trim().split_once('\n').unwrap();
    let key = std::fs::read_to_string(fipd.data_dir().join("tls/server.key")).unwrap();
    let key = key.lines().nth(1).unwrap();
    let secret = token.rsplit('_').next().unwrap();
    let signature = jwt.rsplit('.').next().unwrap();
    for secret in [
        HOOK, OIDC, CHART, PATH, PASSWORD, KUBE, &token, secret, first, key, &jwt, signature,
        "$argon2",
    ] {
        for (name, text) in &all {
            assert!(!text.contains(secret), "{secret} is in {name}");
        }
    }
    // Nothing is written over.
    let again = run(program().args(["--socket"]).arg(fipd.socket()).args([
        "support-bundle",
        "--file",
        out.to_str().unwrap(),
    ]));
    assert_eq!(again.code, 1, "{again:?}");
}

#[test]
fn a_refused_configuration_is_in_the_log_without_what_it_says() {
    const WRONG: &str = "hunter2-0123456789";
    let fipd = Daemon::configured("");
    let home = fipd.home();
    for (text, said) in [
        (
            format!("[oidc]\nclient-secret = \"{WRONG}\"\n"),
            ["line 2", "client-secret"],
        ),
        (
            format!("[oidc]\nclient-id = {WRONG}\n"),
            ["line 2", "client-id"],
        ),
        (
            format!(
                "[[webhook]]\nname = \"a\"\nsecret-file = \"s\"\nurl = \"https://a:{WRONG}@hooks.example/{WRONG}\"\n"
            ),
            ["line 4", "https://hooks.example"],
        ),
    ] {
        std::fs::write(fipd.config(), text).unwrap();
        let done = fipd.cli("reload");
        done.fails(2, &said);
        assert!(!done.err.contains(WRONG), "{done:?}");
        assert!(!fipd.log().contains(WRONG), "{}", fipd.log());
    }
    // Other programs of the unit, and a fipd of before, said more.
    let journal = home.path().join("journal");
    let more = format!(
        "{}3 | client-secret = \"{WRONG}\"\nsent to https://a:{WRONG}@hooks.example/{WRONG}?x={WRONG}\n",
        fipd.log()
    );
    std::fs::write(&journal, more).unwrap();
    let programs = home.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    let journalctl = programs.join("journalctl");
    let script = format!("#!/bin/sh\nexec /bin/cat '{}'\n", journal.display());
    std::fs::write(&journalctl, script).unwrap();
    std::fs::set_permissions(&journalctl, std::fs::Permissions::from_mode(0o755)).unwrap();
    let out = home.path().join("bundle.tar.gz");
    let made = run(program()
        .env("PATH", &programs)
        .arg("--socket")
        .arg(fipd.socket())
        .args(["support-bundle", "--file", out.to_str().unwrap()]));
    assert_eq!(made.code, 0, "{made:?}");
    let all = unpacked(&out);
    let log = &all["fipd-support/log.txt"];
    assert!(log.contains("the configuration stays as it was"), "{log}");
    assert!(
        log.contains("sent to https://hooks.example/(masked)"),
        "{log}"
    );
    for (name, text) in &all {
        assert!(!text.contains(WRONG), "{name}: {text}");
    }
}

#[test]
fn without_a_daemon_there_is_a_bundle_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("b.tar.gz");
    let made = run(program()
        .arg("--socket")
        .arg(dir.path().join("none"))
        .args(["support-bundle", "--file", out.to_str().unwrap()]));
    assert_eq!(made.code, 0, "{made:?}");
    assert!(
        made.out
            .contains("without pools.json: no fipd is listening"),
        "{made:?}"
    );
    let all = unpacked(&out);
    assert!(all.contains_key("fipd-support/pools.json.missing"));
    assert!(all.contains_key("fipd-support/versions.txt"));
}
