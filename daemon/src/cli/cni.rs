//! `fipd cni`: the CNI plugin on this host, and the configuration of networks without Multus.

mod change;
mod folder;
mod network;
mod places;
mod status;

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};

use super::{CliSession, exit::Failure, output::Table, shown};
use crate::foreign_file;
use change::FileChange;
use folder::Folder;
use network::NetworkArgs;
use places::{PACKAGED, Runtime};
use status::CniStatus;

/// The longest plugin that is installed, in bytes: a debug build has some 20 MB.
const LONGEST_PLUGIN: u64 = 128 << 20;
const ROOT: u32 = 0;

#[derive(Debug, Subcommand)]
pub enum Cni {
    /// Put the plugin where the container runtime looks for it, and configure a network if one is named
    #[command(long_about = INSTALL_LONG_ABOUT)]
    Install(Box<Install>),
    /// Remove the plugin and the networks that install put there
    #[command(long_about = UNINSTALL_LONG_ABOUT)]
    Uninstall(DirArgs),
    /// Show which plugin is where, the daemon's socket and the deletes that wait for it
    Status(DirArgs),
}

const INSTALL_LONG_ABOUT: &str = "\
Put the plugin where the container runtime looks for it, as fipd-cni and as rancher-flat-network-cni, the name in
rancher-flat-network's configuration. A plugin of another program that has such a name is kept beside it, with the end
.fipd-saved. Beside Multus nothing else is needed. With --network the configuration of a network is written as well, for a
host without Multus.

Each file is replaced at once, so that a runtime never finds half of one, and keeps its SELinux label. Run it again after an
upgrade of the package. Only root may run it.";

const UNINSTALL_LONG_ABOUT: &str = "\
Remove the plugin and the networks that install put there. A plugin that install had replaced is put back; what is not fipd's is
left and named. First move away or delete the containers with interfaces of fipd: their deletion needs the plugin. Only root may
run it.";

#[derive(Debug, Args)]
pub struct Install {
    /// The plugin to install; left out: that of the package
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    #[command(flatten)]
    dirs: DirArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

#[derive(Debug, Args)]
pub struct DirArgs {
    /// Directory of plugins; left out: /var/lib/rancher/k3s/data/cni with K3s, /opt/cni/bin with RKE2 and everything else
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Directory of configurations; left out: /var/lib/rancher/k3s/agent/etc/cni/net.d with K3s, else /etc/cni/net.d
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,
}

impl Cni {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let changes = match self {
            Self::Install(command) => {
                require_root("install")?;
                command.run()?
            }
            Self::Uninstall(dirs) => {
                require_root("uninstall")?;
                dirs.uninstall()?
            }
            Self::Status(dirs) => {
                let status = dirs.status().await;
                return session.output.show(&status, CniStatus::table);
            }
        };
        session
            .output
            .show(&changes, |changes| table(changes.as_slice()))
    }
}

fn table(changes: &[FileChange]) -> Table {
    let row = |one: &FileChange| [one.path.clone(), one.result.to_owned(), one.detail.clone()];
    Table::of(["PATH", "RESULT", "DETAIL"], changes.iter().map(row))
}

fn require_root(command: &str) -> Result<(), Failure> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "only root may run fipd cni {command}: runtimes run the plugin as root"
        ))),
    }
}

impl Install {
    fn run(&self) -> Result<Vec<FileChange>, Failure> {
        let network = self.network.file().map_err(Failure::Input)?;
        let plugin = self.plugin()?;
        let runtime = runtimes().next();
        // All directories are looked at before the first one changes.
        let bin = self.dirs.bin_dir.as_deref();
        let bin = to_change(bin, runtime.map(|one| one.bin_dir))?;
        let conf = match &network {
            Some(_) => {
                let conf = self.dirs.conf_dir.as_deref();
                Some(to_change(conf, runtime.map(|one| one.conf_dir))?)
            }
            None => None,
        };
        let mut changes = change::install_plugin(&bin, &plugin)?;
        // Runtimes read it at once, and need the plugin from then on.
        if let Some((folder, file)) = conf.as_ref().zip(network.as_ref()) {
            changes.push(change::install_network(folder, file)?);
        }
        Ok(changes)
    }

    fn plugin(&self) -> Result<Vec<u8>, Failure> {
        let Some(file) = &self.binary else {
            let packaged = status::packaged(&PACKAGED).map(|(_, bytes)| bytes);
            let none = || {
                format!(
                    "there is no plugin at {}; install the package, or name one with --binary",
                    PACKAGED.join(" or ")
                )
            };
            return packaged.ok_or_else(|| Failure::NotFound(none()));
        };
        let failed = |error: io::Error| {
            let line = format!("{}: {error}", shown(file));
            match error.kind() == io::ErrorKind::NotFound {
                true => Failure::NotFound(line),
                false => Failure::Input(line),
            }
        };
        let bytes = foreign_file::read_now(file, LONGEST_PLUGIN).map_err(failed)?;
        match change::is_plugin(&bytes) {
            true => Ok(bytes),
            false => Err(Failure::Input(format!(
                "{} is not fipd's CNI plugin",
                shown(file)
            ))),
        }
    }
}

