//! The plugin binary: `CNI_COMMAND` and standard input in, a result or an error object out.
#![forbid(unsafe_code)]

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
};

fn main() -> ExitCode {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let (text, code) = match fipd_cni::plugin::run(variable, io::stdin()) {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(error) => (
            serde_json::to_string(&error).unwrap_or_default(),
            ExitCode::FAILURE,
        ),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}
