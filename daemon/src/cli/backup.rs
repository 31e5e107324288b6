//! `fipd backup`.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf};

use clap::Args;
use http::Method;
use http_body_util::BodyExt as _;

use super::{Session, exit::Failure, output::Table, shown};

#[derive(Debug, Args)]
pub struct Backup {
    /// File to write; must not exist. Readable by its owner only
    file: PathBuf,
}

/// What was written.
#[derive(serde::Serialize)]
struct Written {
    file: String,
    bytes: u64,
}

impl Backup {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        if self.file.exists() {
            let file = shown(&self.file);
            return Err(Failure::Input(format!(
                "file: {file:?} is not allowed: it exists already"
            )));
        }
        let partial = self.file.with_added_extension("partial");
        let written = self.fetch(session, &partial).await;
        let written = written.and_then(|bytes| {
            std::fs::rename(&partial, &self.file).map_err(|error| cannot(&self.file, &error))?;
            Ok(Written {
                file: shown(&self.file),
                bytes,
            })
        });
        if written.is_err() {
            // The failure itself is what the caller must hear of.
            let _ = std::fs::remove_file(&partial);
        }
        session.output.show(&written?, |written| {
            Table::facts([
                ("File", written.file.clone()),
                ("Bytes", written.bytes.to_string()),
            ])
        })
    }

    async fn fetch(&self, session: &Session, partial: &std::path::Path) -> Result<u64, Failure> {
        let response = session
            .client
            .open(Method::GET, "/api/v1/backup", None)
            .await?;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(partial)
            .map_err(|error| cannot(partial, &error))?;
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(Failure::failed)?.into_data() else {
                continue;
            };
            file.write_all(&data)
                .map_err(|error| cannot(partial, &error))?;
            bytes += data.len() as u64;
        }
        file.sync_all().map_err(|error| cannot(partial, &error))?;
        Ok(bytes)
    }
}

fn cannot(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}
