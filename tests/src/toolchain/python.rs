//! Tools from PyPI, each in a virtual environment of its own in the cache.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{cache_dir, cached, debian, run_logged};
use crate::say::progress;
use crate::versions;

/// All packages by version, so that every machine runs the same.
const SCHEMATHESIS: &str = include_str!("../../schemathesis/requirements.txt");

/// Debian's own Python: others on PATH may go away, and with them what was installed for them.
const PYTHON: &str = "/usr/bin/python3";

/// A command that is `schemathesis` up to its arguments, installed first when the cache has none.
pub fn schemathesis() -> Result<Vec<OsString>> {
    let dir = cache_dir("schemathesis", versions::SCHEMATHESIS)?;
    let python = |root: PathBuf| root.join("bin/python");
    let root = cached(&dir, "venv", |half| {
        debian::ensure(&["python3", "python3-venv"])?;
        progress(format_args!(
            "installing schemathesis {} from PyPI (two minutes, once per machine)",
            versions::SCHEMATHESIS
        ));
        let list = half.with_extension("txt");
        fs::write(&list, SCHEMATHESIS).with_context(|| format!("write {}", list.display()))?;
        let mut make = Command::new(PYTHON);
        make.args(["-m", "venv"]).arg(half);
        run_logged(make, &half.with_extension("venv.log"))?;
        let mut install = Command::new(python(half.to_path_buf()));
        install.args([
            "-m",
            "pip",
            "install",
            "--no-input",
            "--disable-pip-version-check",
            "--requirement",
        ]);
        install.arg(&list);
        run_logged(install, &half.with_extension("pip.log"))
    })?;
    let python = python(root);
    if !python.exists() {
        bail!(
            "{} is gone; remove {} and run again",
            python.display(),
            dir.display()
        );
    }
    // Scripts name the path at which they were installed; a module is found at any.
    Ok(vec![python.into(), "-m".into(), "schemathesis.cli".into()])
}
