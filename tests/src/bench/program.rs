//! The program as it is after a boot.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::testbed::fipd_binary;

/// Has the program read from the disk when it is started next. A program that was just linked is in the page cache in pieces of
/// up to megabytes, and the kernel (6.18) maps a whole piece for each page that is touched.
pub async fn forget() -> Result<()> {
    forget_file(&fipd_binary().await?)
}

/// The same for a copy of it.
pub fn forget_file(path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.sync_all()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(())
}
