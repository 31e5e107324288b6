//! Where local tools learn the URL of the daemon.

use std::path::{Path, PathBuf};

use super::{AppError, LISTEN_FILE};

/// `DATA_DIR/listen`, for as long as the daemon runs.
pub struct ListenFile(PathBuf);

impl ListenFile {
    pub fn write(data_dir: &Path, url: &str) -> Result<Self, AppError> {
        let path = data_dir.join(LISTEN_FILE);
        let fresh = data_dir.join("listen.new");
        std::fs::write(&fresh, format!("{url}\n"))
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(|source| AppError::File {
                path: path.clone(),
                source,
            })?;
        Ok(Self(path))
    }
}

impl Drop for ListenFile {
    fn drop(&mut self) {
        // A file left behind names a port nobody listens on.
        let _ = std::fs::remove_file(&self.0);
    }
}
