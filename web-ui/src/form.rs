//! The form that gives an address.

use askama::Template;

use crate::{Shell, links};

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
    pub owner: Field,
    /// Empty: the next free one.
    pub address: Field,
    /// What is wrong with neither field.
    pub error: Option<String>,
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

impl AllocateForm {
    /// Whether something has to be put right.
    pub fn failed(&self) -> bool {
        self.error.is_some() || self.owner.error.is_some() || self.address.error.is_some()
    }

    pub(crate) fn target(&self) -> String {
        links::allocate(self.pool)
    }

    pub(crate) fn back(&self) -> String {
        links::pool(self.pool)
    }
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
                owner: Field {
                    value: "no<owner>".into(),
                    error: Some("owner \"no<owner>\" is wrong".into()),
                },
                address: Field {
                    value: "10.0.0.300".into(),
                    error: Some("no address".into()),
                },
                error: None,
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
        assert!(page.form.failed() && !AllocateForm::default().failed());
    }
}
