//! Flags of the originals on the command line of `fipd serve`.

use std::{collections::BTreeMap, ffi::OsString};

use clap::{Arg, ArgMatches, Command, parser::ValueSource};

use crate::{
    config::{CompatFlag, compat::Form},
    systems::SYSTEMS,
};

const HEADING: &str = "Flags of the original programs";

/// The command with them.
pub(super) fn with_flags(serve: Command) -> Command {
    let all = SYSTEMS.compat_flags();
    let arguments = all.into_iter().map(|(flag, (form, systems))| {
        let rows = SYSTEMS.0.iter().flat_map(|system| system.compat);
        let mut rows = rows.filter(|row| row.flag == flag);
        let always = rows.clone().find(|row| row.always);
        let about = match (always, rows.next()) {
            (
                Some(CompatFlag {
                    about, variable, ..
                }),
                _,
            ) => format!("{about} [env: {variable}=]"),
            (None, Some(row)) => format!("With --compat {}. {}", systems.join(" or "), row.about),
            (None, None) => String::new(),
        };
        let argument = Arg::new(flag)
            .long(flag)
            .help(about.trim_end_matches('.').to_owned())
            .help_heading(HEADING)
            .hide_short_help(always.is_none());
        match form {
            Form::Text => argument.value_name("VALUE"),
            Form::Number => argument.value_name("NUMBER"),
            Form::Switch => argument
                .value_name("BOOL")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true"),
        }
    });
    serve.args(arguments)
}

/// What they say.
pub(super) fn values(serve: &ArgMatches) -> BTreeMap<&'static str, String> {
    let flags = SYSTEMS.compat_flags().into_keys();
    let given = flags.filter_map(|flag| {
        let given = serve.value_source(flag) == Some(ValueSource::CommandLine);
        let value = serve.get_one::<String>(flag).filter(|_| given)?;
        Some((flag, value.clone()))
    });
    given.collect()
}

/// Go's `-flag` as `--flag`.
pub(super) fn double_dashes(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let flags = SYSTEMS.compat_flags();
    let arguments = arguments.map(|argument| {
        let named = argument.to_str().and_then(|text| text.strip_prefix('-'));
        let flag = named.and_then(|named| named.split('=').next());
        match (named, flag) {
            (Some(named), Some(flag)) if flag == "log-level" || flags.contains_key(flag) => {
                format!("--{named}").into()
            }
            _ => argument,
        }
    });
    arguments.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(line: &str) -> Result<BTreeMap<&'static str, String>, clap::Error> {
        let words = line.split_whitespace().map(OsString::from);
        let matches = super::super::command().try_get_matches_from(double_dashes(words))?;
        Ok(values(matches.subcommand_matches("serve").unwrap()))
    }

    #[test]
    fn a_flag_has_one_form_and_no_name_of_fipds_own() {
        for (flag, (form, _)) in SYSTEMS.compat_flags() {
            let rows = SYSTEMS.0.iter().flat_map(|system| system.compat);
            for row in rows.filter(|row| row.flag == flag) {
                assert_eq!(row.form, form, "{flag}");
            }
        }
        super::super::command().debug_assert();
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        let read =
            given("fipd serve -kubeconfig /k -log-level=info --leader-elect -tls-enabled=false")
                .unwrap();
        let expected = [
            ("kubeconfig", "/k"),
            ("leader-elect", "true"),
            ("tls-enabled", "false"),
        ];
        let expected = expected.map(|(flag, value)| (flag, value.to_owned()));
        assert_eq!(read, BTreeMap::from(expected));
        assert_eq!(given("fipd serve").unwrap(), BTreeMap::new());
        let wrong = given("fipd serve -nonsense=1").unwrap_err();
        assert!(wrong.to_string().contains("-n"), "{wrong}");
    }
}
