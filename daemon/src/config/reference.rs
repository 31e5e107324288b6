//! The reference of the configuration file, made of the types that read it and of the example that is shipped.
//!
//! Keys, types and what they do come from the types (JSON Schema); defaults and examples from the example, of which tests say
//! that it has every key. A value there is the default where the whole of the example means the same without it.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use schemars::SchemaGenerator;
use serde_json::{Map, Value};

use super::{Config, File, Systems, listener::about_serve};

/// The file as packages install it.
pub const EXAMPLE: &str = include_str!("../../../packaging/fipd.example.toml");

/// A table of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// As it is written: `api`, `cluster.claims`; empty for the keys on top.
    pub path: String,
    /// `[[path]]`: there may be several.
    pub many: bool,
    pub about: String,
    pub keys: Vec<Key>,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub name: String,
    pub kind: String,
    pub required: bool,
    pub about: String,
    /// From the example.
    pub default: Option<String>,
    pub example: Option<String>,
}

/// What the example has of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown {
    value: String,
    is_default: bool,
    about: String,
}

/// All tables and keys, in the order of the schema.
pub fn sections(known: Systems) -> Vec<Section> {
    let schema = whole(known);
    let mut all = Vec::new();
    table(&schema, &schema, "", false, &mut all);
    let shown = shown(known, EXAMPLE);
    for section in &mut all {
        for key in &mut section.keys {
            let found = shown.get(&(section.path.clone(), key.name.clone()));
            let found = found.or_else(|| {
                let mut alike = alike(known, &section.path).into_iter();
                alike.find_map(|path| shown.get(&(path, key.name.clone())))
            });
            let Some(found) = found.cloned() else {
                continue;
            };
            if key.about.is_empty() {
                key.about = found.about;
            }
            match found.is_default {
                true => key.default = Some(found.value),
                false => key.example = Some(found.value),
            }
        }
    }
    all
}

fn table(root: &Value, schema: &Value, path: &str, many: bool, all: &mut Vec<Section>) {
    let schema = resolved(root, schema);
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let at = all.len();
    all.push(Section {
        path: path.to_owned(),
        many,
        about: if path.is_empty() {
            String::new()
        } else {
            about(schema)
        },
        keys: Vec::new(),
    });
    for (name, property) in properties {
        let inner = resolved(root, property);
        let below = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        if inner["properties"].is_object() {
            table(root, inner, &below, false, all);
            continue;
        }
        if inner["additionalProperties"] == false {
            // A table without keys.
            continue;
        }
        let items = resolved(root, &inner["items"]);
        let inline = path == "network" && name == "match";
        if items["properties"].is_object() && !inline {
            table(root, items, &below, true, all);
            continue;
        }
        let own = about(property);
        let key = Key {
            name: name.clone(),
            kind: kind(root, property),
            required: required.iter().any(|one| one == name),
            about: if own.is_empty() { about(inner) } else { own },
            default: None,
            example: None,
        };
        if let Some(section) = all.get_mut(at) {
            section.keys.push(key);
        }
    }
}

/// What a reference or an option stands for.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|to| to.rsplit('/').next()) {
        return resolved(root, &root["$defs"][name]);
    }
    for several in ["anyOf", "allOf"] {
        let some = schema[several].as_array().into_iter().flatten();
        let mut some = some.filter(|one| one["type"] != "null");
        if let (Some(one), None) = (some.next(), some.next()) {
            return resolved(root, one);
        }
    }
    schema
}

fn kind(root: &Value, schema: &Value) -> String {
    let schema = resolved(root, schema);
    let words: Vec<String> = values(schema).iter().map(ToString::to_string).collect();
    if !words.is_empty() {
        return words.join(", ");
    }
    let plain = match &schema["type"] {
        Value::Array(several) => several.iter().find(|one| *one != "null"),
        Value::String(_) => Some(&schema["type"]),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    match plain.and_then(Value::as_str) {
        Some("array") => {
            let item = kind(root, &schema["items"]);
            format!("list of {item}")
        }
        Some("object") => "table".to_owned(),
        Some("integer") => "number".to_owned(),
        Some(other) => other.to_owned(),
        None => "value".to_owned(),
    }
}

/// The words of an enumeration.
fn values(schema: &Value) -> Vec<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().filter(|one| !one.is_null()).cloned().collect();
    }
    let some = schema["oneOf"].as_array().into_iter().flatten();
    some.flat_map(|one| match one.get("const") {
        Some(word) => vec![word.clone()],
        None => values(one),
    })
    .collect()
}

/// What the type says of itself, for people who do not read its code.
fn about(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace("`None`:", "Left out:")
        .replace("[`", "`")
        .replace("`]", "`")
}

