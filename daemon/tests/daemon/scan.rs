//! Every route and method of every listener, asked by everybody: who gets an answer is who the table of rights says.

use fipd::{
    api::{
        access::Access,
        rights::{self, Port, Right},
    },
    config::Serve,
    systems::SYSTEMS,
};
use fipd_core::Role;
use http::{Method, header};

use crate::harness::{Answer, Daemon, Rest, free_port};

const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
];
const PASSWORD: &str = "a-long-password";

/// The path with nothing that there is in the place of variables, so that what is allowed changes nothing.
fn nowhere(path: &str) -> String {
    let mut filled = path
        .replace("{*rest}", "nowhere")
        .replace("{network}/{address}", "0/192.0.2.9")
        .replace("{address}", "192.0.2.9")
        .replace("{id}", "999999");
    while let (Some(start), Some(end)) = (filled.find('{'), filled.find('}')) {
        filled.replace_range(start..=end, "nowhere");
    }
    filled
}

/// Somebody who signed in at the pages.
pub struct Browser {
    rest: Rest,
    cookie: String,
    csrf: String,
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let start = text.find(before).map(|at| at + before.len());
    let rest = &text[start.unwrap_or_else(|| panic!("no {before} in {text}"))..];
    &rest[..rest.find(after).unwrap()]
}

fn cookie(answer: &Answer, name: &str) -> String {
    let all = answer.headers.get_all(header::SET_COOKIE).iter();
    let mut all = all.map(|value| value.to_str().unwrap());
    let found = all.find(|value| value.starts_with(&format!("{name}=")));
    let found = found.unwrap_or_else(|| panic!("no cookie {name}: {answer:?}"));
    for flag in ["Path=/", "Secure", "HttpOnly", "SameSite="] {
        assert!(found.contains(flag), "{found}");
    }
    assert!(name.starts_with("__Host-") && !found.contains("Domain"));
    found.split(';').next().unwrap().to_owned()
}

pub fn html(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

impl Browser {
    pub fn sign_in(fipd: &Daemon, name: &str, password: &str) -> Self {
        let rest = fipd.rest(None);
        let page = rest.get("/ui/login");
        let before = cookie(&page, "__Host-fipd-login");
        let token = between(&html(&page), "name=\"csrf\" value=\"", "\"").to_owned();
        let form = format!("csrf={token}&name={name}&password={password}");
        let answer = post_form(&rest, "/ui/login", &before, &form);
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = cookie(&answer, "__Host-fipd");
        let mut browser = Self {
            rest,
            cookie,
            csrf: String::new(),
        };
        let home = browser.get("/ui/");
        browser.csrf = between(&html(&home), "name=\"csrf\" value=\"", "\"").to_owned();
        browser
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path)
    }

    fn ask(&self, method: &str, path: &str) -> Answer {
        let method: Method = method.parse().unwrap();
        self.rest
            .send(method, path, &[("cookie", &self.cookie)], None)
    }

    fn post(&self, path: &str, form: &str) -> Answer {
        post_form(&self.rest, path, &self.cookie, form)
    }
}

