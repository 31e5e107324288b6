//! The pages through the whole router: roles, tokens of forms, headers, and input that means nothing.

use std::sync::Arc;

use axum::body::Body;
use fipd_core::{Role, testing};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use tower::Service as _;

pub(in crate::api) use crate::api::sample::{PASSWORD, Site, origin};
use crate::api::wire::{Password, UserPatch};

mod cluster;
mod import;
mod large;
mod lists;
mod live;
mod pools;
mod prefixes;
mod rooms;
mod rules_page;
mod tables;
mod transfer;

/// A signed-in browser.
struct Visitor<'a> {
    site: &'a Site,
    cookie: String,
    csrf: String,
}

struct Page {
    status: StatusCode,
    headers: HeaderMap,
    html: String,
}

impl Site {
    async fn send(&self, request: Request<Body>) -> Page {
        let response: Response<Body> = self.router.clone().call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        // A copy of the store is no text.
        let html = String::from_utf8_lossy(&bytes).into_owned();
        Page {
            status: parts.status,
            headers: parts.headers,
            html,
        }
    }

    /// Signs in through the form.
    async fn visitor(&self, name: &str) -> Visitor<'_> {
        let page = self.send(get("/ui/login", "")).await;
        let cookie = page.cookie("__Host-fipd-login");
        let token = field(&page.html, "csrf");
        let form = format!(
            "csrf={token}&name={name}&password={}",
            PASSWORD.replace(' ', "+")
        );
        let page = self.send(post("/ui/login", &cookie, &form)).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
        let cookie = page.cookie("__Host-fipd");
        let csrf = field(&self.send(get("/ui/", &cookie)).await.html, "csrf");
        Visitor {
            site: self,
            cookie,
            csrf,
        }
    }

    fn holds(&self, address: &str) -> bool {
        let key = testing::key_of(address);
        self.api.ipam.read(|ledger| ledger.lease(key).is_some())
    }
}

impl Visitor<'_> {
    async fn get(&self, path: &str) -> Page {
        self.site.send(get(path, &self.cookie)).await
    }

    async fn post(&self, path: &str, form: &str) -> Page {
        let form = format!("csrf={}&{form}", self.csrf);
        self.site.send(post(path, &self.cookie, &form)).await
    }
}

impl Page {
    /// `NAME=VALUE` of the cookie that is set.
    fn cookie(&self, name: &str) -> String {
        let set = self.headers.get_all(header::SET_COOKIE).iter();
        let found = set
            .map(|value| value.to_str().unwrap().split(';').next().unwrap())
            .find(|pair| pair.starts_with(&format!("{name}=")));
        found.unwrap().to_owned()
    }
}

fn get(path: &str, cookie: &str) -> Request<Body> {
    Request::get(path)
        .header(header::COOKIE, cookie)
        .body(Body::empty())
        .unwrap()
}

fn post(path: &str, cookie: &str, form: &str) -> Request<Body> {
    Request::post(path)
        .header(header::COOKIE, cookie)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(form.to_owned()))
        .unwrap()
}

/// The value of the first hidden field of that name.
fn field(html: &str, name: &str) -> String {
    let (_, rest) = html
        .split_once(&format!("name=\"{name}\" value=\""))
        .unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn only_an_admin_ends_a_quarantine() {
    let site = Site::new().await;
    let pool = fipd_core::PoolId(1);
    let spec = site.api.ipam.read(|ledger| ledger.pool(pool).cloned());
    let mut spec = spec.unwrap().spec.clone();
    spec.quarantine = 3_600;
    spec.sticky = fipd_core::Sticky {
        lasts: 3_600,
        most: 9,
    };
    let edit = fipd_core::PoolEdit {
        pool,
        spec,
        if_generation: None,
        force: false,
        actor: "test".into(),
        reason: "".into(),
    };
    let edit = fipd_core::Request::UpdatePool(edit);
    site.api.ipam.submit(edit).await.unwrap();
    let operator = site.visitor("operator").await;
    let give = "owner=fipd/host/lab/a&address=10.0.0.9";
    operator.post("/ui/pools/1/allocate", give).await;
    let lease = "/ui/networks/0/addresses/10.0.0.9";
    let release = format!("{lease}/release");
    let seen = field(&operator.get(&release).await.html, "seen");
    let page = operator.post(&release, &format!("seen={seen}")).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    let pool = operator.get("/ui/pools/1").await.html;
    assert!(pool.contains("was released and is quarantined"), "{pool}");
    assert!(pool.contains("1 of them in quarantine") && pool.contains("1 h after a release"));
    let cooling = operator.get(lease).await.html;
    assert!(cooling.contains("quarantined") && !cooling.contains("/release"));
    let rows = operator.get("/ui/leases?state=quarantined").await.html;
    assert!(rows.contains("10.0.0.9") && !rows.contains("/release"));
    assert_eq!(operator.get(&release).await.status, StatusCode::FORBIDDEN);
    let page = operator.post(&release, "seen=").await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(site.holds("10.0.0.9"));
    // Nor by asking again: it was not the owner who gave it back.
    let again = operator.post("/ui/pools/1/allocate", "owner=fipd/host/lab/a");
    assert_eq!(again.await.status, StatusCode::SEE_OTHER);
    assert!(operator.get(lease).await.html.contains("quarantined"));
    // Nor by giving it to somebody else.
    let other = "owner=fipd/host/lab/b&address=10.0.0.9";
    let page = operator.post("/ui/pools/1/allocate", other).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.html);
    let keep = "pool=dmz&owner=fipd/host/lab/b&address=10.0.0.9&until=2999-03-01T12:00";
    let page = operator.post("/ui/reserve", keep).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.html);
    assert!(operator.get(lease).await.html.contains("quarantined"));

    site.account("root", Role::Admin, PASSWORD).await;
    let admin = site.visitor("root").await;
    assert!(admin.get(lease).await.html.contains("/release"));
    let seen = field(&admin.get(&release).await.html, "seen");
    admin.post(&release, &format!("seen={seen}")).await;
    assert!(!site.holds("10.0.0.9"));
}

