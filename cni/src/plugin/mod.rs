//! The plugin's work: a file for each verb, and what they share.
//!
//! ```text
//!  ADD: Begin -> attachment -> construct: link, [probe -> Probed -> attachment], sysctls, addresses, routes [-> Made] -> result
//!                                  any failure: undo, DEL
//! ```

mod add;
mod call;
mod check;
mod construct;
mod container;
mod del;
mod gc;
mod routes;
mod status;
mod undo;

use std::io::{self, Read};

use call::PluginCall;

use crate::{CniError, Code, Environment, MAX_MESSAGE, NEWEST, NetConf, Verb, version};

/// Carries out `CNI_COMMAND` and returns what goes to standard output.
///
/// # Errors
/// The error object that goes to standard output.
pub fn run(variable: impl Fn(&str) -> String, stdin: impl Read) -> Result<String, CniError> {
    let command = Verb::parse(&variable("CNI_COMMAND"))?;
    let stdin = read(stdin)?;
    if command == Verb::Version {
        return version(&stdin);
    }
    let environment = Environment::read(command, variable)?;
    let conf = NetConf::parse(&stdin, command)?;
    let call = PluginCall::new(environment, conf, stdin)?;
    match command {
        Verb::Add => add::add(&call),
        Verb::Del => del::del(&call),
        Verb::Check => check::check(&call),
        Verb::Gc => gc::gc(&call),
        Verb::Status => status::status(&call),
        Verb::Version => Ok(String::new()),
    }
}

/// At most half a message: the rest is for what the question adds.
fn read(stdin: impl Read) -> Result<String, CniError> {
    let mut bytes = Vec::new();
    let read = stdin.take(MAX_MESSAGE / 2).read_to_end(&mut bytes);
    read.map_err(|error| {
        let why = error.to_string();
        CniError::new(NEWEST, Code::IoFailure, "cannot read standard input", why)
    })?;
    // What is no text is no JSON either, which is found later.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Standard output belongs to the runtime; standard error goes to its log.
fn note(text: &str) {
    use io::Write as _;
    // Nobody reads it where it cannot be written.
    let _ = writeln!(io::stderr(), "fipd-cni: {text}");
}
