//! A kernel for QEMU: Debian's cloud kernel, which has modules that the running kernel may not have.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{cache_dir, cached, debian};
use crate::say::progress;

/// Always the newest of its release.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// An image to boot, and its modules.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// The one in the cache, fetched first when there is none.
    pub fn cloud() -> Result<Self> {
        let dir = cache_dir("linux-cloud", "debian12")?;
        let root = cached(&dir, "root", fetch)?;
        let image = only(&root.join("boot"), "vmlinuz-")?;
        let modules = only(&root.join("lib/modules"), "")?;
        Ok(Self { image, modules })
    }

    /// The file of a module.
    pub fn module(&self, name: &str) -> Result<PathBuf> {
        let file = format!("{name}.ko");
        let found = find(&self.modules.join("kernel"), &file)?;
        found.with_context(|| format!("{file} is not in {}", self.modules.display()))
    }
}

fn fetch(half: &Path) -> Result<()> {
    progress(format_args!("fetching {PACKAGE}"));
    fs::create_dir_all(half)?;
    let package = debian::dependency(PACKAGE, "linux-image-")?;
    debian::unpack(&package, half)
}

/// The one entry of a folder whose name begins so.
fn only(folder: &Path, start: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(start) {
            return Ok(entry.path());
        }
    }
    anyhow::bail!("nothing in {} begins with {start:?}", folder.display())
}

fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if let Some(found) = find(&entry.path(), name)? {
                return Ok(Some(found));
            }
        } else if entry.file_name() == name {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}
