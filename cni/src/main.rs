//! The plugin binary: `CNI_COMMAND` and standard input in, a result or an error object out.
#![forbid(unsafe_code)]

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
};

fn main() -> ExitCode {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    if variable("CNI_COMMAND").is_empty() {
        // By this text `fipd cni` knows the program: `fipd_cni::MARK`.
        let about = "fipd-cni: container runtimes call this program of fipd";
        let _ = writeln!(io::stderr(), "{about}");
    }
    match fipd_cni::plugin::run(variable, io::stdin(), io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = serde_json::to_string(&error).unwrap_or_default();
            // The code of the process says that it failed, if nothing else can.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::FAILURE
        }
    }
}
