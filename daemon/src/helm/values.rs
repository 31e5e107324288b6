//! Values of a chart, in a form in which what was asked for and what helm has can be compared.

use std::fmt;

use data_encoding::HEXLOWER;
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

/// Values as an object without nulls. Helm gets them as JSON, so that both sides mean the same by them: what is a
/// number or a truth in YAML depends on who reads it.
///
/// They may hold secrets, and are not shown.
#[derive(Clone, PartialEq)]
pub struct Values(Map<String, Value>);

/// Tells values apart without holding them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Values {
    /// Reads YAML; an empty text is an empty object.
    ///
    /// # Errors
    /// Why it is none, without what it holds.
    pub fn parse(yaml: &str) -> Result<Self, String> {
        if yaml
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
        {
            return Ok(Self(Map::new()));
        }
        let parsed: Value = serde_saphyr::from_str(yaml).map_err(|error| {
            let place = error
                .location()
                .map(|at| format!(" in line {}, column {}", at.line(), at.column()));
            format!("is no YAML{}", place.unwrap_or_default())
        })?;
        Self::of(&parsed).ok_or_else(|| "is no YAML object; values are KEY: VALUE lines".to_owned())
    }

    /// What helm says it has; `None` for anything but an object.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(Self(Map::new())),
            Value::Object(map) => Some(Self(normal_map(map))),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        }
    }

    pub fn to_json(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text without the values that it quotes, as errors of API servers do; `but` are names that may stay.
    pub fn hidden_in(&self, text: &str, but: &[&str]) -> String {
        let mut words = Vec::new();
        self.0.values().for_each(|value| texts(value, &mut words));
        words.retain(|word| !is_plain(word) && !but.contains(&&**word));
        // A value that holds another goes first.
        words.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        words.dedup();
        let hide = |text: String, word: &String| match word.len() >= ANYWHERE {
            true => text.replace(&**word, HIDDEN),
            false => without_word(&text, word),
        };
        words.iter().fold(text.to_owned(), hide)
    }

    pub fn digest(&self) -> Digest {
        let mut values = Value::Object(self.0.clone());
        // Whatever order the maps have.
        values.sort_all_objects();
        Digest(Sha256::digest(values.to_string()).into())
    }
}

/// Values of this length are hidden within longer words too. In the place of shorter ones every other word would have gaps.
const ANYWHERE: usize = 6;
/// What stands in their place.
const HIDDEN: &str = "...";

/// Whether a value is no secret, and messages need the word: truth values, numbers of under four digits, one or two characters.
fn is_plain(word: &str) -> bool {
    let truths = ["true", "false", "yes", "no", "on", "off"];
    let is_truth = truths.iter().any(|truth| word.eq_ignore_ascii_case(truth));
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_number = word.parse::<f64>().is_ok();
    is_truth || word.chars().count() < 3 || (is_number && digits < 4)
}

/// The text without a word, where no letter or digit beside it makes it a part of another one.
fn without_word(text: &str, word: &str) -> String {
    let joins = |inner: Option<char>, outer: Option<char>| {
        let both = [inner, outer];
        both.iter()
            .all(|one| one.is_some_and(char::is_alphanumeric))
    };
    let (first, last) = (word.chars().next(), word.chars().next_back());
    let (mut shown, mut rest) = (String::new(), text);
    // Only asked where the word is: it looks back over the text.
    let before = |rest: &str| {
        let before = text.get(..text.len() - rest.len()).unwrap_or_default();
        let joined = Some(before).filter(|before| !ends_in_escape(before));
        joined.and_then(|before| before.chars().next_back())
    };
    while let Some(next) = rest.chars().next() {
        let is_end = |after: &&str| !joins(last, after.chars().next());
        let after = rest.strip_prefix(word).filter(is_end);
        match after.filter(|_| !joins(first, before(rest))) {
            Some(after) => {
                shown.push_str(HIDDEN);
                rest = after;
            }
            None => {
                shown.push(next);
                rest = rest.get(next.len_utf8()..).unwrap_or_default();
            }
        }
    }
    shown
}

/// Whether the letters at the end of a text are those of an escape in quotes, such as `\n` or `\u003c`: what follows is another word.
fn ends_in_escape(text: &str) -> bool {
    [("", 0), ("x", 2), ("u", 4), ("U", 8)]
        .into_iter()
        .any(|(kind, digits)| ends_in_escape_of(text, kind, digits).unwrap_or_default())
}

