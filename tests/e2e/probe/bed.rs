//! A veth pair: `probe` in the test's network namespace, `squat` in that of a peer.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fipd::host::probe::{AddressUse, Mac, ProbeError, probe, serve_connection};
use fipd_tests::namespace;
use fipd_tests::testbed::fipd_binary;
use tempfile::TempDir;
use tokio::net::UnixListener;

pub const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub const SQUATTER: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// What the squatter has.
pub const V4: &str = "10.0.0.5";
pub const V6: &str = "2001:db8::5";

const SOON: Duration = Duration::from_secs(10);

/// Runs a test in a network namespace of its own, which ends with its threads.
pub fn in_namespace(test: impl AsyncFnOnce() + Send) {
    let run = async || {
        test().await;
        Ok(())
    };
    namespace::in_namespace(2, run).unwrap();
}

/// `ip` with these arguments; fails the test if it fails.
pub fn ip(arguments: &str) -> String {
    run("ip", arguments).unwrap_or_else(|error| panic!("ip {arguments}: {error}"))
}

/// What a program prints, as an error where it fails.
pub fn run(program: &str, arguments: &str) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments.split(' '))
        .output()
        .unwrap_or_else(|error| panic!("start {program}: {error}"));
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    match output.status.success() {
        true => Ok(said.concat()),
        false => Err(said.concat()),
    }
}

/// Both ends are up.
pub struct Wire {
    pub peer: Peer,
}

impl Wire {
    pub fn new() -> Self {
        let peer = Peer::new();
        let thread = peer.run(|| nix::unistd::gettid().as_raw());
        ip(&format!(
            "link add probe address {OWN} type veth peer name squat address {SQUATTER} netns {thread}"
        ));
        ip("link set probe up");
        peer.run(|| {
            ip("link set squat up");
            wait_until_running("squat");
        });
        wait_until_running("probe");
        Self { peer }
    }

    /// The other side takes the addresses.
    pub fn squat(&self) {
        self.peer.run(|| {
            ip(&format!("address add {V4}/24 dev squat"));
            ip(&format!("-6 address add {V6}/64 dev squat nodad"));
        });
    }
}

/// The kernel notices a carrier with some delay.
pub fn wait_until_running(interface: &str) {
    let start = Instant::now();
    while !ip(&format!("link show dev {interface}")).contains("state UP") {
        assert!(start.elapsed() < SOON, "{interface} has no carrier");
        thread::sleep(Duration::from_millis(20));
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own.
pub struct Peer {
    jobs: mpsc::Sender<Job>,
}

impl Peer {
    fn new() -> Self {
        let (jobs, todo) = mpsc::channel::<Job>();
        thread::spawn(move || {
            namespace::unshare().unwrap();
            for job in todo {
                job();
            }
        });
        Self { jobs }
    }

    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, done) = mpsc::channel();
        let job = Box::new(move || {
            sender.send(job()).unwrap();
        });
        self.jobs.send(job).unwrap();
        done.recv().unwrap()
    }

    /// Starts a thread in the namespace of the peer.
    fn spawn<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.run(|| thread::spawn(job))
    }

    /// What a helper on the other side answers.
    pub fn probe(&self, address: &'static str, timeout: Duration) -> JoinHandle<String> {
        self.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let line = request("squat", address, timeout);
            runtime.unwrap().block_on(async {
                let mut answer = Vec::new();
                serve_connection(line.as_bytes(), &mut answer)
                    .await
                    .unwrap();
                String::from_utf8(answer).unwrap()
            })
        })
    }

    /// Sends a frame over and over until what is returned is dropped.
    pub fn send_often(&self, frame: Vec<u8>, pause: Duration) -> Flood {
        let (stop, count) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, counted) = (stop.clone(), count.clone());
        let thread = self.spawn(move || {
            let socket = raw_socket("squat");
            while !stopped.load(Ordering::Relaxed) {
                match nix::unistd::write(&socket, &frame) {
                    Ok(_) => counted.fetch_add(1, Ordering::Relaxed),
                    Err(nix::errno::Errno::ENOBUFS) => 0,
                    Err(error) => panic!("{error}"),
                };
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
        });
        Flood {
            stop,
            count,
            thread: Some(thread),
        }
    }
}

