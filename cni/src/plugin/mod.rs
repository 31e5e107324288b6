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
mod routes;
mod status;
mod undo;

use std::{
    io::{self, Read, Write},
    path::PathBuf,
};

use call::{PATIENCE, PluginCall};
use serde_json::Value;

use crate::{AskStep, CniError, Code, Environment, MAX_MESSAGE, NEWEST, NetConf, Verb, version};

/// Carries out `CNI_COMMAND`, and says on `stdout` what came of it.
///
/// # Errors
/// The error object that goes to standard output.
pub fn run(
    variable: impl Fn(&str) -> String,
    stdin: impl Read,
    mut stdout: impl Write,
) -> Result<(), CniError> {
    let command = Verb::parse(&variable("CNI_COMMAND"))?;
    let stdin = read(stdin)?;
    let mut say = |text: &str| {
        let written = stdout.write_all(text.as_bytes());
        written.and_then(|()| stdout.flush()).map_err(|error| {
            let why = error.to_string();
            CniError::new(
                NEWEST,
                Code::IoFailure,
                "cannot write to standard output",
                why,
            )
        })
    };
    if command == Verb::Version {
        return say(&version(&stdin)?);
    }
    let call = match read_call(command, variable, stdin.clone()) {
        Ok(call) => call,
        Err(error) => {
            report_unread(command, &stdin, &error);
            return Err(error);
        }
    };
    let done = match command {
        Verb::Add => add::add(&call, say),
        Verb::Del => del::del(&call).and_then(|text| say(&text)),
        Verb::Check => check::check(&call).and_then(|text| say(&text)),
        // The daemon releases every attachment that the runtime does not list.
        Verb::Gc => call
            .output(Verb::Gc, AskStep::Begin, PATIENCE, Code::TryAgain)
            .and_then(|text| say(&text)),
        Verb::Status => status::status(&call).and_then(|text| say(&text)),
        Verb::Version => Ok(()),
    };
    if let Err(error) = &done {
        call.report(error);
    }
    done
}

fn read_call(
    command: Verb,
    variable: impl Fn(&str) -> String,
    stdin: String,
) -> Result<PluginCall, CniError> {
    let environment = Environment::read(command, variable)?;
    let conf = NetConf::parse(&stdin, command)?;
    PluginCall::new(command, environment, conf, stdin)
}

/// Tells the daemon of a call whose configuration or environment makes no sense.
fn report_unread(command: Verb, stdin: &str, failure: &CniError) {
    let said: Result<Value, _> = serde_json::from_str(stdin);
    let socket = said
        .ok()
        .and_then(|said| said["socket"].as_str().map(str::to_owned));
    let conf = NetConf {
        socket: socket.map(PathBuf::from),
        ..NetConf::default()
    };
    let call = PluginCall::new(command, Environment::default(), conf, "{}".to_owned());
    if let Ok(call) = call {
        call.report(failure);
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
    // Nobody reads it where it cannot be written.
    let _ = writeln!(io::stderr(), "fipd-cni: {text}");
}
