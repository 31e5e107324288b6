//! What is there of the plugin.

use std::{
    io,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use fipd_cni::{VersionInfo, spool};
use serde::Serialize;
use tokio::process::Command;

use super::{
    change::is_plugin,
    folder::Folder,
    network,
    places::{NAMES, SPOOL, saved},
};
use crate::{
    child,
    cli::{
        exit::Failure,
        output::{Table, yes_or_no},
    },
};

/// How long a plugin may take to tell its versions.
const DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Default, Serialize)]
pub struct CniStatus {
    /// The packaged plugin; `None`: there is none on this host.
    pub packaged: Option<String>,
    pub plugins: Vec<PluginStatus>,
    pub networks: Vec<NetworkStatus>,
    pub socket: SocketStatus,
    pub spool: SpoolStatus,
    /// What could not be looked at.
    pub unseen: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct PluginStatus {
    pub path: String,
    pub state: PluginState,
    /// Of the CNI specification, as the plugin tells them.
    pub cni_versions: Vec<String>,
    /// Another program's that fipd's has replaced is kept beside it.
    pub saved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginState {
    Missing,
    /// The same as the packaged one.
    Packaged,
    /// fipd's, of another version.
    Differs,
    /// Another program's.
    Foreign,
}

#[derive(Debug, Serialize)]
pub struct NetworkStatus {
    pub path: String,
    pub network: String,
    /// By `fipd cni install`.
    pub installed: bool,
}

#[derive(Debug, Default, Serialize)]
pub struct SocketStatus {
    pub path: String,
    pub exists: bool,
}

#[derive(Debug, Default, Serialize)]
pub struct SpoolStatus {
    pub path: String,
    /// Deletes that the daemon has not done yet; `None`: it cannot be read.
    pub entries: Option<usize>,
}

impl PluginState {
    fn of(bytes: Option<&[u8]>, packaged: Option<&[u8]>) -> Self {
        match bytes {
            None => Self::Missing,
            Some(bytes) if packaged == Some(bytes) => Self::Packaged,
            Some(bytes) if is_plugin(bytes) => Self::Differs,
            Some(_) => Self::Foreign,
        }
    }

    fn says(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Packaged => "as packaged",
            Self::Differs => "fipd's, not as packaged",
            Self::Foreign => "not fipd's",
        }
    }
}

impl CniStatus {
    /// Of the daemon's socket and the spool.
    pub fn begin(packaged: Option<&Path>) -> Self {
        let mut status = Self {
            packaged: packaged.map(|path| path.display().to_string()),
            ..Self::default()
        };
        let socket = Path::new(fipd_cni::SOCKET);
        status.socket = SocketStatus {
            path: fipd_cni::SOCKET.to_owned(),
            exists: std::fs::symlink_metadata(socket).is_ok_and(|one| one.file_type().is_socket()),
        };
        let entries = spool::count(Path::new(SPOOL));
        status.spool = SpoolStatus {
            path: SPOOL.to_owned(),
            entries: entries.as_ref().ok().copied(),
        };
        status
            .unseen
            .extend(entries.err().map(|error| format!("{SPOOL}: {error}")));
        status
    }

    /// Looks at a directory of plugins.
    pub async fn look_at_plugins(&mut self, folder: &Folder, packaged: Option<&[u8]>) {
        for name in NAMES {
            let path = folder.path(name);
            match (folder.read(name), folder.read(&saved(name))) {
                (Ok(existing), Ok(kept)) => {
                    let bytes = existing.as_ref().map(|one| one.bytes.as_slice());
                    let cni_versions = match bytes {
                        None => Vec::new(),
                        Some(_) => self.versions(&path).await,
                    };
                    self.plugins.push(PluginStatus {
                        path: path.display().to_string(),
                        state: PluginState::of(bytes, packaged),
                        cni_versions,
                        saved: kept.is_some(),
                    });
                }
                (Err(error), _) | (_, Err(error)) => self.unseen.push(error.to_string()),
            }
        }
    }

    /// Looks at a directory of configurations.
    pub fn look_at_networks(&mut self, folder: &Folder) -> Result<(), Failure> {
        for name in folder.names()? {
            if !network::is_configuration(&name) {
                continue;
            }
            let found = folder
                .read(&name)
                .ok()
                .flatten()
                .and_then(|one| network::found(&one.bytes));
            self.networks.extend(found.map(|found| NetworkStatus {
                path: folder.path(&name).display().to_string(),
                network: found.name,
                installed: found.is_ours,
            }));
        }
        Ok(())
    }

