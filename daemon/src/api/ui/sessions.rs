//! Who is signed in to the web UI: in memory only, so that a restart signs everybody out.
//!
//! A session ends after [`IDLE`] without a request, after [`LONGEST`] in any case, when its owner or an admin ends it, and
//! at once when its account is deleted, disabled or gets another password or role. Who signed in by a provider has no
//! account: the role is what the provider said then. Nobody signs others out by signing in often.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use data_encoding::HEXLOWER;
use fipd_core::{Account, Actor, Role, Text, Timestamp};
use fipd_web_ui::Notice;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    cookies::{self, clear, fingerprint, random, set},
    limiter::Limiter,
};
use crate::api::ui::session_extract::is_background;
use crate::{
    api::{
        access::auth::{Caller, Via},
        extract::header_text,
    },
    clock,
    ipam::Ipam,
};

/// Without a request for this long a session ends.
pub const IDLE: Duration = Duration::from_secs(30 * 60);
/// A session ends after this, used or not.
pub const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);
/// The cookie that holds a session's secret.
pub const COOKIE: &str = "__Host-fipd";
/// More sessions of a name than these push out the one of them that was idle for the longest time.
const OF_ONE: usize = 20;
/// The same of all names: no more than memory has room for.
const MOST: usize = 20_000;
/// How much of what a browser says of itself is kept, in characters.
const BROWSER: usize = 120;
/// Open pages beyond these are not told of changes.
const LIVE: usize = 512;
/// The same of one session.
const LIVE_OF_ONE: usize = 8;

/// All sessions, and who may try to get one.
pub struct Sessions {
    pub(super) limiter: Limiter,
    /// Places for pages that are told of changes.
    live: Arc<Semaphore>,
    ipam: Ipam,
    store: Mutex<SessionStore>,
}

/// What a page knows of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub name: Text,
    pub role: Role,
    pub csrf: String,
    /// Signed in by a provider: there is no password here.
    pub by_provider: bool,
}

impl Session {
    /// As the audit log names them.
    pub fn actor(&self) -> Actor {
        format!("user:{}", self.name).into()
    }

    pub fn caller(&self) -> Caller {
        Caller {
            actor: self.actor(),
            role: self.role,
            via: Via::Session,
            scope: Arc::default(),
        }
    }
}

/// Of a page that is told of changes, while it is.
pub struct LivePlace {
    _of_all: OwnedSemaphorePermit,
    _of_session: OwnedSemaphorePermit,
}

/// Where somebody signs in from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub address: IpAddr,
    /// What the browser says of itself, shortened.
    pub browser: String,
}

/// A session as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Names it in forms; of no use to sign in with.
    pub id: String,
    pub origin: Origin,
    pub began: Timestamp,
    pub seen: Timestamp,
    /// It is who asks.
    pub mine: bool,
}

/// Sessions by the hash of their secret, so that the time of a look-up tells nothing about secrets.
#[derive(Default)]
struct SessionStore(BTreeMap<[u8; 32], OpenSession>);

