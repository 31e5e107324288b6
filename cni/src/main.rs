//! The plugin binary: `CNI_COMMAND` and standard input in, one JSON object out.
#![forbid(unsafe_code)]

use std::{
    env,
    io::{Read, Write},
    process::ExitCode,
};

use fipd_cni::{CniError, Code, Verb, answer};

/// More than any runtime sends; what is longer is no network configuration.
const MAX_INPUT: u64 = 1 << 20;

fn main() -> ExitCode {
    let (text, code) = match run() {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(error) => (
            serde_json::to_string(&error).unwrap_or_default(),
            ExitCode::FAILURE,
        ),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> Result<String, CniError> {
    let command = env::var("CNI_COMMAND").unwrap_or_default();
    let verb = Verb::parse(&command)?;
    let mut stdin = String::new();
    std::io::stdin()
        .take(MAX_INPUT)
        .read_to_string(&mut stdin)
        .map_err(|error| {
            CniError::new(
                "1.1.0",
                Code::IoFailure,
                "cannot read standard input",
                error.to_string(),
            )
        })?;
    answer(verb, &stdin)
}