fn post_form(rest: &Rest, path: &str, cookie: &str, form: &str) -> Answer {
    let headers = [
        ("cookie", cookie),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    rest.send(Method::POST, path, &headers, Some(form.into()))
}

fn ask(rest: &Rest, method: &str, path: &str) -> Answer {
    let body = (!["GET", "HEAD", "DELETE"].contains(&method)).then(|| b"{}".to_vec());
    let headers = [("content-type", "application/json")];
    rest.send(method.parse().unwrap(), path, &headers, body)
}

/// What an LB controller without a token hears, and who brings no review or asks for a hook that there is not.
fn is_refused_as_the_original_does(path: &str, answer: &Answer) {
    if path.starts_with("/admission/") || path.starts_with("/hooks/") {
        answer.problem(404, "not-found");
        return;
    }
    let (status, message) = match path.ends_with("/auth/token") {
        true => (400, "clientID is required"),
        false => (401, "Authorization header is required"),
    };
    assert_eq!(answer.status, status, "{path}: {answer:?}");
    let said = serde_json::json!({ "code": status, "message": message });
    assert_eq!(answer.json(), said, "{path}");
}

fn at(port: Port) -> Vec<Right> {
    let mut rights = rights::all(*SYSTEMS);
    rights.retain(|right| right.port == port);
    rights
}

fn is_login(answer: &Answer) -> bool {
    let target = answer.headers.get(header::LOCATION);
    answer.status == 303 && target.is_some_and(|to| to.to_str().unwrap().starts_with("/ui/login"))
}

/// What every answer says to browsers, whatever it is.
fn has_the_headers(what: &str, answer: &Answer, tls: bool) {
    let has = |name: &str| {
        let value = answer.headers.get(name);
        let value = value.unwrap_or_else(|| panic!("{what} has no {name}: {answer:?}"));
        value.to_str().unwrap().to_owned()
    };
    let policy = has("content-security-policy");
    assert!(policy.starts_with("default-src 'none'"), "{what}: {policy}");
    assert!(
        policy.contains("frame-ancestors 'none'"),
        "{what}: {policy}"
    );
    assert!(
        !policy.contains("unsafe") && !policy.contains("http"),
        "{policy}"
    );
    assert_eq!(has("x-frame-options"), "DENY", "{what}");
    assert_eq!(has("x-content-type-options"), "nosniff", "{what}");
    assert_eq!(has("referrer-policy"), "same-origin", "{what}");
    assert!(has("permissions-policy").contains("camera=()"), "{what}");
    let kept = what.contains("/ui/static/") && answer.status == 200;
    if !kept {
        assert_eq!(has("cache-control"), "no-store", "{what}");
    }
    let strict = answer.headers.get("strict-transport-security");
    assert_eq!(strict.is_some(), tls, "{what}: {strict:?}");
}

#[test]
fn nobody_gets_an_answer_without_login_but_where_the_table_says_so() {
    let fipd = Daemon::start();
    let nobody = fipd.rest(None);
    let rights = at(Port::Api);
    assert!(rights.len() > 150, "{}", rights.len());
    let mut paths: Vec<_> = rights.iter().map(|right| right.path.clone()).collect();
    paths.dedup();
    // What only further ports have is nowhere without one.
    let mut elsewhere = rights::all(*SYSTEMS);
    elsewhere
        .retain(|right| matches!(right.port, Port::Listener(_)) && !paths.contains(&right.path));
    assert!(elsewhere.iter().any(|right| right.path == "/ipam"));
    for Right { path, method, .. } in elsewhere {
        let answer = ask(&nobody, method, &path);
        assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
    }
    for path in paths {
        let place = nowhere(&path);
        for method in METHODS {
            let what = format!("{method} {path}");
            let answer = ask(&nobody, method, &place);
            has_the_headers(&what, &answer, true);
            // Who may have the answer may have its head, and nobody else.
            let of = if method == "HEAD" { "GET" } else { method };
            let right = |path: &str| {
                let mut all = rights.iter();
                all.find(|right| right.path == path && right.method == of)
            };
            let route = path.split('?').next().unwrap();
            match right(&path)
                .or_else(|| right(route))
                .map(|right| right.access)
            {
                Some(Access::Api(_) | Access::Scoped(_) | Access::Pooled(_))
                    if method == "HEAD" =>
                {
                    assert_eq!(answer.status, 401, "{what}: {answer:?}");
                }
                Some(Access::Api(_) | Access::Scoped(_) | Access::Pooled(_)) => {
                    answer.problem(401, "unauthenticated");
                }
                Some(Access::Page(_)) => assert!(is_login(&answer), "{what}: {answer:?}"),
                Some(Access::Open) => assert!(
                    !is_login(&answer) && answer.status != 401,
                    "{what}: {answer:?}"
                ),
                Some(Access::Own) => is_refused_as_the_original_does(&path, &answer),
                // A wildcard answers with the login where the method is not told apart.
                None if answer.status == 405 => {
                    let allow = answer.headers.get(header::ALLOW);
                    let allow = allow.unwrap_or_else(|| panic!("{what}: {answer:?}"));
                    let mut allowed = allow.to_str().unwrap().split(',');
                    assert!(allowed.all(|one| one != method), "{what}: {allow:?}");
                }
                None => assert_eq!(answer.status, 404, "{what}: {answer:?}"),
            }
        }
    }
    for path in [
        "/",
        "/ui/../api/v1/pools",
        "/api/v1/",
        "/v2",
        "/.git/config",
    ] {
        let answer = nobody.get(path);
        assert!(
            is_login(&answer) || answer.status == 404,
            "{path}: {answer:?}"
        );
        has_the_headers(path, &answer, true);
    }
}

#[test]
fn each_token_gets_exactly_what_the_table_says() {
    let fipd = Daemon::start();
    fipd.json("pool create mine --cidr 10.1.0.0/24");
    let tokens = Role::ALL.map(|role| {
        (
            role,
            fipd.rest(Some(&fipd.token(role.as_str(), role.as_str()))),
        )
    });
    let made = fipd.json("token create scoped --role admin --pool mine");
    let scoped = fipd.rest(made["token"].as_str());
    let made = fipd.json("token create tenant --role admin --tenant red");
    let tenant = fipd.rest(made["token"].as_str());
    let mut asked = 0;
    for Right {
        path,
        method,
        access,
        ..
    } in at(Port::Api)
    {
        let place = nowhere(&path);
        // A token opens no page, whatever its role.
        if matches!(access, Access::Page(_)) {
            let everybody = tokens
                .iter()
                .map(|(_, rest)| rest)
                .chain([&scoped, &tenant]);
            for rest in everybody {
                let answer = ask(rest, method, &place);
                assert!(is_login(&answer), "{method} {path}: {answer:?}");
            }
        }
        let (Access::Api(needed) | Access::Scoped(needed) | Access::Pooled(needed)) = access else {
            continue;
        };
        for (role, rest) in &tokens {
            let answer = ask(rest, method, &place);
            let what = format!("{method} {path} as {}", role.as_str());
            if *role >= needed {
                assert!(
                    ![401, 403].contains(&answer.status.as_u16()),
                    "{what}: {answer:?}"
                );
            } else {
                answer.problem(403, "forbidden");
            }
            asked += 1;
        }
        let with_scope = [
            (
                &scoped,
                matches!(access, Access::Scoped(_) | Access::Pooled(_)),
            ),
            (&tenant, matches!(access, Access::Scoped(_))),
        ];
        for (rest, may) in with_scope {
            let answer = ask(rest, method, &place);
            let refused = [401, 403].contains(&answer.status.as_u16());
            assert_eq!(refused, !may, "{method} {path} with a scope: {answer:?}");
        }
    }
    assert!(asked > 200, "{asked}");
}

#[test]
fn each_visitor_gets_exactly_what_the_table_says_and_no_form_counts_without_its_token() {
    let fipd = Daemon::start();
    for role in Role::ALL {
        let name = format!("user-{}", role.as_str());
        let made = fipd.fed(
            &format!("user create {name} --role {}", role.as_str()),
            PASSWORD,
        );
        assert_eq!(made.code, 0, "{made:?}");
    }
    let browsers = Role::ALL.map(|role| {
        (
            role,
            Browser::sign_in(&fipd, &format!("user-{}", role.as_str()), PASSWORD),
        )
    });
    for Right {
        path,
        method,
        access,
        ..
    } in at(Port::Api)
    {
        // Its answer has no end; nobody who is not signed in gets it, says the first test.
        if path == "/ui/events" {
            assert_eq!(access, Access::Page(Role::Viewer));
            continue;
        }
        let place = nowhere(&path);
        for (role, browser) in &browsers {
            let what = format!("{method} {path} as {}", role.as_str());
            let answer = if matches!(access, Access::Page(_)) && method == "POST" {
                browser.post(&place, "")
            } else {
                browser.ask(method, &place)
            };
            match (access, method) {
                (Access::Page(needed), _) if *role < needed => {
                    assert_eq!(answer.status, 403, "{what}: {answer:?}");
                    assert!(html(&answer).contains("needs the role"), "{what}");
                }
                (Access::Page(_), "POST") => {
                    for form in [
                        "",
                        "csrf=",
                        "csrf=0000",
                        &format!("csrf={}", "0".repeat(64)),
                    ] {
                        let answer = browser.post(&place, form);
                        assert_eq!(answer.status, 403, "{what} {form}: {answer:?}");
                        let why = "did not come from a page of this session";
                        assert!(html(&answer).contains(why), "{what} {form}");
                    }
                }
                (Access::Page(_), _) => assert!(
                    answer.status != 401 && answer.status != 403 && !is_login(&answer),
                    "{what}: {answer:?}"
                ),
                // The cookie of a page reads the API as far as its role goes, and never writes.
                (Access::Api(needed) | Access::Scoped(needed) | Access::Pooled(needed), "GET") => {
                    assert_eq!(
                        *role >= needed,
                        ![401, 403].contains(&answer.status.as_u16()),
                        "{what}: {answer:?}"
                    );
                }
                (Access::Api(_) | Access::Scoped(_) | Access::Pooled(_), _) => {
                    answer.problem(401, "unauthenticated");
                }
                (Access::Open | Access::Own, _) => {}
            }
        }
    }
    // The right token is what was missing.
    let (_, admin) = &browsers[2];
    let form = format!("csrf={}&end=others", admin.csrf);
    assert_eq!(admin.post("/ui/sessions", &form).status, 303);
}

#[test]
fn a_further_port_serves_its_word_and_nothing_else() {
    for word in Serve::all(*SYSTEMS) {
        let address = format!("127.0.0.1:{}", free_port());
        let text = format!(
            "[[listener]]\naddress = \"{address}\"\nserve = [\"{}\"]\n",
            word.word()
        );
        let fipd = Daemon::configured(&text);
        let rest = fipd.rest_at(&format!("https://{address}"), None);
        let served = at(Port::Listener(word));
        assert!(!served.is_empty());
        for Right { path, method, .. } in rights::all(*SYSTEMS) {
            let what = format!("{method} {path} at {}", word.word());
            let answer = ask(&rest, method, &nowhere(&path));
            has_the_headers(&what, &answer, true);
            let mine = served
                .iter()
                .any(|right| right.path == path && right.method == method);
            let paths = served.iter().any(|right| right.path == path);
            let missing = answer.status == 404
                && html(&answer).contains("such path")
                && !path.starts_with("/admission/");
            match (mine, paths) {
                (true, _) => assert!(!missing && answer.status != 405, "{what}: {answer:?}"),
                (false, true) => assert_eq!(answer.status, 405, "{what}: {answer:?}"),
                (false, false) => assert_eq!(answer.status, 404, "{what}: {answer:?}"),
            }
        }
    }
}

#[test]
fn unknown_names_and_wrong_passwords_are_answered_alike_and_tries_run_out() {
    let fipd = Daemon::start();
    let rest = fipd.rest(None);
    let page = rest.get("/ui/login");
    let before = cookie(&page, "__Host-fipd-login");
    let token = between(&html(&page), "name=\"csrf\" value=\"", "\"").to_owned();
    for form in [
        "name=admin&password=x",
        "csrf=&name=admin&password=x",
        "csrf=0&name=admin&password=x",
    ] {
        let answer = post_form(&rest, "/ui/login", &before, form);
        assert_eq!(answer.status, 403, "{form}: {answer:?}");
    }
    let attempt = |name: &str| {
        let form = format!("csrf={token}&name={name}&password=wrong-password");
        post_form(&rest, "/ui/login", &before, &form)
    };
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        known.push(attempt("admin"));
        unknown.push(attempt("nobody"));
    }
    let text = |answer: &Answer, name: &str| html(answer).replace(name, "NAME");
    for (left, right) in known.iter().zip(&unknown) {
        assert_eq!(left.status, 422, "{left:?}");
        assert_eq!(left.status, right.status);
        // The hint for the first sign-in names the first account, for whoever looks.
        assert_eq!(
            text(left, "value=\"admin\""),
            text(right, "value=\"nobody\"")
        );
    }
    for name in ["admin", "nobody"] {
        let answer = attempt(name);
        assert_eq!(answer.status, 429, "{answer:?}");
        assert!(html(&answer).contains("Too many failed attempts"));
        let wait = answer.headers[header::RETRY_AFTER].to_str().unwrap();
        assert!(wait.parse::<u64>().unwrap() > 0, "{wait}");
    }
}

