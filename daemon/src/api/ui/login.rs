//! Signing in and out.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{ConnectInfo, Request, State},
    response::{IntoResponse as _, Response},
};
use fipd_web_ui::{LoginPage, ProviderLink, Shell, SignedOutPage, links};
use http::{HeaderMap, StatusCode, header};

use super::{
    cookies,
    fields::{Fields, with_query},
    page::{Failure, go_to, page, page_as, with_cookie},
    sessions::Origin,
};
use crate::api::{
    access::accounts::Accounts,
    ui::{
        Sessions,
        session_extract::{MAX_FORM, Query, SubmittedForm, read_form},
    },
};
use crate::oidc::Oidc;

/// Ties the form to the browser that asked for it, as there is no session yet.
pub const FORM_COOKIE: &str = "__Host-fipd-login";
/// For who sent a form without a session.
const ENDED: &str = "Your session has ended; nothing was changed.";
/// Longer names belong to nobody.
const MAX_NAME: usize = 64;

/// The form; whoever is signed in already goes on.
pub async fn show(
    State(accounts): State<Accounts>,
    State(sessions): State<Arc<Sessions>>,
    State(oidc): State<Oidc>,
    headers: HeaderMap,
    Query(query): Query,
) -> Response {
    let next = safe_next(query.get("next"));
    if sessions.find(&headers).is_some() {
        return go_to(next);
    }
    let ended = (!query.get("ended").is_empty()).then(|| ENDED.to_owned());
    form(&accounts, &oidc, &headers, StatusCode::OK, &query, ended)
}

/// Checks name and password. Unknown names and wrong passwords look and take the same.
pub async fn sign_in(
    State(accounts): State<Accounts>,
    State(sessions): State<Arc<Sessions>>,
    State(oidc): State<Oidc>,
    request: Request,
) -> Response {
    let headers = request.headers().clone();
    let from = client(&request);
    let fields = match read_form(request, MAX_FORM).await {
        Ok(fields) => fields,
        Err((status, what)) => {
            let next = "Go back and reload the page.";
            return Failure::new(Shell::default(), status, what, next).into_response();
        }
    };
    let retry = |status, error: &str| {
        form(
            &accounts,
            &oidc,
            &headers,
            status,
            &fields,
            Some(error.to_owned()),
        )
    };
    let token = cookies::get(&headers, FORM_COOKIE).unwrap_or_default();
    if !cookies::same(token, fields.get("csrf")) {
        let error = "The form was too old, or cookies are switched off. Please try again.";
        return retry(StatusCode::FORBIDDEN, error);
    }
    let (name, now) = (fields.get("name"), Instant::now());
    let (known, unknown_bytes) = logged(&accounts, name);
    if let Err(wait) = sessions.limiter.attempt(name, from, now) {
        tracing::warn!(name = known, unknown_bytes, %from, "sign-in locked out after too many failures");
        let answer = retry(StatusCode::TOO_MANY_REQUESTS, &locked(wait));
        return retry_after(answer, wait);
    }
    let fits = !name.is_empty() && name.len() <= MAX_NAME;
    let account = if fits {
        accounts.login(name, fields.raw("password")).await
    } else {
        None
    };
    let origin = Origin::new(from, &headers);
    let cookie = account.and_then(|account| sessions.open(&account, origin));
    let Some(cookie) = cookie else {
        tracing::warn!(name = known, unknown_bytes, %from, "sign-in failed");
        return retry(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Name or password is wrong.",
        );
    };
    sessions.limiter.signed_in(name, from, now);
    // An older session of this browser ends with the new one.
    sessions.close(&headers);
    tracing::info!(name, %from, "signed in");
    let response = with_cookie(go_to(safe_next(fields.get("next"))), &cookie);
    with_cookie(response, &cookies::clear(FORM_COOKIE))
}

/// What the log says of who tries: a name that an account has, else only its length, as it may be a password in the wrong field.
fn logged<'a>(accounts: &Accounts, name: &'a str) -> (Option<&'a str>, Option<usize>) {
    match accounts.find(name).is_some() {
        true => (Some(name), None),
        false => (None, Some(name.len())),
    }
}

