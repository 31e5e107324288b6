//! A virtual machine with a kernel of its own, for what the running kernel lacks: Debian's cloud kernel in QEMU, with a shell
//! that runs what the test says.
//!
//! ```text
//!  Vm::run --> unix socket --> ttyS1 --> sh -c COMMAND        kernel, fipd --> ttyS0 --> console.log
//! ```
//!
//! There is no KVM in it: instructions are translated, some ten times slower than here. From inside, this host's loopback is
//! at [`HOST`].

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::directory::TestDirectory;
use super::fipd::fipd_binary;
use super::image::{collect, run};
use crate::process::{Process, tail};
use crate::toolchain::debian;
use crate::toolchain::kernel::Kernel;
use crate::wait::wait_until;

/// The loopback of the host, from inside.
pub const HOST: &str = "10.0.2.2";

const PACKAGES: &[&str] = &["qemu-system-x86", "busybox-static", "cpio", "iproute2"];
/// Of the network card, each after those it needs.
const MODULES: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
];
const MEMORY: &str = "1024";
const BOOTS_WITHIN: Duration = Duration::from_secs(240);
const COMMAND_WITHIN: Duration = Duration::from_secs(180);
/// Begins the line with the exit code, after the output of a command.
const DONE: &str = "=done=";
/// In the place of the code: the line did not arrive whole. A serial line loses what a busy machine does not take in time.
const LOST: &str = "lost";
/// So often a line is sent.
const SENT: usize = 3;

/// Of these are the commands that busybox has, too: its own shell would take its own.
const PROGRAMS: [&str; 2] = ["/bin/dash", "/sbin/ip"];

/// The machine's first program. Kernel and programs in the background say what they say on the console.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /run /busybox
/bin/busybox --install -s /busybox
export PATH=/usr/sbin:/usr/bin:/busybox
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module.ko" || echo "$module is not loaded" >/dev/console; done </modules/list
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1
echo; echo "=done= 0"
while read -r length command; do
    [ "${#command}" = "$length" ] || { echo; echo "=done= lost"; continue; }
    dash -c "$command" </dev/null 2>&1
    code=$?
    echo; echo "=done= $code"
done
"#;

/// A running machine. Dropping it ends it.
pub struct Vm {
    // Dropped in this order: the process ends before its directory goes.
    qemu: Process,
    shell: BufReader<UnixStream>,
    directory: TestDirectory,
}

impl Vm {
    /// Boots one with fipd and its CNI plugin in it, these modules of its kernel, and these files, each with its path inside.
    pub async fn boot(modules: &[&str], files: &[(&str, &str)]) -> Result<Self> {
        tokio::task::spawn_blocking(|| debian::ensure(PACKAGES)).await??;
        let kernel = tokio::task::spawn_blocking(Kernel::cloud).await??;
        let directory = TestDirectory::new()?;
        let plugin = fipd_binary().await?.with_file_name("fipd-cni");
        let programs: Vec<&Path> = PROGRAMS.iter().map(Path::new).chain([&*plugin]).collect();
        let root = collect(directory.path(), &programs).await?;
        furnish(&root, &kernel, modules, files)?;
        let memory = directory.path().join("root.cpio");
        let mut pack = Command::new("sh");
        pack.current_dir(&root)
            .args(["-c", "find . | cpio --quiet --create --format=newc >\"$0\""])
            .arg(&memory);
        run(pack).await?;
        fs::remove_dir_all(&root)?;
        let socket = directory.path().join("shell");
        let command = qemu(&kernel, &memory, directory.path(), &socket);
        let qemu = Process::spawn("qemu", command, &directory.path().join("qemu.log"))?;
        let shell = wait_until("qemu listens", BOOTS_WITHIN, || async {
            if let Err(ended) = qemu.still_running() {
                return Ok(Err(ended));
            }
            UnixStream::connect(&socket).await.map(Ok)
        });
        let shell = BufReader::new(shell.await??);
        let mut vm = Self {
            qemu,
            shell,
            directory,
        };
        vm.answer("boot", BOOTS_WITHIN).await?;
        Ok(vm)
    }

    /// Runs a command of a shell, in one line, and gives back what it says; an error where it fails.
    pub async fn run(&mut self, command: &str) -> Result<String> {
        let line = format!("{} {command}\n", command.len());
        for _ in 0..SENT {
            self.shell.get_mut().write_all(line.as_bytes()).await?;
            if let Some(said) = self.answer(command, COMMAND_WITHIN).await? {
                return Ok(said);
            }
        }
        bail!("the machine did not take the whole of {command:?}")
    }

    /// What kernel and daemons said last.
    pub fn console(&self) -> String {
        tail(&self.directory.path().join("console.log"))
    }

    /// What the command says; `None`: it did not arrive.
    async fn answer(&mut self, command: &str, within: Duration) -> Result<Option<String>> {
        let mut said = String::new();
        let read = tokio::time::timeout(within, read_answer(&mut self.shell, &mut said)).await;
        let why = match read {
            Ok(Ok(Some(0))) => return Ok(Some(said)),
            Ok(Ok(None)) => return Ok(None),
            Ok(Ok(Some(code))) => format!("exit code {code}"),
            Ok(Err(error)) => error.to_string(),
            Err(_elapsed) => format!("no end within {within:?}"),
        };
        let (console, qemu) = (self.console(), self.qemu.log_tail());
        bail!(
            "in the machine, {command}: {why}\n{said}\nthe console's end:\n{console}\nqemu: {qemu}"
        )
    }
}

async fn read_answer(shell: &mut BufReader<UnixStream>, said: &mut String) -> Result<Option<i32>> {
    loop {
        let mut line = Vec::new();
        if shell.read_until(b'\n', &mut line).await? == 0 {
            bail!("the machine has ended");
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(code) = line.strip_prefix(DONE) {
            // An empty line comes before it.
            said.truncate(said.trim_end().len());
            return match code.trim() {
                LOST => Ok(None),
                code => code.parse().map(Some).context("an exit code"),
            };
        }
        said.push_str(&line);
    }
}

fn furnish(root: &Path, kernel: &Kernel, modules: &[&str], files: &[(&str, &str)]) -> Result<()> {
    let all = MODULES.iter().chain(modules);
    fs::create_dir_all(root.join("modules"))?;
    for module in all.clone() {
        let to = root.join("modules").join(format!("{module}.ko"));
        fs::copy(kernel.module(module)?, to)?;
    }
    let list: String = all.map(|module| format!("{module}\n")).collect();
    fs::write(root.join("modules/list"), list)?;
    fs::create_dir_all(root.join("bin"))?;
    fs::copy("/bin/busybox", root.join("bin/busybox"))?;
    let init = root.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    for (path, text) in files {
        let path = root.join(path.trim_start_matches('/'));
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn qemu(kernel: &Kernel, memory: &Path, directory: &Path, socket: &Path) -> Command {
    let console: PathBuf = directory.join("console.log");
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args(["-accel", "tcg", "-cpu", "max", "-m", MEMORY])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(memory)
        .args([
            "-append",
            "console=ttyS0 quiet panic=-1 random.trust_cpu=on",
        ])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-serial")
        .arg(format!("unix:{},server=on,wait=off", socket.display()))
        .args([
            "-netdev",
            "user,id=net0",
            "-device",
            "virtio-net-pci,netdev=net0,romfile=",
        ]);
    command
}
