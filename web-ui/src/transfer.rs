//! Giving a lease to another owner.

use std::net::IpAddr;

use askama::Template;

use crate::{Field, LeaseRow, Shell, links};

/// Asks to whom, and why.
#[derive(Clone, Debug, Template)]
#[template(path = "transfer.html")]
pub struct TransferPage {
    pub shell: Shell,
    pub lease: LeaseRow,
    /// What the page was made from; sent back, so that a lease that changed meanwhile is not transferred.
    pub seen: String,
    pub to: Field,
    pub tenant: Field,
    pub reason: Field,
    /// What is wrong with no field.
    pub error: Option<String>,
    /// Who was found using it; empty without contenders.
    pub heir: String,
    /// A controller keeps this lease: it asks for another address for its object.
    pub controlled: bool,
}

impl TransferPage {
    pub(crate) fn address(&self) -> IpAddr {
        self.lease.address
    }

    pub(crate) fn target(&self) -> String {
        links::transfer(self.lease.network, self.lease.address)
    }

    pub(crate) fn failed(&self) -> bool {
        let fields = [&self.to, &self.tenant, &self.reason];
        self.error.is_some() || fields.iter().any(|field| field.error.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn mistakes_stand_beside_their_field_and_input_is_kept() {
        let field = |value: &str, error: Option<&str>| Field {
            value: value.into(),
            error: error.map(Into::into),
        };
        let mut page = TransferPage {
            shell: sample::shell(true),
            lease: sample::lease("10.20.0.7", crate::State::Allocated),
            seen: "abc".into(),
            to: field("no<owner>", Some("that is no owner")),
            tenant: field("p-1", None),
            reason: field("", Some("Say why.")),
            error: None,
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
        (page.to.error, page.reason.error) = (None, None);
        assert!(!page.failed());
    }
}