#[derive(Clone)]
struct OpenSession {
    name: Text,
    /// The account's password hash at sign-in: another one ends the session. `None`: signed in by a provider.
    password_hash: Option<Text>,
    /// The role at sign-in: where the account gets another one the session ends, too.
    role: Role,
    origin: Origin,
    csrf: String,
    notice: Option<Notice>,
    /// Places for its pages that are told of changes.
    live: Arc<Semaphore>,
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
        Some(self.find(headers)?.caller())
    }

    /// The session behind the cookie; using it keeps it alive, but for what the script asks by itself.
    pub fn find(&self, headers: &HeaderMap) -> Option<Session> {
        self.look(headers, !is_background(headers))
    }

    /// Whether there is a session behind the cookie; asking does not keep it alive.
    pub fn lives(&self, headers: &HeaderMap) -> bool {
        self.look(headers, false).is_some()
    }

    /// A place for a page of the session that is told of changes; `None` where the session or all of them have no more.
    pub(super) fn live_place(&self, headers: &HeaderMap) -> Option<LivePlace> {
        let key = key(headers)?;
        let of_session = Arc::clone(&self.store.lock().0.get(&key)?.live);
        Some(LivePlace {
            _of_session: of_session.try_acquire_owned().ok()?,
            _of_all: Arc::clone(&self.live).try_acquire_owned().ok()?,
        })
    }

    /// Ends all sessions of an account, whatever it is afterwards. Returns how many.
    pub fn end_all(&self, name: &str) -> usize {
        self.store.lock().end(|_, row| &*row.name == name)
    }

    /// Ends all sessions of an account but the one that asks. Returns how many.
    pub fn end_others(&self, name: &str, headers: &HeaderMap) -> usize {
        let mine = key(headers);
        self.store
            .lock()
            .end(|found, row| &*row.name == name && Some(*found) != mine)
    }

    /// Ends one session of an account. Returns whether there was one.
    pub fn end_one(&self, name: &str, id: &str) -> bool {
        let wanted =
            |found: &[u8; 32], row: &OpenSession| &*row.name == name && public_id(found) == id;
        self.store.lock().end(wanted) > 0
    }

    /// Who is signed in by a provider, in which role last, and how often.
    pub fn provided(&self) -> Vec<(Text, Role, usize)> {
        let now = Instant::now();
        let mut all = BTreeMap::new();
        let store = self.store.lock();
        let rows = store.0.values();
        for row in rows.filter(|row| row.password_hash.is_none() && !row.ended(now)) {
            let (began, role, count) = all
                .entry(&row.name)
                .or_insert((row.since, row.role, 0_usize));
            if row.since >= *began {
                (*began, *role) = (row.since, row.role);
            }
            *count += 1;
        }
        let all = all.into_iter();
        all.map(|(name, (_, role, count))| (Text::clone(name), role, count))
            .collect()
    }

    /// The sessions of an account, the last used first.
    pub fn of(&self, name: &str, headers: &HeaderMap) -> Vec<Listed> {
        let (now, wall, mine) = (Instant::now(), clock::now(), key(headers));
        let account = self.account(name);
        let lives = |row: &OpenSession| !row.ended(now) && row.holds(account.as_ref());
        let store = self.store.lock();
        let rows = store.0.iter();
        let mut rows: Vec<_> = rows
            .filter(|(_, row)| &*row.name == name && lives(row))
            .collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.used));
        let at = |then: Instant| {
            let ago = now.saturating_duration_since(then).as_millis();
            Timestamp(
                wall.0
                    .saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX)),
            )
        };
        let listed = |(found, row): (&[u8; 32], &OpenSession)| Listed {
            id: public_id(found),
            origin: row.origin.clone(),
            began: at(row.since),
            seen: at(row.used),
            mine: mine == Some(*found),
        };
        rows.into_iter().map(listed).collect()
    }

    fn look(&self, headers: &HeaderMap, keep: bool) -> Option<Session> {
        let key = key(headers)?;
        let row = self.store.lock().touch(&key, Instant::now(), keep)?;
        if !row.holds(self.account(&row.name).as_ref()) {
            self.store.lock().0.remove(&key);
            return None;
        }
        Some(Session {
            by_provider: row.password_hash.is_none(),
            name: row.name,
            role: row.role,
            csrf: row.csrf,
        })
    }

    fn account(&self, name: &str) -> Option<Account> {
        self.ipam.read(|ledger| ledger.account(name).cloned())
    }

    /// Signs an account in, as it was when its password was found right. Returns the `Set-Cookie` of the new session;
    /// `None` where the account is gone or has changed since, or the system gives no random numbers.
    pub fn open(&self, verified: &Account, origin: Origin) -> Option<String> {
        let account = self.account(&verified.name);
        let account = account.filter(|account| account == verified)?;
        let password_hash = Some(account.password_hash);
        self.begin(account.name, account.role, password_hash, origin)
    }

    /// Signs in whom a provider vouches for. The name is none that an account can have.
    pub fn open_by_provider(&self, name: Text, role: Role, origin: Origin) -> Option<String> {
        self.begin(name, role, None, origin)
    }

    fn begin(
        &self,
        name: Text,
        role: Role,
        password_hash: Option<Text>,
        origin: Origin,
    ) -> Option<String> {
        let (secret, csrf, now) = (random()?, random()?, Instant::now());
        let row = OpenSession {
            name,
            password_hash,
            role,
            origin,
            csrf,
            notice: None,
            live: Arc::new(Semaphore::new(LIVE_OF_ONE)),
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

impl SessionStore {
    fn touch(&mut self, key: &[u8; 32], now: Instant, keep: bool) -> Option<OpenSession> {
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

    fn end(&mut self, wanted: impl Fn(&[u8; 32], &OpenSession) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(|found, row| !wanted(found, row));
        before - self.0.len()
    }

    fn insert(&mut self, key: [u8; 32], row: OpenSession) {
        let now = row.used;
        self.0.retain(|_, row| !row.ended(now));
        let of_name = |other: &OpenSession| other.name == row.name;
        self.make_room(OF_ONE, of_name);
        self.make_room(MOST, |_| true);
        self.0.insert(key, row);
    }

    /// Ends the idlest of those where there are `most` of them.
    fn make_room(&mut self, most: usize, among: impl Fn(&OpenSession) -> bool) {
        let those = || self.0.iter().filter(|(_, row)| among(row));
        if those().count() < most {
            return;
        }
        let idlest = those().min_by_key(|(_, row)| row.used);
        if let Some(key) = idlest.map(|(key, _)| *key) {
            self.0.remove(&key);
        }
    }
}

impl OpenSession {
    fn ended(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) >= IDLE
            || now.saturating_duration_since(self.since) >= LONGEST
    }

    /// Whether the account is as it was at sign-in. Whom a provider vouches for has none.
    fn holds(&self, account: Option<&Account>) -> bool {
        let Some(password_hash) = &self.password_hash else {
            return true;
        };
        account.is_some_and(|account| {
            account.password_hash == *password_hash
                && account.role == self.role
                && !account.disabled
        })
    }
}

/// A part of the hash of its secret.
fn public_id(key: &[u8; 32]) -> String {
    HEXLOWER.encode(&key[..8])
}

impl Origin {
    /// Of a request from that address.
    pub fn new(address: IpAddr, headers: &HeaderMap) -> Self {
        let told = header_text(headers, header::USER_AGENT);
        Self {
            address: address.to_canonical(),
            browser: told.chars().take(BROWSER).collect(),
        }
    }
}

fn key(headers: &HeaderMap) -> Option<[u8; 32]> {
    cookies::get(headers, COOKIE).map(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(now: Instant) -> OpenSession {
        let (name, csrf) = ("ann".into(), "c".into());
        let address = IpAddr::from([192, 0, 2, 1]);
        OpenSession {
            name,
            password_hash: Some("h".into()),
            role: Role::Viewer,
            origin: Origin::new(address, &HeaderMap::new()),
            csrf,
            notice: None,
            live: Arc::new(Semaphore::new(LIVE_OF_ONE)),
            since: now,
            used: now,
        }
    }

    #[test]
    fn a_session_ends_when_idle_and_lives_while_used() {
        let start = Instant::now();
        let mut store = SessionStore::default();
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
    fn sessions_of_one_account_end_without_those_of_others() {
        let now = Instant::now();
        let mut store = SessionStore::default();
        for number in 1..=3 {
            store.insert([number; 32], row(now));
        }
        let bob = OpenSession {
            name: "bob".into(),
            ..row(now)
        };
        store.insert([9; 32], bob);
        let one = |found: &[u8; 32], row: &OpenSession| {
            &*row.name == "ann" && public_id(found) == "0202020202020202"
        };
        assert_eq!(store.end(one), 1);
        assert_eq!(store.end(|_, row| &*row.name == "ann"), 2);
        assert_eq!(store.0.len(), 1);
    }

    #[test]
    fn no_session_lives_longer_than_the_longest() {
        let start = Instant::now();
        let mut store = SessionStore::default();
        store.insert([1; 32], row(start));
        let mut now = start;
        while now < start + LONGEST - IDLE {
            now += IDLE / 2;
            assert!(store.touch(&[1; 32], now, true).is_some());
        }
        assert!(store.touch(&[1; 32], start + LONGEST, true).is_none());
    }

    #[test]
    fn too_many_sessions_of_a_name_push_out_its_own_idlest() {
        let start = Instant::now();
        let mut store = SessionStore::default();
        // Idler than all of the other's.
        let bob = OpenSession {
            name: "bob".into(),
            ..row(start)
        };
        store.insert([255; 32], bob);
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            key
        };
        for number in 0..=OF_ONE {
            let at = start + Duration::from_millis(1 + number as u64);
            store.insert(key(number), row(at));
        }
        assert_eq!(store.0.len(), OF_ONE + 1);
        assert!(store.0.contains_key(&[255; 32]) && store.0.contains_key(&key(1)));
        assert!(!store.0.contains_key(&key(0)));
    }
}
