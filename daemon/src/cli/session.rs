//! What a client command has at hand, and how it asks and shows.

use http::Method;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    client::Client,
    exit::Failure,
    output::{Format, Table},
};
use crate::api::wire::Outcome;

pub struct CliSession {
    pub client: Client,
    pub output: Format,
}

impl CliSession {
    /// Shows what is at a path.
    pub async fn show<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        table: impl FnOnce(&T) -> Table,
    ) -> Result<(), Failure> {
        self.output.show(&self.client.get(path).await?, table)
    }

    /// Shows all pages of a list as one; the rows are in `field`.
    pub async fn show_list<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        field: &str,
        table: impl FnOnce(&T) -> Table,
    ) -> Result<(), Failure> {
        let list = self.client.rows(path, field, usize::MAX).await?;
        self.output.show(&list, table)
    }

    /// Asks for something and shows what came of it.
    pub async fn post_and_show<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        table: impl FnOnce(&T) -> Table,
    ) -> Result<(), Failure> {
        self.write_and_show(Method::POST, path, body, table).await
    }

    pub async fn write_and_show<T: Serialize + DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        table: impl FnOnce(&T) -> Table,
    ) -> Result<(), Failure> {
        let answer = self.client.write(method, path, body).await?;
        self.output.show(&answer, table)
    }
}

/// What was done, in one sentence.
pub fn done(outcome: &Outcome) -> Table {
    Table::facts([("Done", outcome.message.clone())])
}