pub struct Flood {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Frames sent so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// One that sends from this interface.
fn raw_socket(interface: &str) -> OwnedFd {
    use nix::{
        net::if_::if_nametoindex,
        sys::socket::{AddressFamily, LinkAddr, SockFlag, SockType, SockaddrLike, bind, socket},
    };
    let index = i32::try_from(if_nametoindex(interface).unwrap()).unwrap();
    // SAFETY: a sockaddr_ll may be all zeros.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
    address.sll_ifindex = index;
    // SAFETY: the pointer is to a sockaddr_ll, which is copied.
    let address = unsafe { LinkAddr::from_raw((&raw const address).cast(), None) };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None).unwrap();
    bind(socket.as_raw_fd(), &address.unwrap()).unwrap();
    socket
}

pub fn request(interface: &str, address: &str, timeout: Duration) -> String {
    let millis = timeout.as_millis();
    format!(r#"{{"interface":"{interface}","address":"{address}","timeout_ms":{millis}}}"#) + "\n"
}

/// The helper's socket, as systemd has it: a connection for each request.
pub struct Helper {
    folder: TempDir,
}

impl Helper {
    pub fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let listener = UnixListener::bind(folder.path().join("probe.sock")).unwrap();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (reader, writer) = connection.split();
                    serve_connection(reader, writer).await.unwrap();
                });
            }
        });
        Self { folder }
    }

    pub async fn probe(
        &self,
        interface: &str,
        address: &str,
        deadline: Duration,
    ) -> Result<AddressUse, ProbeError> {
        let socket: PathBuf = self.folder.path().join("probe.sock");
        let address: IpAddr = address.parse().unwrap();
        probe(&socket, interface, address, deadline).await
    }
}

/// fipd where every user may start it.
pub struct HelperProgram {
    folder: TempDir,
}

impl HelperProgram {
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("fipd")
    }
}

pub async fn helper_program() -> HelperProgram {
    let built = fipd_binary().await.unwrap();
    let program = HelperProgram {
        folder: TempDir::new().unwrap(),
    };
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(program.folder.path(), open).unwrap();
    std::fs::hard_link(&built, program.path())
        .or_else(|_| std::fs::copy(&built, program.path()).map(drop))
        .unwrap();
    program
}

/// What the program answers as a user without rights but these capabilities, bounding and ambient, with a socket as its
/// standard input and output.
pub fn as_nobody(
    program: &HelperProgram,
    (bounds, ambient): (&str, &str),
    address: &str,
) -> String {
    let (mut client, helper) = UnixStream::pair().unwrap();
    let helper = OwnedFd::from(helper);
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--no-new-privs",
        ])
        .arg(format!("--bounding-set={bounds}"))
        .arg(format!("--inh-caps={ambient}"))
        .arg(format!("--ambient-caps={ambient}"))
        .arg(program.path())
        .arg("probe-helper")
        .current_dir("/")
        .stdin(helper.try_clone().unwrap())
        .stdout(helper)
        .stderr(Stdio::inherit());
    let mut child = setpriv.spawn().unwrap();
    drop(setpriv);
    let line = request("probe", address, Duration::from_secs(1));
    client.write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(child.wait().unwrap().success(), "{answer}");
    answer
}

/// As the squatter would announce its address.
pub fn gratuitous_arp() -> Vec<u8> {
    #[rustfmt::skip]
    let frame = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 8, 6,
        0, 1, 8, 0, 6, 4, 0, 1,
        2, 0, 0, 0, 0, 2, 10, 0, 0, 5,
        0, 0, 0, 0, 0, 0, 10, 0, 0, 5,
    ];
    frame.into()
}

/// Of hardware of another kind.
pub fn malformed_arp() -> Vec<u8> {
    let mut frame = gratuitous_arp();
    frame[15] = 6;
    frame
}

/// As the squatter would answer a probe.
pub fn advertisement() -> Vec<u8> {
    let address: Ipv6Addr = V6.parse().unwrap();
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let (address, all) = (address.octets(), all.octets());
    let mut body = [&[136, 0, 0, 0, 0x20, 0, 0, 0], &address[..]].concat();
    let pseudo = [&address[..], &all, &[0, 0, 0, 24, 0, 0, 0, 58], &body].concat();
    let words = pseudo
        .chunks(2)
        .map(|two| u64::from(two[0]) << 8 | u64::from(two[1]));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    body[2..4].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    let ethernet = [0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
    let ip = [0x60, 0, 0, 0, 0, 24, 58, 255];
    [&ethernet[..], &ip, &address, &all, &body].concat()
}

pub fn advertisement_of_bad_checksum() -> Vec<u8> {
    let mut frame = advertisement();
    frame[56] ^= 1;
    frame
}

/// The frame with a tag of IEEE 802.1Q.
pub fn tagged(mut frame: Vec<u8>, vlan: u8) -> Vec<u8> {
    frame.splice(12..12, [0x81, 0, 0, vlan]);
    frame
}
