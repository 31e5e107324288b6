//! ETags: `"STATE-VIEW"`. The state is what a client may change and what `If-Match` compares; the view is all that is shown,
//! which `If-None-Match` compares. The use of a pool changes with every lease, but an edit of the pool does not clash with it.

use axum::{
    Json,
    extract::FromRequestParts,
    response::{IntoResponse as _, Response},
};
use data_encoding::HEXLOWER;
use fipd_core::Ledger;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::problem::Problem;
use crate::ipam::{Guard, IpamError};

/// The part of an ETag that `If-Match` compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(String);

/// What `If-Match` asks for; all is allowed without the header.
#[derive(Clone, Debug, Default)]
pub struct IfMatch(Option<Vec<String>>);

/// What `If-None-Match` says that the client has.
pub struct IfNoneMatch(Vec<String>);

impl State {
    /// Of a value, without telling anything of it.
    pub fn of(value: &impl Serialize) -> Self {
        Self(digest(value))
    }

    /// Of a number that grows with each change.
    pub fn number(generation: u64) -> Self {
        Self(generation.to_string())
    }

    /// As forms carry it along.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Asks for this state and no other.
impl From<State> for IfMatch {
    fn from(state: State) -> Self {
        Self(Some(vec![state.0]))
    }
}

fn digest(value: &impl Serialize) -> String {
    let json = serde_json::to_vec(value).unwrap_or_default();
    HEXLOWER.encode(&Sha256::digest(json)[..8])
}

impl IfMatch {
    /// Asks for the state that a form carried along. Unlike in a header `*` is none.
    pub fn shown(state: &str) -> Self {
        Self(Some(vec![state.replace('*', "")]))
    }

    pub fn allows(&self, state: Option<&State>) -> bool {
        let Some(tags) = &self.0 else {
            return true;
        };
        let state = state.map(|state| state.0.as_str());
        let same = |tag: &String| match tag.as_str() {
            "*" => state.is_some(),
            tag => state.is_some() && tag.split('-').next() == state,
        };
        tags.iter().any(same)
    }

    /// Refuses what is about something else than the client has read. For what is not decided by the ledger; something may
    /// change right after.
    pub fn check(&self, what: &str, state: Option<&State>) -> Result<(), Problem> {
        if self.allows(state) {
            Ok(())
        } else {
            Err(IpamError::Stale(what.to_owned()).into())
        }
    }

    /// The same, looked at by the ledger when it decides.
    pub fn guard(
        self,
        what: String,
        state: impl Fn(&Ledger) -> Option<State> + Send + 'static,
    ) -> Guard {
        Box::new(move |ledger, _| {
            if self.0.is_none() || self.allows(state(ledger).as_ref()) {
                Ok(())
            } else {
                Err(IpamError::Stale(what.clone()))
            }
        })
    }
}

/// The view with its ETag.
pub fn tagged(status: StatusCode, state: &State, view: &impl Serialize) -> Response {
    let mut response = (status, Json(view)).into_response();
    let tag = format!("\"{}-{}\"", state.0, digest(view));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

impl IfNoneMatch {
    /// The answer to a GET: the view with its ETag, or that the client has it.
    pub fn answer(&self, state: &State, view: &impl Serialize) -> Response {
        let response = tagged(StatusCode::OK, state, view);
        let tag = response.headers().get(header::ETAG).cloned();
        let text = tag.as_ref().and_then(|tag| tag.to_str().ok());
        let text = text.map(|text| text.trim_matches('"'));
        let same = |known: &String| known == "*" || Some(known.as_str()) == text;
        match tag.clone().filter(|_| self.0.iter().any(same)) {
            Some(tag) => (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response(),
            None => response,
        }
    }
}

/// The tags of a list such as `"a", W/"b"`, without quotes; `*` alone is kept.
fn tags(
    headers: &HeaderMap,
    name: &HeaderName,
    weak: bool,
) -> Result<Option<Vec<String>>, Problem> {
    let mut found = None;
    for value in headers.get_all(name) {
        let text = value.to_str().unwrap_or_default().trim();
        let list = found.get_or_insert_with(Vec::new);
        if text == "*" {
            list.push("*".to_owned());
            continue;
        }
        for one in text.split(',') {
            let one = one.trim();
            let (strong, opaque) = match one.strip_prefix("W/") {
                Some(opaque) => (false, opaque),
                None => (true, one),
            };
            let inner = opaque
                .strip_prefix('"')
                .and_then(|text| text.strip_suffix('"'));
            let Some(inner) = inner.filter(|inner| !inner.contains('"')) else {
                let allowed = "an ETag in quotes, several with commas, or *";
                return Err(Problem::invalid(header_name(name), text, allowed));
            };
            // A weak tag is no condition for a write: nothing matches it.
            if strong || weak {
                list.push(inner.to_owned());
            }
        }
    }
    Ok(found)
}

fn header_name(name: &HeaderName) -> &'static str {
    if name == header::IF_MATCH {
        "If-Match"
    } else {
        "If-None-Match"
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        tags(&parts.headers, &header::IF_MATCH, false).map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfNoneMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let known = tags(&parts.headers, &header::IF_NONE_MATCH, true)?;
        Ok(Self(known.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &'static str) -> Result<Option<Vec<String>>, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_MATCH, HeaderValue::from_static(text));
        tags(&headers, &header::IF_MATCH, false)
    }

    #[test]
    fn a_write_needs_one_of_the_strong_tags() {
        let state = State::number(3);
        let allows = |text, state: Option<&State>| IfMatch(list(text).unwrap()).allows(state);
        assert!(allows("\"3-abc\"", Some(&state)));
        assert!(allows("\"3\"", Some(&state)));
        assert!(allows("\"1-x\", \"3-y\"", Some(&state)));
        assert!(allows("*", Some(&state)));
        assert!(!allows("*", None));
        assert!(!allows("\"3-abc\"", None));
        assert!(!allows("W/\"3-abc\"", Some(&state)));
        assert!(!allows("\"33-abc\"", Some(&state)));
        assert!(IfMatch::default().allows(None));
        for bad in ["3", "\"3", "", "\"a\"b\"", "soon"] {
            let problem = list(bad).unwrap_err();
            assert_eq!(
                (problem.status, problem.field.as_deref()),
                (422, Some("If-Match"))
            );
        }
    }

    #[test]
    fn who_has_it_is_told_so() {
        let state = State::number(3);
        let answer = |known: &str| {
            IfNoneMatch(vec![known.to_owned()])
                .answer(&state, &"x")
                .status()
        };
        let tag = tagged(StatusCode::OK, &state, &"x").headers()[header::ETAG].clone();
        let tag = tag.to_str().unwrap().trim_matches('"').to_owned();
        assert_eq!(answer(&tag), StatusCode::NOT_MODIFIED);
        assert_eq!(answer("*"), StatusCode::NOT_MODIFIED);
        assert_eq!(answer("3"), StatusCode::OK, "the view may be another");
    }
}