/// Every key of the example: its table, its name, what is written there and the comment before it.
fn shown(known: Systems, example: &str) -> BTreeMap<(String, String), Shown> {
    let mut all = BTreeMap::new();
    let (mut path, mut comment) = (String::new(), String::new());
    let whole = read(known, example, None);
    for (number, line) in example.lines().enumerate() {
        let code = match code(line) {
            Ok(code) => code,
            Err(text) => {
                let _ = write!(comment, " {}", text.trim());
                continue;
            }
        };
        if code.trim().is_empty() {
            comment.clear();
        } else if code.starts_with('[') {
            code.trim_matches(['[', ']']).clone_into(&mut path);
            comment.clear();
        } else if let Some((name, value)) = code.split_once('=') {
            let shown = Shown {
                value: value.trim().to_owned(),
                is_default: whole.is_some() && read(known, example, Some(number)) == whole,
                about: comment.trim().to_owned(),
            };
            all.entry((path.clone(), name.trim().to_owned()))
                .or_insert(shown);
            comment.clear();
        }
    }
    all
}

/// What a line of the example says, whether or not it is commented out; an error is the text of a comment.
fn code(line: &str) -> Result<&str, &str> {
    match line.strip_prefix('#') {
        Some(text) if text.is_empty() || text.starts_with(' ') => Err(text),
        Some(code) => Ok(code),
        None => Ok(line),
    }
}

/// What all of the example comes to, but for one of its lines.
fn read(known: Systems, example: &str, left_out: Option<usize>) -> Option<Config> {
    let lines = example.lines().map(|line| code(line).unwrap_or_default());
    let lines = lines
        .enumerate()
        .filter(|(number, _)| Some(*number) != left_out);
    let lines: Vec<&str> = lines.map(|(_, line)| line).collect();
    Config::read(known, &lines.join("\n"), Path::new("/etc/fipd")).ok()
}

/// The JSON Schema of the file with the tables of all systems.
fn whole(known: Systems) -> Value {
    let mut generator = SchemaGenerator::default();
    let tables = known.0.iter().map(|one| {
        let [cluster, discovery] = [&one.cluster, &one.discovery];
        let both = [cluster, discovery].map(|table| (table.schema)(&mut generator).to_value());
        (one.name, both)
    });
    let tables: Vec<_> = tables.collect();
    let mut schema = generator.into_root_schema_for::<File>().to_value();
    let properties = |schema: &mut Value, of: &str| -> Option<Map<String, Value>> {
        let found = schema.pointer_mut(&format!("/$defs/{of}/properties"))?;
        Some(std::mem::take(found.as_object_mut()?))
    };
    for (at, of) in ["RawCluster", "RawDiscovery"].into_iter().enumerate() {
        let mut all = properties(&mut schema, of).unwrap_or_default();
        for (name, both) in &tables {
            all.extend(both.get(at).map(|one| ((*name).to_owned(), one.clone())));
        }
        schema["$defs"][of]["properties"] = all.into();
    }
    let about = format!("What fipd does there: {}.", known.listed());
    schema["$defs"]["RawCluster"]["properties"]["systems"]["description"] = about.into();
    schema["$defs"]["RawListener"]["properties"]["serve"]["description"] =
        about_serve(known).into();
    schema
}

/// Tables of the example that have the keys of the one at `path`, the nearest first.
fn alike(known: Systems, path: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let cluster = match path.strip_prefix("discovery.") {
        Some(below) => format!("cluster.{below}"),
        None => path.to_owned(),
    };
    for system in known.0 {
        let own = |below: &str| format!("cluster.{}.{below}", system.name);
        let same = system
            .alike
            .iter()
            .filter(|(table, _)| own(table) == cluster);
        paths.extend(same.map(|(_, other)| own(other)));
    }
    if path.ends_with(".webhook") {
        paths.extend(known.names().map(|name| format!("cluster.{name}.webhook")));
    }
    paths.insert(0, cluster);
    paths
}

/// The JSON Schema of the file.
pub fn schema(known: Systems) -> String {
    let schema = whole(known);
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    format!("{text}\n")
}

impl Section {
    fn heading(&self) -> String {
        match (self.path.as_str(), self.many) {
            ("", _) => "Top of the file".to_owned(),
            (path, true) => format!("[[{path}]]"),
            (path, false) => format!("[{path}]"),
        }
    }
}

impl Key {
    fn stands_for(&self) -> String {
        match (&self.default, &self.example) {
            _ if self.required => "required".to_owned(),
            (Some(default), _) => format!("default {default}"),
            (None, Some(example)) => format!("such as {example}"),
            (None, None) => "optional".to_owned(),
        }
    }
}

const HEAD: &str = "\
Everything may be left out but what is required in a section that is there. Unknown keys are refused with line and column. Times
are a number and `s`, `m`, `h` or `d`. Relative paths start at the directory of the file. `fipd check --config FILE` verifies a
file without a daemon.
";