/// The same of escapes of one kind, with so many digits; any letter where the kind is empty.
fn ends_in_escape_of(text: &str, kind: &str, digits: usize) -> Option<bool> {
    let (start, escape) = text.split_at_checked(text.len().checked_sub(1 + digits)?)?;
    let is_escape = escape.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && escape.starts_with(kind)
        && escape
            .bytes()
            .skip(1)
            .all(|digit| digit.is_ascii_hexdigit());
    // Two backslashes are one of the text itself.
    let backslashes = start.len() - start.trim_end_matches('\\').len();
    Some(is_escape && backslashes % 2 == 1)
}

/// All texts and numbers in a value; of a text each line too, as messages quote them alone or indent them anew.
fn texts(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            forms(text, all);
            text.lines().for_each(|line| forms(line.trim(), all));
        }
        Value::Number(number) => all.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, all)),
        Value::Object(map) => map.values().for_each(|value| texts(value, all)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Go's JSON escapes these as well.
const GO_ESCAPES: [(char, &str); 3] = [('<', r"\u003c"), ('>', r"\u003e"), ('&', r"\u0026")];

/// A text, and as it is in quotes, where a line break is `\n`: in JSON of others and in that of Go.
fn forms(text: &str, all: &mut Vec<String>) {
    let quoted = Value::from(text).to_string();
    let quoted = quoted
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or_default();
    let escape = |text: String, (sign, escape): (char, &str)| text.replace(sign, escape);
    let of_go = GO_ESCAPES.into_iter().fold(quoted.to_owned(), escape);
    all.extend([text.to_owned(), quoted.to_owned(), of_go]);
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Values({:?})", self.digest())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0[..4]))
    }
}

/// Nulls are dropped: to helm they mean the same as nothing in some places and are lost in others.
fn normal_map(map: &Map<String, Value>) -> Map<String, Value> {
    let kept = map.iter().filter(|(_, value)| !value.is_null());
    kept.map(|(key, value)| (key.clone(), normal(value)))
        .collect()
}

