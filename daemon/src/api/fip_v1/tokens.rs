//! The keys of the tokens: made when the first token is asked for, kept in the store, renewed in time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use fipd_core::{Actor, KeyBytes, KeyId, Request, SigningKey, Timestamp};
use getrandom::{SysRng, rand_core::UnwrapErr};
use parking_lot::Mutex;
use ring::signature::RsaKeyPair;
use rsa::{RsaPrivateKey, pkcs1::EncodeRsaPrivateKey as _};

use super::jwt::{self, Claims};
use crate::ipam::{Ipam, IpamError};

const BITS: usize = 2_048;
/// A key signs so long, in milliseconds.
const RENEWAL: u64 = 90 * 24 * 3_600_000;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Ledger(#[from] IpamError),
    #[error("a key could not be made: {0}")]
    Make(String),
    #[error("key {} of the store cannot be used: {why}", .id.0)]
    Unusable { id: KeyId, why: String },
    #[error("the system has no random numbers")]
    Random,
}

/// Gives tokens and reads them.
pub struct Tokens {
    ipam: Ipam,
    /// One key at a time is made.
    making: tokio::sync::Mutex<()>,
    renewing: AtomicBool,
    /// Parsed once.
    pairs: Mutex<BTreeMap<KeyId, Arc<RsaKeyPair>>>,
}

impl Tokens {
    pub fn new(ipam: Ipam) -> Arc<Self> {
        Arc::new(Self {
            ipam,
            making: tokio::sync::Mutex::default(),
            renewing: AtomicBool::new(false),
            pairs: Mutex::default(),
        })
    }

    /// A token for a client, and when it ends. Everybody gets one: it says only who says to be asking.
    pub async fn issue(self: &Arc<Self>, client: &str) -> Result<(String, Timestamp), TokenError> {
        let key = match self.last() {
            Some(key) => {
                self.renew_in_time(&key, self.ipam.now());
                key
            }
            None => self.first().await?,
        };
        let claims = Claims::starting(client, self.ipam.wall());
        let text = jwt::sign(&claims, &*self.pair(&key)?).map_err(|_| TokenError::Random)?;
        Ok((text, claims.end()))
    }

    /// Returns whom a token was given to; `None`: it does not count. Tokens go by the wall clock and recover with it. Keys go by
    /// the time of the address book: a wrong second ends none of them.
    pub fn client(&self, token: &str) -> Option<String> {
        let now = self.ipam.now();
        let keys: Vec<SigningKey> = self.ipam.read(|ledger| {
            let counts = |key: &&SigningKey| key.until.is_none_or(|until| until > now);
            ledger.keys().filter(counts).cloned().collect()
        });
        let pairs: Vec<_> = keys.iter().filter_map(|key| self.pair(key).ok()).collect();
        jwt::verify(token, &pairs, self.ipam.wall()).map(|claims| claims.client_id)
    }

    /// Another key signs from now on; what the last one signed counts as long as it would.
    pub async fn rotate(&self, actor: Actor) -> Result<KeyId, TokenError> {
        let _making = self.making.lock().await;
        self.replace(self.last().map(|key| key.id), actor).await
    }

    fn last(&self) -> Option<SigningKey> {
        self.ipam.read(|ledger| ledger.signing_key().cloned())
    }

    /// Makes the first key to the end, though whoever waits may give up: the next finds it.
    async fn first(self: &Arc<Self>) -> Result<SigningKey, TokenError> {
        let this = Arc::clone(self);
        let made = tokio::spawn(async move {
            let _making = this.making.lock().await;
            if this.last().is_none() {
                this.replace(None, "fipd".into()).await?;
            }
            let none = || TokenError::Make("it is not in the store".to_owned());
            this.last().ok_or_else(none)
        });
        let made = made.await;
        made.map_err(|error| TokenError::Make(error.to_string()))?
    }

    async fn replace(&self, after: Option<KeyId>, actor: Actor) -> Result<KeyId, TokenError> {
        let made = tokio::task::spawn_blocking(make).await;
        let der = made
            .map_err(|error| TokenError::Make(error.to_string()))?
            .map_err(TokenError::Make)?;
        let request = Request::RotateKey {
            bytes: KeyBytes(der.into()),
            after,
            actor,
        };
        self.ipam.submit(request).await?;
        let id = self.last().map(|key| key.id);
        let known: Vec<KeyId> = self
            .ipam
            .read(|ledger| ledger.keys().map(|key| key.id).collect());
        self.pairs.lock().retain(|id, _| known.contains(id));
        id.ok_or_else(|| TokenError::Make("it is not in the store".to_owned()))
    }

