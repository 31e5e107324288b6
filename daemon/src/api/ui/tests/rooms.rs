//! Reserving, users, tokens, the own password, backup; and who may send which form.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use axum::extract::ConnectInfo;

use super::*;
use crate::api::access::{Access, Routes};

async fn admin(site: &Site) -> Visitor<'_> {
    site.account("root", Role::Admin, PASSWORD).await;
    site.visitor("root").await
}

/// Sends the form of a user, of the revision that there is.
async fn edit_user(admin: &Visitor<'_>, name: &str, form: &str) -> Page {
    let path = format!("/ui/users/{name}/edit");
    let revision = field(&admin.get(&path).await.html, "revision");
    let form = format!("{form}&revision={revision}");
    admin.post(&path, &form).await
}

#[tokio::test]
async fn every_form_needs_its_role_and_its_token() {
    let site = Site::new().await;
    let (viewer, operator) = (site.visitor("viewer").await, site.visitor("operator").await);
    let (_, table) = super::super::routes(Routes::default(), *crate::systems::SYSTEMS).finish();
    let mut forms = 0;
    for (method, pattern, access) in table.iter() {
        let path = pattern
            .replace("{network}", "0")
            .replace("{address}", "10.0.0.9")
            .replace("{name}", "viewer")
            .replace("{id}", "1");
        let Access::Page(role) = access else {
            continue;
        };
        if method == "POST" && pattern != "/ui/logout" {
            forms += 1;
            let page = site.send(post(&path, &operator.cookie, "a=b")).await;
            assert_eq!(
                page.status,
                StatusCode::FORBIDDEN,
                "{pattern} without token"
            );
            let page = site.send(post(&path, "", "a=b")).await;
            assert_eq!(page.status, StatusCode::SEE_OTHER, "{pattern} signed out");
        }
        for (visitor, own) in [(&viewer, Role::Viewer), (&operator, Role::Operator)] {
            if role > own {
                let page = match method {
                    "POST" => visitor.post(&path, "a=b").await,
                    _ => visitor.get(&path).await,
                };
                assert_eq!(page.status, StatusCode::FORBIDDEN, "{method} {pattern}");
            }
        }
    }
    assert!(forms >= 12, "{forms} forms");
}

