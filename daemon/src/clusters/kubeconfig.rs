//! Which kubeconfigs are acceptable, and what they mean.
//!
//! A kubeconfig is code: `exec` runs a program, a file path reads any file fipd can read. Both are honoured only
//! in files that root wrote where only root writes. Everything else must be self-contained.

use std::{
    fmt::Display,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{config, foreign_file};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Config,
    config::{
        AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError,
    },
};

/// The largest kubeconfig that is read, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Files that may run programs and name other files: those below `dir` that, like every directory from there on,
/// belong to `owner` and are writable by nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    pub dir: PathBuf,
    pub owner: u32,
    /// Where systemd puts what root gave the daemon (`LoadCredential=`): nobody else can write there.
    pub credentials: Option<PathBuf>,
    /// The home directory of programs that they name; made when one is run.
    pub home: PathBuf,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            dir: "/etc/fipd".into(),
            owner: 0,
            credentials: config::credentials(),
            home: "/var/lib/fipd/programs".into(),
        }
    }
}

/// Why a kubeconfig is not used. The cluster stays as it was until the file or Secret changes.
///
/// Names fields and places, never what is there: everybody who may look is told, and a key may have come into any field.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KubeconfigRefused(String);

impl KubeconfigRefused {
    /// `origin` is what errors call the kubeconfig.
    pub(super) fn new(origin: impl Display, why: impl Display) -> Self {
        Self(format!("kubeconfig {origin}: {why}"))
    }

    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::new(path.display(), format_args!("cannot be read: {error}"))
    }
}

/// What a kubeconfig says, checked.
pub(super) struct Loaded {
    pub config: Config,
    /// Files it is made of beyond itself: a change of theirs is a change of it.
    pub files: Vec<PathBuf>,
}

/// How much a text may ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allow {
    /// Programs and paths.
    pub code: bool,
    pub insecure: bool,
}

impl Allow {
    /// For a text that must be self-contained.
    pub fn no_code(insecure: bool) -> Self {
        Self {
            code: false,
            insecure,
        }
    }
}

/// Reads a kubeconfig file. Blocks.
pub(super) fn read_file(path: &Path, trust: &Trust) -> Result<(String, bool), KubeconfigRefused> {
    let unreadable = |error| KubeconfigRefused::unreadable(path, &error);
    let real = path.canonicalize().map_err(unreadable)?;
    let file = foreign_file::open(&real).map_err(unreadable)?;
    let owned = file
        .metadata()
        .is_ok_and(|meta| only_owner_writes(&meta, trust.owner));
    let trusted = (owned && trusted_place(&real, trust)) || is_credential(&real, trust);
    let mut text = String::new();
    file.take(MAX_SIZE + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    Ok((text, trusted))
}

fn is_credential(real: &Path, trust: &Trust) -> bool {
    let dir = trust.credentials.as_ref();
    let dir = dir.and_then(|dir| dir.canonicalize().ok());
    dir.is_some() && real.parent() == dir.as_deref()
}

fn trusted_place(real: &Path, trust: &Trust) -> bool {
    let Ok(dir) = trust.dir.canonicalize() else {
        return false;
    };
    real.starts_with(&dir)
        && real
            .ancestors()
            .skip(1)
            .take_while(|ancestor| ancestor.starts_with(&dir))
            .all(|ancestor| {
                ancestor
                    .metadata()
                    .is_ok_and(|meta| only_owner_writes(&meta, trust.owner))
            })
}

fn only_owner_writes(meta: &std::fs::Metadata, owner: u32) -> bool {
    meta.uid() == owner && meta.mode() & 0o022 == 0
}

/// Checks the text of a kubeconfig and turns it into a client configuration. `origin` is what errors call it.
pub(super) async fn accept(
    text: &str,
    context: Option<&str>,
    origin: &str,
    base: Option<&Path>,
    allow: Allow,
) -> Result<Loaded, KubeconfigRefused> {
    let malformed = |why: String| KubeconfigRefused::new(origin, why);
    let (mut kubeconfig, cluster, user) = examine(text, context, origin, allow)?;
    let files = resolve_paths(&mut kubeconfig, &cluster, &user, base);
    if let Some(cluster) = used_cluster(&mut kubeconfig, context) {
        take_in_ca(cluster)
            .await
            .map_err(|err| malformed(told_of_data("certificate-authority", &err)))?;
    }
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|err| malformed(told(&err)))?;
    // The library also takes a proxy from the environment: where fipd connects is only what its files say.
    config.proxy_url = None;
    Ok(Loaded { config, files })
}

fn used_cluster<'a>(
    kubeconfig: &'a mut Kubeconfig,
    context: Option<&str>,
) -> Option<&'a mut Cluster> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let used = context_of(kubeconfig, name)?.cluster.clone();
    let mut clusters = kubeconfig.clusters.iter_mut();
    clusters.find(|named| named.name == used)?.cluster.as_mut()
}

