use std::sync::Arc;

use fipd_core::{Action, Role, Scope};
use tokio::{sync::mpsc, task::JoinHandle};

use super::*;
use crate::{
    api::{Api, access::auth::Via, ui::tests::Site},
    rules::{Ordered, rows::tests::view},
};

fn caller() -> Caller {
    Caller {
        actor: "test".into(),
        role: Role::Admin,
        via: Via::Socket,
        scope: Arc::new(Scope::default()),
    }
}

/// An engine that answers every command with the foreign rules, and tells which commands these were.
fn engine(board: &RuleBoard) -> (JoinHandle<()>, mpsc::UnboundedReceiver<Command>) {
    let mut orders = board.take_orders().unwrap();
    let foreign: Vec<KernelRule> = board.view().kernel.iter().rev().take(2).cloned().collect();
    let (told, commands) = mpsc::unbounded_channel();
    let running = tokio::spawn(async move {
        while let Some(Ordered { command, answer }) = orders.recv().await {
            told.send(command).unwrap();
            answer.send(Ok(foreign.clone())).unwrap();
        }
    });
    (running, commands)
}

fn audited_details(api: &Api) -> Vec<String> {
    let page = api.ipam.reader().audit_page(None, 100).unwrap();
    let all = page.into_iter().rev().map(|(_, entry)| entry);
    all.filter(|entry| entry.action == Action::RulesChanged)
        .map(|entry| entry.detail.to_string())
        .collect()
}

async fn ask(api: &Api, query: RuleQuery) -> Result<RulePage, Problem> {
    let answer = show(State(api.rules.clone()), Query(query)).await;
    answer.map(|Json(page)| page)
}

#[tokio::test]
async fn the_list_comes_in_pages_with_what_all_of_it_is() {
    let site = Site::new().await;
    let empty = ask(&site.api, RuleQuery::default()).await.unwrap();
    assert_eq!((&*empty.state, empty.rules.len()), ("off", 0));
    site.api.rules.show(view());
    let all = ask(&site.api, RuleQuery::default()).await.unwrap();
    assert_eq!(
        (&*all.state, all.reason, all.protocol),
        ("active", None, 200)
    );
    assert_eq!(
        (all.missing, all.surplus, all.foreign, all.indexed),
        (1, 1, 1, 2)
    );
    assert_eq!((all.drift.removed, all.warnings.len()), (3, 1));
    let (mut rules, mut cursor) = (Vec::new(), None);
    loop {
        let query = RuleQuery {
            cursor,
            limit: Some(2),
            ..RuleQuery::default()
        };
        let page = ask(&site.api, query).await.unwrap();
        rules.extend(page.rules);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(rules, all.rules);
    let indexed = RuleQuery {
        state: Some("indexed".into()),
        q: Some("10.1.0.2".into()),
        ..RuleQuery::default()
    };
    let found = ask(&site.api, indexed).await.unwrap().rules;
    assert_eq!(found.len(), 1);
    let one = &found[0];
    assert_eq!(
        (one.table, one.mark.as_deref()),
        (Some(200), Some("0x1/0xfff"))
    );
    assert_eq!(one.owner.as_deref(), Some("farm"));
    let wrong = RuleQuery {
        state: Some("gone".into()),
        ..RuleQuery::default()
    };
    let problem = ask(&site.api, wrong).await.unwrap_err();
    assert_eq!(
        (problem.status, problem.field.as_deref()),
        (422, Some("state"))
    );
}

#[tokio::test]
async fn conformance_35_a_plan_names_each_step_and_changes_nothing() {
    let site = Site::new().await;
    site.api.rules.show(view());
    let page = PageQuery::default();
    let Json(plan) = plan(State(site.api.rules.clone()), Query(page))
        .await
        .unwrap();
    assert_eq!((plan.adds, plan.deletes), (1, 1));
    let steps: Vec<&str> = plan.steps.iter().map(|step| &*step.does).collect();
    assert_eq!(steps, ["add", "delete"]);
    assert!(plan.steps[0].rule.contains("from fd00::1 lookup 100"));
    assert!(plan.steps[1].rule.contains("from 10.9.9.9 lookup"));
    assert!(audited_details(&site.api).is_empty());
}

#[tokio::test]
async fn where_there_is_no_engine_a_command_is_refused_and_says_why() {
    let site = Site::new().await;
    let body = Body(FlushRules::default());
    let refused = flush(
        State(site.api.ipam.clone()),
        State(site.api.rules.clone()),
        caller(),
        body,
    )
    .await;
    let problem = refused.unwrap_err();
    assert_eq!(problem.code, Code::Conflict);
    assert!(problem.detail.contains("[host]"), "{}", problem.detail);
    assert!(audited_details(&site.api).is_empty());
}

#[tokio::test]
async fn rules_of_others_go_only_by_a_plan_that_still_holds() {
    let site = Site::new().await;
    site.api.rules.show(view());
    let (_engine, mut commands) = engine(&site.api.rules);
    let prune = async |plan: Option<String>| {
        let body = PruneForeignRules {
            table: 100,
            priorities: Some([1, 9]),
            plan,
        };
        prune_foreign(
            State(site.api.ipam.clone()),
            State(site.api.rules.clone()),
            caller(),
            Body(body),
        )
        .await
    };
    let Json(planned) = prune(None).await.unwrap();
    assert!(planned.dry_run && planned.count == 2);
    let asked = commands.recv().await.unwrap();
    assert!(matches!(
        asked,
        Command::PruneForeign {
            confirmed: None,
            ..
        }
    ));
    let stale = prune(Some("another".into())).await.unwrap_err();
    assert_eq!(stale.code, Code::Conflict);
    commands.recv().await.unwrap();
    assert!(commands.is_empty() && audited_details(&site.api).is_empty());
    let Json(done) = prune(planned.plan).await.unwrap();
    assert!(!done.dry_run && done.count == 2);
    commands.recv().await.unwrap();
    let confirmed = commands.recv().await.unwrap();
    let Command::PruneForeign {
        confirmed: Some(lines),
        ..
    } = confirmed
    else {
        panic!("{confirmed:?}");
    };
    assert_eq!(lines, planned.rules);
    let said = audited_details(&site.api);
    assert_eq!(said.len(), 2);
    assert!(said[1].contains("2 rules removed"), "{said:?}");
    let body = PruneForeignRules {
        table: 0,
        priorities: None,
        plan: None,
    };
    let refused = prune_foreign(
        State(site.api.ipam.clone()),
        State(site.api.rules.clone()),
        caller(),
        Body(body),
    )
    .await;
    assert_eq!(refused.unwrap_err().field.as_deref(), Some("table"));
}
