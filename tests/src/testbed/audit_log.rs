//! The audit log of an API server: who wrote what, without the objects.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

const POLICY: &str = "audit-policy.json";
const LOG: &str = "audit.log";
/// Writes, once they are answered.
const WRITES: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        { "level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"] },
        { "level": "None" }
    ]
}"#;

/// Writes the policy into the directory of the API server.
pub fn prepare(directory: &Path) -> Result<()> {
    fs::write(directory.join(POLICY), WRITES).context("write the audit policy")
}

/// Arguments of kube-apiserver.
pub fn arguments(directory: &Path) -> [String; 2] {
    let file = |name: &str| directory.join(name).display().to_string();
    [
        format!("--audit-policy-file={}", file(POLICY)),
        format!("--audit-log-path={}", file(LOG)),
    ]
}

/// The requests so far, over all starts of the API server.
pub fn read(directory: &Path) -> Result<Vec<Value>> {
    let file = directory.join(LOG);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    // A kill may cut off a line.
    let lines = text.lines().map(serde_json::from_str);
    Ok(lines.filter_map(Result::ok).collect())
}
