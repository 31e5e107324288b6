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
    &["cni", "host", "metrics", "system"],
    &["adopt", "controller", "detach", "guests", "migrate"],
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
const NAMED: [(&str, &[&str], usize); 3] = [
    (
        "rancher-fip",
        &["rancher_fip", "rancher-fip", "RancherFip", "RANCHER_FIP"],
        8,
    ),
    (
        "kube-fip",
        &["kube_fip", "kube-fip", "KubeFip", "KUBE_FIP"],
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
                let path = path.strip_prefix(&root).unwrap().to_owned();
                found.insert(path, without_tests(&text));
            }
        }
    }
    found
}

/// A source without its inline test modules, which end with the first brace that is not indented.
fn without_tests(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut code = String::new();
    while let Some(line) = lines.next() {
        let next = lines.peek().copied().unwrap_or_default();
        if line == "#[cfg(test)]" && next.contains("mod ") && next.ends_with('{') {
            let _ = lines.find(|line| *line == "}");
        } else {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
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
fn only_modules_of_tests_are_left_out() {
    let text =
        "#[cfg(test)]\nmod tests;\nuse a;\n#[cfg(test)]\nmod tests {\n    use b;\n}\nuse c;\n";
    let code = without_tests(text);
    assert_eq!(code, "#[cfg(test)]\nmod tests;\nuse a;\nuse c;\n");
}

#[test]
fn imports_are_read_from_trees_and_paths() {
    let code =
        "use crate::{a::{b, c}, d};\n// crate::e::f\nuse crate::g::h;\nfn x() { crate::i::j() }";
    let found: Vec<String> = imports(code).into_iter().collect();
    assert_eq!(found, ["a", "d", "g", "i"]);
}

/// Which folders each folder imports from, and by which of its files. Those of the crate of the store are imported as if they were
/// here.
fn folders() -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let sources = ["src", "store/src"].map(sources);
    let sources: Vec<_> = sources.iter().flatten().collect();
    let all: BTreeSet<String> = sources.iter().map(|(path, _)| folder(path)).collect();
    let mut folders: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (path, code) in sources {
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

/// What is exported of the folders of core is imported by nothing beside them, but for the decisions that make use of all.
#[test]
fn values_of_core_import_from_no_folder_of_it() {
    /// It decides by the ledger, which makes no use of it.
    const ABOVE: &str = "sighting.rs";
    let sources = sources("core/src");
    let of_folders = sources
        .iter()
        .filter(|(path, _)| path.components().count() > 1);
    for (path, code) in of_folders {
        assert!(
            !code.contains("sighting::"),
            "{} uses {ABOVE}",
            path.display()
        );
    }
    let lib = sources.get(Path::new("lib.rs")).unwrap();
    for folder in ["ledger", "host", "layout"] {
        let exports = format!("pub use {folder}::");
        let exported = lib.split(&exports).skip(1);
        let exported = exported.filter_map(|text| text.split(';').next());
        let words = |text: &str| -> BTreeSet<String> {
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.map(str::to_owned).collect()
        };
        let mut exported: BTreeSet<String> = exported.flat_map(&words).collect();
        exported.retain(|word| word.starts_with(char::is_uppercase));
        for (path, code) in &sources {
            let beside = path.components().count() == 1;
            let above = [Path::new("lib.rs"), Path::new(ABOVE)].contains(&&**path);
            if !beside || above || path == Path::new(&format!("{folder}.rs")) {
                continue;
            }
            let lines = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            let used: BTreeSet<String> = lines.flat_map(&words).collect();
            let wrong: Vec<_> = used.intersection(&exported).collect();
            assert!(
                wrong.is_empty(),
                "{} uses {wrong:?} of {folder}",
                path.display()
            );
        }
    }
}

/// Each kind that runs on the machine is in a conformance test.
#[test]
fn every_kind_is_tested_for_conformance() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/systems");
    let (mut tests, mut folders) = (String::new(), vec![root]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("conformance_tests.rs") {
                tests.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut kinds = 0;
    for code in sources("src").values() {
        for machine in ["AddressUser for ", "PoolSource for "] {
            for kind in code.split(machine).skip(1) {
                let kind = kind.split([' ', '<']).next().unwrap();
                assert!(tests.contains(kind), "no test of conformance has {kind}");
                kinds += 1;
            }
        }
    }
    assert!(kinds >= 4, "{kinds} kinds");
}

#[test]
fn a_system_is_named_in_its_own_folders() {
    for (system, words, most) in NAMED {
        let folder = format!("systems/{}/", system.replace('-', "_"));
        let mut named = Vec::new();
        for root in ["src", "core/src", "store/src"] {
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
