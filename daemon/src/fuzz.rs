//! Every parser of what comes from outside, to be fed with any bytes: it may refuse them, and must not panic.
//!
//! The tests below feed each from a stored corpus and from what a few bytes' change makes of it; `tests/fuzz` has a target of
//! `cargo fuzz` for each. Only in builds for that.
#![allow(clippy::unwrap_used, reason = "what fails here is a finding")]

mod http;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fipd_core::{ClusterId, Ledger, Op, Pool, PoolId, Tenant, Timestamp};
use fipd_crds::{fipd_io, kube_fip};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use crate::{
    admission::review::{Question, Verdict},
    api::{fip_v1, listen::tls, page, rest::import, ui},
    clusters::kubeconfig,
    config::{self, Config},
    controller::merge_patch::testing::merged,
    helm, host, migrate, oidc,
    system::System,
    systems::{
        self, SYSTEMS,
        claims::{claim, pool},
        cluster_api,
        kube_fip::{
            floating_ip, guest, range,
            settings::{KubeFipSettings, RangeArithmetic},
        },
    },
    validation::{flat_network, mirror::MirrorOf},
};

/// A parser and what is asserted of its answer.
pub struct Body {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

/// All of them. Each has a folder of its name in `daemon/tests/fixtures/fuzz`, and a file in `tests/fuzz/fuzz_targets`.
pub const BODIES: [Body; 25] = [
    body("admission", admission),
    body("certificate", certificate),
    body("claims", claims),
    body("cluster_api", cluster_api::fuzz::objects),
    body("cluster_api_hooks", cluster_api::fuzz::hooks),
    body("cni", cni),
    body("cni_environment", cni_environment),
    body("cni_spool", cni_spool),
    body("config", config_text),
    body("csv", |bytes| rows(bytes, true)),
    body("cursor", cursor),
    body("fip_v1", fip_v1_body),
    body("flat_network_pods", flat_network::fuzz::pods),
    body("flat_network_subnets", flat_network::fuzz::subnets),
    body("form", form),
    body("helm_release", helm_release),
    body("http", http::request),
    body("id_token", |bytes| oidc::fuzz(&provider(), bytes)),
    body("json_lines", |bytes| rows(bytes, false)),
    body("kernel_rule", host::fuzz),
    body("kube_fip", kube_fip),
    body("kube_fip_maps", kube_fip_maps),
    body("kubeconfig", kubeconfig_text),
    body("migration", migrate::fuzz::run),
    body("nft", nft),
];

const fn body(name: &'static str, run: fn(&[u8])) -> Body {
    Body { name, run }
}

/// Feeds the parser of that name. One that is not there is a mistake of the target.
pub fn run(name: &str, bytes: &[u8]) {
    let body = BODIES.iter().find(|body| body.name == name);
    (body.unwrap().run)(bytes);
}

/// A certificate, as PEM or bare.
fn certificate(bytes: &[u8]) {
    let text = STANDARD.encode(bytes);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let _ = (tls::ends(bytes), tls::ends(pem.as_bytes()));
}

/// Pools and claims of fipd's own kinds, as anybody writes them.
fn claims(bytes: &[u8]) {
    let (cluster, ledger) = (ClusterId("c".into()), Ledger::new());
    if let Ok(object) = serde_json::from_slice::<fipd_io::Pool>(bytes) {
        let object = pool::observe::view(object);
        let mirror = MirrorOf {
            cluster: &cluster,
            cluster_name: "east",
            object: "lab",
            uid: &object.meta.uid,
        };
        if let Ok(spec) = pool::validate::spec(&mirror, &object.spec) {
            let _ = ledger.preview_pool(None, &spec);
        }
    }
    if let Ok(object) = serde_json::from_slice::<fipd_io::AddressClaim>(bytes) {
        let object = claim::observe::ClaimView::of(object);
        let settings = systems::claims::settings::ClaimsSettings::default();
        let place = claim::pools::ClaimPlace {
            cluster: &cluster,
            namespace: "ns",
            settings: &settings,
        };
        let wish = claim::pools::wish(&ledger, &place, &object.spec);
        let _ = (object.recorded(), wish);
    }
}

/// Ranges and FloatingIPs of guest clusters, as anybody writes them: what is no range says which field is wrong.
fn kube_fip(bytes: &[u8]) {
    let (cluster, mut ledger) = (ClusterId("c".into()), Ledger::new());
    if let Ok(object) = serde_json::from_slice::<kube_fip::FloatingIPRange>(bytes) {
        let object = range::view(object);
        let mirror = MirrorOf {
            cluster: &cluster,
            cluster_name: "rancher",
            object: "net",
            uid: "u",
        };
        for arithmetic in RangeArithmetic::ALL {
            match range::spec(&mirror, &object.spec, arithmetic) {
                Ok(spec) => {
                    for one in &spec.addresses {
                        assert_eq!(one.to_string().parse().as_ref(), Ok(one));
                    }
                    let alone = Ledger::new();
                    assert!(alone.preview_pool(None, &spec).is_ok(), "{spec:?}");
                    ledger.apply(&Op::PutPool(Arc::new(Pool {
                        id: PoolId(1),
                        spec,
                        created: Timestamp(0),
                        generation: 1,
                    })));
                }
                Err(why) => assert!(!why.is_empty(), "refused without a word"),
            }
        }
    }
    if let Ok(object) = serde_json::from_slice::<kube_fip::GuestFloatingIP>(bytes) {
        let own = "kube-fip/c/FloatingIP/c-m-1/fip".parse().unwrap();
        let fip = floating_ip::view(object);
        let wish = floating_ip::wish::wish(&ledger, &own, Tenant("t".into()), &fip);
        let why = wish.err().map(|problem| problem.message);
        assert_ne!(why.as_deref(), Some(""), "refused without a word");
    }
}

/// The two ConfigMaps of guest clusters, and what helm keeps there: what of the settings is used is used again, and what is written over the addresses of
/// somebody else needs no second write.
fn kube_fip_maps(bytes: &[u8]) {
    let _ = guest::harvester_kube_vip::by_chart(&String::from_utf8_lossy(bytes));
    if let Ok(secret) = serde_json::from_slice(bytes) {
        let _ = helm::manifest(&secret);
    }
    let Ok(map) = serde_json::from_slice::<ConfigMap>(bytes) else {
        return;
    };
    let key = |key: &str| {
        key.chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let data = map.data.clone().unwrap_or_default();
    if !data.keys().all(|name| key(name)) {
        // No API server stores it.
        return;
    }
    let given = KubeFipSettings::default();
    let (good, refused) = guest::config::usable(&data, &BTreeMap::new(), &given);
    assert!(refused.iter().all(|why| !why.is_empty()));
    let again = guest::config::usable(&good, &BTreeMap::new(), &given);
    assert_eq!(again, (good.clone(), Vec::new()));
    let config = guest::config::GuestConfig::new(&good, &given);
    assert!((10..=86_400).contains(&config.interval.as_secs()));
    for release in &config.releases {
        let _ = release.parse();
    }
    let whole = serde_json::to_value(&map).unwrap();
    for wanted in [data, BTreeMap::new()] {
        let Some(change) = guest::address_map::change(&map, &wanted) else {
            continue;
        };
        let after = serde_json::from_value(merged(&whole, &change)).unwrap();
        assert_eq!(guest::address_map::change(&after, &wanted), None);
    }
}

fn config_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(why) = Config::read(*SYSTEMS, &text, Path::new("/etc/fipd")) {
        assert!(why.contains("line"), "no place in {why:?}");
    }
}

fn kubeconfig_text(bytes: &[u8]) {
    kubeconfig::fuzz(&String::from_utf8_lossy(bytes));
}

/// Rows of an import, and what would become of each.
fn rows(bytes: &[u8], csv: bool) {
    let Ok(rows) = import::table::rows(bytes, csv) else {
        return;
    };
    let ledger = Ledger::new();
    let fine: Vec<_> = rows
        .take(Ledger::SCAN)
        .filter_map(|row| import::parse::row(&ledger, &row.value.ok()?).ok())
        .collect();
    let mut trial = fipd_core::Trial::new(&"fuzz".into(), false, Timestamp(1));
    let fates = trial.rows(&ledger, &fine);
    assert_eq!(fates.len(), fine.len());
}

fn fip_v1_body(bytes: &[u8]) {
    if let Ok(fields) = fip_v1::body::Fields::read(bytes) {
        let _ = (fields.wish(), fields.fip_release(), fields.deleted());
    }
    let text = String::from_utf8_lossy(bytes);
    let none: [Arc<ring::signature::RsaKeyPair>; 0] = [];
    assert_eq!(fip_v1::jwt::verify(&text, &none, Timestamp(1)), None);
}

fn admission(bytes: &[u8]) {
    for verdict in verdicts(systems::ALL, bytes) {
        let why = verdict.denied.map(|denial| denial.message);
        assert_ne!(why.as_deref(), Some(""), "refused without a word");
    }
}

/// What each system says of its kinds.
pub fn verdicts(systems: &[&dyn System], bytes: &[u8]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (asks, system) in systems.iter().filter_map(|one| Some((one.asks()?, one))) {
        let judge = system.fuzz().unwrap();
        for kind in asks.kinds {
            if let Ok(question) = Question::read(bytes, kind) {
                verdicts.push(judge(kind, &question));
            }
        }
    }
    verdicts
}

const VERBS: [fipd_cni::Verb; 5] = [
    fipd_cni::Verb::Add,
    fipd_cni::Verb::Del,
    fipd_cni::Verb::Check,
    fipd_cni::Verb::Gc,
    fipd_cni::Verb::Status,
];

/// What a runtime has on standard input: a configuration, and in it the result of `ADD`.
fn cni(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for verb in VERBS {
        match fipd_cni::NetConf::parse(&text, verb) {
            Err(error) => assert!(error.code > 0 && !error.msg.is_empty()),
            Ok(conf) => {
                let _ = (conf.valid(), conf.wanted(Some(&text)));
                if let Some(Ok(result)) = conf
                    .prev_result
                    .as_ref()
                    .map(fipd_cni::result::AddResult::read)
                {
                    let _ = result.write(&conf.cni_version);
                }
            }
        }
    }
}

/// `CNI_CONTAINERID`, `CNI_NETNS`, `CNI_IFNAME` and `CNI_ARGS`, a line each.
fn cni_environment(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    let names = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"];
    for verb in VERBS {
        let read = fipd_cni::Environment::read(verb, |name| {
            let at = names.iter().position(|one| *one == name);
            let line = at.and_then(|at| lines.get(at));
            line.map(ToString::to_string).unwrap_or_default()
        });
        if let Err(error) = read {
            assert!(error.code == 4 && !error.details.is_empty());
        }
    }
}

/// An entry of the spool, which is a question of a plugin.
fn cni_spool(bytes: &[u8]) {
    if let Ok(ask) = serde_json::from_slice::<fipd_cni::Ask>(bytes) {
        let _ = fipd_cni::NetConf::parse(ask.config.get(), ask.command);
        let again = serde_json::to_vec(&ask).unwrap();
        assert!(serde_json::from_slice::<fipd_cni::Ask>(&again).is_ok());
    }
}

fn cursor(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(key) = page::read::<fipd_core::LeaseKey>(&text) {
        assert!(text.len().is_multiple_of(2), "half a byte: {text}");
        let again = page::read::<fipd_core::LeaseKey>(&page::text(&key));
        assert_eq!(again.ok(), Some(key));
    }
}

fn form(bytes: &[u8]) {
    let fields = ui::fields::Fields::parse(bytes);
    let _ = (fields.get("csrf"), fields.raw("addresses"));
}

/// Helm's own record of a release.
fn helm_release(bytes: &[u8]) {
    if let Ok(secret) = serde_json::from_slice::<Value>(bytes) {
        let _ = (helm::Stored::read(&secret), helm::chart_name(&secret));
    }
}

/// A provider of sign-ins that nobody reaches.
fn provider() -> config::Oidc {
    let text = "issuer = \"http://127.0.0.1:1\"\nclient-id = \"fipd\"\nrole-claim = \"realm.roles\"\n[roles]\nadmin = [\"root\"]\n";
    toml::from_str(text).unwrap()
}

/// What the packet filter lists of fipd's table.
fn nft(bytes: &[u8]) {
    if let Ok(listed) = serde_json::from_slice::<Value>(bytes) {
        host::fuzz_nft(&listed);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::PathBuf};

    use super::*;
    use crate::api::{access::Access, rest::openapi, rights};

    /// What is made of each file, on top of the file itself.
    const CHANGES: usize = 200;

    fn corpus() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fuzz")
    }

