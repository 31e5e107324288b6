//! fipd's packages, built as users build them but of the debug binary, so that no release build is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tokio::sync::OnceCell;

use super::directory::TestDirectory;
use super::fipd::fipd_binary;
use super::image::run;
use crate::runner::checkout;
use crate::toolchain::{cargo_tool, debian};

/// What only the newer version's configuration has.
pub const NEWS: &str = "# As of the newer version.";
/// The tree in `$0` without what was built of it, as `$1`, with a line `$2` at the end of the configuration.
const COPY: &str = "tar --create --exclude ./target --exclude ./.git --exclude testbed-go --directory \"$0\" . \
                    | tar --extract --directory \"$1\" && echo \"$2\" >>\"$1/packaging/fipd.example.toml\"";

/// The two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Deb,
    Rpm,
}

/// Both versions in both forms, in one folder. The newer one's example of the configuration has [`NEWS`] as well.
pub struct Packages {
    directory: TestDirectory,
}

impl Packages {
    /// Before all others.
    pub const OLDER: &str = "0.0.1";
    /// After all others.
    pub const NEWER: &str = "99.0.0";

    /// Built once per process, and kept for as long as it lives.
    pub async fn built() -> Result<&'static Self> {
        static BUILT: OnceCell<Packages> = OnceCell::const_new();
        BUILT.get_or_try_init(Self::build).await
    }

    async fn build() -> Result<Self> {
        tokio::task::spawn_blocking(|| debian::ensure(&["binutils", "git", "rpm"])).await??;
        let packages = Self {
            directory: TestDirectory::new()?,
        };
        let binaries = packages.folder().join("binaries");
        std::fs::create_dir(&binaries)?;
        let fipd = fipd_binary().await?;
        for name in ["fipd", "fipd-cni"] {
            let built = fipd.with_file_name(name);
            ensure!(
                built.exists(),
                "{} is not there: cargo build --workspace --bin fipd --bin fipd-cni",
                built.display()
            );
            // A debug build is mostly what only debuggers read.
            let mut strip = Command::new("strip");
            strip.arg("-o").arg(binaries.join(name)).arg(built);
            run(strip).await?;
        }
        let newer = packages.folder().join("tree");
        std::fs::create_dir(&newer)?;
        let mut copy = Command::new("sh");
        copy.args(["-ec", COPY])
            .arg(checkout())
            .arg(&newer)
            .arg(NEWS);
        run(copy).await?;
        for (version, tree) in [(Self::OLDER, checkout()), (Self::NEWER, newer.as_path())] {
            let mut build = packaging(tree).await?;
            build.args(["--fast", "--version", version]);
            build.arg("--binaries").arg(&binaries);
            build.arg("--out").arg(packages.folder());
            // A copy has no commit to be dated by.
            build.env("SOURCE_DATE_EPOCH", "1767225600");
            run(build).await?;
        }
        Ok(packages)
    }

    pub fn folder(&self) -> &Path {
        self.directory.path()
    }

    /// The file's name in the folder.
    pub fn file(version: &str, kind: Kind) -> String {
        let machine = std::env::consts::ARCH;
        let debian = if machine == "aarch64" {
            "arm64"
        } else {
            "amd64"
        };
        match kind {
            Kind::Deb => format!("fipd_{version}_{debian}.deb"),
            Kind::Rpm => format!("fipd-{version}.{machine}.rpm"),
        }
    }
}

/// `packaging/build` of a tree, with the tools that it needs.
pub async fn packaging(tree: &Path) -> Result<Command> {
    let tools = tokio::task::spawn_blocking(cargo_tool::packagers).await??;
    let mut path = tools
        .iter()
        .filter_map(|tool| tool.parent().map(PathBuf::from))
        .collect::<Vec<_>>();
    let given = std::env::var_os("PATH").context("PATH")?;
    path.extend(std::env::split_paths(&given));
    let mut command = Command::new(tree.join("packaging/build"));
    command.env("PATH", std::env::join_paths(path)?);
    Ok(command)
}