#[test]
fn what_no_account_is_called_is_not_logged_as_it_was_typed() {
    let fipd = Daemon::start();
    let rest = fipd.rest(None);
    let page = rest.get("/ui/login");
    let before = cookie(&page, "__Host-fipd-login");
    let token = between(&html(&page), "name=\"csrf\" value=\"", "\"").to_owned();
    let attempt = |name: &str| {
        let form = format!("csrf={token}&name={name}&password=wrong-password");
        post_form(&rest, "/ui/login", &before, &form).status
    };
    // Too often in the end, which is logged as well.
    let typed = "hunter2-in-the-wrong-field";
    let answers: Vec<_> = (0..6).map(|_| attempt(typed).as_u16()).collect();
    assert_eq!(answers, [422, 422, 422, 422, 422, 429]);
    assert_eq!(attempt(&"hunter2".repeat(1_000)), 422);
    assert_eq!(attempt("admin"), 422);
    for said in ["unknown_bytes=26", "unknown_bytes=7000", "name=\"admin\""] {
        let log = fipd.logged(said);
        assert!(!log.contains("hunter2"), "{log}");
    }
}

#[test]
fn what_is_too_large_is_refused_with_the_limit() {
    let fipd = Daemon::start();
    let admin = fipd.rest(Some(&fipd.token("root", "admin")));
    let body = |bytes: usize| Some(vec![b' '; bytes]);
    let json = [("content-type", "application/json")];
    let mebi = 1024 * 1024;
    // Refused by its length alone: the head is enough.
    let length = 8 * mebi + 1;
    let said = admin.raw(&format!(
        "POST /api/v1/pools HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n"
    ));
    assert!(
        said.starts_with("HTTP/1.1 413") && said.contains("8388608"),
        "{said}"
    );
    let fip = admin.send(Method::POST, "/v1/auth/token", &json, body(64 * 1024 + 1));
    assert_eq!(fip.status, 413);
    assert!(html(&fip).contains("65536"), "{fip:?}");
    let review = "/admission/nowhere/validate-floatingip";
    let answer = admin.send(Method::POST, review, &json, body(3 * mebi + 1));
    let problem = answer.problem(413, "too-large");
    assert!(
        problem["detail"].to_string().contains("3145728"),
        "{problem}"
    );
    let made = fipd.fed("user create ann --role admin", PASSWORD);
    assert_eq!(made.code, 0, "{made:?}");
    let ann = Browser::sign_in(&fipd, "ann", PASSWORD);
    for (path, kibi) in [("/ui/users/new", 16), ("/ui/pools/new", 512)] {
        let form = format!("csrf={}&name={}", ann.csrf, "x".repeat(kibi * 1024));
        let answer = ann.post(path, &form);
        assert_eq!(answer.status, 413, "{path}: {answer:?}");
        let limit = format!("larger than {kibi} KiB");
        assert!(html(&answer).contains(&limit), "{path}");
    }
}