#[tokio::test]
async fn a_site_of_other_programs_is_shown_to_admins_alone() {
    let site = Site::new().await;
    let path = "/api/v1/clusters/rancher/adopt/rancher-fip";
    for who in ["viewer", "operator"] {
        let answer = site.visitor(who).await.get(path).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{who}");
    }
    let admin = admin(&site).await;
    let other = admin.get("/api/v1/clusters/rancher/adopt/claims").await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    assert!(
        other.html.contains("ip-rule, kube-fip, rancher-fip"),
        "{}",
        other.html
    );
    let unknown = admin.get("/api/v1/clusters/none/adopt/ip-rule").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_address_is_kept_for_tomorrow() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    for (form, error) in [
        ("owner=fipd/host/lab/a", "id=\"pool-error\">Name a pool"),
        (
            "pool=nope&owner=fipd/host/lab/a",
            "id=\"pool-error\">no pool",
        ),
        ("pool=dmz&owner=", "id=\"owner-error\">Say who"),
        ("pool=dmz&owner=x+y", "id=\"owner-error\">"),
        (
            "address=10.99.0.1&owner=fipd/host/lab/a",
            "id=\"address-error\">No pool gives",
        ),
        (
            "address=10.0.0&owner=fipd/host/lab/a",
            "id=\"address-error\">That is no address",
        ),
        (
            "pool=dmz&owner=fipd/host/lab/a&until=2001-01-01T00:00",
            "id=\"until-error\">",
        ),
    ] {
        let page = operator.post("/ui/reserve", form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{form}");
        assert!(page.html.contains(error), "{form}: {}", page.html);
    }
    let form = "address=10.0.0.77&owner=fipd/host/lab/later&tenant=t&until=2999-01-01T12:00";
    let page = operator.post("/ui/reserve", form).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let html = operator
        .get("/ui/networks/0/addresses/10.0.0.77")
        .await
        .html;
    for text in [
        "10.0.0.77 is reserved.",
        "reserved</span>",
        "2999-01-01 12:00:00 UTC",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    let taken = "address=10.0.0.77&owner=fipd/host/lab/other";
    let page = operator.post("/ui/reserve", taken).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(
        page.html
            .contains("id=\"address-error\">10.0.0.77 is held by")
    );
    let page = operator
        .post("/ui/reserve", "pool=dmz&owner=fipd/host/lab/next")
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
}

#[tokio::test]
async fn users_come_change_and_go_but_the_last_admin_stays() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let new = |name: &str, again: &str| {
        format!("name={name}&role=viewer&password=long+enough&again={again}")
    };
    for (form, error) in [
        (new("a b", "long+enough"), "id=\"name-error\">"),
        (
            new("viewer", "long+enough"),
            "id=\"name-error\">a user named viewer",
        ),
        (
            new("ann", "other"),
            "id=\"again-error\">That is not the same",
        ),
        (
            "name=ann&role=viewer&password=short&again=short".into(),
            "id=\"password-error\">At least 8",
        ),
        (
            "name=ann&role=king&password=long+enough&again=long+enough".into(),
            "id=\"role",
        ),
    ] {
        let page = admin.post("/ui/users/new", &form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{form}");
        assert!(page.html.contains(error), "{form}: {}", page.html);
        assert!(
            !page.html.contains("long enough"),
            "passwords are not shown"
        );
    }
    let page = admin
        .post("/ui/users/new", &new("ann", "long+enough"))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let html = admin.get("/ui/users?role=viewer").await.html;
    assert!(html.contains("/ui/users/ann/edit") && !html.contains("/ui/users/root/edit"));
    edit_user(&admin, "ann", "role=operator").await;
    let role = |name: &str| {
        site.api
            .ipam
            .read(|ledger| ledger.account(name).map(|a| a.role))
    };
    assert_eq!(role("ann"), Some(Role::Operator));
    admin.post("/ui/users/ann/delete", "").await;
    assert_eq!(role("ann"), None);
    assert_eq!(
        admin.get("/ui/users/ann/edit").await.status,
        StatusCode::NOT_FOUND
    );
    // The account made at the first start is an admin too.
    admin.post("/ui/users/admin/delete", "").await;
    let page = admin.post("/ui/users/root/delete", "").await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(
        page.html.contains("root is the last admin"),
        "{}",
        page.html
    );
    let page = edit_user(&admin, "root", "role=viewer").await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(
        page.html
            .contains("id=\"role-error\">root is the last admin")
    );
    assert_eq!(role("root"), Some(Role::Admin));
}

#[tokio::test]
async fn everybody_changes_the_own_password_and_signs_in_again() {
    let site = Site::new().await;
    let viewer = site.visitor("viewer").await;
    let form = |present: &str| format!("present={present}&password=another+one&again=another+one");
    let page = viewer.post("/ui/password", &form("wrong")).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.html.contains("id=\"present-error\""));
    for _ in 0..5 {
        viewer.post("/ui/password", &form("wrong")).await;
    }
    let right = form(&PASSWORD.replace(' ', "+"));
    let page = viewer.post("/ui/password", &right).await;
    assert_eq!(
        page.status,
        StatusCode::TOO_MANY_REQUESTS,
        "guesses are few"
    );
    let wait = page.headers[header::RETRY_AFTER].to_str().unwrap();
    assert!(wait.parse::<u64>().unwrap() > 0, "{wait}");
    let from = IpAddr::from([0, 0, 0, 0]);
    let limiter = &site.api.sessions.limiter;
    limiter.succeeded("viewer", from, Instant::now());
    let page = viewer.post("/ui/password", &right).await;
    assert_eq!(page.headers[header::LOCATION], "/ui/login", "{}", page.html);
    // Whoever was signed in elsewhere is so no more, and is not listed as if.
    let listed = site.api.sessions.of("viewer", &HeaderMap::new());
    assert_eq!(listed, []);
    assert_eq!(viewer.get("/ui/").await.status, StatusCode::SEE_OTHER);
    assert!(
        site.api
            .accounts
            .login("viewer", "another one")
            .await
            .is_some()
    );
    assert!(site.api.accounts.login("viewer", PASSWORD).await.is_none());
}

#[tokio::test]
async fn a_name_that_is_guessed_from_everywhere_signs_in_where_it_did_before() {
    let site = Site::new().await;
    let page = site.send(get("/ui/login", "")).await;
    let (cookie, token) = (page.cookie("__Host-fipd-login"), field(&page.html, "csrf"));
    let password = PASSWORD.replace(' ', "+");
    let sign_in = async |name: &str, from: [u8; 4]| {
        let form = format!("csrf={token}&name={name}&password={password}");
        let mut request = post("/ui/login", &cookie, &form);
        let peer = SocketAddr::from((from, 1));
        request.extensions_mut().insert(ConnectInfo(peer));
        site.send(request).await.status
    };
    let (home, elsewhere) = ([192, 0, 2, 1], [198, 51, 100, 1]);
    assert_eq!(sign_in("viewer", home).await, StatusCode::SEE_OTHER);
    // The lockout lasts as long as the test.
    let later = Instant::now() + Duration::from_secs(3600);
    for name in ["viewer", "nobody"] {
        let from = (0..1_000).map(|number: u32| IpAddr::V4(number.into()));
        let limiter = &site.api.sessions.limiter;
        let guesses = from.take_while(|from| limiter.attempt(name, *from, later).is_ok());
        assert!((20..200).contains(&guesses.count()), "{name}");
        let status = sign_in(name, elsewhere).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{name}");
    }
    assert_eq!(sign_in("viewer", home).await, StatusCode::SEE_OTHER);
    assert_eq!(sign_in("operator", elsewhere).await, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn the_audit_log_has_only_sessions_that_an_admin_ended() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let viewer = site.visitor("viewer").await;
    let sessions = "/ui/users/viewer/sessions";
    let told = async || {
        let audit = admin.get("/ui/audit").await.html;
        audit.matches("viewer: signed out by an admin").count()
    };
    let page = admin.post(sessions, "end=").await;
    assert_eq!(page.status, StatusCode::NOT_FOUND, "{}", page.html);
    let page = admin.post(sessions, "end=0123456789abcdef").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    let page = admin.get(sessions).await.html;
    assert!(page.contains("no such session any more"), "{page}");
    assert_eq!(told().await, 0);
    assert_eq!(viewer.get("/ui/").await.status, StatusCode::OK);
    // The second finds none.
    for _ in 0..2 {
        let page = admin.post(sessions, "end=all").await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
        assert_eq!(told().await, 1);
    }
    assert_eq!(viewer.get("/ui/").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_token_is_shown_once_and_revoked() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let page = admin
        .post("/ui/tokens/new", "name=ci&role=viewer&expires=1999-01-01")
        .await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.html.contains("id=\"expires-error\"") && page.html.contains("value=\"ci\""));
    let page = admin
        .post(
            "/ui/tokens/new",
            "name=ci&role=operator&expires=2999-01-01T00:00",
        )
        .await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.html);
    let (_, text) = page.html.split_once("id=\"token\">").unwrap();
    let text = text.split('<').next().unwrap().to_owned();
    assert!(
        crate::api::rest::tokens::caller(&site.api.ipam, &site.api.tokens_used, &text, None)
            .is_ok()
    );
    let list = admin.get("/ui/tokens").await.html;
    assert!(list.contains(">ci</") && !list.contains(&text), "{list}");
    let id = text.split('_').nth(1).unwrap();
    let page = admin.post(&format!("/ui/tokens/{id}/revoke"), "").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    assert!(
        crate::api::rest::tokens::caller(&site.api.ipam, &site.api.tokens_used, &text, None)
            .is_err()
    );
}

#[tokio::test]
async fn who_is_disabled_is_signed_out_and_stays_out() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let operator = site.visitor("operator").await;
    let unseen = site.visitor("operator").await;
    let page = edit_user(&admin, "operator", "role=operator&disabled=yes").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert_eq!(operator.get("/ui/").await.status, StatusCode::SEE_OTHER);
    let accounts = &site.api.accounts;
    assert!(accounts.login("operator", PASSWORD).await.is_none());
    let list = admin.get("/ui/users").await.html;
    assert!(list.contains(">disabled</span>"), "{list}");
    let page = edit_user(&admin, "operator", "role=operator").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert!(accounts.login("operator", PASSWORD).await.is_some());
    let page = unseen.get("/ui/").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "ended, not asleep");
    // One admin is left: the first account, which nobody has signed in as.
    let own = edit_user(&admin, "root", "role=admin&disabled=yes").await;
    assert_eq!(own.status, StatusCode::SEE_OTHER, "{}", own.html);
    assert_eq!(admin.get("/ui/users").await.status, StatusCode::SEE_OTHER);
    let last = UserPatch {
        disabled: Some(true),
        ..UserPatch::default()
    };
    let refused = accounts.edit("admin", last, "test".into()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("last admin"), "{refused}");
}

