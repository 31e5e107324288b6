//! Forms made of labelled fields: what is asked, what was typed, what is wrong with it.

use askama::Template;

use crate::Shell;

/// What was typed into one field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Field {
    pub value: String,
    pub error: Option<String>,
}

/// Owner and, if it matters, the address.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AllocateForm {
    pub pool: u32,
    /// The owner and the address; no address: the next free one.
    pub inputs: Form,
    /// An address of the pool, as an example.
    pub example: String,
}

/// The form alone: after a mistake, and from a free cell of the map.
#[derive(Clone, Debug, Template)]
#[template(path = "allocate.html")]
pub struct AllocatePage {
    pub shell: Shell,
    pub pool_name: String,
    /// The pool gives prefixes of so many bits; `None`: addresses.
    pub allocation_length: Option<u8>,
    pub form: AllocateForm,
}

/// One field of a form.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Input {
    /// As it is sent, and the element's id.
    pub name: &'static str,
    pub label: &'static str,
    /// A word after the label, such as `optional`.
    pub note: &'static str,
    /// A sentence below the field.
    pub hint: String,
    pub kind: InputKind,
    pub required: bool,
    pub field: Field,
}

/// How it is typed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum InputKind {
    #[default]
    Line,
    /// Never shown again.
    Secret,
    /// One entry a line.
    Lines,
    /// A day and a time, in UTC.
    Time,
    /// Value and label of each choice.
    Choice(Vec<(String, String)>),
    /// Ticked or not: sent as `yes`.
    Tick,
    /// A file of text, of these kinds; only in forms that are sent in parts.
    File(&'static str),
    /// Carried along unseen.
    Hidden,
}

/// A form with its fields and one button.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Form {
    pub target: String,
    pub inputs: Vec<Input>,
    /// What is wrong with no field.
    pub error: Option<String>,
    pub button: String,
    /// The button takes something away.
    pub danger: bool,
    /// Whose passwords are typed, for those who keep passwords; may be empty.
    pub account: String,
}

/// A page that is one form.
#[derive(Clone, Debug, Default, Template)]
#[template(path = "form_page.html")]
pub struct FormPage {
    pub shell: Shell,
    pub title: String,
    /// Addresses and names of the pages above.
    pub trail: Vec<(String, String)>,
    /// What it is about, a paragraph each.
    pub lead: Vec<String>,
    /// What to think of first; may be empty.
    pub caution: String,
    pub form: Form,
    /// Where to go without sending it.
    pub back: String,
}

impl AllocatePage {
    /// One of what the pool gives.
    pub(crate) fn given(&self) -> String {
        crate::pool::given(self.allocation_length)
    }
}

impl Input {
    /// A line that may be left empty.
    pub fn new(name: &'static str, label: &'static str) -> Self {
        Self {
            name,
            label,
            ..Self::default()
        }
    }

    #[must_use]
    pub fn kind(self, kind: InputKind) -> Self {
        Self { kind, ..self }
    }

    #[must_use]
    pub fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        Self { hint, ..self }
    }

    #[must_use]
    pub fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.field.value = value.into();
        self
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.kind == InputKind::Hidden
    }

    pub(crate) fn ticked(&self) -> bool {
        self.field.value == "yes"
    }

    /// The element's type; what is secret is never filled in.
    pub(crate) fn typed(&self) -> &'static str {
        if self.kind == InputKind::Secret {
            "password"
        } else if self.kind == InputKind::Time {
            "datetime-local"
        } else {
            "text"
        }
    }

    /// What browsers may fill in.
    pub(crate) fn completed(&self) -> &'static str {
        match (self.typed(), self.name) {
            ("password", "present") => "current-password",
            ("password", _) => "new-password",
            _ => "off",
        }
    }

    pub(crate) fn shown(&self) -> &str {
        if self.kind == InputKind::Secret {
            ""
        } else {
            &self.field.value
        }
    }

    pub(crate) fn is(&self, choice: &str) -> bool {
        self.field.value == choice
    }

    /// The texts that describe the field, for those who hear the page.
    pub(crate) fn described(&self) -> String {
        let error = self.field.error.as_ref();
        let error = error.map(|_| format!("{}-error", self.name));
        let hint = (!self.hint.is_empty()).then(|| format!("{}-hint", self.name));
        let ids: Vec<_> = error.into_iter().chain(hint).collect();
        ids.join(" ")
    }

    /// The hint, cut where a narrow page may break it: behind slashes.
    pub(crate) fn hint_parts(&self) -> impl Iterator<Item = &str> {
        self.hint.split_inclusive('/')
    }

    /// Lines to show at once.
    pub(crate) fn rows(&self) -> usize {
        self.field.value.lines().count().clamp(2, 12) + 1
    }
}

