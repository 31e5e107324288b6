//! `fipd check`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{CliSession, exit::Failure, output::Table, shown};
use crate::{
    api::{
        listen,
        listen::tls,
        wire::{CheckReport, Checked},
    },
    child, clock,
    clusters::check_kubeconfig,
    config::{Config, Host, Source},
    ipam::DATABASE,
    oidc::Oidc,
    store,
    systems::SYSTEMS,
    webhooks,
};

pub(super) const LONG_ABOUT: &str = "\
Verify the address book and the store. With a running daemon it is asked over its socket; with --data-dir the
store is read offline, which needs that no daemon has it open. With --config the configuration and its
kubeconfig files are verified as well; that alone needs no daemon. Exit code 1 when anything is wrong.";

#[derive(Debug, Args)]
pub struct Check {
    /// Read the store in this directory offline
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Verify this configuration file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Check {
    pub(super) async fn run(self, session: &CliSession, socket: &Path) -> Result<(), Failure> {
        let mut checks = Vec::new();
        if let Some(file) = &self.config {
            checks.extend(config(file).await?);
        }
        match &self.data_dir {
            Some(dir) => checks.extend(offline(dir)?),
            None if self.config.is_some() && !socket.exists() => {}
            None => {
                let report: CheckReport = session.client.get("/api/v1/check").await?;
                checks.extend(report.checks);
            }
        }
        let report = CheckReport::of(checks);
        session.output.show(&report, table)?;
        let wrong = report.checks.iter().filter(|check| !check.ok).count();
        if report.ok {
            Ok(())
        } else {
            Err(Failure::Failed(format!("check: {wrong} things are wrong")))
        }
    }
}

fn offline(dir: &Path) -> Result<Vec<Checked>, Failure> {
    let file = dir.join(DATABASE);
    if !file.exists() {
        return Err(Failure::NotFound(format!(
            "there is no store {}",
            file.display()
        )));
    }
    let problems = store::check(&file).map_err(Failure::failed)?;
    let file = shown(&file);
    let fine = format!("{file}: checksums, rows, invariants and audit log are in order");
    Ok(Checked::all("store", &problems, fine))
}

/// A configuration that does not parse is bad input; a kubeconfig that is not acceptable is a finding.
async fn config(file: &Path) -> Result<Vec<Checked>, Failure> {
    let config =
        Config::load_with(*SYSTEMS, file).map_err(|error| Failure::Input(error.to_string()))?;
    let checked = config.check(config.api.listen, config.api.advertise.as_deref());
    checked.map_err(|what| Failure::Input(format!("{}: {what}", shown(file))))?;
    let detail = format!("{}: {} clusters", shown(file), config.clusters.len());
    let mut checks = vec![Checked::new("config", true, detail)];
    if let Some((cluster, why)) = config.webhook_warnings().into_iter().next() {
        let file = shown(file);
        return Err(Failure::Input(format!(
            "{file}: webhook of cluster {cluster}: {why}"
        )));
    }
    if let Some(host) = &config.host {
        checks.extend(kernel(host));
    }
    checks.extend(files(&config).await);
    for cluster in &config.clusters {
        let what = format!("cluster {}", cluster.name);
        let detail = match &cluster.source {
            Source::InCluster => Ok("the service account of the pod".to_owned()),
            Source::Text { .. } => Ok("an uploaded kubeconfig".to_owned()),
            Source::File { path, context } => {
                check_kubeconfig(path, context.as_deref(), cluster.insecure_skip_tls_verify)
                    .map(|server| format!("{}: {server}", shown(path)))
                    .map_err(|refused| refused.to_string())
            }
        };
        checks.push(seen(what, detail));
    }
    Ok(checks)
}

fn seen(what: impl Into<String>, seen: Result<String, String>) -> Checked {
    let ok = seen.is_ok();
    Checked::new(what, ok, seen.unwrap_or_else(|wrong| wrong))
}

/// What the daemon reads when it starts, or when it sends something. Who runs this may not be allowed what the daemon is.
async fn files(config: &Config) -> Vec<Checked> {
    let mut all = Vec::new();
    let fine = |()| "its files can be used".to_owned();
    if let Some((cert, key)) = config.api.cert.clone().zip(config.api.key.clone()) {
        let usable = listen::check_files(config.api.listen, &cert, &key).await;
        let usable = usable.map_err(|error| error.to_string());
        let usable = usable.and_then(|()| in_time(&cert));
        let usable = usable.map(|()| format!("{} and {}", shown(&cert), shown(&key)));
        all.push(seen("certificate", usable));
    }
    for hook in &config.hooks {
        let what = format!("[[webhook]] {}", hook.name.0);
        all.push(seen(what, webhooks::check(hook).await.map(fine)));
    }
    if let Some(oidc) = &config.oidc {
        all.push(seen("[oidc]", Oidc::check(oidc).await.map(fine)));
    }
    all
}

/// Whether a chain has not ended: it is served all the same, and refused by who asks.
fn in_time(chain: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", shown(chain));
    let pem = std::fs::read(chain).map_err(failed)?;
    match tls::ends(&pem).filter(|ends| *ends <= clock::now()) {
        Some(ends) => Err(format!(
            "{}: it ended at {}",
            shown(chain),
            clock::rfc3339(ends)
        )),
        None => Ok(()),
    }
}

/// What rules need of this host. Only a warning where it is not there: the daemon may run as somebody else.
fn kernel(host: &Host) -> [Checked; 2] {
    let may = match net_admin() {
        Some(true) => "CAP_NET_ADMIN is there",
        Some(false) => {
            "WARNING: who runs this has no CAP_NET_ADMIN; the daemon needs it to change rules"
        }
        None => "WARNING: /proc/self/status does not tell whether CAP_NET_ADMIN is there",
    };
    let nft = match nft(host.nft.as_deref()) {
        Some(path) => format!("{}: sets of rules can be indexed", shown(&path)),
        None => "WARNING: there is no nft; all rules are flat, which costs every packet some 10 ns each. Install nftables, or name it in [host] nft".to_owned(),
    };
    [
        Checked::new("kernel", true, may),
        Checked::new("packet filter", true, nft),
    ]
}

/// Whether this process has the capability in effect; `None`: that is not told.
fn net_admin() -> Option<bool> {
    /// `linux/capability.h`
    const CAP_NET_ADMIN: u32 = 12;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    let bits = lines.find_map(|line| line.strip_prefix("CapEff:"))?;
    let bits = u64::from_str_radix(bits.trim(), 16).ok()?;
    Some(bits >> CAP_NET_ADMIN & 1 == 1)
}

fn nft(named: Option<&Path>) -> Option<PathBuf> {
    match named {
        Some(named) => Some(named.to_owned()).filter(|file| child::is_executable(file)),
        None => child::on_path("nft"),
    }
}

fn table(report: &CheckReport) -> Table {
    let row = |check: &Checked| {
        let ok = if check.ok { "yes" } else { "NO" };
        [check.what.clone(), ok.to_owned(), check.detail.clone()]
    };
    Table::of(["WHAT", "OK", "DETAIL"], report.checks.iter().map(row))
}
