//! `cargo deny`: licences, bans and sources always, advisories when their database can be fetched.

use std::time::Duration;

use anyhow::Result;

use super::steps::{Step, Tally};
use crate::say::say;
use crate::toolchain;

const FETCH_WITHIN: Duration = Duration::from_secs(90);

/// What was checked, for the time table.
pub(super) async fn run() -> Result<(Tally, Option<String>)> {
    let deny = tokio::task::spawn_blocking(toolchain::cargo_tool::cargo_deny).await??;
    Step::new(
        &deny,
        &["--all-features", "check", "bans", "licenses", "sources"],
    )
    .run()
    .await?;
    if let Err(error) = Step::new(&deny, &["fetch", "db"])
        .within(FETCH_WITHIN)
        .quietly()
        .run()
        .await
    {
        let note = "advisories SKIPPED: their database could not be fetched";
        say(format_args!("deny: {note} ({error})"));
        return Ok((Tally::default(), Some(note.to_string())));
    }
    Step::new(
        &deny,
        &["--all-features", "check", "--disable-fetch", "advisories"],
    )
    .run()
    .await?;
    Ok((Tally::default(), None))
}
