//! Confirming a release.

use askama::Template;

use crate::{Form, LeaseRow, Shell};

/// Asks once before an address is freed.
#[derive(Clone, Debug, Template)]
#[template(path = "release.html")]
pub struct ReleasePage {
    pub shell: Shell,
    pub lease: LeaseRow,
    /// What the page was made from; sent back, so that a lease that changed meanwhile is not released.
    pub seen: String,
    /// The reason.
    pub form: Form,
    /// Who gets the address then; empty without contenders.
    pub heir: String,
    /// How long it is given to nobody then; empty where it is free at once.
    pub cools: String,
    /// A controller keeps this lease: it may ask for an address again at once.
    pub controlled: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn page() -> ReleasePage {
        ReleasePage {
            shell: sample::shell(true),
            lease: sample::lease("10.20.0.7", crate::State::Allocated),
            seen: "abc".into(),
            form: Form {
                error: Some("The lease changed meanwhile.".into()),
                ..sample::form(&[("reason", "moved <away>", "too long")])
            },
            heir: "kube-fip/c-2/FloatingIP/old/web".into(),
            cools: "1 h".into(),
            controlled: true,
        }
    }

    #[test]
    fn names_the_address_its_owner_and_the_heir() {
        let html = page().render().unwrap();
        for text in [
            "Release 10.20.0.7?",
            "name=\"seen\" value=\"abc\"",
            "value=\"moved &#60;away&#62;\"",
            "kube-fip/c-2/FloatingIP/old/web",
            "The lease changed meanwhile.",
            "action=\"/ui/networks/0/addresses/10.20.0.7/release\" method=\"post\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }
    #[test]
    fn says_what_becomes_of_the_address() {
        let html = |heir: &str, cools: &str| {
            let (heir, cools) = (heir.into(), cools.into());
            let page = ReleasePage {
                heir,
                cools,
                ..page()
            };
            page.render().unwrap()
        };
        let texts = ["it goes to", "it cools for 1 h", "given to anyone at once"];
        for (heir, cools, said) in [
            ("fipd/host/lab/b", "1 h", texts[0]),
            ("", "1 h", texts[1]),
            ("", "", texts[2]),
        ] {
            let html = html(heir, cools);
            for text in texts {
                assert_eq!(html.contains(text), text == said, "{text}: {html}");
            }
        }
    }
}
