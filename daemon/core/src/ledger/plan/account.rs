//! Accounts, tokens and keys.

use std::sync::Arc;

use crate::{
    Account, AccountEdit, Action, Answer, KeyBytes, KeyId, Op, Refusal, Role, SigningKey, Text,
    Timestamp, Token, TokenId,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable, Stop},
    },
};

impl Ledger {
    pub(super) fn plan_create_account(&self, account: &Account, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Accounts, &mut draft)?;
        let name = &account.name;
        match self.rows.accounts.get(name) {
            Some(known) if known == account => return Err(Stop::Answer(Answer::Done)),
            Some(_) => return Err(Refusal::AccountExists(Arc::clone(name)).into()),
            None => {}
        }
        let op = Op::PutAccount(account.clone());
        let detail = format!("{name}: made as {}", account.role.as_str());
        Ok(draft.done(op, Action::AccountChanged, detail))
    }

    pub(super) fn plan_edit_account(&self, edit: &AccountEdit, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Accounts, &mut draft)?;
        let name = &edit.name;
        let known = self.rows.accounts.get(name);
        let known = known.ok_or_else(|| Refusal::UnknownAccount(Arc::clone(name)))?;
        let mut account = known.clone();
        let mut changes = Vec::new();
        if let Some(role) = edit.role.filter(|role| *role != known.role) {
            self.not_last_admin(known)?;
            changes.push(format!("{} to {}", known.role.as_str(), role.as_str()));
            account.role = role;
        }
        if let Some(hash) = &edit.password_hash {
            changes.push("another password".to_owned());
            account.password_hash = Arc::clone(hash);
        }
        if let Some(disabled) = edit.disabled.filter(|disabled| *disabled != known.disabled) {
            if disabled {
                self.not_last_admin(known)?;
            }
            let word = if disabled { "disabled" } else { "enabled" };
            changes.push(word.to_owned());
            account.disabled = disabled;
        }
        if account == *known {
            return Err(Stop::Answer(Answer::Done));
        }
        let detail = format!("{name}: {}", changes.join(", "));
        Ok(draft.done(Op::PutAccount(account), Action::AccountChanged, detail))
    }

    pub(super) fn plan_delete_account(&self, name: &Text, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Accounts, &mut draft)?;
        let Some(account) = self.rows.accounts.get(name) else {
            return Err(Stop::Answer(Answer::Done));
        };
        self.not_last_admin(account)?;
        let op = Op::DeleteAccount(Arc::clone(name));
        Ok(draft.done(op, Action::AccountDeleted, Arc::clone(name)))
    }

    /// Somebody must be able to sign in and make accounts.
    fn not_last_admin(&self, account: &Account) -> Result<(), Refusal> {
        let admin = |account: &Account| account.role == Role::Admin && !account.disabled;
        let other = |other: &Account| admin(other) && other.name != account.name;
        if !admin(account) || self.rows.accounts.values().any(other) {
            Ok(())
        } else {
            Err(Refusal::LastAdmin(Arc::clone(&account.name)))
        }
    }

    pub(super) fn plan_put_token(&self, token: &Token, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Tokens, &mut draft)?;
        if self.rows.tokens.get(&token.id) == Some(token) {
            return Err(Stop::Answer(Answer::Done));
        }
        // Both would be one actor in the audit log.
        let living = |other: &Token| other.expires.is_none_or(|end| end > draft.now);
        let twin = |other: &Token| other.id != token.id && other.name == token.name;
        if self
            .rows
            .tokens
            .values()
            .any(|other| twin(other) && living(other))
        {
            return Err(Refusal::TokenNameTaken(Arc::clone(&token.name)).into());
        }
        let op = Op::PutToken(token.clone());
        Ok(draft.done(op, Action::TokenCreated, Arc::clone(&token.name)))
    }

    pub(super) fn plan_delete_token(&self, id: TokenId, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Tokens, &mut draft)?;
        let Some(token) = self.rows.tokens.get(&id) else {
            return Err(Stop::Answer(Answer::Done));
        };
        let name = Arc::clone(&token.name);
        Ok(draft.done(Op::DeleteToken(id), Action::TokenDeleted, name))
    }

    pub(super) fn plan_rotate_key(
        &self,
        bytes: &KeyBytes,
        after: Option<KeyId>,
        mut draft: Draft,
    ) -> Draw {
        self.lock(LockedTable::Keys, &mut draft)?;
        let keys = &self.rows.keys;
        let last = self.signing_key();
        if last.map(|key| key.id) != after {
            return Err(Stop::Answer(Answer::Done));
        }
        let over = keys
            .values()
            .filter(|key| key.until.is_some_and(|end| end <= draft.now));
        let gone = over.map(|key| Op::DeleteKey(key.id));
        draft.flight.ops.extend(gone);
        let id = self.next_key();
        let mut detail = format!("key {} signs", id.0);
        if let Some(last) = last {
            let until = Timestamp(draft.now.0.saturating_add(SigningKey::OVERLAP));
            detail = format!("{detail}, key {} counts until {until}", last.id.0);
            draft.flight.ops.push(Op::PutKey(SigningKey {
                until: Some(until),
                ..last.clone()
            }));
        }
        let op = Op::PutKey(SigningKey {
            id,
            created: draft.now,
            bytes: bytes.clone(),
            until: None,
        });
        Ok(draft.done(op, Action::KeyRotated, detail))
    }

    pub(super) fn plan_import_key(&self, bytes: &KeyBytes, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Keys, &mut draft)?;
        if self.rows.keys.values().any(|key| key.bytes == *bytes) {
            return Err(Stop::Answer(Answer::Done));
        }
        let until = Timestamp(draft.now.0.saturating_add(SigningKey::OVERLAP));
        let id = self.next_key();
        let op = Op::PutKey(SigningKey {
            id,
            created: draft.now,
            bytes: bytes.clone(),
            until: Some(until),
        });
        let detail = format!("key {} of another program counts until {until}", id.0);
        Ok(draft.done(op, Action::TakenOver, detail))
    }

    fn next_key(&self) -> KeyId {
        let last = self.rows.keys.last_key_value();
        KeyId(last.map_or(1, |(id, _)| id.0.saturating_add(1)))
    }
}
