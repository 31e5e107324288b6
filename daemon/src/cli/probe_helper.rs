//! `fipd probe-helper`: what fipd-probe@.service runs for each connection to its socket.

use super::exit::Failure;
use crate::host::probe::{accepted_connection, serve_connection};

pub(super) async fn run() -> Result<(), Failure> {
    let connection = accepted_connection().map_err(|error| {
        Failure::Input(format!(
            "standard input is no Unix socket: {error}; fipd-probe.socket starts this command"
        ))
    });
    let (reader, writer) = connection?.into_split();
    serve_connection(reader, writer)
        .await
        .map_err(Failure::failed)
}
