//! Imports go one way, and what is a system's stays in its folder. Reads the sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A folder imports from those of its own layer and of layers below. What is in none is used by all.
const LAYERS: [&[&str]; 9] = [
    &["cli"],
    &["app"],
    &["api", "settings", "systems"],
    &["host", "metrics", "system"],
    &["adopt", "controller", "detach", "guests"],
    &["clusters"],
    &["admission", "backups", "helm", "rules", "webhooks"],
    &["config", "ipam", "validation"],
    &["store"],
];

/// What a folder must not import from all the same.
const NEVER: [(&str, &[&str]); 2] = [
    ("api", &["controller", "host", "systems"]),
    ("host", &["clusters", "controller"]),
];

/// Imports without which there would be no circle. None may come, and what is undone goes from here.
const CIRCLES: [(&str, &str); 0] = [];

/// How many files outside its own folders may name a system.
const NAMED: [(&str, &[&str], usize); 2] = [
    (
        "rancher-fip",
        &["rancher_fip", "rancher-fip", "RancherFip", "RANCHER_FIP"],
        8,
    ),
    ("ip-rule", &["ip_rule", "ip-rule", "IpRule", "IP_RULE"], 3),
];

/// The sources of a crate without tests, by their path from its `src`.
fn sources(of: &str) -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(of);
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let test = ["tests", "tests.rs", "testing.rs", "sample.rs", "fuzz.rs"];
            if test.contains(&&*name) || name.ends_with("_tests.rs") || name.contains("conformance")
            {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let path = path.strip_prefix(&root).unwrap().to_owned();
                found.insert(path, code.to_owned());
            }
        }
    }
    found
}

/// The folder, or the file that is one of its own, in which a source is.
fn folder(path: &Path) -> String {
    let first = path.iter().next().unwrap_or_default().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// What a source imports from this crate: the folders of `use crate::...` and of `crate::...` elsewhere.
fn imports(code: &str) -> BTreeSet<String> {
    let lines = code.lines().map(str::trim_start);
    let code: String = lines
        .filter(|line| !line.starts_with("//"))
        .collect::<Vec<_>>()
        .join(" ");
    let mut found = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        let word = |text: &str| -> String {
            let end = |c: char| !c.is_alphanumeric() && c != '_';
            text.split(end).next().unwrap_or_default().to_owned()
        };
        let Some(tree) = part.strip_prefix('{') else {
            found.insert(word(part));
            continue;
        };
        let mut depth = 0;
        let mut begins = true;
        for (at, c) in tree.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && c.is_alphanumeric() => {
                    found.insert(word(tree.get(at..).unwrap_or_default()));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn imports_are_read_from_trees_and_paths() {
    let code =
        "use crate::{a::{b, c}, d};\n// crate::e::f\nuse crate::g::h;\nfn x() { crate::i::j() }";
    let found: Vec<String> = imports(code).into_iter().collect();
    assert_eq!(found, ["a", "d", "g", "i"]);
}

/// Which folders each folder imports from, and by which of its files.
fn folders() -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let sources = sources("src");
    let all: BTreeSet<String> = sources.keys().map(|path| folder(path)).collect();
    let mut folders: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (path, code) in &sources {
        let own = folder(path);
        let others = imports(code).into_iter();
        for other in others.filter(|one| *one != own && all.contains(one)) {
            let files = folders.entry(own.clone()).or_default().entry(other);
            files.or_default().push(path.display().to_string());
        }
    }
    folders
}

#[test]
fn nothing_imports_from_above_it() {
    let layer = |folder: &str| LAYERS.iter().position(|layer| layer.contains(&folder));
    let never: BTreeMap<&str, &[&str]> = NEVER.into_iter().collect();
    let mut wrong = Vec::new();
    for (own, others) in folders() {
        for (other, files) in others {
            let above = layer(&own).zip(layer(&other));
            let above = above.is_some_and(|(own, other)| other < own);
            let never = never.get(&*own).is_some_and(|all| all.contains(&&*other));
            let known = CIRCLES.contains(&(&own, &other));
            if (above || never) && !known {
                wrong.push(format!("{own} imports from {other}: {}", files.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn folders_import_from_each_other_in_no_circle() {
    let mut folders = folders();
    for (own, other) in CIRCLES {
        let import = folders.get_mut(own).and_then(|others| others.remove(other));
        assert!(
            import.is_some(),
            "{own} does not import from {other} any more"
        );
    }
    // What imports from nothing that is left is in no circle.
    loop {
        let left: BTreeSet<String> = folders.keys().cloned().collect();
        for others in folders.values_mut() {
            others.retain(|other, _| left.contains(other));
        }
        folders.retain(|_, others| !others.is_empty());
        if folders.len() == left.len() {
            break;
        }
    }
    assert!(folders.is_empty(), "{folders:#?}");
}

#[test]
fn a_system_is_named_in_its_own_folders() {
    for (system, words, most) in NAMED {
        let folder = format!("systems/{}/", system.replace('-', "_"));
        let mut named = Vec::new();
        for root in ["src", "core/src"] {
            for (path, code) in sources(root) {
                let shown = path.display().to_string();
                let own = shown.starts_with(&folder) || shown == "systems/mod.rs";
                if !own && words.iter().any(|word| code.contains(word)) {
                    named.push(shown);
                }
            }
        }
        assert!(
            named.len() <= most,
            "{system} is named in {} files outside {folder}, at most {most}: {named:#?}",
            named.len()
        );
    }
}
