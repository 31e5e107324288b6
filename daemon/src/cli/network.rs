//! `fipd network`.

use clap::Subcommand;
use http::Method;

use super::{CliSession, client::segment, exit::Failure, output::Table};
use crate::api::wire::{NetworkCreate, NetworkList, NetworkView};

#[derive(Debug, Subcommand)]
pub enum Network {
    /// All networks, and what holds them back
    List,
    /// Make a network; one that exists stays as it is
    Create {
        /// 1 to 63 of a-z, 0-9 and '-'
        name: String,
    },
    /// Say that two networks are two: their pools may give the same addresses
    ///
    /// Pools of two networks that nobody chose, neither by name nor by a rule, may mean the same addresses twice; until this
    /// is said, or one pool is taken to the other's network by `fipd pool move-network`, neither gives what they share.
    Separate {
        name: String,
        other: String,
        /// Take it back; leases stay
        #[arg(long)]
        undo: bool,
    },
}

impl Network {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        match self {
            Self::List => {
                let shown = |list: &NetworkList| table(&list.networks);
                session
                    .show_list("/api/v1/networks", "networks", shown)
                    .await
            }
            Self::Separate { name, other, undo } => {
                let (name, other) = (segment(&name), segment(&other));
                let path = format!("/api/v1/networks/{name}/separate/{other}");
                let method = if undo { Method::DELETE } else { Method::PUT };
                session.client.send(method, &path, None).await?;
                Ok(())
            }
            Self::Create { name } => {
                let shown = |made: &NetworkView| table(std::slice::from_ref(made));
                let body = NetworkCreate { name };
                session
                    .post_and_show("/api/v1/networks", &body, shown)
                    .await
            }
        }
    }
}

fn table(networks: &[NetworkView]) -> Table {
    let row = |network: &NetworkView| {
        let holds = network.waiting_for.iter();
        let waiting: Vec<_> = holds
            .map(|hold| format!("{} ({})", hold.cluster, hold.system))
            .collect();
        let (id, pools) = (network.id.to_string(), network.pools.to_string());
        [network.name.clone(), id, pools, waiting.join(", ")]
    };
    let heads = ["NAME", "ID", "POOLS", "WAITING FOR"];
    Table::of(heads, networks.iter().map(row))
}
