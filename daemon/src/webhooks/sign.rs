//! Signatures as Standard Webhooks has them: HMAC-SHA256 over `ID.TIMESTAMP.BODY`.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;

use crate::foreign_file;

/// Shorter ones can be guessed.
const LEAST: usize = 24;

/// What a receiver recognises fipd by.
pub struct HookSecret(hmac::Key);

impl HookSecret {
    /// Reads the file; its text may end with a newline.
    ///
    /// # Errors
    /// It cannot be read, everybody can read it, or its secret is none.
    pub async fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let failed = |error: std::io::Error| format!("secret-file {shown}: {error}");
        let of = path.to_owned();
        let mode = foreign_file::run(path, move || Ok(of.metadata()?.permissions().mode()));
        let mode = mode.await.map_err(failed)?;
        if mode & 0o007 != 0 {
            return Err(format!(
                "secret-file {shown}: everybody may read it (mode {:o}); allowed is 0600, or 0640 with fipd's group",
                mode & 0o777
            ));
        }
        let text = foreign_file::read_text(path, foreign_file::LONGEST).await;
        let text = text.map_err(failed)?;
        Self::parse(text.trim()).map_err(|why| format!("secret-file {shown}: {why}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let bytes = match text.strip_prefix("whsec_") {
            Some(encoded) => STANDARD
                .decode(encoded)
                .map_err(|_| "what follows whsec_ is not Base64".to_owned())?,
            None => text.as_bytes().to_vec(),
        };
        if bytes.len() < LEAST {
            return Err(format!(
                "the secret has {} bytes; at least {LEAST} are allowed (openssl rand -base64 32)",
                bytes.len()
            ));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The value of `webhook-signature`; `at` in seconds since 1970.
    pub fn sign(&self, id: &str, at: u64, body: &str) -> String {
        let tag = hmac::sign(&self.0, format!("{id}.{at}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_is_signed_as_it_says() {
        let secret = HookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = secret.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            "{\"test\": 2432232314}",
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[tokio::test]
    async fn a_fifo_is_refused_and_waits_for_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let error = HookSecret::read(&path).await.err().unwrap();
        assert!(error.contains("not a regular file"), "{error}");
    }

    #[tokio::test]
    async fn weak_and_open_secrets_are_refused() {
        assert!(
            HookSecret::parse("short")
                .err()
                .unwrap()
                .contains("at least")
        );
        assert!(HookSecret::parse("whsec_***").is_err());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        std::fs::write(&path, "x".repeat(32)).unwrap();
        let mode = async |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            HookSecret::read(&path).await
        };
        assert!(mode(0o644).await.err().unwrap().contains("644"));
        assert!(mode(0o640).await.is_ok() && mode(0o600).await.is_ok());
    }
}
