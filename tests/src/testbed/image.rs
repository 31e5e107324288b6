//! The files of fipd's image, collected by what users build it with.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::fipd::fipd_binary;
use crate::process::run_bound;
use crate::toolchain::debian;

/// What `packaging/image` and the stripping of a test's binary need, and what makes the image of a pod's first process.
pub(super) const PACKAGES: &[&str] = &[
    "nftables",
    "ca-certificates",
    "binutils",
    "buildah",
    "busybox-static",
];
/// Of those, what is needed without an image.
const FILES: &[&str] = &["nftables", "ca-certificates", "binutils"];

/// The script.
fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/image")
}

/// fipd's binary without what only debuggers read: a debug build is large.
async fn stripped(folder: &Path) -> Result<PathBuf> {
    let binary = fipd_binary().await?;
    let small = folder.join("fipd");
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(&small).arg(binary);
    run(strip).await?;
    Ok(small)
}

/// Collects the image's files and further programs in `folder/root`.
pub(super) async fn collect(folder: &Path, programs: &[&Path]) -> Result<PathBuf> {
    tokio::task::spawn_blocking(|| debian::ensure(FILES)).await??;
    let root = folder.join("root");
    let mut command = Command::new(script());
    command
        .arg("--root")
        .arg(&root)
        .arg(stripped(folder).await?)
        .args(programs);
    run(command).await?;
    Ok(root)
}

/// Builds fipd's image as users do; the archive of it. Another `epoch` makes another image of the same files.
pub(super) async fn image(folder: &Path, tag: &str, epoch: u64) -> Result<PathBuf> {
    let archive = folder.join(format!("fipd.{epoch}.tar"));
    let mut command = with_store(Command::new(script()), folder)?;
    command.args(["--tag", tag]).arg("--save").arg(&archive);
    command.arg(stripped(folder).await?);
    command.env("SOURCE_DATE_EPOCH", epoch.to_string());
    run(command).await?;
    Ok(archive)
}

/// Builds another image; the archive of it.
pub(super) async fn build(
    folder: &Path,
    files: &Path,
    containerfile: &Path,
    tag: &str,
) -> Result<PathBuf> {
    let archive = files.with_extension("tar");
    let mut bud = with_store(Command::new("buildah"), folder)?;
    bud.args(["bud", "--quiet", "--tag", tag, "--file"]);
    bud.args([containerfile, files]);
    run(bud).await?;
    let mut push = with_store(Command::new("buildah"), folder)?;
    push.args(["push", "--quiet", tag]);
    push.arg(format!("docker-archive:{}:{tag}", archive.display()));
    run(push).await?;
    Ok(archive)
}

/// buildah with a store of the test's own, and without what a container lacks.
fn with_store(mut command: Command, folder: &Path) -> Result<Command> {
    let settings = folder.join("storage.conf");
    let place = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = {:?}\nrunroot = {:?}\n",
        place("images"),
        place("images.run")
    );
    std::fs::write(&settings, text)?;
    command
        .env("CONTAINERS_STORAGE_CONF", &settings)
        .env("BUILDAH_ISOLATION", "chroot");
    Ok(command)
}

/// Runs a command to its end.
pub(super) async fn run(command: Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = run_bound(command).await.with_context(|| shown.clone())?;
    if !output.status.success() {
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        bail!("{shown}: {}: {out}{err}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