#[tokio::test]
async fn viewers_look_and_operators_change() {
    let site = Site::new().await;
    let viewer = site.visitor("viewer").await;
    let pool = viewer.get("/ui/pools/1").await;
    assert_eq!(pool.status, StatusCode::OK);
    assert!(!pool.html.contains("/allocate\"") && !pool.html.contains("/release"));
    let give = "owner=fipd/host/lab/a&address=10.0.0.9";
    let lease = "/ui/networks/0/addresses/10.0.0.9";
    for page in [
        viewer.get("/ui/pools/1/allocate").await,
        viewer.post("/ui/pools/1/allocate", give).await,
        viewer.get(&format!("{lease}/release")).await,
        viewer.post(&format!("{lease}/release"), "seen=").await,
    ] {
        assert_eq!(page.status, StatusCode::FORBIDDEN);
        assert!(page.html.contains("Not allowed – fipd"), "{}", page.html);
    }
    assert!(!site.holds("10.0.0.9"));

    let operator = site.visitor("operator").await;
    let page = operator.post("/ui/pools/1/allocate", give).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert!(site.holds("10.0.0.9"));
    assert!(!viewer.get(lease).await.html.contains("/release"));
    // What was not seen is not released.
    let page = operator
        .post(&format!("{lease}/release"), "seen=0000000000000000")
        .await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(page.html.contains("has changed since") && site.holds("10.0.0.9"));
    let seen = field(
        &operator.get(&format!("{lease}/release")).await.html,
        "seen",
    );
    let page = operator
        .post(&format!("{lease}/release"), &format!("seen={seen}"))
        .await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    assert!(!site.holds("10.0.0.9"));
}

#[tokio::test]
async fn who_is_refused_for_the_role_is_told_within_the_pages_and_can_sign_out() {
    let site = Site::new().await;
    let viewer = site.visitor("viewer").await;
    for page in [
        viewer.get("/ui/users").await,
        viewer.post("/ui/pools/new", "name=x").await,
    ] {
        assert_eq!(page.status, StatusCode::FORBIDDEN);
        for part in [
            "This needs the role admin; viewer has viewer.",
            "Ask an admin to do it, or for the role.",
            "<a href=\"/ui/pools\"",
            "viewer <small>viewer</small>",
            "action=\"/ui/logout\"",
        ] {
            assert!(page.html.contains(part), "{part}: {}", page.html);
        }
    }
}

#[tokio::test]
async fn a_page_that_says_what_failed_says_too_that_nothing_is_decided() {
    let site = Site::new().await;
    let viewer = site.visitor("viewer").await;
    let banner = "id=\"store\"";
    assert!(!viewer.get("/ui/pools/99").await.html.contains(banner));
    site.api.ipam.die();
    site.api.ipam.ended().await;
    for (path, status) in [
        ("/ui/pools/99", StatusCode::NOT_FOUND),
        ("/ui/users", StatusCode::FORBIDDEN),
    ] {
        let page = viewer.get(path).await;
        assert_eq!(page.status, status, "{path}");
        assert!(page.html.contains(banner), "{path}: {}", page.html);
    }
}