impl DirArgs {
    fn uninstall(&self) -> Result<Vec<FileChange>, Failure> {
        let packaged = status::packaged(&PACKAGED).map(|(_, bytes)| bytes);
        let open = |folders: Vec<PathBuf>| -> Result<Vec<Folder>, Failure> {
            let folders = folders.iter().map(|path| {
                let folder = Folder::open(path, ROOT)?;
                not_packaged(path)?;
                folder.lock()?;
                Ok(folder)
            });
            folders.collect()
        };
        let conf = open(self.existing(self.conf_dir.as_deref(), |one| one.conf_dir))?;
        let bin = open(self.existing(self.bin_dir.as_deref(), |one| one.bin_dir))?;
        let mut changes = Vec::new();
        // Without the plugin a configuration that names it serves no container.
        for folder in &conf {
            changes.extend(change::uninstall_networks(folder)?);
        }
        for folder in &bin {
            changes.extend(change::uninstall_plugin(folder, packaged.as_deref())?);
        }
        Ok(changes)
    }

    async fn status(&self) -> CniStatus {
        let (path, packaged) = status::packaged(&PACKAGED).unzip();
        let mut status = CniStatus::begin(path.as_deref());
        for path in self.existing(self.bin_dir.as_deref(), |one| one.bin_dir) {
            match Folder::open(&path, ROOT) {
                Ok(folder) => status.look_at_plugins(&folder, packaged.as_deref()).await,
                Err(error) => status.unseen.push(error.to_string()),
            }
        }
        for path in self.existing(self.conf_dir.as_deref(), |one| one.conf_dir) {
            let looked =
                Folder::open(&path, ROOT).and_then(|folder| status.look_at_networks(&folder));
            status
                .unseen
                .extend(looked.err().map(|error| error.to_string()));
        }
        status
    }

    /// The directory that is named, or those of the runtimes that are there. Where only the other one is named, none.
    fn existing(&self, named: Option<&Path>, of: impl Fn(Runtime) -> &'static str) -> Vec<PathBuf> {
        match (named, self.bin_dir.is_some() || self.conf_dir.is_some()) {
            (Some(path), _) => vec![path.to_owned()],
            (None, true) => Vec::new(),
            (None, false) => {
                let all = runtimes().map(|runtime| PathBuf::from(of(runtime)));
                all.filter(|path| path.exists()).collect()
            }
        }
    }
}

fn runtimes() -> impl Iterator<Item = Runtime> {
    places::runtimes(Path::is_dir)
}

/// The directory that is named, which has to be there, or the usual one, which is made.
fn to_change(named: Option<&Path>, usual: Option<&str>) -> Result<Folder, Failure> {
    let path = match (named, usual) {
        (Some(path), _) => path,
        (None, usual) => {
            let path = Path::new(usual.unwrap_or_default());
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o755).create(path);
            made.map_err(|error| Failure::Failed(format!("{}: {error}", shown(path))))?;
            path
        }
    };
    let folder = Folder::open(path, ROOT)?;
    not_packaged(path)?;
    folder.lock()?;
    Ok(folder)
}

/// The package's own plugin is the package manager's to change.
fn not_packaged(path: &Path) -> Result<(), Failure> {
    let whole = std::fs::canonicalize(path).unwrap_or_default();
    let mut packaged = PACKAGED.iter().filter_map(|file| Path::new(file).parent());
    match packaged.any(|folder| folder == whole) {
        true => Err(Failure::Input(format!(
            "{} is the package's own directory; name another",
            shown(path)
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_is_none_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("plugin");
        let install = |binary: &Path| Install {
            binary: Some(binary.to_owned()),
            dirs: DirArgs {
                bin_dir: None,
                conf_dir: None,
            },
            network: NetworkArgs::default(),
        };
        assert_eq!(install(&file).plugin().unwrap_err().code(), 3);
        std::fs::write(&file, "#!/bin/sh").unwrap();
        let error = install(&file).plugin().unwrap_err();
        assert_eq!(error.code(), 2);
        assert!(error.to_string().contains("not fipd's CNI plugin"));
        assert_eq!(install(scratch.path()).plugin().unwrap_err().code(), 2);
    }

    #[test]
    fn where_one_directory_is_named_only_that_is_looked_at() {
        let dirs = |bin: Option<&str>| DirArgs {
            bin_dir: bin.map(PathBuf::from),
            conf_dir: None,
        };
        let named = dirs(Some("/srv/cni"));
        let bin = named.existing(named.bin_dir.as_deref(), |one| one.bin_dir);
        assert_eq!(bin, [PathBuf::from("/srv/cni")]);
        assert!(named.existing(None, |one| one.conf_dir).is_empty());
    }

    #[test]
    fn the_directory_of_the_package_is_left_to_it() {
        assert!(not_packaged(Path::new("/opt/cni/bin")).is_ok());
        let own = Path::new("/usr/lib/cni");
        let told = not_packaged(own);
        assert_eq!(told.is_err(), own.exists());
    }
}
