//! The paths in documents exist.

use std::fs;
use std::path::Path;

/// Ends of names that are files also where no folder is given.
const FILES: [&str; 4] = [".rs", ".toml", ".yaml", ".md"];

/// Texts in backticks outside of code blocks, by line.
fn quoted(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if !code {
            lines.push((line, line.split('`').skip(1).step_by(2).collect()));
        }
    }
    lines
}

/// Whether a text names a place in the tree. The first cells of the table of places do.
fn is_path(line: &str, text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let first = text.split('/').next().unwrap_or_default();
    let folder = text.contains('/') && !first.is_empty() && !first.contains('.');
    let cell = line
        .strip_prefix("| ")
        .and_then(|rest| rest.split(" |").next());
    let place = cell.is_some_and(|cell| quoted(cell)[0].1.contains(&text));
    let relative = !text.starts_with('/') && text.chars().all(plain);
    relative && (folder || place || FILES.iter().any(|end| text.ends_with(end)))
}

/// All files and folders below `folder`, with a slash before each name.
fn tree(folder: &Path, prefix: &str, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the tree") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        let path = format!("{prefix}/{name}");
        if entry.file_type().expect("a type").is_dir() {
            tree(&entry.path(), &path, into);
        }
        into.push(path);
    }
}

#[test]
fn paths_are_told_from_other_texts() {
    for path in ["daemon/src/ipam", "service/apply.rs", "crds.yaml"] {
        assert!(is_path("", path), "{path}");
    }
    let others = [
        "fipd.io/holder",
        "/etc/fipd/fipd.toml",
        "admin",
        "~/.cache/x",
        "fipd crds",
    ];
    for other in others {
        assert!(!is_path("", other), "{other}");
    }
    assert!(is_path("| `packaging`, `systemd` | units |", "systemd"));
    assert!(!is_path("| clusters | `listener` |", "listener"));
}

#[test]
fn every_path_in_a_document_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut documents = vec![
        root.join("README.md"),
        root.join("daemon/README.md"),
        root.join("tests/README.md"),
    ];
    for entry in fs::read_dir(root.join("packaging/docs")).expect("packaging/docs") {
        let path = entry.expect("a document").path();
        let generated = ["compat.md", "config.md", "rights.md"];
        if !generated.iter().any(|name| path.ends_with(name)) {
            documents.push(path);
        }
    }
    let mut all = Vec::new();
    tree(&root, "", &mut all);
    let mut seen = 0;
    for document in documents {
        let text = fs::read_to_string(&document).expect("a document");
        for (line, texts) in quoted(&text) {
            for path in texts.into_iter().filter(|text| is_path(line, text)) {
                let end = format!("/{}", path.trim_end_matches('/'));
                let exists = all.iter().any(|one| one.ends_with(&end));
                assert!(exists, "{}: {path} does not exist", document.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} paths were recognized");
}