#[tokio::test]
async fn a_form_of_a_user_who_was_changed_meanwhile_says_what_differs_and_changes_nothing() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let edit = "/ui/users/operator/edit";
    let revision = field(&admin.get(edit).await.html, "revision");
    let accounts = &site.api.accounts;
    let stopped = UserPatch {
        role: Some(Role::Viewer),
        disabled: Some(true),
        ..UserPatch::default()
    };
    let stopped = accounts.edit("operator", stopped, "test".into());
    stopped.await.unwrap();
    let form = |revision: &str| {
        format!("role=operator&password=quite+new+words&again=quite+new+words&revision={revision}")
    };
    let now = || {
        let account = site
            .api
            .ipam
            .read(|ledger| ledger.account("operator").cloned());
        let account = account.unwrap();
        (account.role, account.disabled)
    };
    let stale = admin.post(edit, &form(&revision)).await;
    assert_eq!(stale.status, StatusCode::CONFLICT, "{}", stale.html);
    for text in [
        "has changed since this form was opened",
        "id=\"role-error\">At present it is viewer.",
        "id=\"disabled-error\">At present it is ticked.",
        "<option value=\"operator\" selected>",
    ] {
        assert!(stale.html.contains(text), "no {text} in {}", stale.html);
    }
    assert!(!stale.html.contains("quite new words"), "{}", stale.html);
    for revision in ["", "*"] {
        let page = admin.post(edit, &form(revision)).await;
        assert_eq!(page.status, StatusCode::CONFLICT, "{revision}");
    }
    assert_eq!(now(), (Role::Viewer, true));
    // Sent again it is of what was shown.
    let again = form(&field(&stale.html, "revision"));
    let page = admin.post(edit, &again).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert_eq!(now(), (Role::Operator, false));
    assert!(
        accounts
            .login("operator", "quite new words")
            .await
            .is_some()
    );
}

