//! Long answers of the daemon, written as they come.

use std::{
    fs::OpenOptions,
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use http::Method;
use http_body_util::BodyExt as _;

use super::{CliSession, exit::Failure, output::Table, shown};

/// What was written.
#[derive(serde::Serialize)]
pub struct DownloadedFile {
    file: String,
    bytes: u64,
}

impl DownloadedFile {
    pub fn facts(&self) -> Table {
        Table::facts([
            ("File", self.file.clone()),
            ("Bytes", self.bytes.to_string()),
        ])
    }
}

/// Writes an answer to a new file, readable by its owner only. Half an answer leaves no file.
pub async fn to_file(
    session: &CliSession,
    path: &str,
    file: &Path,
) -> Result<DownloadedFile, Failure> {
    if file.exists() {
        let file = shown(file);
        return Err(Failure::Input(format!(
            "file: {file:?} is not allowed: it exists already"
        )));
    }
    let partial = file.with_added_extension("partial");
    let written = fetch(session, path, &partial).await;
    let written = written.and_then(|bytes| {
        std::fs::rename(&partial, file).map_err(|error| cannot(file, &error))?;
        Ok(DownloadedFile {
            file: shown(file),
            bytes,
        })
    });
    if written.is_err() {
        // The failure itself is what the caller must hear of.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

/// Writes an answer to stdout. A reader that went away (`| head`) is no failure.
pub async fn to_stdout(session: &CliSession, path: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let mut gone = false;
    let copied = copy(session, path, |data| {
        let written = out.write_all(data).and_then(|()| out.flush());
        gone = matches!(&written, Err(error) if error.kind() == ErrorKind::BrokenPipe);
        written.map_err(Failure::failed)
    });
    match copied.await {
        Err(_) if gone => Ok(()),
        copied => copied.map(drop),
    }
}

async fn fetch(session: &CliSession, path: &str, partial: &Path) -> Result<u64, Failure> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(partial)
        .map_err(|error| cannot(partial, &error))?;
    let bytes = copy(session, path, |data| {
        file.write_all(data)
            .map_err(|error| cannot(partial, &error))
    })
    .await?;
    file.sync_all().map_err(|error| cannot(partial, &error))?;
    Ok(bytes)
}

async fn copy(
    session: &CliSession,
    path: &str,
    mut write: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let response = session.client.open(Method::GET, path, None).await?;
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Failure::failed)?.into_data() else {
            continue;
        };
        write(&data)?;
        bytes += data.len() as u64;
    }
    Ok(bytes)
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}
