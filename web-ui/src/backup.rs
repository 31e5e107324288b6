//! Keeping copies of the address book.

use askama::Template;

use crate::{Column, Form, Moment, Pager, Shell};

/// A copy that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRow {
    pub name: String,
    pub link: String,
    pub made: Moment,
    pub size: String,
    /// When it was restored on trial.
    pub tried: Option<Moment>,
    /// What was wrong with it then.
    pub problem: Option<String>,
}

/// What can be taken away, and how it is brought back.
#[derive(Clone, Debug, Template)]
#[template(path = "backup.html")]
pub struct BackupPage {
    pub shell: Shell,
    /// A name for the file, with the day in it.
    pub file: String,
    /// Size of the database; empty where nobody knows.
    pub room: String,
    /// Where copies are kept.
    pub directory: String,
    /// How often they are made, and how many stay.
    pub plan: String,
    /// When and why the last one failed.
    pub failed: Option<(Moment, String)>,
    /// Why those that are kept cannot be listed; may be empty.
    pub error: String,
    pub filters: Form,
    pub columns: Vec<Column>,
    /// The newest of all; empty: there is none.
    pub newest: String,
    /// One page of them.
    pub copies: Vec<CopyRow>,
    pub pager: Pager,
    /// While free addresses are held after a restore: until when.
    pub held_until: Option<Moment>,
    /// Ends that.
    pub lifting: Form,
    /// Label, format and address of each export.
    pub exports: Vec<(&'static str, &'static str, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, sample};

    fn page() -> BackupPage {
        BackupPage {
            shell: sample::shell(true),
            file: "fipd-2026-11-21.redb".into(),
            room: "12.0 MiB".into(),
            directory: "/var/lib/fipd/backups".into(),
            plan: "A copy is made every 24 h; the newest 7 are kept.".into(),
            failed: Some((Moment(1_795_240_640_000), "the <disk> is full".into())),
            error: "The directory cannot be read.".into(),
            filters: Form::default(),
            columns: vec![Column::plain("File")],
            newest: "fipd-a.redb".into(),
            copies: vec![CopyRow {
                name: "fipd-a.redb".into(),
                link: "/api/v1/backups/fipd-a.redb".into(),
                made: Moment(1_795_240_640_000),
                size: "1.0 MiB".into(),
                tried: Some(Moment(1_795_240_640_000)),
                problem: Some("a <row>".into()),
            }],
            pager: Pager::default(),
            held_until: Some(Moment(1_795_240_640_000)),
            lifting: Form {
                target: "/ui/backup/hold".into(),
                inputs: vec![Input::new("reason", "Reason").required()],
                button: "Give free addresses again".into(),
                ..Form::default()
            },
            exports: vec![(
                "Leases",
                "CSV",
                "/api/v1/export?what=leases&format=csv".into(),
            )],
        }
    }

    #[test]
    fn names_the_copies_and_the_way_back() {
        let html = page().render().unwrap();
        for text in [
            "href=\"/api/v1/backup\" download=\"fipd-2026-11-21.redb\"",
            "href=\"/api/v1/backups/fipd-a.redb\"",
            "failed at <time datetime=\"2026-11-21T05:57:20Z\">2026-11-21 05:57:20 UTC</time>: the &#60;disk&#62; is full.",
            "The directory cannot be read.",
            "sudo fipd restore",
            "what=leases&#38;format=csv",
            "action=\"/ui/backup/hold\" method=\"post\"",
            "name=\"reason\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn without_a_hold_there_is_nothing_to_lift() {
        let mut page = page();
        (page.held_until, page.copies, page.newest) = (None, vec![], String::new());
        let html = page.render().unwrap();
        assert!(!html.contains("/ui/backup/hold"), "{html}");
        assert!(html.contains("There is no copy yet"));
    }
}
