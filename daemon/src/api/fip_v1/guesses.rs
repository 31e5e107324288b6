//! Wrong secrets: whoever shows them is slowed, and nobody else.

use std::{collections::BTreeMap, net::IpAddr, time::Instant};

use http::StatusCode;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{
    limiter::{Limiter, Rate, Whom},
    too_many,
};
use crate::fip_v1::{Asker, Claim, Denied};

/// Ten at once, then one in ten seconds, from one network for one project.
const RATE: Rate = Rate {
    per_second: 0.1,
    burst: 10.0,
};

/// Who was refused lately, and which secret of each project was right the last time.
#[derive(Default)]
pub struct Guesses {
    refused: Limiter,
    /// Digests. A client that shows this one is looked at however much is guessed beside it.
    right: Mutex<BTreeMap<String, [u8; 32]>>,
}

impl Guesses {
    /// Who asks, unless too many wrong secrets came from there.
    ///
    /// # Errors
    /// What `authorized` says, or that it was not asked.
    pub async fn watch(
        &self,
        peer: Option<IpAddr>,
        claim: &Claim,
        authorized: impl Future<Output = Result<Asker, Denied>>,
    ) -> Result<Asker, Denied> {
        let whom = Whom::stranger(peer, &claim.project);
        let digest: [u8; 32] = Sha256::digest(claim.secret.reveal().as_bytes()).into();
        let before = self.right.lock().get(&claim.project).copied();
        let was_right = before.is_some_and(|before| bool::from(before.ct_eq(&digest)));
        if !was_right && !self.refused.has(&whom, RATE, Instant::now()) {
            return Err(too_many());
        }
        let said = authorized.await;
        match &said {
            Ok(asker) => {
                let mut right = self.right.lock();
                right.insert(asker.project.clone(), digest);
            }
            Err(denied) if denied.code == StatusCode::FORBIDDEN => {
                self.refused.take(whom, RATE, Instant::now());
            }
            Err(_) => {}
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fip_v1::Secret;

    async fn shown(guesses: &Guesses, peer: &str, secret: &str) -> u16 {
        let claim = Claim {
            client: "client-c-m-a".to_owned(),
            project: "p-a".to_owned(),
            secret: Secret::new(secret),
            cluster: None,
        };
        let authorized = async {
            if secret != "right" {
                return Err(Denied::unauthorized());
            }
            Ok(Asker {
                management: "rancher".into(),
                project: "p-a".to_owned(),
                namespace: "c-m-a".to_owned(),
                cluster: "c-m-a".to_owned(),
            })
        };
        let said = guesses.watch(peer.parse().ok(), &claim, authorized).await;
        said.map_or_else(|denied| denied.code.as_u16(), |_| 200)
    }

    #[tokio::test]
    async fn guessing_is_slow_and_slows_nobody_else() {
        let guesses = Guesses::default();
        for guess in 0..10 {
            let code = shown(&guesses, "192.0.2.1", &guess.to_string()).await;
            assert_eq!(code, 403, "{guess}");
        }
        assert_eq!(shown(&guesses, "192.0.2.1", "another").await, 429);
        let code = shown(&guesses, "192.0.2.1", "right").await;
        assert_eq!(code, 429, "a guess that is right is none the better");
        assert_eq!(shown(&guesses, "192.0.2.2", "right").await, 200);
        let code = shown(&guesses, "192.0.2.1", "right").await;
        assert_eq!(code, 200, "as it was right before, behind one address too");
        assert_eq!(shown(&guesses, "192.0.2.1", "another").await, 429);
    }
}
