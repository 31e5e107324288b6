//! `fipd serve`.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;

use super::exit::Failure;
use crate::{
    app::{self, AppError},
    config::{CompatFlags, HostRole, compat, host_of},
    descriptors,
    logging::{self, LogError, LogFormat},
    settings::{Overrides, Settings},
    sockets::Passed,
    store::OpenError,
    systems::SYSTEMS,
};

pub(super) const LONG_ABOUT: &str = "\
Run the daemon until SIGTERM or SIGINT. SIGHUP reads configuration, kubeconfigs and certificates again, as `fipd reload` does,
which also says what came of it.

Without --config, /etc/fipd/fipd.toml is used if it exists. Without any file the daemon keeps an address book
without clusters, in /var/lib/fipd or, for other users than root, in their state directory. Daemons with
different --data-dir, --listen and --socket run side by side.

At first start an account `admin` is made; its password is in DATA_DIR/initial-admin until the first login.
The address of UI and REST is logged and written to DATA_DIR/listen; DATA_DIR/tls/ca.crt is the CA to trust.";

/// How long the last records may take to be written.
const LAST_RECORDS: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration file
    #[arg(short, long, env = "FIPD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the store lives
    #[arg(long, env = "FIPD_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// What this host does: "standalone" decides, "agent" only has rules that objects of clusters ask for; without a
    /// configuration file of the cluster it runs in, for the Node NODE_NAME
    #[arg(long, env = "FIPD_ROLE", value_name = "ROLE", value_parser = ["standalone", "agent"])]
    role: Option<String>,
    /// Address and port of UI and REST; port 0 picks a free one
    #[arg(long, env = "FIPD_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Unix socket for CNI plugins, for uid 0 only; without, /run/fipd/cni.sock beside the usual --socket, and none beside
    /// another
    #[arg(long, env = "FIPD_CNI_SOCKET", value_name = "PATH")]
    cni_socket: Option<PathBuf>,
    /// URL by which others reach this host, for the certificate
    #[arg(long, env = "FIPD_ADVERTISE", value_name = "URL", value_parser = advertise)]
    advertise: Option<String>,
    /// Form of the log
    #[arg(
        long,
        env = "FIPD_LOG_FORMAT",
        value_enum,
        default_value_t,
        value_name = "FORM"
    )]
    log_format: LogFormat,
    /// error, warn, info, debug, trace, or directives such as fipd=debug,info; info where the configuration says nothing either
    #[arg(long, env = "FIPD_LOG", value_name = "LEVEL")]
    log_level: Option<String>,
    /// System whose original's flags and variables count: compat.md of the documentation lists them
    #[arg(long, env = "FIPD_COMPAT", value_name = "SYSTEM")]
    compat: Option<String>,
    #[arg(skip)]
    flags: BTreeMap<&'static str, String>,
}

impl Serve {
    /// Takes over what the command line says in flags of originals.
    pub(super) fn take_compat(&mut self, flags: BTreeMap<&'static str, String>) {
        self.flags = flags;
    }

    pub(super) fn run(self, socket: Option<PathBuf>) -> Result<(), Failure> {
        let overrides = Overrides {
            config: self.config,
            data_dir: self.data_dir,
            listen: self.listen,
            advertise: self.advertise,
            socket,
            cni_socket: self.cni_socket,
            log_level: self.log_level.map(|given| match compat::level(&given) {
                Some(level) => level.to_owned(),
                None => given,
            }),
            role: self.role.map(|role| match &*role {
                "agent" => HostRole::Agent,
                _ => HostRole::Standalone,
            }),
            compat: CompatFlags {
                system: self.compat,
                values: self.flags,
                variables: SYSTEMS.compat_variables(|name| std::env::var(name).ok()),
            },
            ..Overrides::default()
        };
        let settings =
            Settings::load(overrides).map_err(|error| Failure::Input(error.to_string()))?;
        logging::start(self.log_format, settings.log_level()).map_err(|error| match error {
            LogError::Level { .. } => Failure::Input(error.to_string()),
            LogError::Journal(_) | LogError::Thread(_) | LogError::Twice(_) => {
                Failure::failed(error)
            }
        })?;
        let ignored: Vec<_> = settings.compat.ignored.iter().copied().collect();
        if !ignored.is_empty() {
            tracing::info!(
                "ignored: {}. Variables of the original programs count with --compat SYSTEM",
                ignored.join(", ")
            );
        }
        for (given, why) in &settings.compat.unneeded {
            tracing::info!("{given} changes nothing: {why}");
        }
        descriptors::raise();
        let passed = Passed::receive().map_err(Failure::failed)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(Failure::failed)?;
        let result = runtime.block_on(app::run(settings, passed));
        logging::flush(LAST_RECORDS);
        // A blocking call that hangs (a dead disk) must not keep the process.
        runtime.shutdown_timeout(Duration::from_millis(500));
        result.map_err(|error| {
            // Not to be tried again: the unit has RestartPreventExitStatus for it.
            let lasts = matches!(
                error,
                AppError::Store(OpenError::Newer { .. }) | AppError::Config(_)
            );
            if lasts {
                Failure::Input(error.to_string())
            } else {
                Failure::failed(error)
            }
        })
    }
}

fn advertise(text: &str) -> Result<String, String> {
    match host_of(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("https://HOST[:PORT] is allowed".to_owned()),
    }
}