#[tokio::test]
async fn admins_set_limits_and_operators_see_them() {
    let site = Site::new().await;
    site.account("root", Role::Admin, PASSWORD).await;
    let (viewer, operator) = (site.visitor("viewer").await, site.visitor("operator").await);
    let admin = site.visitor("root").await;
    let form = "tenant=team+a&pool=dmz&limit=3";
    for page in [
        viewer.get("/ui/tenants").await,
        viewer.post("/ui/tenants", form).await,
        operator.post("/ui/tenants", form).await,
    ] {
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{}", page.html);
    }
    assert!(!viewer.get("/ui/").await.html.contains("/ui/tenants"));
    for (form, expected) in [
        ("tenant=&pool=dmz&limit=3", "Say whose limit it is."),
        ("tenant=t&pool=nope&limit=3", "no pool is named nope"),
        ("tenant=t&pool=dmz&limit=-3", "Write a whole number"),
    ] {
        let page = admin.post("/ui/tenants", form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(page.html.contains(expected), "{}", page.html);
    }
    let page = admin.post("/ui/tenants", form).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
    assert_eq!(page.headers["location"], "/ui/tenants?filter=team%20a");
    let page = admin.get("/ui/tenants?filter=team%20a").await;
    assert!(page.html.contains("team a may hold 3 leases of dmz."));
    let page = operator.get("/ui/tenants").await;
    assert!(
        page.html.contains("team a") && !page.html.contains("Set limit"),
        "{}",
        page.html
    );
    admin
        .post("/ui/tenants", "tenant=team+a&pool=dmz&limit=")
        .await;
    let left = site.api.ipam.read(|ledger| ledger.tenancies(None, None, 9));
    assert_eq!(left, []);
}

#[tokio::test]
async fn forms_need_the_token_of_their_session() {
    let site = Site::new().await;
    let (operator, other) = (site.visitor("operator").await, site.visitor("viewer").await);
    let give = "owner=fipd/host/lab/a&address=10.0.0.9";
    for token in ["", "x", other.csrf.as_str()] {
        let form = format!("{give}&csrf={token}");
        let page = site
            .send(post("/ui/pools/1/allocate", &operator.cookie, &form))
            .await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{token}");
    }
    let mut foreign = post(
        "/ui/pools/1/allocate",
        &operator.cookie,
        &format!("{give}&csrf={}", operator.csrf),
    );
    foreign
        .headers_mut()
        .insert("sec-fetch-site", "cross-site".parse().unwrap());
    assert_eq!(site.send(foreign).await.status, StatusCode::BAD_REQUEST);
    assert!(!site.holds("10.0.0.9"));
    // Signing in needs the cookie of the form as well, and no session comes of it otherwise.
    let form = format!("csrf=1&name=operator&password={PASSWORD}");
    let page = site.send(post("/ui/login", "", &form)).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    // Without a session a form leads to the login page.
    let page = site.send(post("/ui/pools/1/allocate", "", give)).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    assert_eq!(page.headers[header::LOCATION], "/ui/login?ended=yes");
}

#[tokio::test]
async fn a_form_after_the_end_of_the_session_says_so_and_leads_back_to_its_page() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    assert_eq!(site.api.sessions.end_all("operator"), 1);
    let give = format!(
        "owner=fipd/host/lab/a&address=10.0.0.9&csrf={}",
        operator.csrf
    );
    let mut form = post("/ui/pools/1/allocate", &operator.cookie, &give);
    let page = "https://fipd.example/ui/pools/1/allocate?address=10.0.0.9";
    form.headers_mut()
        .insert(header::REFERER, page.parse().unwrap());
    let page = site.send(form).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    let to = page.headers[header::LOCATION].to_str().unwrap();
    assert_eq!(to, "/ui/login?next=/ui/pools/1/allocate&ended=yes");
    assert!(!site.holds("10.0.0.9"));
    let login = site.send(get(to, "")).await.html;
    assert!(login.contains("Your session has ended; nothing was changed."));
    assert_eq!(field(&login, "next"), "/ui/pools/1/allocate");
    let login = site.send(get("/ui/login", "")).await.html;
    assert!(!login.contains("has ended"), "{login}");
}

