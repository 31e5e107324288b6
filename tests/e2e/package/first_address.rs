//! The lines of the README that lead from nothing to the first address, as they stand there.

use fipd_tests::testbed::{Kind, Packages, SHARED};

use super::host::Host;

const README: &str = include_str!("../../../README.md");
/// Before the block.
const BEFORE: &str = "to the first address:";

/// What the lines find: somebody who may become root, no archive of packages, and nobody at the keyboard. A login of its own has
/// the groups that `newgrp` would give.
fn terminal() -> String {
    let file = Packages::file(Packages::NEWER, Kind::Deb);
    format!(
        r#"set -e
useradd --create-home ann
USER=ann
sudo() {{ case $1 in apt) dpkg --install {SHARED}/{file};; editor) test -s "$2";; *) command "$@";; esac; }}
newgrp() {{ id --name --groups "$USER" | grep --word-regexp "$1"; }}
fipd() {{ runuser --login "$USER" --command "fipd $*"; }}
"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lines_of_the_readme_lead_to_the_first_address() {
    let (_, rest) = README.split_once(BEFORE).unwrap();
    let block = rest.split("```").nth(1).unwrap();
    assert!(block.trim().lines().count() <= 10, "{block}");
    let host = Host::bare(Kind::Deb).await;
    host.sh(&format!("{}{block}", terminal())).await;
    let leases = host.sh("fipd lease list").await;
    assert!(
        leases.contains("10.20.0.2") && leases.contains("fipd/vm/lab/web-1"),
        "{leases}"
    );
}
