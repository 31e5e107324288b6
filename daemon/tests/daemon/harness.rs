//! A daemon of one's own, and ways to talk to it.

use std::{
    net::{Ipv4Addr, TcpListener},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Bytes,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// How long anything may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = "fipd.toml";

/// The program under test.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fipd"));
    // What the tester's shell says must not reach the program.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FIPD_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// What a command did.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Done {
    /// Stdout as JSON; the command must have succeeded.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Failed with this code and exactly one line that holds all of `words`.
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "one line: {self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is missing: {self:?}");
        }
        assert!(self.out.is_empty(), "{self:?}");
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    Done {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A free loopback port that this run gives out once: below the kernel's range for outgoing connections, of which a client may
/// take one before the daemon has it, and below the ports of the testbed.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(12_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 18_000, "no free port");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A running daemon. Killed when dropped.
pub struct Daemon {
    child: Child,
    notify: UnixDatagram,
    home: Arc<TempDir>,
}

impl Daemon {
    /// Starts one in a fresh directory and waits until it says that it is ready.
    pub fn start() -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), &[])
    }

    /// The same with a configuration file.
    pub fn configured(text: &str) -> Self {
        let home = Arc::new(tempfile::tempdir().unwrap());
        let file = home.path().join(CONFIG);
        std::fs::write(&file, text).unwrap();
        Self::start_in(home, &["--config", file.to_str().unwrap()])
    }

    /// Starts one in a directory, with further arguments.
    pub fn start_in(home: Arc<TempDir>, arguments: &[&str]) -> Self {
        let mut command = serve(home.path());
        command.args(arguments);
        Self::start_as(home, command)
    }

    /// Starts one in a directory by a command that becomes [`serve`] there.
    pub fn start_as(home: Arc<TempDir>, mut command: Command) -> Self {
        let path = home.path().join("notify");
        // The socket of an earlier start in the same directory.
        let _ = std::fs::remove_file(&path);
        let notify = UnixDatagram::bind(&path).unwrap();
        notify.set_read_timeout(Some(PATIENCE)).unwrap();
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        let child = command
            .env("NOTIFY_SOCKET", &path)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self {
            child,
            notify,
            home,
        };
        daemon.told("READY=1");
        daemon
    }

    /// Waits until the daemon tells its service manager this.
    pub fn told(&self, what: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = self
                .notify
                .recv(&mut buffer)
                .unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.lines().any(|line| line == what) {
                return text;
            }
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// The whole lines of the log once it contains `what`. A thread of its own writes the log, so a
    /// record may come after the event, and in two parts.
    pub fn logged(&self, what: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut log = self.log();
            log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
            if log.contains(what) {
                return log;
            }
            assert!(Instant::now() < end, "no {what:?}:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn home(&self) -> Arc<TempDir> {
        Arc::clone(&self.home)
    }

    /// The file that [`Daemon::configured`] has written.
    pub fn config(&self) -> PathBuf {
        self.home.path().join(CONFIG)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub fn socket(&self) -> PathBuf {
        self.home.path().join("fipd.sock")
    }

    /// The base URL of the TLS listener.
    pub fn url(&self) -> String {
        std::fs::read_to_string(self.data_dir().join("listen"))
            .unwrap()
            .trim()
            .to_owned()
    }

    /// Runs a client command.
    pub fn cli(&self, line: &str) -> Done {
        self.args(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs a client command whose arguments hold spaces.
    pub fn args(&self, arguments: &[&str]) -> Done {
        run(program().arg("--socket").arg(self.socket()).args(arguments))
    }

    /// Runs a client command with something on its stdin.
    pub fn fed(&self, line: &str, input: &str) -> Done {
        let mut command = program();
        command.arg("--socket").arg(self.socket());
        command.args(line.split_whitespace());
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that fails early reads nothing.
        let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        Done {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that must succeed, and reads its JSON.
    pub fn json(&self, line: &str) -> Value {
        self.cli(&format!("{line} -o json")).json()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Waits for the end; how it ended and how long that took.
    pub fn wait(&mut self) -> (ExitStatus, Duration) {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, started.elapsed());
            }
            assert!(
                started.elapsed() < PATIENCE,
                "it does not end\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A client over TLS that trusts the daemon's CA.
    pub fn rest(&self, token: Option<&str>) -> Rest {
        self.rest_at(&self.url(), token)
    }

    /// The same at another of its ports.
    pub fn rest_at(&self, url: &str, token: Option<&str>) -> Rest {
        Rest {
            url: url.to_owned(),
            ca: std::fs::read(self.data_dir().join("tls/ca.crt")).unwrap(),
            token: token.map(str::to_owned),
        }
    }

    /// The same for who trusts this certificate and nothing else.
    pub fn rest_trusting(&self, certificate: &str, token: Option<&str>) -> Rest {
        Rest {
            url: self.url(),
            ca: certificate.as_bytes().to_vec(),
            token: token.map(str::to_owned),
        }
    }

    /// Makes a token and gives its text.
    pub fn token(&self, name: &str, role: &str) -> String {
        let made = self.json(&format!("token create {name} --role {role}"));
        made["token"].as_str().unwrap().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `fipd serve` in this directory, on a free port.
pub fn serve(home: &Path) -> Command {
    let mut command = program();
    command
        .arg("serve")
        .arg("--data-dir")
        .arg(home.join("data"))
        .arg("--socket")
        .arg(home.join("fipd.sock"))
        .args(["--listen", "127.0.0.1:0"]);
    command
}

/// HTTP over TLS.
pub struct Rest {
    url: String,
    ca: Vec<u8>,
    pub token: Option<String>,
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Is a problem with this status and code, as RFC 9457 wants it.
    pub fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(
            self.headers[header::CONTENT_TYPE],
            "application/problem+json",
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(
            problem["type"],
            format!("urn:fipd:problem:{code}"),
            "{problem}"
        );
        assert!(
            problem["title"].is_string() && problem["detail"].is_string(),
            "{problem}"
        );
        problem
    }

    pub fn etag(&self) -> String {
        self.headers[header::ETAG].to_str().unwrap().to_owned()
    }
}

impl Rest {
    pub fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], None)
    }

    pub fn post(&self, path: &str, body: Value) -> Answer {
        self.json(Method::POST, path, &[], body)
    }

    pub fn json(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        self.send(method, path, &headers, Some(body.to_string().into_bytes()))
    }

    pub fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Answer {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let work = self.exchange(method, path, headers, body);
        runtime
            .block_on(async { tokio::time::timeout(PATIENCE, work).await })
            .unwrap()
    }

    /// Sends the head of a request without its body, and reads all that comes back.
    pub fn raw(&self, head: &str) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        let head = format!("{head}authorization: Bearer {token}\r\n\r\n");
        let work = async {
            let mut stream = self.connect().await;
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            // A peer that closes without TLS's goodbye has said all the same what it had to say.
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime
            .block_on(async { tokio::time::timeout(PATIENCE, work).await })
            .unwrap()
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Answer {
        let mut sender = self.open().await;
        let mut request = self.request(method, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// A connection for several requests, one after another.
    pub async fn open(&self) -> SendRequest<Full<Bytes>> {
        let stream = TokioIo::new(self.connect().await);
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// One of those.
    pub fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost");
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Whether the daemon has a certificate for this name.
    pub fn goes_by(&self, name: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(self.try_connect(name)).is_ok()
    }

    async fn connect(&self) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        self.try_connect("localhost").await.unwrap()
    }

    /// Trusts the daemon's CA and nothing else.
    async fn try_connect(
        &self,
        name: &str,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(&self.ca).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(self.url.strip_prefix("https://").unwrap())
            .await
            .unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        connector.connect(name, stream).await
    }
}
