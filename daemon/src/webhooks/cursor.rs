//! How far each receiver has come: a small file per webhook in the data directory, beside the store.
//!
//! It is written after what it says was received, so that a crash sends some again and loses none.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::private_file;
use fipd_core::Timestamp;
use serde::{Deserialize, Serialize};

const DIRECTORY: &str = "webhooks";

/// All up to `after` was received, as numbered in this epoch of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Drawn with the file, and anew where the log is another one: another installation has the same numbers. 0: the file is of
    /// before there was one.
    #[serde(default)]
    pub instance: u64,
    /// Grows when a backup takes the place of the store, whose numbers begin again then.
    pub epoch: u64,
    pub after: u64,
    /// When the entry `after` was written: that of the same number in another log was so at another time. `None` where the
    /// entry is not there, and in files of before this was noted.
    #[serde(default)]
    pub written: Option<Timestamp>,
}

impl Cursor {
    /// How a receiver knows the entry of that number again, whoever else sends it something.
    pub fn id(self, number: u64) -> String {
        format!("fipd_{:016x}_{}_{number}", self.instance, self.epoch)
    }
}

/// The file of one.
#[derive(Clone, Debug)]
pub struct CursorFile(PathBuf);

impl CursorFile {
    /// `name` is one of a checked configuration.
    pub fn new(data_dir: &Path, name: &str) -> Self {
        Self(data_dir.join(DIRECTORY).join(format!("{name}.json")))
    }

    /// `None`: there is none yet. Blocks on the disk.
    pub fn read(&self) -> io::Result<Option<Cursor>> {
        let bytes = private_file::if_there(std::fs::read(&self.0))?;
        let cursor = bytes.map(|bytes| serde_json::from_slice(&bytes));
        cursor.transpose().map_err(io::Error::other)
    }

    /// Durable when it returns. Blocks on the disk.
    pub fn write(&self, cursor: Cursor) -> io::Result<()> {
        let Some(directory) = self.0.parent() else {
            return Ok(());
        };
        std::fs::create_dir_all(directory)?;
        let text = serde_json::to_string(&cursor).map_err(io::Error::other)?;
        private_file::write(&self.0, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_where_it_was_written_and_nowhere_before() {
        let dir = tempfile::tempdir().unwrap();
        let place = CursorFile::new(dir.path(), "ops");
        assert_eq!(place.read().unwrap(), None);
        let cursor = Cursor {
            instance: 7,
            epoch: 1,
            after: 9,
            written: Some(Timestamp(1_767_225_600_123)),
        };
        place.write(cursor).unwrap();
        assert_eq!(place.read().unwrap(), Some(cursor));
        let before = r#"{"epoch":1,"after":9}"#;
        std::fs::write(dir.path().join("webhooks/ops.json"), before).unwrap();
        let before = Cursor {
            instance: 0,
            written: None,
            ..cursor
        };
        assert_eq!(place.read().unwrap(), Some(before));
        std::fs::write(dir.path().join("webhooks/ops.json"), "{").unwrap();
        assert!(place.read().is_err());
    }
}