    fn files(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let mut paths: Vec<_> = fs::read_dir(corpus().join(name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        let read = |path: PathBuf| (path.clone(), fs::read(path).unwrap());
        paths.into_iter().map(read).collect()
    }

    /// Xorshift, so that a finding is found again.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, most: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % most.max(1) as u64).unwrap()
        }
    }

    /// Cuts, doubles, changes or takes over a few bytes.
    fn changed(bytes: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=dice.below(4) {
            let at = dice.below(bytes.len() + 1);
            let end = at + dice.below(bytes.len() - at + 1).min(40);
            match dice.below(6) {
                0 => drop(bytes.drain(at..end)),
                1 => {
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                2 => bytes.truncate(end.max(1)),
                3 => {
                    let from = dice.below(other.len() + 1);
                    let to = from + dice.below(other.len() - from + 1).min(40);
                    bytes.splice(at..end, other[from..to].iter().copied());
                }
                _ => {
                    let odd = [0, 9, 10, b'"', b'-', b'0', b'9', b'{', b'[', 0x7f, 0xff];
                    bytes.insert(at, odd[dice.below(odd.len())]);
                }
            }
        }
        bytes
    }

    /// Feeds a body everything; what makes it panic is shown.
    fn feed(name: &str, changes: usize) {
        let files = files(name);
        assert!(files.len() > 1, "{name} has no corpus");
        let mut dice = Dice(0x0f1d_5eed);
        for (path, bytes) in &files {
            let mut inputs = vec![bytes.clone()];
            for _ in 0..changes {
                let (_, other) = &files[dice.below(files.len())];
                inputs.push(changed(bytes, other, &mut dice));
            }
            for input in inputs {
                let fed = std::panic::catch_unwind(|| run(name, &input));
                let (path, text) = (path.display(), String::from_utf8_lossy(&input));
                assert!(fed.is_ok(), "{name} panics at a change of {path}: {text:?}");
            }
        }
    }

    #[test]
    fn no_parser_panics_at_its_corpus_or_at_changes_of_it() {
        for body in BODIES.iter().filter(|body| body.name != "http") {
            feed(body.name, CHANGES);
        }
    }

    #[test]
    fn no_request_makes_a_handler_panic_or_is_refused_without_a_problem() {
        // Each is a decision on disk.
        feed("http", 20);
    }

    /// Whether requests to this path go to the route.
    fn is_of(path: &str, route: &str) -> bool {
        let (path, route) = (path.split('/'), route.split('/'));
        let same = |(part, of): (&str, &str)| of.starts_with('{') || part == of;
        path.clone().count() == route.clone().count() && path.zip(route).all(same)
    }

    #[test]
    fn each_route_that_takes_a_body_or_a_form_has_a_seed() {
        let seed = |(_, bytes): (PathBuf, Vec<u8>)| {
            let text = String::from_utf8(bytes).unwrap();
            let (method, place) = text.lines().next().unwrap().split_once(' ').unwrap();
            let path = place.split('?').next().unwrap();
            (method.to_owned(), path.to_owned())
        };
        let seeds: Vec<_> = files("http").into_iter().map(seed).collect();
        let bodies = openapi::documented(*SYSTEMS, |one| one.get("requestBody").is_some());
        let mut asked = 0;
        for right in rights::all(*SYSTEMS) {
            let takes = match right.access {
                Access::Api(_) | Access::Scoped(_) | Access::Pooled(_) => {
                    bodies.contains(&(right.method.to_owned(), right.path.clone()))
                }
                Access::Page(_) | Access::Open => right.method == "POST",
                // These have corpora of their own.
                Access::Own => false,
            };
            let (method, path) = (right.method, &right.path);
            let asks = |seed: &(String, String)| seed.0 == method && is_of(&seed.1, path);
            assert!(
                !takes || seeds.iter().any(asks),
                "no seed of {method} {path} in fuzz/http"
            );
            asked += usize::from(takes);
        }
        assert!(asked > 40, "{asked}");
    }

    #[test]
    fn each_body_has_a_corpus_and_a_target_of_cargo_fuzz() {
        let names = |path: &Path| -> BTreeSet<String> {
            let entries = fs::read_dir(path).unwrap();
            let name = |entry: std::io::Result<fs::DirEntry>| {
                let path = entry.unwrap().path();
                path.file_stem().unwrap().to_str().unwrap().to_owned()
            };
            entries.map(name).collect()
        };
        let bodies: BTreeSet<_> = BODIES.iter().map(|body| body.name.to_owned()).collect();
        assert_eq!(names(&corpus()), bodies);
        let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/fuzz_targets");
        assert_eq!(names(&targets), bodies);
        // Nothing but `cargo fuzz` compiles them.
        let manifest = fs::read_to_string(targets.join("../Cargo.toml")).unwrap();
        let manifest: toml::Table = toml::from_str(&manifest).unwrap();
        let built = |bin: &toml::Value| {
            let text = |key: &str| bin[key].as_str().unwrap().to_owned();
            (text("name"), text("path"))
        };
        let built = manifest["bin"].as_array().unwrap().iter().map(built);
        let file = |name: &String| (name.clone(), format!("fuzz_targets/{name}.rs"));
        let wanted: BTreeSet<_> = bodies.iter().map(file).collect();
        assert_eq!(built.collect::<BTreeSet<_>>(), wanted);
        for name in bodies {
            let text = fs::read_to_string(targets.join(format!("{name}.rs"))).unwrap();
            let call = format!("fuzz_target!(|bytes: &[u8]| fipd::fuzz::run(\"{name}\", bytes));");
            assert!(text.contains(&call), "{name}: {text}");
        }
    }
}
