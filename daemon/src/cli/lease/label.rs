//! `fipd lease label`.

use std::net::IpAddr;

use clap::Args;
use http::Method;

use super::{facts, find};
use crate::{
    api::wire::{LabelRequest, LeaseView},
    cli::{Session, client::segment, exit::Failure},
};

#[derive(Debug, Args)]
pub struct Label {
    address: IpAddr,
    /// KEY=VALUE to set a label, KEY- to remove it
    #[arg(required = true, value_name = "LABEL", value_parser = change)]
    labels: Vec<Change>,
    /// Network, where several have the address
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Pool, where several have the address
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Set(String, String),
    Remove(String),
}

fn change(text: &str) -> Result<Change, String> {
    if let Some((key, value)) = text.split_once('=') {
        return Ok(Change::Set(key.to_owned(), value.to_owned()));
    }
    let key = text.strip_suffix('-');
    let key = key.ok_or_else(|| "KEY=VALUE or KEY- is allowed, such as app=web or app-".to_owned());
    key.map(|key| Change::Remove(key.to_owned()))
}

impl Label {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let found = find(session, self.address, self.network, self.pool).await?;
        let nobody = || Failure::NotFound(format!("nobody holds the address {}", self.address));
        let network = found.ok_or_else(nobody)?.summary.network;
        let mut body = LabelRequest::default();
        for label in self.labels {
            match label {
                Change::Set(key, value) => drop(body.set.insert(key, value)),
                Change::Remove(key) => body.remove.push(key),
            }
        }
        let (network, address) = (segment(&network), self.address);
        let path = format!("/api/v1/leases/{network}/{address}/labels");
        let body = serde_json::to_vec(&body).map_err(Failure::failed)?;
        let reply = session.client.send(Method::PATCH, &path, Some(body));
        let lease: LeaseView = reply.await?.json()?;
        session.output.show(&lease, facts)
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, change};

    #[test]
    fn labels_are_set_or_removed() {
        let set = |key: &str, value: &str| Ok(Change::Set(key.into(), value.into()));
        assert_eq!(change("app=web"), set("app", "web"));
        assert_eq!(change("app="), set("app", ""));
        assert_eq!(change("a=b=c-"), set("a", "b=c-"));
        assert_eq!(change("app-"), Ok(Change::Remove("app".into())));
        assert!(change("app").is_err_and(|error| error.contains("KEY-")));
    }
}
