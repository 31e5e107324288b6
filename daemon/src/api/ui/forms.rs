//! From a form to the body of a REST function, and from what REST refuses back to the input that it is about.

use fipd_web_ui::{Form, Input, InputKind};
use http::StatusCode;

use super::fields::Fields;
use crate::{
    api::problem::{Code, Problem},
    clock,
};

/// What a page says, by field and value, of an invalid input; `None`: what REST says.
pub type Words = fn(&str, &str) -> Option<&'static str>;

/// The words of REST.
pub const AS_REST: Words = |_, _| None;

/// A form with these fields as they were typed, for a page that lays out its form itself.
pub fn filled(names: &[&'static str], fields: &Fields) -> Form {
    let input = |name: &&'static str| Input::new(name, "").value(fields.get(name));
    Form {
        inputs: names.iter().map(input).collect(),
        ..Form::default()
    }
}

/// What was typed.
pub fn typed(form: &mut Form, fields: &Fields) {
    let names: Vec<_> = form.inputs.iter().map(|input| input.name).collect();
    for name in names {
        form.set(name, fields.get(name));
    }
}

/// Says beside each field that differs what there is at present.
pub fn beside(at_present: &Form, form: &mut Form) {
    for input in &at_present.inputs {
        let now = &input.field.value;
        let shown = match (now.as_str(), &input.kind) {
            (_, InputKind::Hidden | InputKind::Secret) => continue,
            ("", InputKind::Tick) => "not ticked",
            (_, InputKind::Tick) => "ticked",
            ("", _) => "empty",
            (text, _) => text,
        };
        if entries_differ(now, form.value(input.name)) {
            form.wrong(input.name, format!("At present it is {shown}."));
        }
    }
}

fn entries_differ(one: &str, other: &str) -> bool {
    !one.split_whitespace().eq(other.split_whitespace())
}

/// Puts a problem beside the field it is about, and answers with the status of the page.
pub fn blame(form: &mut Form, problem: &Problem, words: Words) -> StatusCode {
    let field = match problem.field.as_deref() {
        Some("ends") => "reserve_first",
        Some(name) => name,
        None => "",
    };
    let value = problem.value.as_deref().unwrap_or_default();
    let own = words(field, value).filter(|_| problem.code == Code::Invalid);
    // What is said of a text often quotes it already.
    let quotes = |allowed: &&str| !value.is_empty() && allowed.contains(value);
    let allowed = problem.allowed.as_deref().filter(quotes);
    form.wrong(field, own.or(allowed).unwrap_or(&problem.detail));
    let beside = form.inputs.iter().any(|input| input.name == field);
    let names = matches!(
        problem.code,
        Code::NotFound | Code::Exists | Code::Ambiguous
    );
    if problem.code == Code::Stale {
        StatusCode::CONFLICT
    } else if beside && names {
        // The address of the page is right; what was typed is not.
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        problem.status_code()
    }
}

/// Notes that a field was left empty, which REST would take. Whether it was not.
pub fn require(form: &mut Form, name: &str, text: &str) -> bool {
    let is_there = !form.value(name).is_empty();
    if !is_there {
        form.wrong(name, text);
    }
    is_there
}

/// What the field says; an empty one is `Some(None)`, and `None` is a mistake, which is noted.
pub fn parsed<T, E: ToString>(
    form: &mut Form,
    name: &str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Option<Option<T>> {
    match form.value(name) {
        "" => Some(None),
        text => match read(text) {
            Ok(value) => Some(Some(value)),
            Err(error) => {
                form.wrong(name, error.to_string());
                None
            }
        },
    }
}

/// `None` for nothing.
pub fn optional(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A day and a time as REST has them; what is none stays as it was typed.
pub fn time(text: &str) -> Option<String> {
    optional(text).map(|text| clock::parse_typed(&text).map_or(text, clock::rfc3339))
}

/// One entry a line.
pub fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(ToOwned::to_owned).collect()
}

/// What is between spaces, commas and line ends.
pub fn entries(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| c.is_whitespace() || c == ',');
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> Form {
        filled(&["owner", "address"], &Fields::parse(b"owner=+a+&other=x"))
    }

    #[test]
    fn a_refusal_stands_beside_its_field_or_above_the_form() {
        let words: Words =
            |field, value| (field == "owner" && value.is_empty()).then_some("Say who.");
        let mut asked = form();
        let status = blame(
            &mut asked,
            &Problem::invalid("owner", "", "an owner"),
            words,
        );
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(asked.field("owner").error.as_deref(), Some("Say who."));
        assert_eq!(asked.value("owner"), "a");
        let mut asked = form();
        let twice = Problem::invalid("owner", "x", "\"x\" is no owner");
        blame(&mut asked, &twice, words);
        assert_eq!(
            asked.field("owner").error.as_deref(),
            Some("\"x\" is no owner")
        );
        let mut asked = form();
        let status = blame(
            &mut asked,
            &Problem::new(Code::Stale, "pool p changed"),
            AS_REST,
        );
        assert_eq!(
            (status, asked.error.as_deref()),
            (StatusCode::CONFLICT, Some("pool p changed"))
        );
        for (field, status) in [("owner", 422), ("network", 404)] {
            let missing = Problem::not_found("thing", "x").about(field, "x");
            assert_eq!(
                blame(&mut form(), &missing, AS_REST).as_u16(),
                status,
                "{field}"
            );
        }
    }

    #[test]
    fn times_are_sent_as_rest_reads_them() {
        assert_eq!(
            time("2030-03-01T12:00").as_deref(),
            Some("2030-03-01T12:00:00.000Z")
        );
        assert_eq!(time("soon").as_deref(), Some("soon"));
        assert_eq!(time(""), None);
    }
}