#[tokio::test]
async fn a_form_that_fails_has_the_status_of_what_failed() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let user =
        |password: &str| format!("name=ann&role=viewer&password={password}&again={password}");
    let page = admin.post("/ui/users/new", &user(&"x".repeat(1_100))).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    let why = "id=\"password-error\">password: 1100 bytes";
    assert!(page.html.contains(why), "{}", page.html);
    let elsewhere = "owner=fipd/host/lab/a&address=192.0.2.1";
    let page = admin.post("/ui/pools/1/allocate", elsewhere).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    // Rules are off here.
    let page = admin.post("/ui/rules/flush", "").await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.html);
    site.api.ipam.die();
    site.api.ipam.ended().await;
    let pool = "name=x&addresses=10.9.0.0/24&network=default&step=do";
    for (path, form) in [
        ("/ui/users/new", &*user("long+enough")),
        ("/ui/users/viewer/delete", ""),
        ("/ui/pools/new", pool),
        ("/ui/tenants", "tenant=t&pool=dmz&limit=3"),
        ("/ui/reserve", "pool=dmz&owner=fipd/host/lab/a"),
        ("/ui/pools/1/allocate", "owner=fipd/host/lab/a"),
        ("/ui/tokens/new", "name=ci&role=viewer"),
    ] {
        let page = admin.post(path, form).await;
        assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(page.html.contains("fipd is stopping"), "{}", page.html);
    }
    // Without a hold the page has no place for the form.
    let page = admin.post("/ui/backup/hold", "reason=adopted").await;
    assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_token_is_limited_where_it_is_made() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let form = |pools: &str, from: &str| {
        format!(
            "name=ci&role=operator&pools={pools}&networks=default&tenants=p-1%0Ap-2&from={from}"
        )
    };
    for (pools, from, field) in [("dmz%0Anone", "", "pools"), ("dmz", "10.0.0.0/33", "from")] {
        let page = admin.post("/ui/tokens/new", &form(pools, from)).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
        let error = format!("id=\"{field}-error\"");
        assert!(page.html.contains(&error), "{field}: {}", page.html);
        assert!(page.html.contains("p-1\np-2</textarea>"), "{}", page.html);
    }
    let page = admin
        .post("/ui/tokens/new", &form("dmz", "10.0.0.0/8"))
        .await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.html);
    let token = site.api.ipam.read(|ledger| ledger.tokens().next().cloned());
    let token = token.unwrap();
    assert_eq!((token.scope.pools.len(), token.scope.tenants.len()), (1, 2));
    assert_eq!(token.from.len(), 1);
    let list = admin.get("/ui/tokens").await.html;
    let limits = "pools dmz; networks default; tenants p-1, p-2; from 10.0.0.0/8";
    assert!(list.contains(limits), "{list}");
}