#[test]
fn sessions_are_seen_and_ended_by_their_owner_and_by_admins() {
    let fipd = Daemon::start();
    for name in ["ann", "bob"] {
        let made = fipd.fed(&format!("user create {name} --role admin"), PASSWORD);
        assert_eq!(made.code, 0, "{made:?}");
    }
    let sign_in = |name| Browser::sign_in(&fipd, name, PASSWORD);
    let (first, second, bob) = (sign_in("ann"), sign_in("ann"), sign_in("bob"));
    let alive = |browser: &Browser| browser.get("/ui/pools").status == 200;
    let page = html(&first.get("/ui/sessions"));
    assert_eq!(page.matches("name=\"end\" value=\"").count(), 4, "{page}");
    assert_eq!(page.matches("this one").count(), 1, "{page}");
    assert!(page.contains("127.0.0.1"), "{page}");
    let end = |browser: &Browser, path: &str, which: &str| {
        let form = format!("csrf={}&end={which}", browser.csrf);
        assert_eq!(browser.post(path, &form).status, 303);
    };
    end(&first, "/ui/sessions", "others");
    assert!(alive(&first) && !alive(&second) && alive(&bob));
    let third = sign_in("ann");
    end(&bob, "/ui/users/ann/sessions", "all");
    assert!(!alive(&first) && !alive(&third) && alive(&bob));
    let audit = fipd.json("audit --limit 1");
    assert_eq!(audit["entries"][0]["actor"], "user:bob", "{audit}");
    assert!(
        audit["entries"][0]["detail"].to_string().contains("ann"),
        "{audit}"
    );
    // And from the command line, which says who did it, too.
    let again = sign_in("ann");
    for _ in 0..2 {
        assert_eq!(fipd.cli("user sign-out ann").code, 0);
        assert!(!alive(&again) && alive(&bob));
    }
    let audit = fipd.json("audit --limit 2");
    let told = |at: usize| audit["entries"][at]["actor"].as_str().unwrap();
    assert!(told(0).starts_with("socket:"), "{audit}");
    assert_eq!(told(1), "user:bob", "the second found none: {audit}");
    fipd.cli("user sign-out eve").fails(3, &["eve"]);
    // Another role or password ends them as well.
    let (fourth, other) = (sign_in("ann"), sign_in("bob"));
    fipd.cli("user set-role ann viewer");
    assert!(!alive(&fourth) && alive(&other));
    let changed = fipd.fed("user set-password bob", "another-password");
    assert_eq!(changed.code, 0, "{changed:?}");
    assert!(!alive(&other) && !alive(&bob));
}
