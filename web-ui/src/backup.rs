//! Keeping copies of the address book.

use askama::Template;

use crate::Shell;

/// What can be taken away, and how it is brought back.
#[derive(Clone, Debug, Template)]
#[template(path = "backup.html")]
pub struct BackupPage {
    pub shell: Shell,
    /// A name for the file, with the day in it.
    pub file: String,
    /// Where the database lies.
    pub database: String,
    /// Size of the database, and what is free beside it; empty where nobody knows.
    pub room: String,
    /// Label and address of each export.
    pub exports: Vec<(&'static str, &'static str, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn names_the_file_and_the_way_back() {
        let page = BackupPage {
            shell: sample::shell(true),
            file: "fipd-2026-11-21.redb".into(),
            database: "/var/lib/fipd/fipd.redb".into(),
            room: "12.0 MiB".into(),
            exports: vec![(
                "Leases",
                "CSV",
                "/api/v1/export?what=leases&format=csv".into(),
            )],
        };
        let html = page.render().unwrap();
        for text in [
            "href=\"/api/v1/backup\" download=\"fipd-2026-11-21.redb\"",
            "/var/lib/fipd/fipd.redb",
            "systemctl stop fipd",
            "what=leases&#38;format=csv",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }
}
