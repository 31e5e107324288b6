//! Accounts that sign in with a password, and the first one of them.
//!
//! Owns password hashing (argon2id, at most two at once) and the file `initial-admin`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};
use fipd_core::{Account, AccountEdit, Actor, Ledger, Request, Role, Text};
use tokio::sync::Semaphore;

use crate::{
    api::wire::{Password, UserPatch},
    clock,
    ipam::{Guard, Ipam, IpamError},
    private_file,
};

/// The name of the account made at first start.
pub const INITIAL_ADMIN: &str = "admin";
const INITIAL_FILE: &str = "initial-admin";
/// The longest password that is hashed at all, in bytes.
const MAX_PASSWORD: usize = 1024;
/// Each hash takes about 19 MiB.
const HASHES_AT_ONCE: usize = 2;
/// Letters and digits that are not mistaken for each other.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz23456789z";

/// Verified against for unknown names, so that they take as long as known ones. Whoever finds a password for it
/// has none for an account.
const DECOY: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Signs people in.
#[derive(Clone)]
pub struct Accounts {
    ipam: Ipam,
    data_dir: PathBuf,
    slots: Arc<Semaphore>,
    /// Passwords that were compared with a hash.
    #[cfg(test)]
    compared: Arc<std::sync::atomic::AtomicUsize>,
}

/// Why an account could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("the system gives no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    #[error("the password could not be hashed: {0}")]
    Hash(String),
    #[error("{path}: {source}", path = .path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Ipam(#[from] IpamError),
    #[error("password: {length} bytes; 8 to 1024 are allowed")]
    Length { length: usize },
}

impl Accounts {
    /// Those of the address book as they are.
    fn closed(ipam: Ipam, data_dir: &Path) -> Self {
        Self {
            ipam,
            data_dir: data_dir.to_owned(),
            slots: Arc::new(Semaphore::new(HASHES_AT_ONCE)),
            #[cfg(test)]
            compared: Arc::default(),
        }
    }

    /// Also makes the first account where there is none, with a random password in `DATA_DIR/initial-admin` (0600).
    pub async fn start(ipam: Ipam, data_dir: &Path) -> Result<Self, AccountError> {
        let accounts = Self::closed(ipam, data_dir);
        let is_first = |ledger: &Ledger| ledger.accounts().next().is_none();
        if accounts.ipam.read(is_first) && !accounts.ipam.is_of_another_host() {
            accounts.make_first().await?;
        }
        Ok(accounts)
    }

    pub fn find(&self, name: &str) -> Option<Account> {
        self.ipam.read(|ledger| ledger.account(name).cloned())
    }

    /// The account of a name and password, as it was when they were compared; `None` if they do not belong together, or it
    /// is disabled. Takes as long either way.
    /// The first success of the first account removes `initial-admin`.
    pub async fn login(&self, name: &str, password: &str) -> Option<Account> {
        let account = self.find(name);
        let hash = account
            .as_ref()
            .map_or(DECOY, |account| &account.password_hash);
        let matches = self.verify(password, hash.into()).await;
        let account = account.filter(|account| matches && !account.disabled)?;
        if &*account.name == INITIAL_ADMIN {
            self.remove_initial_file();
        }
        Some(account)
    }

    /// The file with the first password, while it is there.
    pub fn initial_file(&self) -> Option<PathBuf> {
        Some(self.data_dir.join(INITIAL_FILE)).filter(|path| path.exists())
    }

    /// Makes an account; refused where the name is taken.
    pub async fn create(
        &self,
        name: &str,
        role: Role,
        password: String,
        actor: Actor,
    ) -> Result<(), AccountError> {
        let account = Account {
            name: name.into(),
            role,
            password_hash: self.hashed(password).await?,
            created: clock::now(),
            disabled: false,
        };
        self.ipam
            .submit(Request::CreateAccount { account, actor })
            .await?;
        Ok(())
    }

    /// Another role or password for an account, or none to sign in with for a while; its sessions end.
    pub async fn edit(
        &self,
        name: &str,
        change: UserPatch,
        actor: Actor,
    ) -> Result<(), AccountError> {
        let guard = Box::new(|_: &_, _: &_| Ok(()));
        self.edit_if(name, change, actor, guard).await
    }

    /// The same, if the guard has nothing against it.
    pub async fn edit_if(
        &self,
        name: &str,
        change: UserPatch,
        actor: Actor,
        guard: Guard,
    ) -> Result<(), AccountError> {
        let password_hash = match change.password {
            Some(Password(password)) => Some(self.hashed(password).await?),
            None => None,
        };
        let other_password = password_hash.is_some();
        let edit = AccountEdit {
            name: name.into(),
            role: change.role,
            password_hash,
            disabled: change.disabled,
            actor,
        };
        self.ipam
            .submit_if(Request::EditAccount(edit), guard)
            .await?;
        if name == INITIAL_ADMIN && other_password {
            self.remove_initial_file();
        }
        Ok(())
    }

