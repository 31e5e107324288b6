//! Who is signed in to the web UI: in memory only, so that a restart signs everybody out.
//!
//! A session ends after [`IDLE`] without a request, after [`LONGEST`] in any case, and at once when its account is
//! deleted, disabled or gets another password or role.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fipd_core::{Account, Role, Text};
use fipd_web_ui::Notice;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{
    cookies::{self, clear, fingerprint, random, set},
    limiter::Limiter,
    visit::is_background,
};
use crate::{
    api::auth::{Caller, Via},
    ipam::Ipam,
};

/// Without a request for this long a session ends.
pub const IDLE: Duration = Duration::from_secs(30 * 60);
/// A session ends after this, used or not.
pub const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);
/// The cookie that holds a session's secret.
pub const COOKIE: &str = "__Host-fipd";
/// More sessions than these push out the one that was idle for the longest time.
const MOST: usize = 1_000;
/// Open pages beyond these are not told of changes.
const LIVE: usize = 64;

/// All sessions, and who may try to get one.
pub struct Sessions {
    pub(super) limiter: Limiter,
    /// Places for pages that are told of changes.
    pub(super) live: Arc<Semaphore>,
    ipam: Ipam,
    store: Mutex<Store>,
}

/// What a page knows of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub name: Text,
    pub role: Role,
    pub csrf: String,
}

/// Sessions by the hash of their secret, so that the time of a look-up tells nothing about secrets.
#[derive(Default)]
struct Store(BTreeMap<[u8; 32], Row>);

#[derive(Clone)]
struct Row {
    name: Text,
    /// The account's password hash at sign-in: another one ends the session.
    password_hash: Text,
    /// The account's role at sign-in: another one ends the session, too.
    role: Role,
    csrf: String,
    notice: Option<Notice>,
    since: Instant,
    used: Instant,
}

impl Sessions {
    pub fn new(ipam: Ipam) -> Self {
        let (limiter, live) = (Limiter::default(), Arc::new(Semaphore::new(LIVE)));
        Self {
            limiter,
            live,
            ipam,
            store: Mutex::default(),
        }
    }

    /// The caller behind the session cookie, for the authenticating middleware.
    pub fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let session = self.find(headers)?;
        let actor = format!("user:{}", session.name).into();
        Some(Caller {
            actor,
            role: session.role,
            via: Via::Session,
            scope: Arc::default(),
        })
    }

    /// The session behind the cookie; using it keeps it alive, but for what the script asks by itself.
    pub fn find(&self, headers: &HeaderMap) -> Option<Session> {
        self.look(headers, !is_background(headers))
    }

    /// Whether there is a session behind the cookie; asking does not keep it alive.
    pub fn lives(&self, headers: &HeaderMap) -> bool {
        self.look(headers, false).is_some()
    }

    /// Ends all sessions of an account, whatever it is afterwards.
    pub fn end_all(&self, name: &str) {
        self.store.lock().0.retain(|_, row| &*row.name != name);
    }

    fn look(&self, headers: &HeaderMap, keep: bool) -> Option<Session> {
        let key = key(headers)?;
        let row = self.store.lock().touch(&key, Instant::now(), keep)?;
        let account = self.ipam.read(|ledger| ledger.account(&row.name).cloned());
        let same = |account: &Account| {
            account.password_hash == row.password_hash
                && account.role == row.role
                && !account.disabled
        };
        match account.filter(same) {
            Some(account) => Some(Session {
                name: row.name,
                role: account.role,
                csrf: row.csrf,
            }),
            None => {
                self.store.lock().0.remove(&key);
                None
            }
        }
    }

    /// Signs an account in, as it was when its password was found right. Returns the `Set-Cookie` of the new session;
    /// `None` where the account is gone or has changed since, or the system gives no random numbers.
    pub fn open(&self, verified: &Account) -> Option<String> {
        let account = self
            .ipam
            .read(|ledger| ledger.account(&verified.name).cloned());
        let account = account.filter(|account| account == verified)?;
        let (secret, csrf, now) = (random()?, random()?, Instant::now());
        let (name, password_hash) = (account.name, account.password_hash);
        let row = Row {
            name,
            password_hash,
            role: account.role,
            csrf,
            notice: None,
            since: now,
            used: now,
        };
        self.store.lock().insert(fingerprint(&secret), row);
        Some(set(COOKIE, &secret))
    }

    /// Signs out. Returns the `Set-Cookie` that removes the cookie.
    pub fn close(&self, headers: &HeaderMap) -> String {
        if let Some(key) = key(headers) {
            self.store.lock().0.remove(&key);
        }
        clear(COOKIE)
    }

    /// Keeps a sentence for the next page of this session.
    pub fn tell(&self, headers: &HeaderMap, notice: Notice) {
        if let Some(key) = key(headers)
            && let Some(row) = self.store.lock().0.get_mut(&key)
        {
            row.notice = Some(notice);
        }
    }

    /// The kept sentence, once.
    pub fn told(&self, headers: &HeaderMap) -> Option<Notice> {
        let key = key(headers)?;
        self.store.lock().0.get_mut(&key)?.notice.take()
    }
}

