//! What a client shows an API server: a fixed token, one from a file, or what the kubeconfig's program prints.
//!
//! One task for each client renews them before they expire. Calls use what is there, and never start a program.

use std::{path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use jiff::Timestamp;
use kube::config::AuthInfo;
use secrecy::ExposeSecret as _;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

use super::plugin::{PluginError, Program};
use crate::{backoff::Backoff, foreign_file};

/// How long before they expire credentials are renewed.
const MARGIN: Duration = Duration::from_secs(60);
/// Between two looks at the clock, and at a token file.
const LOOK: Duration = Duration::from_secs(30);
/// Least time between two runs of a program because the API server has refused what it printed.
const RERUN: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where credentials come from.
pub(super) enum CredentialSource {
    Fixed(Credential),
    File(PathBuf),
    Program(Program),
}

/// What is shown.
#[derive(Clone, Default)]
pub(super) struct Credential {
    pub header: Option<HeaderValue>,
    /// Certificate and key in PEM.
    pub certificate: Option<(String, String)>,
    expires: Option<Timestamp>,
}

/// Why there is nothing to show. Says nothing of what is in a file or was printed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    #[error("the file that tokenFile names cannot be read: {0}")]
    File(Arc<str>),
    #[error(transparent)]
    Program(#[from] PluginError),
    #[error(
        "the program that its kubeconfig names (exec) has printed credentials that have expired"
    )]
    Expired,
    #[error("the credentials of its kubeconfig cannot be sent: {0}")]
    Unsendable(&'static str),
    #[error("the client has ended")]
    Ended,
}

/// The credentials of one client.
pub(super) struct Credentials {
    now: watch::Receiver<LatestCredential>,
    refused: Arc<Notify>,
    _renewing: Option<AbortOnDropHandle<()>>,
}

/// What there is, and what failed since.
#[derive(Clone)]
struct LatestCredential {
    credential: Arc<Credential>,
    failure: Option<CredentialError>,
}

impl Credential {
    fn bearer(token: &str) -> Result<Self, CredentialError> {
        Self::header(format!("Bearer {}", token.trim()))
    }

    fn header(value: String) -> Result<Self, CredentialError> {
        let unsendable = |_| {
            CredentialError::Unsendable("a token or name has characters that no header can have")
        };
        let mut header = HeaderValue::try_from(value).map_err(unsendable)?;
        header.set_sensitive(true);
        Ok(Self {
            header: Some(header),
            ..Self::default()
        })
    }

    /// How long it is good for; `None`: until it is refused.
    fn rest(&self) -> Option<Duration> {
        let rest = self.expires?.duration_since(Timestamp::now());
        Some(Duration::try_from(rest).unwrap_or_default())
    }

    fn is_good(&self) -> bool {
        self.rest().is_none_or(|rest| !rest.is_zero())
    }
}

impl CredentialSource {
    /// Takes the credentials out of what the kubeconfig says of its user, in kube's order; client certificates stay there.
    /// `home` is that of programs.
    pub fn take(user: &mut AuthInfo, home: &std::path::Path) -> Result<Self, CredentialError> {
        let provider = user.auth_provider.take();
        let (name, password) = (user.username.take(), user.password.take());
        let (token, file, exec) = (user.token.take(), user.token_file.take(), user.exec.take());
        if let Some(provider) = provider {
            if let Some(token) = provider.config.get("id-token") {
                return Credential::bearer(token).map(Self::Fixed);
            }
            return Ok(Self::Program(Program::of_provider(&provider, home)?));
        }
        if let (Some(name), Some(password)) = (name, password) {
            let both = STANDARD.encode(format!("{name}:{}", password.expose_secret()));
            return Credential::header(format!("Basic {both}")).map(Self::Fixed);
        }
        if let Some(token) = token {
            return Credential::bearer(token.expose_secret()).map(Self::Fixed);
        }
        if let Some(file) = file.filter(|file| !file.is_empty()) {
            return Ok(Self::File(file.into()));
        }
        match exec {
            Some(exec) => Ok(Self::Program(Program::of_exec(exec, home)?)),
            None => Ok(Self::Fixed(Credential::default())),
        }
    }

