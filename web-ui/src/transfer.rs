//! Giving a lease to another owner.

use askama::Template;

use crate::{Form, LeaseRow, Shell};

/// Asks to whom, and why.
#[derive(Clone, Debug, Template)]
#[template(path = "transfer.html")]
pub struct TransferPage {
    pub shell: Shell,
    pub lease: LeaseRow,
    /// What the page was made from; sent back, so that a lease that changed meanwhile is not transferred.
    pub seen: String,
    /// The new owner, the tenant and the reason.
    pub form: Form,
    /// Who was found using it; empty without contenders.
    pub heir: String,
    /// A controller keeps this lease: it asks for another address for its object.
    pub controlled: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn mistakes_stand_beside_their_field_and_input_is_kept() {
        let mut page = TransferPage {
            shell: sample::shell(true),
            lease: sample::lease("10.20.0.7", crate::State::Allocated),
            seen: "abc".into(),
            form: sample::form(&[
                ("to", "no<owner>", "that is no owner"),
                ("tenant", "p-1", ""),
                ("reason", "", "Say why."),
            ]),
            heir: "kube-fip/c-2/FloatingIP/old/web".into(),
            controlled: true,
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