impl Store {
    fn touch(&mut self, key: &[u8; 32], now: Instant, keep: bool) -> Option<Row> {
        let row = self.0.get_mut(key)?;
        if row.ended(now) {
            self.0.remove(key);
            return None;
        }
        if keep {
            row.used = now;
        }
        Some(row.clone())
    }

    fn insert(&mut self, key: [u8; 32], row: Row) {
        let now = row.used;
        self.0.retain(|_, row| !row.ended(now));
        if self.0.len() >= MOST {
            let idle = self
                .0
                .iter()
                .min_by_key(|(_, row)| row.used)
                .map(|(key, _)| *key);
            idle.and_then(|key| self.0.remove(&key));
        }
        self.0.insert(key, row);
    }
}

impl Row {
    fn ended(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) >= IDLE
            || now.saturating_duration_since(self.since) >= LONGEST
    }
}

fn key(headers: &HeaderMap) -> Option<[u8; 32]> {
    cookies::get(headers, COOKIE).map(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(now: Instant) -> Row {
        let (name, password_hash, csrf) = ("ann".into(), "h".into(), "c".into());
        Row {
            name,
            password_hash,
            role: Role::Viewer,
            csrf,
            notice: None,
            since: now,
            used: now,
        }
    }

    #[test]
    fn a_session_ends_when_idle_and_lives_while_used() {
        let start = Instant::now();
        let mut store = Store::default();
        store.insert([1; 32], row(start));
        let almost = IDLE - Duration::from_secs(1);
        assert!(store.touch(&[1; 32], start + almost, true).is_some());
        assert!(
            store
                .touch(&[1; 32], start + almost + almost, true)
                .is_some()
        );
        assert!(
            store
                .touch(&[1; 32], start + almost + almost + IDLE, true)
                .is_none()
        );
        assert!(store.0.is_empty());
        assert!(store.touch(&[2; 32], start, true).is_none());
        // What the script asks by itself keeps nothing alive.
        store.insert([3; 32], row(start));
        assert!(store.touch(&[3; 32], start + almost, false).is_some());
        assert!(store.touch(&[3; 32], start + IDLE, false).is_none());
    }

    #[test]
    fn no_session_lives_longer_than_the_longest() {
        let start = Instant::now();
        let mut store = Store::default();
        store.insert([1; 32], row(start));
        let mut now = start;
        while now < start + LONGEST - IDLE {
            now += IDLE / 2;
            assert!(store.touch(&[1; 32], now, true).is_some());
        }
        assert!(store.touch(&[1; 32], start + LONGEST, true).is_none());
    }

    #[test]
    fn too_many_sessions_push_out_the_idlest() {
        let start = Instant::now();
        let mut store = Store::default();
        for number in 0..=MOST {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            store.insert(key, row(start + Duration::from_millis(number as u64)));
        }
        assert_eq!(store.0.len(), MOST);
        assert!(!store.0.contains_key(&[0; 32]));
    }
}
