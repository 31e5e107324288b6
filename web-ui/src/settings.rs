//! What fipd runs with, key by key, and who said so.

use askama::Template;

use crate::{Column, Form, Moment, Pager, Shell};

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRow {
    /// As in the file: `api.listen`, `cluster.edge-1.systems`.
    pub key: String,
    /// As in the file; what is secret is not shown.
    pub value: String,
    /// `default`, `file`, `environment` or `command line`.
    pub origin: &'static str,
    /// When a change of the file counts.
    pub taken: &'static str,
    /// What the file says by now, where that is something else and does not count yet.
    pub pending: Option<String>,
}

/// The settings.
#[derive(Clone, Debug, Template)]
#[template(path = "settings.html")]
pub struct SettingsPage {
    pub shell: Shell,
    /// The configuration file; empty: there is none.
    pub file: String,
    /// Why the file as it is now cannot be used; empty: it can.
    pub error: String,
    pub started: Moment,
    /// How many keys of the file wait for a restart.
    pub pending: usize,
    /// Name and place: data directory, socket, certificate.
    pub places: Vec<(&'static str, String)>,
    /// When the certificate ends; `None`: it does not say.
    pub certificate: Option<Moment>,
    pub filters: Form,
    pub columns: Vec<Column>,
    pub rows: Vec<SettingRow>,
    pub pager: Pager,
    /// The file that explains each key.
    pub example: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_key_says_its_value_its_origin_and_what_waits_for_a_restart() {
        let row = |key: &str, pending: Option<&str>| SettingRow {
            key: key.into(),
            value: "\"127.0.0.1<8443>\"".into(),
            origin: "file",
            taken: "at the next start",
            pending: pending.map(Into::into),
        };
        let page = SettingsPage {
            shell: sample::shell(true),
            file: "/etc/fipd/fipd.toml".into(),
            error: "line 3: unknown key".into(),
            started: sample::NOW,
            pending: 1,
            places: vec![("Data directory", "/var/lib/fipd".into())],
            certificate: Some(sample::NOW),
            filters: Form::default(),
            columns: vec![Column::plain("Key")],
            rows: vec![
                row("api.listen", Some("0.0.0.0:8443")),
                row("backup.keep", None),
            ],
            pager: Pager::default(),
            example: "# what <each> key means",
        };
        let html = page.render().unwrap();
        for text in [
            "api.listen",
            "127.0.0.1&#60;8443&#62;",
            "0.0.0.0:8443",
            "line 3: unknown key",
            "/var/lib/fipd",
            "what &#60;each&#62; key means",
            "sudo systemctl restart fipd",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }
}
