//! What `install` and `uninstall` change in a directory.

use std::hint::black_box;

use serde::Serialize;

use super::{
    folder::Folder,
    network::{self, NetworkFile},
    places::{NAMES, saved},
};
use crate::cli::exit::Failure;

const PROGRAM: u32 = 0o755;
const TEXT: u32 = 0o644;

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileChange {
    pub path: String,
    pub result: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

fn change(
    folder: &Folder,
    name: &str,
    result: &'static str,
    detail: impl Into<String>,
) -> FileChange {
    FileChange {
        path: folder.path(name).display().to_string(),
        result,
        detail: detail.into(),
    }
}

/// Whether a program is fipd's plugin, of whatever version.
pub fn is_plugin(bytes: &[u8]) -> bool {
    const ELF: &[u8] = b"\x7fELF";
    // This program is not to have the text itself.
    let mark = black_box(fipd_cni::MARK).to_ascii_lowercase();
    let mark = mark.as_bytes();
    bytes.starts_with(ELF) && bytes.windows(mark.len()).any(|part| part == mark)
}

/// Puts the plugin under both its names. One of another program is kept beside it, once.
pub fn install_plugin(folder: &Folder, plugin: &[u8]) -> Result<Vec<FileChange>, Failure> {
    // What is refused is refused before anything changes.
    let found: Vec<_> = NAMES
        .into_iter()
        .map(|name| Ok((name, folder.read(name)?, folder.read(&saved(name))?)))
        .collect::<Result<_, Failure>>()?;
    let mut changes = Vec::new();
    for (name, existing, kept) in found {
        let is_foreign = existing.as_ref().is_some_and(|one| !is_plugin(&one.bytes));
        let detail = match (is_foreign, kept) {
            (false, _) => String::new(),
            (true, Some(_)) => format!("another program's was there; {} stays", saved(name)),
            (true, None) => {
                folder.keep(name, &saved(name))?;
                format!("another program's is kept as {}", saved(name))
            }
        };
        let result = match &existing {
            Some(one) if folder.has(Some(one), plugin, PROGRAM) => "unchanged",
            Some(_) => "replaced",
            None => "installed",
        };
        if result != "unchanged" {
            folder.put(name, plugin, PROGRAM)?;
        }
        changes.push(change(folder, name, result, detail));
    }
    Ok(changes)
}

/// Writes the configuration of a network. One that `install` did not write is left alone.
pub fn install_network(folder: &Folder, file: &NetworkFile) -> Result<FileChange, Failure> {
    let existing = folder.read(&file.name)?;
    if let Some(existing) = &existing {
        let is_ours = network::found(&existing.bytes).is_some_and(|found| found.is_ours);
        if !is_ours {
            return Err(Failure::Failed(format!(
                "{} is there and not written by fipd cni install; move it away or choose another --network",
                folder.path(&file.name).display()
            )));
        }
    }
    let result = match &existing {
        Some(one) if folder.has(Some(one), file.text.as_bytes(), TEXT) => "unchanged",
        Some(_) => "replaced",
        None => "installed",
    };
    if result != "unchanged" {
        folder.put(&file.name, file.text.as_bytes(), TEXT)?;
    }
    let names = folder.names()?;
    let instead = network::used_instead(&file.name, &names);
    let detail = instead.map(|other| format!("runtimes use {other}, which comes first"));
    Ok(change(
        folder,
        &file.name,
        result,
        detail.unwrap_or_default(),
    ))
}

/// Removes the networks that `install` wrote, and names others that call fipd's plugin.
pub fn uninstall_networks(folder: &Folder) -> Result<Vec<FileChange>, Failure> {
    let mut changes = Vec::new();
    for name in folder.names()? {
        if !network::is_configuration(&name) {
            continue;
        }
        // What cannot be read is nobody's that is known here.
        let Ok(Some(existing)) = folder.read(&name) else {
            continue;
        };
        match network::found(&existing.bytes) {
            Some(found) if found.is_ours => {
                folder.remove(&name)?;
                changes.push(change(folder, &name, "removed", ""));
            }
            Some(_) => {
                let why = "it calls fipd's plugin, but fipd cni install did not write it";
                changes.push(change(folder, &name, "left", why));
            }
            None => {}
        }
    }
    Ok(changes)
}

/// Removes the plugin, and puts back what it had replaced.
pub fn uninstall_plugin(
    folder: &Folder,
    packaged: Option<&[u8]>,
) -> Result<Vec<FileChange>, Failure> {
    let mut changes = Vec::new();
    for name in NAMES {
        let (existing, kept) = (folder.read(name)?, folder.read(&saved(name))?.is_some());
        let is_ours = existing
            .as_ref()
            .is_some_and(|one| is_plugin(&one.bytes) || packaged == Some(&one.bytes));
        match (existing.is_some(), is_ours, kept) {
            (_, true, true) | (false, _, true) => {
                folder.replace(&saved(name), name)?;
                changes.push(change(
                    folder,
                    name,
                    "restored",
                    format!("from {}", saved(name)),
                ));
            }
            (_, true, false) => {
                folder.remove(name)?;
                changes.push(change(folder, name, "removed", ""));
            }
            (true, false, kept) => {
                changes.push(change(folder, name, "left", "it is not fipd's plugin"));
                if kept {
                    let why = format!("{name} is another program's already");
                    changes.push(change(folder, &saved(name), "left", why));
                }
            }
            (false, false, false) => {}
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::*;

    const FOREIGN: &[u8] = b"\x7fELF of the original";

    fn plugin(version: u8) -> Vec<u8> {
        let mark = fipd_cni::MARK.to_ascii_lowercase();
        [b"\x7fELF ", mark.as_bytes(), &[version]].concat()
    }

    fn scratch() -> (tempfile::TempDir, Folder) {
        let scratch = tempfile::tempdir().unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(scratch.path(), mode).unwrap();
        let owner = nix::unistd::geteuid().as_raw();
        let folder = Folder::open(scratch.path(), owner).unwrap();
        (scratch, folder)
    }

    fn results(changes: &[FileChange]) -> Vec<(&str, &str)> {
        let name = |path| Path::new(path).file_name().unwrap().to_str().unwrap();
        let results = changes.iter().map(|one| (name(&one.path), one.result));
        results.collect()
    }

    #[test]
    fn a_plugin_is_known_by_what_is_in_it() {
        assert!(is_plugin(&plugin(1)));
        assert!(!is_plugin(FOREIGN));
        let mark = fipd_cni::MARK.to_ascii_lowercase();
        assert!(!is_plugin(mark.as_bytes()), "a text");
        let other = [b"\x7fELF ", fipd_cni::SOCKET.as_bytes()].concat();
        assert!(!is_plugin(&other), "another program that asks fipd");
        assert!(!is_plugin(
            &[b"\x7fELF", fipd_cni::MARK.as_bytes()].concat()
        ));
        assert!(!is_plugin(b""));
    }

    #[test]
    fn an_original_is_kept_once_and_put_back() {
        let (scratch, folder) = scratch();
        let path = |name: &str| scratch.path().join(name);
        let read = |name: &str| fs::read(path(name)).unwrap();
        let [fipd, original] = NAMES;
        let kept = saved(original);
        fs::write(path(original), FOREIGN).unwrap();
        let changes = install_plugin(&folder, &plugin(1)).unwrap();
        assert_eq!(
            results(&changes),
            [(fipd, "installed"), (original, "replaced")]
        );
        assert_eq!((read(&kept), read(original)), (FOREIGN.to_vec(), plugin(1)));
        let again = install_plugin(&folder, &plugin(1)).unwrap();
        assert_eq!(
            results(&again),
            [(fipd, "unchanged"), (original, "unchanged")]
        );
        install_plugin(&folder, &plugin(2)).unwrap();
        assert_eq!(read(&kept), FOREIGN, "an older fipd is not kept");
        // The original's DaemonSet puts another one there.
        fs::write(path(original), b"\x7fELF newer").unwrap();
        let changes = install_plugin(&folder, &plugin(2)).unwrap();
        assert!(changes[1].detail.contains("stays"), "{changes:?}");
        assert_eq!(read(&kept), FOREIGN);

        let changes = uninstall_plugin(&folder, None).unwrap();
        assert_eq!(
            results(&changes),
            [(fipd, "removed"), (original, "restored")]
        );
        assert_eq!(read(original), FOREIGN);
        let changes = uninstall_plugin(&folder, None).unwrap();
        assert_eq!(results(&changes), [(original, "left")]);
        assert_eq!(folder.names().unwrap(), [original]);
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let (scratch, folder) = scratch();
        std::os::unix::fs::symlink("/bin/true", scratch.path().join(NAMES[1])).unwrap();
        assert!(install_plugin(&folder, &plugin(1)).is_err());
        assert_eq!(folder.names().unwrap(), [NAMES[1]]);
    }

    #[test]
    fn only_networks_of_install_are_changed() {
        let (scratch, folder) = scratch();
        let file = |pool: &str| NetworkFile {
            name: "10-lan.conflist".to_owned(),
            text: format!(
                r#"{{"fipd.io/written-by":"fipd cni install","plugins":[{{"type":"fipd-cni","ipam":{{"pools":["{pool}"]}}}}]}}"#
            ),
        };
        let mut seen = Vec::new();
        for pool in ["a", "a", "b"] {
            seen.push(install_network(&folder, &file(pool)).unwrap().result);
        }
        assert_eq!(seen, ["installed", "unchanged", "replaced"]);
        let path = scratch.path();
        for (name, text) in [
            ("05-own.conflist", r#"{"plugins":[{"type":"fipd-cni"}]}"#),
            ("00-multus.conf", r#"{"type":"multus"}"#),
        ] {
            fs::write(path.join(name), text).unwrap();
        }
        let change = install_network(&folder, &file("b")).unwrap();
        assert!(change.detail.contains("00-multus.conf"), "{change:?}");
        let taken = NetworkFile {
            name: "05-own.conflist".to_owned(),
            ..file("a")
        };
        let error = install_network(&folder, &taken).unwrap_err().to_string();
        assert!(error.contains("05-own.conflist"), "{error}");
        let changes = uninstall_networks(&folder).unwrap();
        assert_eq!(
            results(&changes),
            [("05-own.conflist", "left"), ("10-lan.conflist", "removed")]
        );
        assert_eq!(
            folder.names().unwrap(),
            ["00-multus.conf", "05-own.conflist"]
        );
    }
}
