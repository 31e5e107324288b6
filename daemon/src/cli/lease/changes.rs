//! `fipd lease transfer`, `label` and `probed`.

use clap::Args;
use http::Method;

use super::{NetworkOrPool, facts, prefix};
use crate::{
    api::wire::{LabelRequest, ProbedReport, TransferRequest},
    cli::{CliSession, client::segment, exit::Failure},
};

#[derive(Debug, Args)]
pub struct Transfer {
    /// An address, or a prefix such as 2001:db8:0:3::/64
    #[arg(value_parser = prefix)]
    address: String,
    /// Who has it then: SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME
    #[arg(long, value_name = "OWNER")]
    to: String,
    /// Instance of the new owner, such as an object's UID
    #[arg(long, default_value = "", value_name = "ID")]
    instance: String,
    /// Only if this owner has it now; needed where several share it
    #[arg(long, value_name = "OWNER")]
    from: Option<String>,
    /// Who is charged from then on; as before when left out
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Also where the tenant's quota is used up
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    of: NetworkOrPool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl Transfer {
    pub async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let path = self.of.path(session, &self.address, "transfer").await?;
        let body = TransferRequest {
            to: self.to,
            instance: self.instance,
            from: self.from,
            from_instance: None,
            tenant: self.tenant,
            force: self.force,
            reason: self.reason,
        };
        session.post_and_show(&path, &body, facts).await
    }
}

#[derive(Debug, Args)]
pub struct Label {
    /// An address, or a prefix such as 2001:db8:0:3::/64
    #[arg(value_parser = prefix)]
    address: String,
    /// KEY=VALUE to set a label, KEY- to remove it
    #[arg(required = true, value_name = "LABEL", value_parser = change)]
    labels: Vec<Change>,
    #[command(flatten)]
    of: NetworkOrPool,
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
    pub async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let path = self.of.path(session, &self.address, "labels").await?;
        let mut body = LabelRequest::default();
        for label in self.labels {
            match label {
                Change::Set(key, value) => drop(body.set.insert(key, value)),
                Change::Remove(key) => body.remove.push(key),
            }
        }
        session
            .write_and_show(Method::PATCH, &path, &body, facts)
            .await
    }
}

#[derive(Debug, Args)]
pub struct Report {
    /// An address, or a prefix such as 2001:db8:0:3::/64
    #[arg(value_parser = prefix)]
    address: String,
    /// Whether anybody answered for it
    #[arg(value_parser = ["free", "taken"])]
    verdict: String,
    /// Who answered, such as a MAC address, for the audit log
    #[arg(long, value_name = "MAC")]
    by: Option<String>,
    /// Who has the lease; whoever has it when left out
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    #[command(flatten)]
    of: NetworkOrPool,
}

impl Report {
    pub async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let address = self.address;
        let found = self.of.held(session, &address).await?.summary;
        let owner = self.owner.or(found.owner);
        let owner = owner.ok_or_else(|| {
            Failure::Input(format!(
                "address: {address} is in quarantine; name the owner by --owner"
            ))
        })?;
        let body = ProbedReport {
            owner,
            verdict: self.verdict,
            by: self.by,
        };
        let network = segment(&found.network);
        let address = segment(&address);
        let path = format!("/api/v1/leases/{network}/{address}/probed");
        session.post_and_show(&path, &body, facts).await
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
