//! Wrong secrets: whoever shows many is told to wait. Whoever shows the right one is not, so that nobody without it can
//! lock a project out.

use std::{net::IpAddr, time::Instant};

use http::StatusCode;

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

/// Who was refused lately.
#[derive(Default)]
pub struct Guesses(Limiter);

impl Guesses {
    /// Who asks.
    ///
    /// # Errors
    /// What `authorized` says, or that too many wrong secrets came from there.
    pub async fn watch(
        &self,
        peer: Option<IpAddr>,
        claim: &Claim,
        authorized: impl Future<Output = Result<Asker, Denied>>,
    ) -> Result<Asker, Denied> {
        let said = authorized.await;
        let wrong = matches!(&said, Err(denied) if denied.code == StatusCode::FORBIDDEN);
        let whom = Whom::stranger(peer, &claim.project);
        if wrong && !self.0.take(whom, RATE, Instant::now()) {
            return Err(too_many());
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
    async fn guessing_is_slow_and_locks_nobody_out() {
        let guesses = Guesses::default();
        for guess in 0..10 {
            let code = shown(&guesses, "192.0.2.1", &guess.to_string()).await;
            assert_eq!(code, 403, "{guess}");
        }
        assert_eq!(shown(&guesses, "192.0.2.1", "another").await, 429);
        assert_eq!(shown(&guesses, "192.0.2.2", "another").await, 403);
        for peer in ["192.0.2.1", "192.0.2.2"] {
            let code = shown(&guesses, peer, "right").await;
            assert_eq!(code, 200, "nobody is locked out: {peer}");
        }
        assert_eq!(shown(&guesses, "192.0.2.1", "another").await, 429);
    }
}