    async fn read(&self) -> Result<Credential, CredentialError> {
        match self {
            Self::Fixed(credential) => Ok(credential.clone()),
            Self::File(path) => {
                let text = foreign_file::read_text(path, foreign_file::LONGEST).await;
                let unread =
                    |error: std::io::Error| CredentialError::File(error.to_string().into());
                Credential::bearer(&text.map_err(unread)?)
            }
            Self::Program(program) => {
                let printed = program.run().await?;
                let credential = match &printed.token {
                    Some(token) => Credential::bearer(token)?,
                    None => Credential::default(),
                };
                Ok(Credential {
                    certificate: printed.certificate,
                    expires: printed.expires,
                    ..credential
                })
            }
        }
    }
}

impl Credentials {
    /// Reads them for the first time, and keeps them fresh from then on.
    ///
    /// # Errors
    /// There are none.
    pub async fn start(source: CredentialSource) -> Result<Self, CredentialError> {
        let credential = Arc::new(source.read().await?);
        let (sender, now) = watch::channel(LatestCredential {
            credential,
            failure: None,
        });
        let refused = Arc::new(Notify::new());
        let renewing = match source {
            CredentialSource::Fixed(_) => None,
            CredentialSource::File(_) | CredentialSource::Program(_) => {
                let renewal = renew(source, sender, Arc::clone(&refused));
                Some(AbortOnDropHandle::new(tokio::spawn(renewal)))
            }
        };
        Ok(Self {
            now,
            refused,
            _renewing: renewing,
        })
    }

    /// What is shown now. Waits for a renewal that is under way, where what is there has expired.
    ///
    /// # Errors
    /// The last renewal has failed.
    pub async fn current(&self) -> Result<Arc<Credential>, CredentialError> {
        let mut now = self.now.clone();
        loop {
            let standing = now.borrow_and_update().clone();
            if standing.credential.is_good() {
                return Ok(standing.credential);
            }
            if let Some(failure) = standing.failure {
                return Err(failure);
            }
            if now.changed().await.is_err() {
                return Err(CredentialError::Ended);
            }
        }
    }

    /// The API server has answered 401.
    pub fn refused(&self) {
        self.refused.notify_one();
    }
}

/// Ends with the client, which aborts it.
async fn renew(
    source: CredentialSource,
    sender: watch::Sender<LatestCredential>,
    refused: Arc<Notify>,
) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut read = Instant::now();
    let mut failed = !sender.borrow().credential.is_good();
    loop {
        let pause = match failed {
            true => backoff.pause(),
            false => {
                backoff.reset();
                wait(&source, &sender.borrow().credential)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {
                if !failed && !is_due(&source, &sender.borrow().credential, read) {
                    continue;
                }
            }
            () = refused.notified(), if read.elapsed() >= RERUN => {}
        }
        read = Instant::now();
        let result = source.read().await;
        failed = !matches!(&result, Ok(credential) if credential.is_good());
        sender.send_modify(|standing| match result {
            Ok(credential) => {
                let expired = (!credential.is_good()).then_some(CredentialError::Expired);
                *standing = LatestCredential {
                    credential: Arc::new(credential),
                    failure: expired,
                };
            }
            Err(error) => standing.failure = Some(error),
        });
    }
}

/// How long to wait before the clock is looked at: it may be set meanwhile.
fn wait(source: &CredentialSource, credential: &Credential) -> Duration {
    let (CredentialSource::Program(_), Some(rest)) = (source, credential.rest()) else {
        return LOOK;
    };
    let before = rest.checked_sub(MARGIN).unwrap_or(rest / 2);
    before.clamp(FIRST_PAUSE, LOOK)
}

fn is_due(source: &CredentialSource, credential: &Credential, read: Instant) -> bool {
    match source {
        CredentialSource::Fixed(_) => false,
        CredentialSource::File(_) => true,
        CredentialSource::Program(_) => credential.rest().is_some_and(|rest| {
            // One that is good for a short time only is renewed at half of it.
            rest <= MARGIN && rest <= read.elapsed().max(FIRST_PAUSE)
        }),
    }
}

#[cfg(test)]
mod tests;
