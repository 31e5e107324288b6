//! Accounts and tokens.

use std::sync::Arc;

use super::{
    Ledger,
    plan::{Draft, Draw, Stop},
    tentative::Table,
};
use crate::{Account, Action, Actor, Answer, Op, Text, Timestamp, Token, TokenId};

impl Ledger {
    pub(super) fn plan_put_account(
        &self,
        account: &Account,
        actor: &Actor,
        now: Timestamp,
    ) -> Draw {
        self.unlocked(Table::Accounts)?;
        if self.rows.accounts.get(&account.name) == Some(account) {
            return Err(Stop::Answer(Answer::Done));
        }
        let op = Op::PutAccount(account.clone());
        Ok(done(
            Table::Accounts,
            op,
            Action::AccountChanged,
            &account.name,
            actor,
            now,
        ))
    }

    pub(super) fn plan_delete_account(&self, name: &Text, actor: &Actor, now: Timestamp) -> Draw {
        self.unlocked(Table::Accounts)?;
        if !self.rows.accounts.contains_key(name) {
            return Err(Stop::Answer(Answer::Done));
        }
        let op = Op::DeleteAccount(Arc::clone(name));
        Ok(done(
            Table::Accounts,
            op,
            Action::AccountDeleted,
            name,
            actor,
            now,
        ))
    }

    pub(super) fn plan_put_token(&self, token: &Token, actor: &Actor, now: Timestamp) -> Draw {
        self.unlocked(Table::Tokens)?;
        if self.rows.tokens.get(&token.id) == Some(token) {
            return Err(Stop::Answer(Answer::Done));
        }
        let op = Op::PutToken(token.clone());
        Ok(done(
            Table::Tokens,
            op,
            Action::TokenCreated,
            &token.name,
            actor,
            now,
        ))
    }

    pub(super) fn plan_delete_token(&self, id: TokenId, actor: &Actor, now: Timestamp) -> Draw {
        self.unlocked(Table::Tokens)?;
        let Some(token) = self.rows.tokens.get(&id) else {
            return Err(Stop::Answer(Answer::Done));
        };
        Ok(done(
            Table::Tokens,
            Op::DeleteToken(id),
            Action::TokenDeleted,
            &token.name,
            actor,
            now,
        ))
    }

    /// Busy while another decision about the same table is in flight.
    pub(super) fn unlocked(&self, table: Table) -> Result<(), Stop> {
        if self.tentative.locks_table(table) {
            Err(Stop::Busy)
        } else {
            Ok(())
        }
    }
}

fn done(
    table: Table,
    op: Op,
    action: Action,
    name: &Text,
    actor: &Actor,
    now: Timestamp,
) -> (Draft, Answer) {
    let mut draft = Draft::new(now, actor);
    draft.flight.table = Some(table);
    draft.flight.ops.push(op);
    draft.say(action, Arc::clone(name));
    (draft, Answer::Done)
}