impl InputKind {
    /// A choice of these values by their labels.
    pub fn of<'a>(choices: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let choices = choices.into_iter();
        Self::Choice(
            choices
                .map(|(value, label)| (value.into(), label.into()))
                .collect(),
        )
    }

    /// The same, beginning with "any".
    pub fn any_of<'a>(choices: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::of([("", "any")].into_iter().chain(choices))
    }

    /// The same of words that are their own labels.
    pub fn any_word(words: impl IntoIterator<Item = &'static str>) -> Self {
        Self::any_of(words.into_iter().map(|word| (word, word)))
    }
}

impl FormPage {
    /// A form below a list, to which it goes back.
    pub fn below(list: &str, name: &str, title: impl Into<String>, form: Form) -> Self {
        Self {
            title: title.into(),
            trail: vec![(list.to_owned(), name.to_owned())],
            form,
            back: list.to_owned(),
            ..Self::default()
        }
    }
}

impl Form {
    pub fn new(target: impl Into<String>, button: &str, inputs: Vec<Input>) -> Self {
        Self {
            target: target.into(),
            inputs,
            button: button.to_owned(),
            ..Self::default()
        }
    }

    /// Nothing but a button that takes something away.
    pub fn confirm(target: impl Into<String>, button: &str) -> Self {
        Self {
            danger: true,
            ..Self::new(target, button, Vec::new())
        }
    }

    /// Whether it is sent in parts.
    pub(crate) fn has_file(&self) -> bool {
        let mut inputs = self.inputs.iter();
        inputs.any(|input| matches!(input.kind, InputKind::File(_)))
    }

    /// What was typed into the field; empty where there is none of that name.
    pub fn value(&self, name: &str) -> &str {
        let input = self.inputs.iter().find(|input| input.name == name);
        input.map_or("", |input| &input.field.value)
    }

    /// The field of that name, for a page that lays out its form itself.
    pub fn field(&self, name: &str) -> Field {
        let input = self.inputs.iter().find(|input| input.name == name);
        input.map_or_else(Field::default, |input| input.field.clone())
    }

