//! The commands in documents, alerts and pages exist.

use std::{collections::BTreeMap, fs, path::Path};

use clap::error::ErrorKind;

use super::exit;

const ALERTS: &str = include_str!("../../../packaging/monitoring/alerts.yaml");
const WARNINGS: [&str; 5] = [
    include_str!("../api/ui/warnings/addresses.rs"),
    include_str!("../api/ui/warnings/clusters.rs"),
    include_str!("../api/ui/warnings/config.rs"),
    include_str!("../api/ui/warnings/rules.rs"),
    include_str!("../api/ui/warnings/storage.rs"),
];

/// The examples' own names. Another plain word in the place of a name may be meant as a sub-command.
const NAMES: [&str; 7] = ["blue", "ci", "delegated", "east", "lab", "rest", "shop"];

/// How a command is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// To be typed as it is, but for its placeholders.
    InFull,
    /// In a sentence, perhaps without what has to be named.
    ByName,
}

/// A word as somebody would type it: `NAME` of a document, `{}` of a page and `{pool}` of an alert are placeholders.
fn typed(word: &str) -> String {
    let word = word.trim_matches('\'');
    let upper = word.starts_with(|c: char| c.is_ascii_uppercase())
        && !word.contains(|c: char| c.is_ascii_lowercase());
    match word {
        "CIDR" => "10.0.0.0/24".to_owned(),
        "N" => "7".to_owned(),
        _ if upper || word.starts_with('{') => "name-1".to_owned(),
        _ => word.to_owned(),
    }
}

/// The calls of fipd in a line of a shell.
fn calls(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or_default();
    let calls = line.split("&&").map(|call| {
        let words = call.split_whitespace().skip_while(|word| *word == "sudo");
        words
            .filter(|word| *word != "...")
            .map(typed)
            .collect::<Vec<_>>()
    });
    calls
        .filter(|words| words.first().is_some_and(|word| word == "fipd"))
        .collect()
}

/// Why a call is not as it is told.
fn wrong(words: &[String], told: Told) -> Option<String> {
    let mut command = super::command();
    let matches = match command.try_get_matches_from_mut(words) {
        Ok(matches) => matches,
        Err(error) => {
            let kind = error.kind();
            let help = matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let short = matches!(
                kind,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    | ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
            );
            let fine = help || short && told == Told::ByName;
            return (!fine).then(|| exit::usage_line(&error));
        }
    };
    let (mut command, mut matches) = (&command, &matches);
    loop {
        for argument in command.get_positionals() {
            let values = matches.get_raw(argument.get_id().as_str());
            for value in values.into_iter().flatten() {
                let value = value.to_string_lossy();
                let plain = value.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                if plain && argument.get_possible_values().is_empty() && !NAMES.contains(&&*value) {
                    return Some(format!("{value} is not a name of the examples"));
                }
            }
        }
        let (name, inner) = matches.subcommand()?;
        command = command.find_subcommand(name)?;
        matches = inner;
    }
}

/// The README and the pages that the packages install, by file name.
fn documents() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = fs::read_dir(root.join("packaging/docs")).expect("packaging/docs");
    let mut paths: Vec<_> = pages.map(|page| page.expect("a page").path()).collect();
    paths.push(root.join("README.md"));
    let read = |path: &Path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        (
            name.into_owned(),
            fs::read_to_string(path).expect("a document"),
        )
    };
    paths.iter().map(|path| read(path)).collect()
}

/// All commands in documents, alerts and pages, by where they are.
fn documented() -> BTreeMap<String, Vec<(Vec<String>, Told)>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    let mut add = |place: &str, told, line: &str| {
        let calls = calls(line).into_iter().map(|call| (call, told));
        all.entry(place.to_owned()).or_default().extend(calls);
    };
    for (name, text) in documents() {
        for (index, part) in text.split("```").enumerate() {
            if index % 2 == 1 {
                part.lines().for_each(|line| add(&name, Told::InFull, line));
            } else {
                let inline = part.split('`').skip(1).step_by(2);
                inline.for_each(|code| add(&name, Told::ByName, code));
            }
        }
    }
    for code in ALERTS.split('`').skip(1).step_by(2) {
        let code = code.replace("{{ $labels.", "{").replace(" }}", "}");
        add("alerts.yaml", Told::InFull, &code);
    }
    let warnings = WARNINGS.iter();
    for rest in warnings.flat_map(|text| text.split("\"fipd ").skip(1)) {
        let rest = rest.split('"').next().unwrap_or_default();
        add("warnings", Told::InFull, &format!("fipd {rest}"));
    }
    all
}

#[test]
fn every_command_that_is_told_is_understood() {
    let all = documented();
    for (place, least) in [
        ("README.md", 15),
        ("operating.md", 20),
        ("rancher-fip.md", 6),
        ("ip-rule.md", 8),
        ("alerts.yaml", 12),
        ("warnings", 12),
    ] {
        let told = all.get(place).map_or(0, Vec::len);
        assert!(told >= least, "only {told} are known of {place}");
    }
    for (place, calls) in all {
        for (words, told) in calls {
            let wrong = wrong(&words, told);
            assert_eq!(wrong, None, "{place}: {}", words.join(" "));
        }
    }
}

#[test]
fn alerts_tell_commands_in_backticks() {
    let command = super::command();
    for sentence in ALERTS.split('`').step_by(2) {
        let words: Vec<_> = sentence.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| pair[0].ends_with("fipd")) {
            let known = command.find_subcommand(pair[1].trim_matches(['.', ',', ';', '"']));
            assert!(known.is_none(), "{sentence}");
        }
    }
}

#[test]
fn what_is_not_understood_is_found() {
    let wrong = |line: &str, told| {
        let call = calls(line).pop().expect("a call");
        wrong(&call, told)
    };
    for line in [
        "fipd backup make",
        "fipd pool sow lab",
        "fipd pool show move-network",
        "fipd pool show vips # make",
        "fipd nonsense",
        "fipd audit --action nonsense",
    ] {
        assert!(wrong(line, Told::ByName).is_some(), "{line}");
    }
    for line in [
        "true && sudo fipd backup FILE # make",
        "fipd lease label 10.0.0.1 app=web",
        "fipd completions bash",
        "fipd pool update {pool} --add-cidr CIDR",
        "fipd restore --help",
    ] {
        assert_eq!(wrong(line, Told::InFull), None, "{line}");
    }
    assert_eq!(wrong("fipd clusters show", Told::ByName), None);
    assert!(wrong("fipd clusters show", Told::InFull).is_some());
}
