//! The form that gives an address.

use askama::Template;

use crate::{Form, Shell};

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
    pub form: AllocateForm,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn mistakes_stand_beside_their_field_and_input_is_kept() {
        let page = AllocatePage {
            shell: sample::shell(true),
            pool_name: "dmz".into(),
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
        assert!(page.form.inputs.failed() && !Form::default().failed());
    }
}
