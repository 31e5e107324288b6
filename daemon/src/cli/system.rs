//! The commands of systems: `fipd SYSTEM NAME`, a client of the operation's route.

use clap::{Arg, ArgMatches, Command};
use serde_json::Value;

use super::{CliSession, client::segment, exit::Failure, output::Table, session::done};
use crate::config::{
    Systems,
    operation::{Does, SystemOperation},
};

/// The command line with them.
pub(crate) fn with_commands(command: Command, known: Systems) -> Command {
    let systems = known.0.iter();
    let with = systems.filter_map(|one| Some((one.name, one.operations?)));
    command.subcommands(with.map(|(name, operations)| {
        let command = Command::new(name)
            .about(operations.about)
            .subcommand_required(true)
            .arg_required_else_help(true);
        command.subcommands(operations.all.iter().map(of_operation))
    }))
}

fn of_operation(operation: &'static SystemOperation) -> Command {
    let command = Command::new(operation.name).about(operation.about);
    match operation.variable_name() {
        Some(name) => command.arg(Arg::new(name).required(true).help(operation.variable)),
        None => command,
    }
}

/// What is asked for; `None`: it is no command of a system.
pub(crate) fn asked(
    matches: &ArgMatches,
    known: Systems,
) -> Option<(&'static SystemOperation, String)> {
    let (system, rest) = matches.subcommand()?;
    let (name, arguments) = rest.subcommand()?;
    let mut all = known.operations();
    let found = all.find(|(of, operation)| *of == system && operation.name == name);
    let (_, operation) = found?;
    let variable = operation.variable_name();
    let value = variable.and_then(|name| arguments.get_one::<String>(name));
    let mut path = operation.path_of(&segment(value.map_or("", String::as_str)));
    if operation.is_shared_list() {
        path.push_str(&format!("?system={}", segment(system)));
    }
    Some((operation, path))
}

pub(super) async fn run(
    session: &CliSession,
    operation: &'static SystemOperation,
    path: &str,
) -> Result<(), Failure> {
    match operation.does {
        Does::List { field, columns, .. } => {
            let table = |list: &Value| {
                let mut table = Table::new(columns.iter().map(|column| column.title));
                let rows = list.get(field).and_then(Value::as_array);
                for row in rows.into_iter().flatten() {
                    table.row(columns.iter().map(|column| column.cell(row)));
                }
                table
            };
            session.show_list(path, field, table).await
        }
        Does::Change => session.post_and_show(path, &(), done).await,
    }
}