    /// Deletes an account, if the guard has nothing against it; its sessions end. There may be none of that name.
    pub async fn delete_if(
        &self,
        name: &str,
        actor: Actor,
        guard: Guard,
    ) -> Result<(), AccountError> {
        let request = Request::DeleteAccount {
            name: name.into(),
            actor,
        };
        self.ipam.submit_if(request, guard).await?;
        if name == INITIAL_ADMIN {
            self.remove_initial_file();
        }
        Ok(())
    }

    async fn make_first(&self) -> Result<(), AccountError> {
        let password = random_password()?;
        let path = self.data_dir.join(INITIAL_FILE);
        let written = private_file::write(&path, format!("{INITIAL_ADMIN}\n{password}\n"));
        written.map_err(|source| AccountError::File {
            path: path.clone(),
            source,
        })?;
        self.create(INITIAL_ADMIN, Role::Admin, password, "fipd".into())
            .await?;
        tracing::info!(file = %path.display(), "made the first account; its name and password are in the file");
        Ok(())
    }

    async fn hashed(&self, password: String) -> Result<Text, AccountError> {
        if !(8..=MAX_PASSWORD).contains(&password.len()) {
            return Err(AccountError::Length {
                length: password.len(),
            });
        }
        hashed(&self.slots, password).await
    }

    async fn verify(&self, password: &str, hash: Text) -> bool {
        if password.len() > MAX_PASSWORD {
            return false;
        }
        let Ok(_slot) = self.slots.acquire().await else {
            return false;
        };
        let password = password.to_owned();
        #[cfg(test)]
        let compared = Arc::clone(&self.compared);
        let verified = tokio::task::spawn_blocking(move || {
            PasswordHash::new(&hash).is_ok_and(|parsed| {
                #[cfg(test)]
                compared.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Argon2::default()
                    .verify_password(password.as_bytes(), &parsed)
                    .is_ok()
            })
        });
        verified.await.unwrap_or(false)
    }

    fn remove_initial_file(&self) {
        let path = self.data_dir.join(INITIAL_FILE);
        match std::fs::remove_file(&path) {
            Ok(()) => {
                tracing::info!(file = %path.display(), "removed: its password is known or gone")
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(file = %path.display(), %error, "could not be removed"),
        }
    }
}

async fn hashed(slots: &Semaphore, password: String) -> Result<Text, AccountError> {
    fn failed(error: impl ToString) -> AccountError {
        AccountError::Hash(error.to_string())
    }
    let _slot = slots.acquire().await.map_err(failed)?;
    let hash = tokio::task::spawn_blocking(move || {
        let hash = Argon2::default().hash_password(password.as_bytes());
        hash.map(|hash| Text::from(hash.to_string()))
    });
    hash.await.map_err(failed)?.map_err(failed)
}

/// 24 characters in four groups, about 115 bits.
fn random_password() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes)?;
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 && index % 6 == 0 {
            text.push('-');
        }
        text.push(
            ALPHABET
                .get(usize::from(byte % 32))
                .copied()
                .map_or('x', char::from),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_differ_and_are_long() {
        let (first, second) = (random_password().unwrap(), random_password().unwrap());
        assert_ne!(first, second);
        assert_eq!(first.len(), 27);
    }

    #[test]
    fn the_decoy_costs_what_a_real_hash_costs() {
        let decoy = PasswordHash::new(DECOY).unwrap();
        let real = Argon2::default().hash_password(b"something").unwrap();
        assert_eq!(
            (decoy.algorithm, decoy.version),
            (real.algorithm, real.version)
        );
        assert_eq!(decoy.params, real.params);
        let lengths = |hash: &PasswordHash| hash.hash.as_ref().map(|output| output.len());
        assert_eq!(lengths(&decoy), lengths(&real));
        assert!(
            Argon2::default()
                .verify_password(b"something", &decoy)
                .is_err()
        );
    }

    #[tokio::test]
    async fn a_sign_in_compares_one_hash_whoever_tries() {
        let dir = tempfile::tempdir().unwrap();
        let (ipam, writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
        let accounts = Accounts::closed(ipam.clone(), dir.path());
        for name in ["ann", "bob"] {
            let (password, actor) = ("a long password".to_owned(), "test".into());
            let made = accounts.create(name, Role::Viewer, password, actor);
            made.await.unwrap();
        }
        let disabled = UserPatch {
            disabled: Some(true),
            ..UserPatch::default()
        };
        let edited = accounts.edit("bob", disabled, "test".into());
        edited.await.unwrap();
        let compared = || accounts.compared.load(std::sync::atomic::Ordering::Relaxed);
        for (name, password, signed_in) in [
            ("ann", "a long password", true),
            ("ann", "another password", false),
            ("bob", "a long password", false),
            ("nobody", "a long password", false),
        ] {
            let before = compared();
            let account = accounts.login(name, password).await;
            assert_eq!(account.is_some(), signed_in, "{name} {password}");
            assert_eq!(compared() - before, 1, "{name} {password}");
        }
        ipam.shutdown().await;
        writer.join();
    }
}