#[tokio::test]
async fn a_session_follows_its_account() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    assert!(
        operator
            .get("/ui/pools/1")
            .await
            .html
            .contains("/allocate\"")
    );
    let accounts = &site.api.accounts;
    let other_password = || UserPatch {
        password: Some(Password("another password".to_owned())),
        ..UserPatch::default()
    };
    let edit = accounts.edit("operator", other_password(), "test".into());
    edit.await.unwrap();
    let page = operator.get("/ui/").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    assert_eq!(page.headers[header::LOCATION], "/ui/login");

    let viewer = site.visitor("viewer").await;
    let admin = UserPatch {
        role: Some(Role::Admin),
        ..UserPatch::default()
    };
    let edit = accounts.edit("viewer", admin, "test".into());
    edit.await.unwrap();
    assert_eq!(viewer.get("/ui/").await.status, StatusCode::SEE_OTHER);
    let viewer = site.visitor("viewer").await;
    let delete = accounts.delete_if("viewer", "test".into(), Box::new(|_, _| Ok(())));
    delete.await.unwrap();
    assert_eq!(viewer.get("/ui/").await.status, StatusCode::SEE_OTHER);

    site.account("viewer", Role::Viewer, PASSWORD).await;
    let viewer = site.visitor("viewer").await;
    viewer.post("/ui/logout", "").await;
    assert_eq!(viewer.get("/ui/").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_password_that_changes_during_sign_in_opens_nothing() {
    let site = Site::new().await;
    let accounts = &site.api.accounts;
    let verified = accounts.login("operator", PASSWORD).await.unwrap();
    let other = UserPatch {
        password: Some(Password("another password".to_owned())),
        ..UserPatch::default()
    };
    accounts
        .edit("operator", other, "test".into())
        .await
        .unwrap();
    assert!(site.api.sessions.open(&verified, origin()).is_none());
    let verified = accounts
        .login("operator", "another password")
        .await
        .unwrap();
    assert!(site.api.sessions.open(&verified, origin()).is_some());
}

#[tokio::test]
async fn nonsense_is_answered_calmly() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    for (path, status) in [
        ("/ui/pools/x", StatusCode::NOT_FOUND),
        ("/ui/pools/99999999999999999999", StatusCode::NOT_FOUND),
        ("/ui/pools/%FF%00", StatusCode::NOT_FOUND),
        ("/ui/pools/1?at=%FF&after=%3Cb%3E&x", StatusCode::OK),
        ("/ui/pools/1?after=2001:db8::1", StatusCode::OK),
        ("/ui/pools?filter=%25%&after=%0A", StatusCode::OK),
        ("/ui/audit?before=-1", StatusCode::OK),
        ("/ui/audit?before=0", StatusCode::OK),
        ("/ui/search", StatusCode::OK),
        ("/ui/search?q=%3Cscript%3E", StatusCode::OK),
        ("/ui/search?q=10.0.0.9", StatusCode::SEE_OTHER),
        ("/ui/networks/0/addresses/10.0.0", StatusCode::NOT_FOUND),
        ("/ui/networks/7/addresses/10.0.0.1", StatusCode::NOT_FOUND),
        ("/ui/networks/0/addresses/::ffff:10.0.0.9", StatusCode::OK),
        ("/ui/static/../x", StatusCode::NOT_FOUND),
        ("/ui/none/such", StatusCode::NOT_FOUND),
    ] {
        let page = operator.get(path).await;
        assert_eq!(page.status, status, "{path}: {}", page.html);
        assert!(!page.html.contains("<script>"), "{path}");
        let policy = page.headers[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{path}");
    }
    let long = "o".repeat(12_000);
    for form in [
        "",
        "owner=%00&address=%FF",
        "owner=a/b/c/d/e/f",
        &format!("owner={long}"),
        "owner=a&owner=b",
    ] {
        let page = operator.post("/ui/pools/1/allocate", form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{form:.40}");
    }
    let page = operator
        .post("/ui/pools/1/allocate", &format!("owner={}", long.repeat(4)))
        .await;
    assert_eq!(page.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn what_fails_beside_a_page_is_a_page_too() {
    let site = Site::new().await;
    let operator = site.visitor("operator").await;
    let request = |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::COOKIE, &operator.cookie);
        request.body(Body::empty()).unwrap()
    };
    let page = site.send(request("POST", "/ui/about")).await;
    assert!(page.status.is_client_error(), "{}", page.status);
    assert!(page.html.contains("<!DOCTYPE html>"), "{}", page.html);
    let wrong = super::failed(StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(wrong.status(), StatusCode::INTERNAL_SERVER_ERROR);
    // Programs get what they understand.
    let page = site.send(request("POST", "/api/v1/pools/x/nothing")).await;
    assert!(page.html.starts_with('{'), "{}", page.html);
    for (path, page) in [
        ("/ui", true),
        ("/ui/pools", true),
        ("/uix", false),
        ("/ui/events", false),
        ("/api/v1/pools", false),
    ] {
        assert_eq!(super::is_page(path), page, "{path}");
    }
}
