//! One signed POST.

use std::{path::PathBuf, time::Duration};

use http::{Request, header};

use super::{event::Message, sign::HookSecret};
use crate::{clock, config::Hook, outgoing::Outgoing};

/// For connecting, sending and the answer.
const DEADLINE: Duration = Duration::from_secs(15);
/// The largest answer that is read; nothing of it counts.
const MOST: usize = 64 * 1024;

pub(super) struct Sender {
    url: http::Uri,
    secret: PathBuf,
    outgoing: Outgoing,
}

impl Sender {
    pub fn new(hook: &Hook) -> Self {
        Self {
            url: hook.url.0.clone(),
            secret: hook.secret_file.clone(),
            outgoing: Outgoing::new(hook.ca_file.as_deref()),
        }
    }

    /// Whether the CA file can be used, else why not.
    pub async fn ready(&self) -> Result<(), String> {
        let ready = self.outgoing.ready().await;
        ready.map_err(|error| error.to_string())
    }

    /// Sends it once. The status of a receiver that took it, or why it is not taken. The secret is read each time, so that
    /// another one counts at once.
    pub async fn send(&self, message: &Message) -> Result<u16, String> {
        let secret = HookSecret::read(&self.secret).await?;
        let at = clock::now().0 / 1_000;
        let request = Request::post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("fipd/", env!("CARGO_PKG_VERSION")),
            )
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", at.to_string())
            .header(
                "webhook-signature",
                secret.sign(&message.id, at, &message.body),
            )
            .body(message.body.clone().into_bytes())
            .map_err(|error| error.to_string())?;
        let answer = self.outgoing.send(request, DEADLINE, MOST).await;
        let status = answer.map_err(|error| error.to_string())?.status();
        if status.is_success() {
            Ok(status.as_u16())
        } else {
            Err(format!(
                "it answers {status}; 2xx is what says that an event was taken"
            ))
        }
    }
}
