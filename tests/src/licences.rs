//! The list of packages and licences that the page about fipd shows: as Cargo says.
//!
//! `FIPD_WRITE_LICENCES=1 cargo test -p fipd-tests --lib licences` writes it anew.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const LIST: &str = "../web-ui/assets/licences.tsv";

/// One line a package: name, version, licence, where its source is.
fn packages() -> BTreeSet<String> {
    let arguments = [
        "tree",
        "--locked",
        "--package=fipd",
        "--package=fipd-cni",
        // Neither what tests need nor what only runs while fipd is built.
        "--edges=normal",
        "--target=x86_64-unknown-linux-gnu",
        "--target=aarch64-unknown-linux-gnu",
        "--prefix=none",
        "--format={p}|{l}|{r}",
    ];
    let tree = Command::new(env!("CARGO")).args(arguments).output();
    let tree = tree.expect("cargo starts");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let text = String::from_utf8(tree.stdout).expect("text");
    let line = |line: &str| {
        let fields: Vec<_> = line.trim_end_matches(" (*)").split('|').collect();
        let [package, licence, source] = fields[..] else {
            return None;
        };
        let mut words = package.split(' ');
        let name = words.next().filter(|name| !name.starts_with("fipd"))?;
        let version = words.next()?.trim_start_matches('v');
        assert!(!licence.is_empty(), "{name} names no licence");
        Some(format!("{name}\t{version}\t{licence}\t{source}\n"))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn the_list_of_licences_is_what_fipd_is_made_of() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(LIST);
    let now: String = packages().into_iter().collect();
    if std::env::var_os("FIPD_WRITE_LICENCES").is_some() {
        std::fs::write(&path, &now).expect("the list is written");
    }
    let list = std::fs::read_to_string(&path).expect("the list");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (listed, made) = (lines(&list), lines(&now));
    let missing: Vec<_> = made.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&made).collect();
    assert!(
        list == now,
        "web-ui/assets/licences.tsv is stale: missing {missing:?}, no longer there {gone:?}; write it anew with \
         FIPD_WRITE_LICENCES=1 cargo test -p fipd-tests --lib licences"
    );
}