/// For `packaging/docs/config.md`.
pub fn markdown(known: Systems) -> String {
    let mut text = format!(
        "# fipd.toml\n\nMade by `fipd config reference` from the types that read the file; a test compares them.\n\n{HEAD}"
    );
    for section in sections(known) {
        let heading = section.heading();
        let _ = write!(text, "\n## `{heading}`\n");
        if !section.about.is_empty() {
            let _ = write!(text, "\n{}\n", section.about);
        }
        if !section.keys.is_empty() {
            text.push_str("\n| key | type | | what it is |\n|---|---|---|---|\n");
        }
        for key in &section.keys {
            let cell = |text: &str| text.replace('|', "\\|");
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                key.name,
                cell(&key.kind),
                cell(&key.stands_for()),
                cell(&key.about)
            );
        }
    }
    text
}

/// The manual page fipd.toml(5).
pub fn man(known: Systems) -> String {
    let escaped = |text: &str| {
        let text = text.replace('\\', "\\e").replace('-', "\\-");
        text.replace('`', "")
    };
    let mut text = format!(
        ".TH FIPD.TOML 5 \"\" \"fipd {}\" \"File formats\"\n.SH NAME\nfipd.toml \\- configuration of fipd\n.SH DESCRIPTION\n{}",
        env!("CARGO_PKG_VERSION"),
        escaped(HEAD)
    );
    for section in sections(known) {
        let _ = writeln!(text, ".SH \"{}\"", escaped(&section.heading()));
        if !section.about.is_empty() {
            let _ = writeln!(text, "{}", escaped(&section.about));
        }
        for key in &section.keys {
            let _ = write!(
                text,
                ".TP\n.B {}\n({}; {})\n{}\n",
                escaped(&key.name),
                escaped(&key.kind),
                escaped(&key.stands_for()),
                escaped(&key.about)
            );
        }
    }
    text.push_str(".SH SEE ALSO\n.BR fipd (1)\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::SYSTEMS;

    #[test]
    fn the_reference_in_the_docs_is_that_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/docs/config.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == markdown(*SYSTEMS),
            "{path} is not what is read; write it again: fipd config reference > packaging/docs/config.md"
        );
    }

    #[test]
    fn the_example_has_every_key_and_every_key_says_what_it_is() {
        let all = sections(*SYSTEMS);
        let missing: Vec<_> = all
            .iter()
            .flat_map(|section| section.keys.iter().map(move |key| (section, key)))
            .filter(|(_, key)| key.default.is_none() && key.example.is_none())
            // fipd writes it itself.
            .filter(|(section, key)| {
                (section.path.as_str(), key.name.as_str()) != ("host", "agent")
            })
            .map(|(section, key)| format!("[{}] {}", section.path, key.name))
            .collect();
        assert!(missing.is_empty(), "not in the example: {missing:#?}");
        let silent: Vec<_> = all
            .iter()
            .flat_map(|section| section.keys.iter().map(move |key| (section, key)))
            .filter(|(_, key)| key.about.is_empty())
            .map(|(section, key)| format!("[{}] {}", section.path, key.name))
            .collect();
        assert!(silent.is_empty(), "without a word: {silent:#?}");
        assert!(all.len() > 15, "{}", all.len());
    }

    #[test]
    fn words_defaults_and_required_keys_are_told_apart() {
        let all = sections(*SYSTEMS);
        let key = |path: &str, name: &str| {
            let section = all.iter().find(|section| section.path == path).unwrap();
            let found = section.keys.iter().find(|key| key.name == name);
            found.unwrap().clone()
        };
        assert_eq!(key("backup", "every").stands_for(), "default \"24h\"");
        assert_eq!(key("webhook", "url").stands_for(), "required");
        // In a section that is commented out, of a table like another one, and not the default.
        let elect = key("cluster.ip-rule", "leader-elect");
        assert_eq!(elect.stands_for(), "default true");
        let policy = key("discovery.ip-rule.webhook", "failure-policy");
        assert_eq!(policy.stands_for(), "default \"ignore\"");
        let announce = key("discovery.rancher-fip", "announce");
        assert_eq!(announce.stands_for(), "such as \"kube-vip\"");
        let role = key("cluster.rancher-fip", "role");
        assert!(role.kind.contains("\"management\""), "{role:?}");
        assert_eq!(key("listener", "serve").kind, "list of string");
    }

    #[test]
    fn the_manual_page_has_no_line_that_is_taken_for_a_request() {
        for line in man(*SYSTEMS).lines() {
            let request = line.starts_with('.') || line.starts_with('\'');
            let known = [".TH ", ".SH ", ".TP", ".B ", ".BR "];
            assert!(
                !request || known.iter().any(|one| line.starts_with(one)),
                "{line}"
            );
        }
    }
}