    fn renew_in_time(self: &Arc<Self>, key: &SigningKey, now: Timestamp) {
        let due = now.0.saturating_sub(key.created.0) >= RENEWAL;
        if !due || self.renewing.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            match this.rotate("fipd".into()).await {
                Ok(id) => {
                    tracing::info!(key = id.0, "another key signs the tokens of LB controllers")
                }
                Err(error) => tracing::error!(%error, "the key of the tokens could not be renewed"),
            }
            this.renewing.store(false, Ordering::Release);
        });
    }

    fn pair(&self, key: &SigningKey) -> Result<Arc<RsaKeyPair>, TokenError> {
        let mut pairs = self.pairs.lock();
        if let Some(pair) = pairs.get(&key.id) {
            return Ok(Arc::clone(pair));
        }
        let pair = RsaKeyPair::from_der(&key.bytes.0).map_err(|error| TokenError::Unusable {
            id: key.id,
            why: error.to_string(),
        })?;
        let pair = Arc::new(pair);
        pairs.insert(key.id, Arc::clone(&pair));
        Ok(pair)
    }
}

/// A fresh key, PKCS#1 in DER. Takes up to seconds.
pub(super) fn make() -> Result<Vec<u8>, String> {
    let mut random = UnwrapErr(SysRng);
    let key = RsaPrivateKey::new(&mut random, BITS).map_err(|error| error.to_string())?;
    let der = key.to_pkcs1_der().map_err(|error| error.to_string())?;
    // As it will be read.
    RsaKeyPair::from_der(der.as_bytes()).map_err(|error| error.to_string())?;
    Ok(der.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicU64, time::Duration};

    use super::*;

    #[tokio::test]
    async fn the_first_key_is_made_though_nobody_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(|| Timestamp(1));
        let (ipam, writer) = Ipam::start(dir.path(), clock).unwrap();
        let tokens = Tokens::new(ipam.clone());
        let short = Duration::from_millis(1);
        let given_up = tokio::time::timeout(short, tokens.issue("client-c-m-a")).await;
        assert!(given_up.is_err());
        let made = async {
            while tokens.last().is_none() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let made = tokio::time::timeout(Duration::from_secs(120), made).await;
        assert!(made.is_ok());
        ipam.shutdown().await;
        writer.join();
    }

    #[tokio::test]
    async fn tokens_of_lb_controllers_recover_with_the_wall_clock() {
        const YEAR: u64 = 365 * 24 * 3_600_000;
        let dir = tempfile::tempdir().unwrap();
        let wall = Arc::new(AtomicU64::new(56 * YEAR));
        let read = Arc::clone(&wall);
        let clock = Arc::new(move || Timestamp(read.load(Ordering::Relaxed)));
        let (ipam, writer) = Ipam::start(dir.path(), clock).unwrap();
        let tokens = Tokens::new(ipam.clone());
        let (token, _) = tokens.issue("client-c-m-a").await.unwrap();
        wall.fetch_add(74 * YEAR, Ordering::Relaxed);
        assert_eq!(tokens.client(&token), None);
        ipam.note(fipd_core::Action::RulesChanged, "wrong", "test")
            .await
            .unwrap();
        wall.fetch_sub(74 * YEAR, Ordering::Relaxed);
        assert!(tokens.client(&token).is_some());
        let (_, end) = tokens.issue("client-c-m-a").await.unwrap();
        assert_eq!(
            end,
            Timestamp(56 * YEAR + 3_600_000),
            "a new one ends in time"
        );
        ipam.shutdown().await;
        writer.join();
    }

    #[tokio::test]
    async fn a_rotated_key_counts_until_its_tokens_have_ended_and_is_in_the_store() {
        const HOUR: u64 = 3_600_000;
        let dir = tempfile::tempdir().unwrap();
        let wall = Arc::new(AtomicU64::new(100 * HOUR));
        let read = Arc::clone(&wall);
        let clock = Arc::new(move || Timestamp(read.load(Ordering::Relaxed)));
        let (ipam, writer) = Ipam::start(dir.path(), Arc::clone(&clock) as _).unwrap();
        let tokens = Tokens::new(ipam.clone());
        assert_eq!(tokens.client("a.b.c"), None);
        let (first, end) = tokens.issue("client-c-m-a").await.unwrap();
        assert_eq!(end, Timestamp(101 * HOUR));
        assert_eq!(tokens.client(&first).as_deref(), Some("client-c-m-a"));
        assert_eq!(tokens.rotate("test".into()).await.unwrap(), KeyId(2));
        let (second, _) = tokens.issue("client-c-m-a").await.unwrap();
        for token in [&first, &second] {
            assert!(tokens.client(token).is_some());
        }
        ipam.shutdown().await;
        writer.join();
        let (ipam, writer) = Ipam::start(dir.path(), clock).unwrap();
        let tokens = Tokens::new(ipam.clone());
        for token in [&first, &second] {
            assert!(tokens.client(token).is_some(), "after a start");
        }
        wall.fetch_add(HOUR, Ordering::Relaxed);
        assert_eq!(tokens.client(&first), None);
        ipam.shutdown().await;
        writer.join();
    }
}