#[tokio::test]
async fn the_backup_room_leads_to_files_that_a_session_may_have() {
    let site = Site::new().await;
    let admin = admin(&site).await;
    let page = admin.post("/ui/backup", "").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    let html = admin.get("/ui/backup").await.html;
    assert!(html.contains("was made and checked."), "{html}");
    let (_, copy) = html.split_once("href=\"/api/v1/backups/").unwrap();
    let copy = copy.split('"').next().unwrap();
    let path = format!("/api/v1/backups/{copy}");
    let request = get(&path, &admin.cookie);
    assert_eq!(site.send(request).await.status, StatusCode::OK, "{path}");
    assert!(html.contains(">never</td>"), "{html}");
    let page = admin
        .post("/ui/backup/drill", &format!("name={copy}"))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    let html = admin.get("/ui/backup").await.html;
    assert!(
        html.contains("it is in order.") && html.contains(">in order</span>"),
        "{html}"
    );
    let page = admin.post("/ui/backup/hold", "reason=").await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    let page = admin.post("/ui/backup/hold", "reason=all+adopted").await;
    assert_eq!(
        page.status,
        StatusCode::SEE_OTHER,
        "lifting nothing succeeds"
    );
    assert!(html.contains("href=\"/api/v1/backup\""), "{html}");
    let request = get("/api/v1/export?what=pools&format=csv", &admin.cookie);
    let page = site.send(request).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.html);
    assert!(page.html.contains("dmz"));
}
