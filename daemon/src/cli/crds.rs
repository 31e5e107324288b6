//! `fipd crds`.

use clap::{Args, Subcommand};

use super::{CliSession, client::segment, exit::Failure, output, session::done};

#[derive(Debug, Args)]
pub struct Crds {
    #[command(subcommand)]
    command: Option<Install>,
}

#[derive(Debug, Subcommand)]
enum Install {
    /// Install them in a cluster that the daemon serves
    Install {
        /// Name of the cluster
        #[arg(long, value_name = "NAME")]
        cluster: String,
    },
}

impl Crds {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        match self.command {
            None => output::print(&manifests()),
            Some(Install::Install { cluster }) => {
                let path = format!("/api/v1/clusters/{}/crds", segment(&cluster));
                session.post_and_show(&path, &(), done).await
            }
        }
    }
}

/// All definitions as one YAML stream.
fn manifests() -> String {
    let parts = fipd_crds::MANIFESTS
        .iter()
        .map(|(_, text)| text.trim_start_matches("---\n"));
    parts.map(|text| format!("---\n{text}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_are_one_stream() {
        let text = manifests();
        assert_eq!(
            text.matches("kind: CustomResourceDefinition").count(),
            fipd_crds::MANIFESTS.len()
        );
        assert_eq!(
            text.lines().filter(|line| *line == "---").count(),
            fipd_crds::MANIFESTS.len()
        );
    }
}
