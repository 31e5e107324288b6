//! Rows from outside, and what would become of each.

use askama::Template;

use crate::{Form, Shell, count};

/// Asks for rows; with an outlook, shows what they would do before it is done.
#[derive(Clone, Debug, Template)]
#[template(path = "import.html")]
pub struct ImportPage {
    pub shell: Shell,
    /// The text and the file; both unseen once the rows can be written.
    pub form: Form,
    pub outlook: Option<Outlook>,
}

/// How many rows there are of each fate, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    pub created: usize,
    pub changed: usize,
    pub same: usize,
    pub refused: usize,
    /// One page of those that are asked for.
    pub rows: Vec<OutlookRow>,
    /// How many are asked for.
    pub asked: usize,
    /// Those that are wrong come first of all.
    pub wrong_first: bool,
    /// Rows on the pages before.
    pub before: usize,
    /// Numbers of the pages beside it.
    pub previous: Option<usize>,
    pub next: Option<usize>,
}

/// One row of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlookRow {
    pub line: usize,
    /// `lease 10.0.0.7`.
    pub what: String,
    /// Who holds the address by it; may be empty.
    pub owner: String,
    pub fate: Fate,
}

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Created,
    Changed,
    Same,
    /// Why it cannot be.
    Refused(String),
}

impl ImportPage {
    pub(crate) fn title(&self) -> String {
        let Some(outlook) = &self.outlook else {
            return "Import".to_owned();
        };
        match (outlook.refused, outlook.written()) {
            (0, 0) => "Nothing to import".to_owned(),
            (0, rows) => format!("Import {}?", rows_text(rows)),
            (1, _) => "1 row is wrong".to_owned(),
            (wrong, _) => format!("{} rows are wrong", count(wrong)),
        }
    }

    /// The rows that would be written; `None` while there are none or something is wrong.
    pub(crate) fn ready(&self) -> Option<String> {
        let outlook = self.outlook.as_ref()?;
        let ready = outlook.refused == 0 && outlook.written() > 0;
        ready.then(|| rows_text(outlook.written()))
    }

    pub(crate) fn failed(&self) -> bool {
        let wrong = self.outlook.as_ref().is_some_and(|rows| rows.refused > 0);
        wrong || self.form.failed()
    }
}

impl Outlook {
    fn written(&self) -> usize {
        self.created + self.changed
    }

    /// Label, number and whether it is bad.
    pub(crate) fn counts(&self) -> [(&'static str, String, bool); 4] {
        [
            ("Made", count(self.created), false),
            ("Changed", count(self.changed), false),
            ("As they are", count(self.same), false),
            ("Wrong", count(self.refused), self.refused > 0),
        ]
    }

    /// Says that some rows are not shown; empty where all are.
    pub(crate) fn more(&self) -> String {
        let shown = self.rows.len();
        if shown == self.asked {
            return String::new();
        }
        let (from, to) = (count(self.before + 1), count(self.before + shown));
        let all = count(self.asked);
        let first = if self.refused > 0 && self.wrong_first {
            ", the wrong ones first"
        } else {
            ""
        };
        format!("These are {from} to {to} of {all} rows{first}.")
    }
}

impl OutlookRow {
    pub(crate) fn class(&self) -> &'static str {
        match self.fate {
            Fate::Created => "good",
            Fate::Changed => "busy",
            Fate::Same => "",
            Fate::Refused(_) => "bad",
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        match self.fate {
            Fate::Created => "is made",
            Fate::Changed => "is changed",
            Fate::Same => "is so already",
            Fate::Refused(_) => "wrong",
        }
    }
}

fn rows_text(rows: usize) -> String {
    match rows {
        1 => "1 row".to_owned(),
        rows => format!("{} rows", count(rows)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, InputKind, links, sample};

    fn page(refused: usize) -> ImportPage {
        let row = |fate| OutlookRow {
            line: 7,
            what: "lease 10.0.0.7".into(),
            owner: "fipd/host/lab/a<b".into(),
            fate,
        };
        let wrong = row(Fate::Refused("held by <x>".into()));
        let mut rows = vec![wrong; refused];
        rows.push(row(Fate::Created));
        let lines = Input::new("rows", "Rows").kind(InputKind::Lines);
        ImportPage {
            shell: sample::shell(true),
            form: Form {
                target: links::IMPORT.into(),
                inputs: vec![
                    lines.value("{\"a\": \"<b>\"}"),
                    Input::new("file", "File").kind(InputKind::File(".csv")),
                ],
                ..Form::default()
            },
            outlook: Some(Outlook {
                created: 5_000,
                refused,
                rows,
                asked: 5_000 + refused,
                wrong_first: true,
                next: Some(2),
                ..Outlook::default()
            }),
        }
    }

    fn has(html: &str, texts: &[&str]) {
        for text in texts {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn a_wrong_row_leaves_the_text_to_be_put_right() {
        let html = page(1).render().unwrap();
        let texts = [
            "<title>Error: 1 row is wrong",
            "enctype=\"multipart/form-data\"",
            "held by &#60;x&#62;",
            "fipd/host/lab/a&#60;b",
            "&#60;b&#62;&#34;}</textarea>",
            "type=\"file\" accept=\".csv\"",
            "These are 1 to 2 of 5,001 rows, the wrong ones first.",
            "name=\"page\" value=\"2\"",
        ];
        has(&html, &texts);
        assert!(!html.contains("value=\"do\""), "{html}");
    }

    #[test]
    fn good_rows_are_offered_to_be_written() {
        let mut page = page(0);
        page.form.inputs = page.form.hidden();
        let html = page.render().unwrap();
        let texts = [
            "Import 5,000 rows?",
            "value=\"do\">Import 5,000 rows<",
            "value=\"edit\"",
            "type=\"hidden\" name=\"rows\"",
        ];
        has(&html, &texts);
        page.outlook = Some(Outlook {
            same: 3,
            ..Outlook::default()
        });
        let html = page.render().unwrap();
        assert!(html.contains("Nothing to import") && !html.contains("value=\"do\""));
        page.outlook = None;
        assert!(page.render().unwrap().contains("<title>Import –"));
    }
}
