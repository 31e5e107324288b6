//! `fipd webhooks`.

use clap::Subcommand;

use super::{
    CliSession,
    client::segment,
    exit::Failure,
    output::{Table, or_dash},
};
use crate::api::wire::{WebhookList, WebhookTested, WebhookView};

#[derive(Debug, Subcommand)]
pub enum Webhooks {
    /// Who is told of events, and how that goes
    List,
    /// Send a receiver the event fipd.test, once
    Test { name: String },
}

impl Webhooks {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let all = "/api/v1/webhooks";
        match self {
            Self::List => session.show(all, table).await,
            Self::Test { name } => {
                let path = format!("{all}/{}/test", segment(&name));
                let facts = |tested: &WebhookTested| {
                    Table::facts([
                        ("Name", tested.name.clone()),
                        ("Answer", tested.status.to_string()),
                    ])
                };
                session.post_and_show(&path, &(), facts).await
            }
        }
    }
}

fn table(list: &WebhookList) -> Table {
    let heads = [
        "NAME",
        "URL",
        "DELIVERED",
        "PENDING",
        "MISSED",
        "LAST SUCCESS",
        "FAILS BECAUSE",
    ];
    let row = |one: &WebhookView| {
        [
            one.name.clone(),
            one.url.clone(),
            one.delivered.to_string(),
            one.pending.to_string(),
            one.missed.to_string(),
            or_dash(one.last_success.as_ref()),
            or_dash(one.error.as_ref()),
        ]
    };
    Table::of(heads, list.webhooks.iter().map(row))
}