    async fn versions(&mut self, plugin: &Path) -> Vec<String> {
        match ask(plugin).await {
            Ok(versions) => versions,
            Err(error) => {
                self.unseen.push(format!(
                    "{}: it does not tell its versions: {error}",
                    plugin.display()
                ));
                Vec::new()
            }
        }
    }

    pub fn table(&self) -> Table {
        let mut table = Table::new(["WHAT", "PATH", "STATE", "DETAIL"]);
        let mut row = |what: &str, path: &str, state: &str, detail: &str| {
            table.row([what, path, state, detail].map(str::to_owned));
        };
        for one in &self.plugins {
            let ends = one.cni_versions.first().zip(one.cni_versions.last());
            let mut details: Vec<String> = ends
                .map(|(oldest, newest)| format!("CNI {oldest} to {newest}"))
                .into_iter()
                .collect();
            if one.saved {
                details.push("another program's is kept beside it".to_owned());
            }
            row("plugin", &one.path, one.state.says(), &details.join(", "));
        }
        for one in &self.networks {
            let state = match one.installed {
                true => "written by fipd cni install",
                false => "not written by fipd cni install",
            };
            row("network", &one.path, state, &one.network);
        }
        let there = yes_or_no(self.socket.exists);
        row("daemon's socket", &self.socket.path, &there, "");
        let entries = self.spool.entries.map(|count| count.to_string());
        let entries = entries.as_deref().unwrap_or("unknown");
        row("spooled deletes", &self.spool.path, entries, "");
        let packaged = self.packaged.as_deref().unwrap_or("-");
        let state = match self.packaged.is_some() {
            true => "there",
            false => "missing",
        };
        row("package", packaged, state, "");
        for one in &self.unseen {
            row("unknown", "", "", one);
        }
        table
    }
}

/// The versions of the specification that a plugin knows, by `VERSION`.
async fn ask(plugin: &Path) -> io::Result<Vec<String>> {
    let mut command = Command::new(plugin);
    child::prepared(&mut command)
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let output = tokio::time::timeout(DEADLINE, command.output());
    let output = output.await.unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no answer within 5 s",
        ))
    })?;
    let info: VersionInfo = serde_json::from_slice(&output.stdout)
        .map_err(|_| io::Error::other("its answer is not that of a CNI plugin"))?;
    Ok(info.supported_versions)
}

/// The packaged plugin with its path.
pub fn packaged(candidates: &[&str]) -> Option<(PathBuf, Vec<u8>)> {
    candidates.iter().find_map(|path| {
        let bytes = crate::foreign_file::read_now(Path::new(path), super::LONGEST_PLUGIN).ok()?;
        Some((PathBuf::from(path), bytes))
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_plugin_is_compared_with_the_packaged_one() {
        let mark = fipd_cni::MARK.to_ascii_lowercase();
        let plugin = |end: &str| format!("\x7fELF{mark}{end}").into_bytes();
        let (new, old) = (plugin("2"), plugin("1"));
        let state = |bytes: Option<&[u8]>| PluginState::of(bytes, Some(&new));
        assert_eq!(state(None), PluginState::Missing);
        assert_eq!(state(Some(&new)), PluginState::Packaged);
        assert_eq!(state(Some(&old)), PluginState::Differs);
        assert_eq!(state(Some(b"\x7fELF")), PluginState::Foreign);
        assert_eq!(PluginState::of(Some(&new), None), PluginState::Differs);
    }

    #[tokio::test]
    async fn what_is_there_is_told_and_what_does_not_answer_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(scratch.path(), mode).unwrap();
        let answer = r#"echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.0","1.1.0"]}'"#;
        script(scratch.path(), NAMES[0], answer);
        script(scratch.path(), NAMES[1], "echo nonsense");
        script(scratch.path(), &saved(NAMES[1]), "");
        fs::write(
            scratch.path().join("10-lan.conflist"),
            r#"{"name":"lan","plugins":[{"type":"fipd-cni"}]}"#,
        )
        .unwrap();
        let owner = nix::unistd::geteuid().as_raw();
        let folder = Folder::open(scratch.path(), owner).unwrap();
        let mut status = CniStatus::default();
        status.look_at_plugins(&folder, None).await;
        status.look_at_networks(&folder).unwrap();
        assert_eq!(status.plugins[0].cni_versions, ["0.3.0", "1.1.0"]);
        assert!(status.plugins[1].cni_versions.is_empty() && status.plugins[1].saved);
        assert!(status.unseen[0].contains(NAMES[1]), "{:?}", status.unseen);
        assert_eq!(status.networks[0].network, "lan");
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["plugins"][0]["state"], "foreign");
    }
}
