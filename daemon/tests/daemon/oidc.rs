//! Signing in by a provider, which is a stand-in here.

use std::sync::Arc;

use http::header;
use serde_json::json;

use crate::{
    harness::{Answer, Daemon, Rest, run, serve},
    provider::{CLIENT, Flaw, Provider, SECRET},
};

const ADVERTISE: &str = "https://fipd.example";

fn start(provider: &Provider, more: &str) -> Daemon {
    let home = Arc::new(tempfile::tempdir().unwrap());
    std::fs::write(home.path().join("secret"), format!("{SECRET}\n")).unwrap();
    let text = format!(
        "[api]\nadvertise = \"{ADVERTISE}\"\n\n[oidc]\nissuer = \"{}\"\nclient-id = \"{CLIENT}\"\n\
         client-secret-file = \"secret\"\nlabel = \"Example ID\"\n{more}\n\n[oidc.roles]\noperator = [\"ops\"]\nadmin = [\"root\"]\n",
        provider.url
    );
    let file = home.path().join("fipd.toml");
    std::fs::write(&file, text).unwrap();
    Daemon::start_in(home, &["--config", file.to_str().unwrap()])
}

fn cookie(answer: &Answer, name: &str) -> String {
    let all = answer.headers.get_all(header::SET_COOKIE).iter();
    let mut all = all.map(|value| value.to_str().unwrap().to_owned());
    let found = all.find(|value| value.starts_with(&format!("{name}=")));
    let found = found.unwrap_or_else(|| panic!("no cookie {name}: {answer:?}"));
    found.split(';').next().unwrap().to_owned()
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Goes out to the provider: the browser's cookie, and where it is sent.
fn leave(rest: &Rest) -> (String, String) {
    let answer = rest.get("/ui/login/oidc?next=/ui/pools");
    assert_eq!(answer.status, 303, "{answer:?}");
    let all = answer.headers[header::SET_COOKIE].to_str().unwrap();
    for flag in ["HttpOnly", "Secure", "SameSite=Lax", "Max-Age=600"] {
        assert!(all.contains(flag), "{all}");
    }
    let to = answer.headers[header::LOCATION].to_str().unwrap();
    (cookie(&answer, "__Host-fipd-oidc"), to.to_owned())
}

fn come_back(rest: &Rest, cookie: &str, url: &str) -> Answer {
    let path = url.strip_prefix(ADVERTISE).unwrap();
    rest.send(http::Method::GET, path, &[("cookie", cookie)], None)
}

fn try_it(rest: &Rest, provider: &Provider) -> Answer {
    let (kept, to) = leave(rest);
    come_back(rest, &kept, &provider.visit(&to))
}

#[test]
fn whom_the_provider_vouches_for_is_signed_in_with_the_role_of_the_groups() {
    let provider = Provider::start();
    let fipd = start(&provider, "");
    let rest = fipd.rest(None);
    let login = text(&rest.get("/ui/login"));
    assert!(login.contains("Sign in with Example ID"), "{login}");
    let answer = try_it(&rest, &provider);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.headers["refresh"], "0; url=/ui/pools");
    let session = cookie(&answer, "__Host-fipd");
    let see = |path: &str| rest.send(http::Method::GET, path, &[("cookie", &session)], None);
    let home = text(&see("/ui/"));
    let name = format!("ann@{}", provider.url);
    assert!(home.contains(&name) && home.contains("operator"), "{home}");
    assert_eq!(see("/ui/users").status, 403, "operators are no admins");
    assert_eq!(see("/ui/password").status, 404, "there is none here");
    // Nor does anything count without what the browser was given when it went.
    let again = rest.get("/ui/login/oidc/callback?code=code-0&state=x");
    assert_eq!(again.status, 403);
    // Out of here leads on to the way out of there.
    let csrf = home.split("name=\"csrf\" value=\"").nth(1).unwrap();
    let csrf = csrf.split('"').next().unwrap();
    let headers = [
        ("cookie", &*session),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let form = Some(format!("csrf={csrf}").into_bytes());
    let out = rest.send(http::Method::POST, "/ui/logout", &headers, form);
    assert_eq!(out.status, 200, "{out:?}");
    assert!(text(&out).contains(&format!("{}/bye?client_id=fipd", provider.url)));
    assert_eq!(see("/ui/").status, 303, "the session has ended");
    // Roles are read at each sign-in.
    provider.does(|script| script.claims["groups"] = json!(["ops", "root"]));
    let session = cookie(&try_it(&rest, &provider), "__Host-fipd");
    let see = |path: &str| rest.send(http::Method::GET, path, &[("cookie", &session)], None);
    let users = see("/ui/users?by=provider");
    assert_eq!(users.status, 200);
    // Admins end sessions of who has no account, too.
    let users = text(&users);
    let at = users.find("/ui/users/ann%40").unwrap();
    let link = users[at..].split('"').next().unwrap();
    let page = text(&see(link));
    assert!(page.contains(&format!("Sessions of {name}")), "{page}");
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap();
    let csrf = csrf.split('"').next().unwrap();
    let headers = [
        ("cookie", &*session),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let form = Some(format!("csrf={csrf}&end=all").into_bytes());
    let ended = rest.send(http::Method::POST, link, &headers, form);
    assert_eq!(ended.status, 303, "{ended:?}");
    assert_eq!(ended.headers[header::LOCATION], link);
    assert_eq!(see("/ui/").status, 303, "it has ended");
    let session = cookie(&try_it(&rest, &provider), "__Host-fipd");
    let home = || rest.send(http::Method::GET, "/ui/", &[("cookie", &session)], None);
    assert_eq!(home().status, 200);
    assert_eq!(fipd.cli(&format!("user sign-out {name}")).code, 0);
    assert_eq!(home().status, 303, "from the command line as well");
}

#[test]
fn nothing_that_is_wrong_with_the_answer_is_overlooked() {
    let provider = Provider::start();
    let fipd = start(&provider, "");
    let rest = fipd.rest(None);
    let refused = |answer: &Answer, why: &str| {
        assert_eq!(answer.status, 403, "{answer:?}");
        let page = text(answer);
        assert!(page.contains(why), "{why}: {page}");
        let all = answer.headers.get_all(header::SET_COOKIE).iter();
        let mut all = all.map(|value| value.to_str().unwrap().to_owned());
        assert!(
            !all.any(|one| one.starts_with("__Host-fipd=")),
            "{answer:?}"
        );
    };
    for (flaw, why) in [
        (Flaw::Nonce, "nonce"),
        (Flaw::Audience, "audience"),
        (Flaw::Issuer, "issuer"),
        (Flaw::Expired, "xpired"),
        (Flaw::Signature, "signature"),
        (Flaw::Unsigned, "Nobody is signed in"),
        (Flaw::Secret, "Nobody is signed in"),
        (Flaw::AccessToken, "access token"),
    ] {
        provider.does(|script| script.flaw = flaw);
        let answer = try_it(&rest, &provider);
        refused(&answer, why);
        provider.does(|script| script.flaw = Flaw::None);
        assert_eq!(try_it(&rest, &provider).status, 200);
    }
    let (kept, to) = leave(&rest);
    let back = provider.visit(&to);
    let wrong = format!("{}x", back);
    refused(&come_back(&rest, &kept, &wrong), "not the answer");
    let (other, _) = leave(&rest);
    refused(&come_back(&rest, &other, &back), "not the answer");
    refused(&come_back(&rest, "a=b", &back), "did not begin");
    provider.does(|script| script.claims["groups"] = json!(["guests"]));
    refused(&try_it(&rest, &provider), "no group that has a role");
    let error = back.replace("code=", "error=access_denied&x=");
    refused(&come_back(&rest, &kept, &error), "access_denied");
}

#[test]
fn clocks_may_differ_a_little_and_keys_may_change() {
    let provider = Provider::start();
    let fipd = start(&provider, "");
    let rest = fipd.rest(None);
    for ahead in [-330, 50] {
        provider.does(|script| script.ahead = ahead);
        assert_eq!(try_it(&rest, &provider).status, 200, "{ahead}");
    }
    for ahead in [-420, 120] {
        provider.does(|script| script.ahead = ahead);
        assert_eq!(try_it(&rest, &provider).status, 403, "{ahead}");
    }
    provider.does(|script| script.ahead = 0);
    assert_eq!(try_it(&rest, &provider).status, 200);
    // Not more often than each ten seconds.
    std::thread::sleep(std::time::Duration::from_secs(11));
    provider.does(|script| script.key = 1);
    let answer = try_it(&rest, &provider);
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn an_outage_after_the_way_out_is_no_guess_and_locks_nobody_out() {
    let provider = Provider::start();
    let fipd = start(&provider, "");
    let rest = fipd.rest(None);
    // More than lock out an address.
    let people = (0..31).map(|_| {
        let (kept, to) = leave(&rest);
        (kept, provider.visit(&to))
    });
    let people: Vec<_> = people.collect();
    provider.does(|script| script.flaw = Flaw::Down);
    for (kept, back) in &people {
        let answer = come_back(&rest, kept, back);
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(
            text(&answer).contains("fipd&#39;s log says why"),
            "{answer:?}"
        );
    }
    provider.does(|script| script.flaw = Flaw::None);
    // Nor is one here.
    let secret = fipd.home().path().join("secret");
    std::fs::remove_file(&secret).unwrap();
    for (kept, back) in &people {
        let answer = come_back(&rest, kept, back);
        assert_eq!(answer.status, 503, "{answer:?}");
    }
    std::fs::write(&secret, SECRET).unwrap();
    let (kept, back) = &people[0];
    assert_eq!(come_back(&rest, kept, back).status, 200);
}

#[test]
fn wrong_codes_lock_out_their_address_and_not_who_shares_it_after_a_few() {
    let provider = Provider::start();
    let fipd = start(&provider, "");
    let rest = fipd.rest(None);
    let guess = || {
        let (kept, to) = leave(&rest);
        let back = provider.visit(&to).replace("code=", "code=x");
        come_back(&rest, &kept, &back)
    };
    for tries in 0..30 {
        let answer = guess();
        assert_eq!(answer.status, 403, "{tries}: {answer:?}");
        assert!(text(&answer).contains("did not take the code"));
        if tries == 10 {
            assert_eq!(try_it(&rest, &provider).status, 200);
        }
    }
    assert_eq!(guess().status, 429);
}

#[test]
fn a_provider_that_is_down_is_told_and_keeps_nobody_with_a_password_out() {
    let provider = Provider::start();
    provider.does(|script| script.flaw = Flaw::Down);
    let fipd = start(&provider, "");
    let rest = fipd.rest(None);
    let answer = rest.get("/ui/login/oidc");
    assert_eq!(answer.status, 503, "{answer:?}");
    let page = rest.get("/ui/login");
    assert!(text(&page).contains("cannot be reached at the moment"));
    let first = std::fs::read_to_string(fipd.data_dir().join("initial-admin")).unwrap();
    let (name, password) = first.trim().split_once('\n').unwrap();
    let before = cookie(&page, "__Host-fipd-login");
    let html = text(&page);
    let csrf = html.split("name=\"csrf\" value=\"").nth(1).unwrap();
    let csrf = csrf.split('"').next().unwrap();
    let form = format!("csrf={csrf}&name={name}&password={password}");
    let headers = [
        ("cookie", &*before),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let signed = rest.send(
        http::Method::POST,
        "/ui/login",
        &headers,
        Some(form.into_bytes()),
    );
    assert_eq!(signed.status, 303, "{signed:?}");
    // It is asked again by itself once it is back.
    provider.does(|script| script.flaw = Flaw::None);
    let started = std::time::Instant::now();
    while rest.get("/ui/login/oidc").status != 303 {
        assert!(started.elapsed() < crate::harness::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

#[test]
fn a_ca_file_that_is_missing_is_told_and_read_once_it_is_there() {
    let provider = Provider::start();
    let fipd = start(&provider, "ca-file = \"ca.pem\"");
    let rest = fipd.rest(None);
    let answer = rest.get("/ui/login/oidc");
    assert_eq!(answer.status, 503, "{answer:?}");
    // The log says what a stranger is not told.
    assert!(!text(&answer).contains("ca.pem"), "{answer:?}");
    fipd.logged("ca.pem");
    let login = text(&rest.get("/ui/login"));
    assert!(
        login.contains("It cannot be reached at the moment"),
        "{login}"
    );
    assert!(!login.contains("ca.pem"), "{login}");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(fipd.home().path().join("ca.pem"), made.cert.pem()).unwrap();
    let started = std::time::Instant::now();
    while rest.get("/ui/login/oidc").status != 303 {
        assert!(started.elapsed() < crate::harness::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

#[test]
fn a_secret_that_went_missing_is_in_the_log_and_not_on_the_page() {
    let provider = Provider::start();
    let fipd = start(&provider, "");
    let secret = fipd.home().path().join("secret");
    std::fs::remove_file(&secret).unwrap();
    let answer = fipd.rest(None).get("/ui/login/oidc");
    assert_eq!(answer.status, 503, "{answer:?}");
    let path = secret.to_str().unwrap();
    assert!(!text(&answer).contains(path), "{answer:?}");
    fipd.logged(path);
}

#[test]
fn a_provider_that_never_can_be_is_not_tried_again_and_again() {
    let home = tempfile::tempdir().unwrap();
    let text = format!(
        "[api]\nadvertise = \"{ADVERTISE}\"\n\n[oidc]\nissuer = \"https://1.2.3.4.5\"\nclient-id = \"{CLIENT}\"\n\n\
         [oidc.roles]\nadmin = [\"root\"]\n"
    );
    let file = home.path().join("fipd.toml");
    std::fs::write(&file, text).unwrap();
    let done = run(serve(home.path()).arg("--config").arg(&file));
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("[oidc] issuer"), "{done:?}");
}