fn context_of<'a>(kubeconfig: &'a Kubeconfig, name: &str) -> Option<&'a Context> {
    let mut contexts = kubeconfig.contexts.iter();
    contexts.find(|named| named.name == name)?.context.as_ref()
}

/// Puts the file of the CA into the text. As with kubectl, the data counts where there are both.
async fn take_in_ca(cluster: &mut Cluster) -> Result<(), LoadDataError> {
    let file = cluster.certificate_authority.take();
    let file = file.filter(|file| !file.is_empty() && cluster.certificate_authority_data.is_none());
    if let Some(file) = file {
        let read = foreign_file::read(Path::new(&file), foreign_file::LONGEST).await;
        let bytes = read.map_err(|error| LoadDataError::ReadFile(error, file.into()))?;
        cluster.certificate_authority_data = Some(STANDARD.encode(bytes));
    }
    Ok(())
}

/// Whether a kubeconfig file would be accepted, without connecting: the URL of its API server. Blocks.
pub fn check_kubeconfig(
    path: &Path,
    context: Option<&str>,
    insecure: bool,
) -> Result<String, KubeconfigRefused> {
    let (text, code) = read_file(path, &Trust::default())?;
    let origin = path.display().to_string();
    let (_, cluster, _) = examine(&text, context, &origin, Allow { code, insecure })?;
    Ok(cluster.server.unwrap_or_default())
}

/// What is taken without trust names nothing outside of itself.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz(text: &str) {
    let Ok((_, cluster, user)) = examine(text, None, "fuzz", Allow::no_code(false)) else {
        return;
    };
    assert!(user.exec.is_none() && user.auth_provider.is_none());
    let paths = [
        &user.token_file,
        &user.client_certificate,
        &user.client_key,
        &cluster.certificate_authority,
        &cluster.proxy_url,
    ];
    assert!(!paths.into_iter().any(is_set), "{text}");
    assert_ne!(cluster.insecure_skip_tls_verify, Some(true));
}

/// Whether a text that somebody uploaded would be accepted: it must be self-contained. `origin` is what errors call it.
pub(super) fn check_text(text: &str, origin: &str) -> Result<(), KubeconfigRefused> {
    examine(text, None, origin, Allow::no_code(false)).map(drop)
}

fn examine(
    text: &str,
    context: Option<&str>,
    origin: &str,
    allow: Allow,
) -> Result<(Kubeconfig, Cluster, AuthInfo), KubeconfigRefused> {
    let malformed = |why: String| KubeconfigRefused::new(origin, why);
    if text.len() as u64 > MAX_SIZE {
        return Err(malformed(format!("is larger than {MAX_SIZE} bytes")));
    }
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|err| malformed(told(&err)))?;
    let (cluster, user) = selected(&kubeconfig, context).map_err(malformed)?;
    check_cluster(&cluster, origin, allow)?;
    check_user(&user, origin, allow)?;
    Ok((kubeconfig, cluster, user))
}

/// What is wrong, without what is there: what the library says of an error may quote the text or the data in it.
pub(super) fn told(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => told_of_yaml(error),
        KubeconfigError::LoadCertificateAuthority(error) => {
            told_of_data("certificate-authority", error)
        }
        KubeconfigError::LoadClientCertificate(error) => told_of_data("client-certificate", error),
        KubeconfigError::LoadClientKey(error) => told_of_data("client-key", error),
        KubeconfigError::ParseCertificates(_) => {
            "certificate-authority-data holds no certificates in PEM".to_owned()
        }
        KubeconfigError::LoadContext(_) => "the context that is used is not there".to_owned(),
        KubeconfigError::LoadClusterOfContext(_) => {
            "the cluster of the context that is used is not there".to_owned()
        }
        KubeconfigError::CurrentContextNotSet
        | KubeconfigError::KindMismatch
        | KubeconfigError::ApiVersionMismatch
        | KubeconfigError::FindPath
        | KubeconfigError::ReadConfig(..)
        | KubeconfigError::MissingClusterUrl
        | KubeconfigError::ParseClusterUrl(_)
        | KubeconfigError::ParseProxyUrl(_) => error.to_string(),
    }
}

fn told_of_yaml(error: &serde_saphyr::Error) -> String {
    let place = error.location();
    let place = place.map(|at| format!(" in line {}, column {}", at.line(), at.column()));
    let place = place.unwrap_or_default();
    let error = error.without_snippet();
    if let serde_saphyr::Error::SerdeMissingField { field, .. } = error {
        format!("{field} is missing{place}")
    } else if matches!(error, serde_saphyr::Error::ExternalMessage { .. }) {
        format!("is no YAML{place}")
    } else {
        format!("is no kubeconfig{place}: it has something of the wrong kind there")
    }
}

/// A file is not named either: the data may have been put where its path belongs.
pub(super) fn told_of_data(field: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::DecodeBase64(_) => format!("{field}-data is no base64"),
        LoadDataError::ReadFile(error, _) => {
            format!("the file that {field} names cannot be read: {error}")
        }
        LoadDataError::NoBase64DataOrFile => format!("{field} is missing"),
    }
}