    /// Fills a field in.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        if let Some(input) = self.input(name) {
            input.field.value = value.into();
        }
    }

    /// Notes what is wrong beside the field; above the form where there is no such field to be seen.
    pub fn wrong(&mut self, name: &str, text: impl Into<String>) {
        let text = Some(text.into());
        match self.input(name).filter(|input| !input.is_hidden()) {
            Some(input) => input.field.error = text,
            None => self.error = text,
        }
    }

    /// Whether something has to be put right.
    pub fn failed(&self) -> bool {
        self.error.is_some() || self.inputs.iter().any(|input| input.field.error.is_some())
    }

    /// The same values, carried along unseen.
    #[must_use]
    pub fn hidden(&self) -> Vec<Input> {
        let input = |input: &Input| Input {
            kind: InputKind::Hidden,
            ..input.clone()
        };
        self.inputs.iter().map(input).collect()
    }

    fn input(&mut self, name: &str) -> Option<&mut Input> {
        self.inputs.iter_mut().find(|input| input.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn form() -> Form {
        let network = InputKind::Choice(vec![
            ("0".into(), "default".into()),
            ("1".into(), "b<l>ue".into()),
        ]);
        Form {
            target: "/ui/somewhere".into(),
            inputs: vec![
                Input::new("name", "Name").required().value("d<m>z"),
                Input::new("network", "Network").kind(network).value("1"),
                Input::new("addresses", "Addresses")
                    .kind(InputKind::Lines)
                    .hint("One a line, such as 10.0.0.0/24.")
                    .value("10.0.0.0/24\n10.0.1.0/24"),
                Input::new("password", "Password")
                    .kind(InputKind::Secret)
                    .value("s3cret"),
                Input::new("closed", "Closed")
                    .kind(InputKind::Tick)
                    .value("yes"),
                Input::new("generation", "")
                    .kind(InputKind::Hidden)
                    .value("7"),
            ],
            button: "Save".into(),
            ..Form::default()
        }
    }

    #[test]
    fn what_was_typed_stays_and_mistakes_stand_beside_it() {
        let mut form = form();
        assert!(!form.failed());
        form.wrong("addresses", "that is <no> address");
        form.wrong("generation", "it has changed");
        assert!(form.failed());
        let page = FormPage {
            shell: sample::shell(true),
            title: "Edit d<m>z".into(),
            trail: vec![("/ui/pools".into(), "Pools".into())],
            lead: vec![],
            caution: String::new(),
            form,
            back: "/ui/pools/1".into(),
        };
        let html = page.render().unwrap();
        for text in [
            "<title>Error: Edit d&#60;m&#62;z",
            "action=\"/ui/somewhere\" method=\"post\"",
            "name=\"csrf\" value=\"c5rf\"",
            "value=\"d&#60;m&#62;z\"",
            "<option value=\"1\" selected>b&#60;l&#62;ue</option>",
            "10.0.0.0/24\n10.0.1.0/24</textarea>",
            "id=\"addresses-error\">that is &#60;no&#62; address",
            "aria-invalid=\"true\" aria-describedby=\"addresses-error addresses-hint\"",
            "type=\"checkbox\" name=\"closed\" value=\"yes\" checked",
            "type=\"hidden\" name=\"generation\" value=\"7\"",
            "role=\"alert\">it has changed",
            "One a line, such as 10.0.0.0/<wbr>24.</p>",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        assert!(!html.contains("s3cret"), "{html}");
    }

    #[test]
    fn values_are_carried_along() {
        let form = form();
        let hidden = Form {
            inputs: form.hidden(),
            ..Form::default()
        };
        assert_eq!(hidden.value("addresses"), form.value("addresses"));
        assert!(hidden.inputs.iter().all(Input::is_hidden));
    }

    #[test]
    fn mistakes_stand_beside_their_field_and_input_is_kept() {
        let page = AllocatePage {
            shell: sample::shell(true),
            pool_name: "dmz".into(),
            allocation_length: Some(28),
            form: AllocateForm {
                pool: 3,
                inputs: sample::form(&[
                    ("owner", "no<owner>", "owner \"no<owner>\" is wrong"),
                    ("address", "10.0.0.300", "no address"),
                ]),
                example: "10.0.0.5".into(),
            },
        };
        let html = page.render().unwrap();
        assert!(
            html.contains("action=\"/ui/pools/3/allocate\" method=\"post\""),
            "{html}"
        );
        assert!(
            html.contains("value=\"no&#60;owner&#62;\"") && html.contains("value=\"10.0.0.300\"")
        );
        assert!(html.contains("aria-invalid=\"true\" aria-describedby=\"owner-error owner-hint\""));
        assert!(html.contains("id=\"owner-error\"") && html.contains("id=\"address-error\""));
        assert!(html.contains("name=\"csrf\" value=\"c5rf\""));
        assert!(html.contains("<h1>Allocate a prefix of /28</h1>"));
        assert!(page.form.inputs.failed() && !Form::default().failed());
    }
}
