//! The plugin binary: `CNI_COMMAND` and standard input in, the daemon's answer out.
#![forbid(unsafe_code)]

use std::{
    env,
    io::{self, Read as _, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use fipd_cni::{
    Ask, CniError, Code, Environment, MAX_MESSAGE, NetConf, Reply, SOCKET, Step, Verb, ask, version,
};
use serde_json::value::RawValue;

/// How long a restart of the daemon may take until the runtime is told to come back.
const PATIENCE: Duration = Duration::from_secs(60);
/// Runtimes ask for the state every few seconds.
const STATUS_PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let (text, code) = match run() {
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

fn run() -> Result<String, CniError> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let command = Verb::parse(&variable("CNI_COMMAND"))?;
    let mut stdin = String::new();
    io::stdin()
        .take(MAX_MESSAGE / 2)
        .read_to_string(&mut stdin)
        .map_err(|error| {
            CniError::new(
                "1.1.0",
                Code::IoFailure,
                "cannot read standard input",
                error.to_string(),
            )
        })?;
    if command == Verb::Version {
        return version(&stdin);
    }
    let environment = Environment::read(command, variable)?;
    let conf = NetConf::parse(&stdin, command)?;
    let config = RawValue::from_string(stdin).map_err(|error| {
        CniError::new(
            &conf.cni_version,
            Code::DecodingFailure,
            "network configuration on standard input is no JSON",
            error.to_string(),
        )
    })?;
    let question = Ask {
        command,
        step: Step::Begin,
        container_id: environment.container_id,
        netns: environment.netns,
        ifname: environment.ifname,
        args: environment.args,
        config,
    };
    let socket = conf.socket.as_deref().unwrap_or(Path::new(SOCKET));
    let (patience, silent) = match command {
        Verb::Status => (STATUS_PATIENCE, Code::NotAvailable),
        Verb::Add | Verb::Del | Verb::Check | Verb::Gc | Verb::Version => {
            (PATIENCE, Code::TryAgain)
        }
    };
    match ask(socket, &question, patience).map(|answer| answer.reply) {
        Ok(Reply::Output(text)) => Ok(text),
        Ok(Reply::Attachment(_)) => Ok(String::new()),
        Ok(Reply::Error(error)) => Err(error),
        Err(error) => Err(CniError::new(
            &conf.cni_version,
            silent,
            "fipd does not answer",
            format!(
                "{}: {error}; is fipd running on this host?",
                socket.display()
            ),
        )),
    }
}
