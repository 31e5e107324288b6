//! A store that is nowhere: of a daemon that decides nothing and has nothing to keep.

use std::{io, path::Path};

use redb::{Builder, Database, DatabaseError, backends::InMemoryBackend};

use super::Medium;

/// Gone with the process.
#[derive(Debug)]
pub struct Nowhere;

impl Medium for Nowhere {
    fn path(&self) -> &Path {
        Path::new("(memory)")
    }

    fn open(&self, builder: &Builder) -> Result<Database, DatabaseError> {
        builder.create_with_backend(InMemoryBackend::new())
    }

    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }

    fn used(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn drop_ballast(&self) {}

    fn keep_ballast(&self) {}
}