/// The cluster and user of the context that is used. Others in the text are not looked at: they are never used.
fn selected(kubeconfig: &Kubeconfig, context: Option<&str>) -> Result<(Cluster, AuthInfo), String> {
    // A name of fipd's own configuration is no secret; one of the text may be.
    let called = context.map_or_else(
        || "the context of current-context".to_owned(),
        |name| format!("context {name:?}"),
    );
    let name = context
        .or(kubeconfig
            .current_context
            .as_deref()
            .filter(|name| !name.is_empty()))
        .ok_or("current-context is not set; it must name the context to use")?;
    let chosen = context_of(kubeconfig, name).ok_or_else(|| format!("{called} is not there"))?;
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|named| named.name == chosen.cluster)
        .and_then(|named| named.cluster.clone())
        .ok_or_else(|| format!("{called} names a cluster that is not there"))?;
    let user = kubeconfig
        .auth_infos
        .iter()
        .find(|named| Some(&named.name) == chosen.user.as_ref());
    Ok((
        cluster,
        user.and_then(|named| named.auth_info.clone())
            .unwrap_or_default(),
    ))
}

const NEEDS_TRUST: &str = "only a file below /etc/fipd that root owns and nobody else can write may name programs \
     or other files; put the data itself into the kubeconfig";

fn check_cluster(cluster: &Cluster, origin: &str, allow: Allow) -> Result<(), KubeconfigRefused> {
    let refuse = |field: &str, why: &str| Err(refused(origin, field, why));
    let server = cluster.server.as_deref().unwrap_or_default();
    if !server.starts_with("https://") {
        return refuse("server", "it must start with https://");
    }
    if server.contains('@') {
        return refuse("server", "it names a user, who is not used; leave that out");
    }
    if cluster.insecure_skip_tls_verify == Some(true) && !allow.insecure {
        let why = "the cluster's identity would not be checked; set insecure-skip-tls-verify = true for it in the \
             configuration, or put its CA into certificate-authority-data";
        return refuse("insecure-skip-tls-verify", why);
    }
    if is_set(&cluster.proxy_url) {
        return refuse("proxy-url", "fipd connects directly; remove it");
    }
    if is_set(&cluster.certificate_authority) && !allow.code {
        return refuse("certificate-authority", NEEDS_TRUST);
    }
    Ok(())
}

fn is_set(value: &Option<String>) -> bool {
    value.as_ref().is_some_and(|value| !value.is_empty())
}

fn check_user(user: &AuthInfo, origin: &str, allow: Allow) -> Result<(), KubeconfigRefused> {
    if allow.code {
        return Ok(());
    }
    let asked = [
        ("exec", user.exec.is_some()),
        ("auth-provider", user.auth_provider.is_some()),
        ("tokenFile", is_set(&user.token_file)),
        ("client-certificate", is_set(&user.client_certificate)),
        ("client-key", is_set(&user.client_key)),
    ];
    match asked.into_iter().find(|(_, asked)| *asked) {
        Some((field, _)) => Err(refused(origin, field, NEEDS_TRUST)),
        None => Ok(()),
    }
}

fn refused(origin: &str, field: &str, why: &str) -> KubeconfigRefused {
    KubeconfigRefused::new(origin, format_args!("{field} is refused: {why}"))
}

/// Makes the paths of the text absolute (they are relative to the file) and returns those in use.
fn resolve_paths(
    kubeconfig: &mut Kubeconfig,
    cluster: &Cluster,
    user: &AuthInfo,
    base: Option<&Path>,
) -> Vec<PathBuf> {
    let Some(base) = base else { return Vec::new() };
    let join = |path: &mut Option<String>| {
        if let Some(path) = path.as_mut().filter(|path| !path.is_empty()) {
            *path = base.join(&*path).to_string_lossy().into_owned();
        }
    };
    let clusters = kubeconfig.clusters.iter_mut();
    for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
        join(&mut cluster.certificate_authority);
    }
    let users = kubeconfig.auth_infos.iter_mut();
    for user in users.filter_map(|named| named.auth_info.as_mut()) {
        join(&mut user.token_file);
        join(&mut user.client_certificate);
        join(&mut user.client_key);
    }
    [
        &cluster.certificate_authority,
        &user.client_certificate,
        &user.client_key,
    ]
    .into_iter()
    .flatten()
    .filter(|path| !path.is_empty())
    .map(|path| base.join(path))
    .collect()
}

/// The configuration of the pod fipd runs in.
pub(super) fn in_cluster() -> Result<Loaded, KubeconfigRefused> {
    let refused = |error| KubeconfigRefused(format!("in-cluster = true: {error}"));
    let mut config = Config::incluster_env().map_err(refused)?;
    // It is in the configuration as well; a change of the file makes another client.
    let files = config.root_cert_file.take().into_iter().collect();
    Ok(Loaded { config, files })
}

#[cfg(test)]
mod tests;
