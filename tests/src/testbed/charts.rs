//! Where helm gets charts from: a chart repository and an OCI registry on loopback, filled by the real CLI with the stand-ins
//! of `tests/charts`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::certificates::CertificateAuthority;
use super::directory::TestDirectory;
use super::ports::free_port;
use crate::process::{Process, spawn_bound};
use crate::toolchain::Component;
use crate::toolchain::go::GARBAGE;
use crate::wait::wait_until;

const LISTENS_WITHIN: Duration = Duration::from_secs(30);

/// The helm CLI with homes of its own.
#[derive(Debug, Clone)]
pub struct HelmCli {
    binary: PathBuf,
    home: PathBuf,
    ca_file: PathBuf,
}

impl HelmCli {
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The command with its environment, e.g. to be started and killed.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("HOME", &self.home);
        command.env(GARBAGE.0, GARBAGE.1);
        for (name, directory) in [("CACHE", "cache"), ("CONFIG", "config"), ("DATA", "data")] {
            command.env(format!("HELM_{name}_HOME"), self.home.join(directory));
        }
        command.env("SSL_CERT_FILE", &self.ca_file);
        command
    }

    /// Runs it to its end; gives back its standard output.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        use std::process::Stdio;
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let ended = tokio::task::spawn_blocking(move || spawn_bound(command)?.wait_with_output());
        let output = ended.await??;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("helm {}: {}: {said}", arguments.join(" "), output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A chart repository and a registry. Dropping it ends both.
pub struct Charts {
    // Dropped in this order: the process ends before its directory goes.
    _registry: Process,
    helm: HelmCli,
    repository_port: u16,
    registry_port: u16,
    directory: TestDirectory,
}

impl Charts {
    /// Packages each chart at each version, serves all from both places, and has them as directories too.
    pub async fn start(charts: &[(&str, &str)]) -> Result<Self> {
        let directory = TestDirectory::new()?;
        let place = directory.path();
        let authority = CertificateAuthority::new()?;
        fs::write(place.join("ca.crt"), authority.pem())?;
        authority.write_server_pair(&place.join("server.crt"), &place.join("server.key"))?;
        let (binary, registry) = tokio::task::spawn_blocking(|| {
            anyhow::Ok((chosen_helm().path()?, Component::Registry.path()?))
        })
        .await??;
        let helm = HelmCli {
            binary,
            home: place.join("home"),
            ca_file: place.join("ca.crt"),
        };
        let registry_port = free_port()?;
        let registry = start_registry(&registry, registry_port, place).await?;
        let packages = place.join("packages");
        fs::create_dir_all(&packages)?;
        let repository_port = serve_files(&packages)?;
        let all = Self {
            _registry: registry,
            helm,
            repository_port,
            registry_port,
            directory,
        };
        for (chart, version) in charts {
            all.publish(chart, version).await?;
        }
        Ok(all)
    }

    pub fn helm(&self) -> &HelmCli {
        &self.helm
    }

    /// What helm has to trust for the registry.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// The URL of the chart repository.
    pub fn repository(&self) -> String {
        format!("http://127.0.0.1:{}", self.repository_port)
    }

    /// The reference of a chart in the registry.
    pub fn oci(&self, chart: &str) -> String {
        format!("oci://127.0.0.1:{}/stand-ins/{chart}", self.registry_port)
    }

    /// The directory of a chart at the version in its `Chart.yaml`.
    pub fn local(chart: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("charts")
            .join(chart)
    }

    async fn publish(&self, chart: &str, version: &str) -> Result<()> {
        let packages = self.directory.path().join("packages");
        let (source, target) = (Self::local(chart), packages.display().to_string());
        let source = source.display().to_string();
        let package = [
            "package",
            &source,
            "--version",
            version,
            "--destination",
            &target,
        ];
        self.helm.run(&package).await?;
        let index = ["repo", "index", &target, "--url", &self.repository()];
        self.helm.run(&index).await?;
        let archive = packages.join(format!("{chart}-{version}.tgz"));
        let archive = archive.display().to_string();
        let reference = format!("oci://127.0.0.1:{}/stand-ins", self.registry_port);
        let push = ["push", &archive, &reference];
        self.helm.run(&push).await.map(drop)
    }
}

/// `FIPD_HELM=4` takes the other version.
fn chosen_helm() -> Component {
    match std::env::var("FIPD_HELM").as_deref() {
        Ok("4") => Component::Helm4,
        _ => Component::Helm,
    }
}

async fn start_registry(binary: &Path, port: u16, place: &Path) -> Result<Process> {
    let mut command = Command::new(binary);
    command.arg(format!("-address=127.0.0.1:{port}"));
    command.arg(format!("-cert={}", place.join("server.crt").display()));
    command.arg(format!("-key={}", place.join("server.key").display()));
    let process = Process::spawn("registry", command, &place.join("registry.log"))?;
    wait_until("the registry listens", LISTENS_WITHIN, || async {
        if let Err(ended) = process.still_running() {
            return Ok(Err(ended));
        }
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        connected.map(|_| Ok(())).map_err(|error| error.to_string())
    })
    .await
    .with_context(|| process.log_tail())??;
    Ok(process)
}

/// Serves the files of one directory over HTTP for as long as this process lives.
fn serve_files(directory: &Path) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let directory = directory.to_path_buf();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let directory = directory.clone();
            std::thread::spawn(move || answer(&stream, &directory));
        }
    });
    Ok(port)
}

/// One request, one file, and the end of the connection.
fn answer(mut stream: &TcpStream, directory: &Path) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let name = request
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .trim_start_matches('/');
    let (status, body) = match fs::read(directory.join(name.replace('/', "_"))) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}
