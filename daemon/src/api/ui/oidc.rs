//! Signing in by a provider: out to it, and back.
//!
//! What ties the way out to the way back (state, nonce, PKCE) is in a cookie of the browser, so that nobody can be brought
//! back who did not go, and nothing is kept here for those who never come.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use fipd_web_ui::{Shell, SignedInPage};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    cookies,
    login::{FORM_COOKIE, client, locked, retry_after, safe_next},
    page::{Failure, go_to, page, with_cookie},
    sessions::Origin,
};
use crate::api::ui::{Sessions, session_extract::Query};
use crate::oidc::{Errand, Oidc, OidcError};

/// Goes to the provider and comes back from another site, so it cannot be `Strict`.
const COOKIE: &str = "__Host-fipd-oidc";
/// How long somebody may take there, in seconds.
const PATIENCE: u32 = 600;
/// Failures of a sign-in count for a name that begins so, which no account has.
const LIMITED: &str = "openid connect";

/// Sends the browser to the provider.
pub async fn leave(State(oidc): State<Oidc>, Query(query): Query) -> Response {
    let Some(provider) = oidc.provider() else {
        return none();
    };
    match provider.begin().await {
        Ok((url, errand)) => {
            let next = safe_next(query.get("next"));
            let kept = [&errand.state, &errand.nonce, &errand.verifier].map(String::as_str);
            let value = format!("{}.{}", kept.join("."), HEXLOWER.encode(next.as_bytes()));
            let cookie = format!(
                "{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={PATIENCE}"
            );
            with_cookie(go_to(&url), &cookie)
        }
        Err(error) => {
            // The log has what the page keeps back; of a provider that is down it is told once a try.
            if let OidcError::Here(_) = error {
                tracing::warn!(%error, "nobody is sent to the provider");
            }
            refused(&error)
        }
    }
}

/// Signs in whom the provider sends back.
pub async fn come_back(
    State(sessions): State<Arc<Sessions>>,
    State(oidc): State<Oidc>,
    Query(query): Query,
    request: Request,
) -> Response {
    let Some(provider) = oidc.provider() else {
        return none();
    };
    let (headers, from) = (request.headers().clone(), client(&request));
    let Some((errand, next)) = kept(&headers) else {
        let what = "This browser did not begin to sign in, or took longer than ten minutes.";
        return failure(StatusCode::FORBIDDEN, what.to_owned());
    };
    if !cookies::same(&errand.state, query.get("state")) {
        let what = "This is not the answer to what this browser asked for; nobody is signed in.";
        return failure(StatusCode::FORBIDDEN, what.to_owned());
    }
    if !query.get("error").is_empty() {
        let said: String = query.get("error").chars().take(100).collect();
        let what = format!("{} did not sign you in: {said}.", provider.label());
        return failure(StatusCode::FORBIDDEN, what);
    }
    // Only a code can be guessed. Each sign-in counts for itself: many people may come from one address.
    let (limited, now) = (format!("{LIMITED} {}", errand.state), Instant::now());
    if let Err(wait) = sessions.limiter.attempt(&limited, from, now) {
        return retry_after(failure(StatusCode::TOO_MANY_REQUESTS, locked(wait)), wait);
    }
    let person = match provider.finish(&errand, query.get("code")).await {
        Ok(person) => person,
        Err(error) => {
            tracing::warn!(%from, %error, "sign-in by the provider failed");
            if !error.is_refusal() {
                sessions.limiter.succeeded(&limited, from, now);
            }
            return refused(&error);
        }
    };
    let origin = Origin::new(from, &headers);
    let opened = sessions.open_by_provider(person.name.clone(), person.role, origin);
    let Some(cookie) = opened else {
        let what = "The system gives no random numbers.";
        return failure(StatusCode::SERVICE_UNAVAILABLE, what.to_owned());
    };
    sessions.limiter.succeeded(&limited, from, now);
    sessions.close(&headers);
    tracing::info!(name = %person.name, subject = person.subject, %from, "signed in by the provider");
    let mut response = page(&SignedInPage {
        shell: Shell::default(),
        name: person.name.to_string(),
        next: next.clone(),
    });
    // No redirect: the session's cookie is not sent along with one that began at another site.
    if let Ok(value) = HeaderValue::from_str(&format!("0; url={next}")) {
        response.headers_mut().insert(header::REFRESH, value);
    }
    let done = [cookie, cookies::clear(COOKIE), cookies::clear(FORM_COOKIE)];
    done.iter()
        .fold(response, |response, one| with_cookie(response, one))
}

/// What the cookie keeps.
fn kept(headers: &HeaderMap) -> Option<(Errand, String)> {
    let value = cookies::get(headers, COOKIE)?;
    let mut parts = value.splitn(4, '.').map(str::to_owned);
    let errand = Errand {
        state: parts.next().filter(|state| !state.is_empty())?,
        nonce: parts.next()?,
        verifier: parts.next()?,
    };
    let next = HEXLOWER_PERMISSIVE.decode(parts.next()?.as_bytes());
    let next = String::from_utf8(next.ok()?).ok()?;
    Some((errand, safe_next(&next).to_owned()))
}

fn none() -> Response {
    let what = "Nobody signs in by a provider here.".to_owned();
    failure(StatusCode::NOT_FOUND, what)
}

fn refused(error: &OidcError) -> Response {
    let (status, what) = match error {
        // Addresses and files of this host are not for strangers; the log has them.
        OidcError::Down(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The provider cannot be reached; fipd's log says why.".to_owned(),
        ),
        OidcError::Exchange(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Nobody is signed in: the provider did not look at the code; fipd's log says why."
                .to_owned(),
        ),
        OidcError::Refused(_) | OidcError::Token(_) => (
            StatusCode::FORBIDDEN,
            format!("Nobody is signed in: {error}."),
        ),
        OidcError::Unmapped(_) => (
            StatusCode::FORBIDDEN,
            format!("{error}. An admin maps groups to roles in [oidc.roles] of the configuration."),
        ),
        OidcError::Here(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "A file that [oidc] names cannot be read; fipd's log says which.".to_owned(),
        ),
    };
    failure(status, what)
}

fn failure(status: StatusCode, what: String) -> Response {
    let next = "Go to the login and try again, or sign in with a password.";
    let response = Failure::new(Shell::default(), status, what, next).into_response();
    with_cookie(response, &cookies::clear(COOKIE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_browser_keeps_comes_back_whole_and_leads_nowhere_else() {
        let headers = |value: String| {
            let mut headers = HeaderMap::new();
            let cookie = format!("a=b; {COOKIE}={value}");
            headers.insert(header::COOKIE, cookie.parse().unwrap());
            headers
        };
        let whole = headers(format!("s.n.v.{}", HEXLOWER.encode(b"/ui/pools?x=1")));
        let (errand, next) = kept(&whole).unwrap();
        assert_eq!(
            (
                errand.state.as_str(),
                errand.nonce.as_str(),
                errand.verifier.as_str()
            ),
            ("s", "n", "v")
        );
        assert_eq!(next, "/ui/pools?x=1");
        let (_, next) = kept(&headers(format!(
            "s.n.v.{}",
            HEXLOWER.encode(b"//evil.example")
        )))
        .unwrap();
        assert_eq!(next, "/ui/");
        for broken in ["", "s", "s.n.v", ".n.v.2f", "s.n.v.zz", "s.n.v.2"] {
            assert!(kept(&headers(broken.to_owned())).is_none(), "{broken}");
        }
    }
}
