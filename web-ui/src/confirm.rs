//! Confirming a release, and giving a lease to another owner.

use askama::Template;

use crate::{Form, LeaseRow, Shell};

/// The lease that a form changes, and whom that concerns beside its holder.
#[derive(Clone, Debug)]
pub struct AskedLease {
    pub lease: LeaseRow,
    /// What the page was made from; sent back, so that a lease that changed meanwhile is left as it is.
    pub seen: String,
    /// Who was found using all of it for the longest time; empty where nobody was.
    pub heir: String,
    /// How many were found using parts of it, which each gets; 0 where somebody uses all of it.
    pub users: usize,
    /// A controller keeps this lease: it may ask for an address again at once.
    pub controlled: bool,
}

/// Asks once before an address is freed.
#[derive(Clone, Debug, Template)]
#[template(path = "release.html")]
pub struct ReleasePage {
    pub shell: Shell,
    pub asked: AskedLease,
    /// The reason.
    pub form: Form,
    /// How long it is given to nobody then; empty where it is free at once.
    pub cools: String,
}

/// Asks to whom, and why.
#[derive(Clone, Debug, Template)]
#[template(path = "transfer.html")]
pub struct TransferPage {
    pub shell: Shell,
    pub asked: AskedLease,
    /// The new owner, the tenant and the reason.
    pub form: Form,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn asked() -> AskedLease {
        AskedLease {
            lease: sample::lease("10.20.0.7", fipd_core::LeaseState::Allocated),
            seen: "abc".into(),
            heir: "kube-fip/c-2/FloatingIP/old/web".into(),
            users: 0,
            controlled: true,
        }
    }

    fn page() -> ReleasePage {
        ReleasePage {
            shell: sample::shell(true),
            asked: asked(),
            form: Form {
                error: Some("The lease changed meanwhile.".into()),
                ..sample::form(&[("reason", "moved <away>", "too long")])
            },
            cools: "1 h".into(),
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
        let html = |heir: &str, users: usize, cools: &str| {
            let mut page = page();
            (page.asked.heir, page.asked.users, page.cools) = (heir.into(), users, cools.into());
            page.render().unwrap()
        };
        let texts = [
            "it goes to",
            "it is quarantined for 1 h",
            "given to anyone at once",
            "Somebody else was found using parts of it. They get these parts at once",
            "2 others were found using parts of it. They get these parts after it was quarantined for 1 h",
        ];
        for (heir, users, cools, said) in [
            ("fipd/host/lab/b", 0, "1 h", texts[0]),
            ("", 0, "1 h", texts[1]),
            ("", 0, "", texts[2]),
            ("", 1, "", texts[3]),
            ("", 2, "1 h", texts[4]),
        ] {
            let html = html(heir, users, cools);
            for text in texts {
                assert_eq!(html.contains(text), text == said, "{text}: {html}");
            }
        }
    }

    #[test]
    fn mistakes_stand_beside_their_field_and_input_is_kept() {
        let mut page = TransferPage {
            shell: sample::shell(true),
            asked: asked(),
            form: sample::form(&[
                ("to", "no<owner>", "that is no owner"),
                ("tenant", "p-1", ""),
                ("reason", "", "Say why."),
            ]),
        };
        let html = page.render().unwrap();
        for text in [
            "<title>Error: Transfer 10.20.0.7",
            "name=\"seen\" value=\"abc\"",
            "name=\"csrf\" value=\"c5rf\"",
            "value=\"no&#60;owner&#62;\"",
            "id=\"to-error\">that is no owner",
            "id=\"reason-error\">Say why.",
            "value=\"p-1\" autocapitalize=\"none\" spellcheck=\"false\" autocomplete=\"off\" maxlength=\"1024\"",
            "kube-fip/c-2/FloatingIP/old/web",
            "action=\"/ui/networks/0/addresses/10.20.0.7/transfer\" method=\"post\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        page.form = sample::form(&[("to", "no<owner>", "")]);
        let html = page.render().unwrap();
        assert!(html.contains("<title>Transfer 10.20.0.7"), "{html}");
    }
}