fn normal(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(normal_map(map)),
        Value::Array(all) => Value::Array(all.iter().map(normal).collect()),
        Value::Number(number) => Value::Number(normal_number(number)),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Whole numbers without a fraction, as helm writes them: Go has one kind of number for all of JSON.
fn normal_number(number: &Number) -> Number {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        Some(float) if float.fract() == 0.0 && float.abs() < EXACT => Number::from(float as i64),
        Some(float) => Number::from_f64(float).unwrap_or_else(|| number.clone()),
        None => number.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn digest(yaml: &str) -> Digest {
        Values::parse(yaml).unwrap().digest()
    }

    #[test]
    fn what_helm_quotes_of_values_is_hidden_and_names_stay() {
        let values = Values::parse(
            "nameOverride: kube-vip\nenv: {token: hunter2-hunter2, on: 'true', all: [hunter2]}",
        )
        .unwrap();
        let said = "kube-vip: env[1]: Invalid value: \"hunter2-hunter2\" is true, and hunter2";
        let hidden = values.hidden_in(said, &["kube-vip"]);
        assert_eq!(
            hidden,
            "kube-vip: env[1]: Invalid value: \"...\" is true, and ..."
        );
        let values = Values::parse("pin: 4711472\nkey: \"first\\nsecond\"\nport: 8080").unwrap();
        let said = r#"port 8080: Invalid value: 4711472, Invalid value: "first\nsecond""#;
        assert_eq!(
            values.hidden_in(said, &[]),
            r#"port ...: Invalid value: ..., Invalid value: "...""#
        );
    }

    #[test]
    fn short_values_are_hidden_as_whole_words_alone() {
        let hidden = |values: &str, said: &str| {
            let values = Values::parse(values).unwrap();
            values.hidden_in(said, &["vip"])
        };
        let values = "pin: 4711\nkey: abc\nsign: 'p@s!'\nname: vip";
        for (said, shown) in [
            (r#"Invalid value: "abc""#, r#"Invalid value: "...""#),
            ("abc,abc abc", "...,... ..."),
            ("abcd dabc 1abc abcabc", "abcd dabc 1abc abcabc"),
            ("\u{e4}abc abc\u{e4}", "\u{e4}abc abc\u{e4}"),
            ("pin 4711 of port 47110", "pin ... of port 47110"),
            ("vip: xp@s! p@s!x", "vip: xp@s! ...x"),
        ] {
            assert_eq!(hidden(values, said), shown);
        }
        let plain =
            "flag: true\nword: 'true'\ncount: 1\nlimit: 443\nhalf: 0.5\nx: ab\nanswer: 'No'";
        let said = "true: 1 of 443 replicas, 0.5 ab, No";
        assert_eq!(hidden(plain, said), said);
    }

    #[test]
    fn a_short_value_is_hidden_after_an_escape() {
        let values = Values::parse("pin: abc").unwrap();
        for (said, shown) in [
            (r#""user\nabc""#, r#""user\n...""#),
            (r#""abc\tabc\\\nabc""#, r#""...\t...\\\n...""#),
            (
                r#""\u003cabc\u003e \x00abc""#,
                r#""\u003c...\u003e \x00...""#,
            ),
            // The backslash is the escaped one here, and what follows is a longer word.
            (r#""user\\nabc""#, r#""user\\nabc""#),
            ("nabc 003cabc u003cabc", "nabc 003cabc u003cabc"),
            ("\u{e4}\\\u{e4}abc", "\u{e4}\\\u{e4}abc"),
        ] {
            assert_eq!(values.hidden_in(said, &[]), shown);
        }
    }

    #[test]
    fn each_line_of_a_value_is_hidden_too() {
        let values = "config: |\n  token=\"hunter2\"\n    key\n  on\n\n  vip-name\n";
        let values = Values::parse(values).unwrap();
        for (said, shown) in [
            (r#"line token="hunter2" is wrong"#, "line ... is wrong"),
            (
                r#"Invalid value: "xtoken=\"hunter2\"""#,
                r#"Invalid value: "x...""#,
            ),
            ("  key\n  keys on", "  ...\n  keys on"),
            ("vip-name: x", "vip-name: x"),
        ] {
            assert_eq!(values.hidden_in(said, &["vip-name"]), shown);
        }
    }

    #[test]
    fn a_value_is_hidden_as_the_json_of_go_writes_it_too() {
        let values = Values::parse("url: 'http://a/?b=<1>&c=\"2\"'\nsign: '<&>'").unwrap();
        for (said, shown) in [
            (
                r#"{"url":"http://a/?b=\u003c1\u003e\u0026c=\"2\""}"#,
                r#"{"url":"..."}"#,
            ),
            (r#"{"url":"http://a/?b=<1>&c=\"2\""}"#, r#"{"url":"..."}"#),
            (r#"http://a/?b=<1>&c="2" is wrong"#, "... is wrong"),
            (r#""x\u003c\u0026\u003ey""#, r#""x...y""#),
        ] {
            assert_eq!(values.hidden_in(said, &[]), shown);
        }
    }

    #[test]
    fn order_comments_and_the_way_of_writing_do_not_count() {
        let one = digest("a: 1\nb: {c: x, d: [1, 2.50]}\n");
        let two = digest("# two\nb:\n  d:\n  - 1\n  - 2.5\n  c: 'x'\na: 1.0\n");
        assert_eq!(one, two);
        let from_helm = json!({"b": {"d": [1, 2.5], "c": "x"}, "a": 1, "gone": null});
        assert_eq!(Values::of(&from_helm).unwrap().digest(), one);
        assert_ne!(digest("a: '1'"), digest("a: 1"));
        assert_ne!(digest("a: [1, 2]"), digest("a: [2, 1]"));
    }

    #[test]
    fn nothing_is_an_empty_object() {
        for empty in ["", "  \n", "# nothing\n", "{}"] {
            assert_eq!(Values::parse(empty).unwrap().to_json(), "{}", "{empty:?}");
        }
        assert_eq!(Values::of(&Value::Null).unwrap().to_json(), "{}");
    }

    #[test]
    fn helm_gets_what_the_originals_parser_understood() {
        // Both read YAML 1.1 here: yes is a truth.
        let values = Values::parse("garp: yes\nport: 8080\nname: \"yes\"\n").unwrap();
        assert_eq!(
            values.to_json(),
            r#"{"garp":true,"name":"yes","port":8080}"#
        );
    }

    #[test]
    fn errors_name_the_place_and_repeat_nothing() {
        let said = Values::parse("password: geheim\nb: [1").unwrap_err();
        assert!(said.contains("line") && !said.contains("geheim"), "{said}");
        assert!(
            Values::parse("- 1\n- 2\n")
                .unwrap_err()
                .contains("no YAML object")
        );
        let shown = format!("{:?}", Values::parse("password: geheim").unwrap());
        assert!(!shown.contains("geheim"), "{shown}");
    }
}