/// Ends the session.
pub async fn sign_out(
    State(sessions): State<Arc<Sessions>>,
    State(oidc): State<Oidc>,
    headers: HeaderMap,
    posted: SubmittedForm,
) -> Response {
    let cookie = sessions.close(&headers);
    let provider = oidc.provider();
    let provider = provider.filter(|_| posted.visitor.session.by_provider);
    let there = provider.and_then(|one| one.sign_out().map(|url| (one, url)));
    let response = match there {
        Some((provider, url)) => page(&SignedOutPage {
            shell: Shell::default(),
            label: provider.label().to_owned(),
            provider: url,
        }),
        None => go_to(links::LOGIN),
    };
    with_cookie(response, &cookie)
}

fn form(
    accounts: &Accounts,
    oidc: &Oidc,
    headers: &HeaderMap,
    status: StatusCode,
    fields: &Fields,
    error: Option<String>,
) -> Response {
    // The token of an open form stays good, so that two tabs do not spoil each other.
    let known = cookies::get(headers, FORM_COOKIE).filter(|token| token.len() == 64);
    let Some(token) = known.map(str::to_owned).or_else(cookies::random) else {
        let (what, next) = (
            "The system gives no random numbers.",
            "The log of the host says why.",
        );
        return Failure::new(
            Shell::default(),
            StatusCode::SERVICE_UNAVAILABLE,
            what,
            next,
        )
        .into_response();
    };
    let next = safe_next(fields.get("next"));
    let provider = oidc.provider().map(|provider| {
        let down = provider.is_down();
        if down {
            // Not waited for: the next page knows more.
            let provider = Arc::clone(provider);
            tokio::spawn(async move { provider.look().await });
        }
        ProviderLink {
            label: provider.label().to_owned(),
            address: with_query(links::LOGIN_OIDC, &[("next", next)]),
            down,
        }
    });
    let page = LoginPage {
        provider,
        shell: Shell::default(),
        name: fields.get("name").chars().take(MAX_NAME).collect(),
        next: next.to_owned(),
        token: token.clone(),
        error,
        initial_file: accounts
            .initial_file()
            .map(|path| path.display().to_string()),
    };
    with_cookie(page_as(status, &page), &cookies::set(FORM_COOKIE, &token))
}

/// Only pages of ours are gone to: an address such as `//evil.example` is another host.
pub fn safe_next(next: &str) -> &str {
    let plain = next
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let page = next.starts_with(links::HOME)
        && !next.starts_with(links::LOGIN)
        && !next.starts_with(links::LOGOUT);
    if plain && page && next.len() <= 2_000 {
        next
    } else {
        links::HOME
    }
}

/// When the next attempt is looked at.
pub fn locked(wait: Duration) -> String {
    let seconds = wait.as_secs().max(1);
    if seconds < 120 {
        format!("Too many failed attempts. Try again in {seconds} seconds.")
    } else {
        format!(
            "Too many failed attempts. Try again in {} minutes.",
            seconds.div_ceil(60)
        )
    }
}

/// The same for programs, in seconds; a part of one counts as one.
pub fn retry_after(mut answer: Response, wait: Duration) -> Response {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let headers = answer.headers_mut();
    headers.insert(header::RETRY_AFTER, seconds.into());
    answer
}

/// Where the connection comes from; all that have no address count as one.
pub fn client(request: &Request) -> IpAddr {
    let info = request.extensions().get::<ConnectInfo<SocketAddr>>();
    info.map_or(IpAddr::from([0, 0, 0, 0]), |info| info.0.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        assert_eq!(
            safe_next("/ui/pools/1?at=10.0.0.0"),
            "/ui/pools/1?at=10.0.0.0"
        );
        for next in [
            "",
            "//evil.example",
            "https://evil.example",
            "/ui\\@evil",
            "/api/v1",
            "/ui/login",
            "/ui/logout",
            "/ui/\n",
        ] {
            assert_eq!(safe_next(next), "/ui/", "{next:?}");
        }
    }

    #[test]
    fn lockouts_say_how_long() {
        assert!(locked(Duration::from_secs(30)).contains("in 30 seconds"));
        assert!(locked(Duration::from_millis(1)).contains("in 1 seconds"));
        assert!(locked(Duration::from_secs(121)).contains("in 3 minutes"));
        for (millis, seconds) in [(1, "1"), (2_000, "2"), (2_001, "3")] {
            let answer = retry_after(go_to(links::HOME), Duration::from_millis(millis));
            assert_eq!(answer.headers()[header::RETRY_AFTER], seconds);
        }
    }
}
