//! Who looks at a page, and what came with a form.

use std::sync::Arc;

use axum::{
    body::{Body, to_bytes},
    extract::{FromRequest, FromRequestParts, Multipart, Path, Request},
    response::{IntoResponse as _, Response},
};
use fipd_core::{Actor, Ledger, Role};
use fipd_web_ui::{FormPage, Nav, Notice, Shell, Viewer, count, links};
use http::{HeaderMap, StatusCode, header, request::Parts};
use serde::de::DeserializeOwned;

use super::{
    cookies,
    fields::{Fields, with_query},
    login::safe_next,
    page::{Failure, go_to, page_as},
    sessions::{Session, Sessions},
    warnings,
};
use crate::api::{
    Api,
    access::{auth::Caller, permit::Requester},
    body::is_too_large,
    extract::header_text,
};
use crate::ipam::Ipam;

/// The largest form that is read, in bytes.
pub const MAX_FORM: usize = 16 * 1024;
/// The same of a form whose fields have many lines.
pub const LONG_FORM: usize = 512 * 1024;

/// Somebody with a session.
pub struct Visitor {
    pub session: Session,
    pub ipam: Ipam,
    headers: HeaderMap,
    sessions: Arc<Sessions>,
}

/// The fields of the address's query.
pub struct Query(pub Fields);

/// The variable parts of the page's address; what is no text leads to a page that says so.
pub struct PathParam<T>(pub T);

/// A form of somebody with a session, whose token is the session's, of at most so many bytes.
pub struct SubmittedForm<const MOST: usize = MAX_FORM> {
    pub visitor: Visitor,
    pub fields: Fields,
}

impl Visitor {
    /// The frame of a page, with what the last form did.
    pub fn shell(&self, nav: Nav) -> Shell {
        let fresh = !is_background(&self.headers);
        let notice = fresh.then(|| self.sessions.told(&self.headers));
        Shell {
            nav,
            notice: notice.flatten(),
            ..self.quiet_shell()
        }
    }

    /// Operators and admins see forms; the table of routes lets nobody else send them.
    pub fn may_write(&self) -> bool {
        self.session.role >= Role::Operator
    }

    pub fn is_admin(&self) -> bool {
        self.session.role == Role::Admin
    }

    pub fn actor(&self) -> Actor {
        self.session.actor()
    }

    /// Looks something up in the address book.
    #[track_caller]
    pub fn read<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        self.ipam.read(look)
    }

    /// As REST functions know callers.
    pub fn caller(&self) -> Caller {
        self.session.caller()
    }

    /// The same with the address book that they ask.
    pub fn requester(&self) -> Requester {
        Requester {
            ipam: self.ipam.clone(),
            caller: self.caller(),
        }
    }

    /// A page that is one form.
    pub fn ask(&self, nav: Nav, status: StatusCode, page: FormPage) -> Response {
        let shell = self.shell(nav);
        page_as(status, &FormPage { shell, ..page })
    }

    /// A sentence for the page that the browser is sent to.
    pub fn tell(&self, good: bool, text: impl Into<String>, link: Option<(String, String)>) {
        self.sessions.tell(
            &self.headers,
            Notice {
                good,
                text: text.into(),
                link,
            },
        );
    }

    /// To another page, which says what was done.
    pub fn done(&self, address: &str, text: impl Into<String>) -> Response {
        self.redirect_with(address, true, text)
    }

    /// To another page, which says how it went.
    pub fn redirect_with(&self, address: &str, good: bool, text: impl Into<String>) -> Response {
        self.tell(good, text, None);
        go_to(address)
    }

    /// A page that says what is not there.
    pub fn not_found(&self, what: impl Into<String>) -> Failure {
        let next = "It may have been deleted meanwhile, or the address of the page is mistyped.";
        Failure::new(self.quiet_shell(), StatusCode::NOT_FOUND, what, next)
    }

    /// A page that says what failed and what to do.
    pub fn failure(&self, status: StatusCode, what: impl Into<String>, next: &str) -> Failure {
        Failure::new(self.quiet_shell(), status, what, next)
    }

    /// What the browser sent along.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// A page that says which role is needed.
    pub fn forbidden(&self, needed: Role) -> Failure {
        let (needed, has) = (needed.as_str(), self.session.role.as_str());
        let what = format!(
            "This needs the role {needed}; {} has {has}.",
            self.session.name
        );
        let next = "Ask an admin to do it, or for the role.";
        self.failure(StatusCode::FORBIDDEN, what, next)
    }

    /// Without what the last form did.
    fn quiet_shell(&self) -> Shell {
        Shell {
            viewer: Some(self.viewer()),
            store: warnings::store(&self.ipam).map(|warning| warning.what),
            ..Shell::default()
        }
    }

    fn viewer(&self) -> Viewer {
        Viewer {
            name: self.session.name.to_string(),
            role: self.session.role.as_str().to_owned(),
            may_write: self.may_write(),
            csrf: self.session.csrf.clone(),
        }
    }
}

impl FromRequestParts<Api> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Response> {
        match api.sessions.find(&parts.headers) {
            Some(session) => Ok(Self {
                session,
                headers: parts.headers.clone(),
                ipam: api.ipam.clone(),
                sessions: Arc::clone(&api.sessions),
            }),
            None => Err(to_login(parts)),
        }
    }
}

impl FromRequestParts<Api> for Query {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Self::Rejection> {
        Ok(Self(Fields::parse(
            parts.uri.query().unwrap_or_default().as_bytes(),
        )))
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for PathParam<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Failure> {
        Path::from_request_parts(parts, api)
            .await
            .map(|Path(place)| Self(place))
            .map_err(|_| {
                let (what, next) = ("There is no page at this address.", "It is mistyped.");
                Failure::new(Shell::default(), StatusCode::NOT_FOUND, what, next)
            })
    }
}

impl<const MOST: usize> FromRequest<Api> for SubmittedForm<MOST> {
    type Rejection = Response;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let visitor = Visitor::from_request_parts(&mut parts, api).await?;
        let fields = read_form(Request::from_parts(parts, body), MOST)
            .await
            .map_err(|(status, what)| {
                let next = "Go back, reload the page and send the form again.";
                visitor.failure(status, what, next).into_response()
            })?;
        if cookies::same(&visitor.session.csrf, fields.get("csrf")) {
            return Ok(Self { visitor, fields });
        }
        let what = "The form did not come from a page of this session; nothing was changed.";
        let next = "Go back, reload the page and send the form again.";
        Err(visitor
            .failure(StatusCode::FORBIDDEN, what, next)
            .into_response())
    }
}

/// The fields of a form that came from a page of this host; otherwise why it is not looked at.
pub async fn read_form(request: Request, most: usize) -> Result<Fields, (StatusCode, String)> {
    let refused = |what: &str| (StatusCode::BAD_REQUEST, what.to_owned());
    let (parts, body) = request.into_parts();
    if !from_here(&parts.headers) {
        let what = "The form was sent by a page of another site; nothing was changed.";
        return Err(refused(what));
    }
    let content_type = header_text(&parts.headers, header::CONTENT_TYPE);
    let with_files = content_type.starts_with("multipart/form-data");
    if !with_files && !content_type.starts_with("application/x-www-form-urlencoded") {
        return Err(refused("What was sent is no form of these pages."));
    }
    let bytes = to_bytes(body, most).await;
    let bytes = bytes.map_err(|error| {
        if !is_too_large(&error) {
            return refused("The form is broken off; nothing was changed.");
        }
        let most = count(most / 1024);
        let what = format!("The form is larger than {most} KiB; nothing was changed.");
        (StatusCode::PAYLOAD_TOO_LARGE, what)
    })?;
    if with_files {
        let read = read_parts(Request::from_parts(parts, Body::from(bytes))).await;
        return read.map_err(|what| refused(&what));
    }
    Ok(Fields::parse(&bytes))
}

/// The fields of a form that files may come with; a file is the field of its text.
async fn read_parts(request: Request) -> Result<Fields, String> {
    let broken = "What was sent is no whole form.";
    let parts = Multipart::from_request(request, &()).await;
    let mut parts = parts.map_err(|_| broken.to_owned())?;
    let mut fields = Fields::default();
    while let Some(part) = parts.next_field().await.map_err(|_| broken.to_owned())? {
        let name = part.name().unwrap_or_default().to_owned();
        let bytes = part.bytes().await.map_err(|_| broken.to_owned())?;
        let text = String::from_utf8(bytes.to_vec());
        let text = text.map_err(|_| format!("{name} is no text in UTF-8; nothing was changed."))?;
        fields.add(name, text);
    }
    Ok(fields)
}

/// Requests that the script makes by itself: they neither use up notices nor keep a session alive.
pub fn is_background(headers: &HeaderMap) -> bool {
    headers.contains_key("x-fipd-live") || header_text(headers, "accept") == "text/event-stream"
}

/// The login page. It comes back to where the visitor wanted to go; of a form it says that nothing was done, and comes back
/// to the page that it was on.
pub fn to_login(parts: &Parts) -> Response {
    let form = !matches!(parts.method, http::Method::GET | http::Method::HEAD);
    let wanted = match form {
        true => page_of_form(&parts.headers),
        false => parts.uri.path_and_query().map(ToString::to_string),
    };
    let next = wanted.as_deref().filter(|next| *next != links::HOME);
    let ended = if form { "yes" } else { "" };
    let pairs = [("next", next.unwrap_or_default()), ("ended", ended)];
    go_to(&with_query(links::LOGIN, &pairs))
}

/// The page that a form was on, as the browser says it.
fn page_of_form(headers: &HeaderMap) -> Option<String> {
    let page: http::Uri = header_text(headers, header::REFERER).parse().ok()?;
    from_here(headers).then(|| safe_next(page.path()).to_owned())
}

/// Browsers name the site a form came from, older ones only its origin (which a proxy that rewrites `Host` would
/// make look foreign). Without either header the tokens alone decide.
fn from_here(headers: &HeaderMap) -> bool {
    let origin = header_text(headers, "origin");
    match header_text(headers, "sec-fetch-site") {
        "same-origin" | "none" => true,
        "" if origin.is_empty() => true,
        "" => origin
            .split_once("://")
            .is_some_and(|(_, from)| from == header_text(headers, "host")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn forms_of_other_sites_are_refused() {
        let host = ("host", "fipd.example:8443");
        for (pairs, fine) in [
            (vec![host], true),
            (vec![host, ("origin", "https://fipd.example:8443")], true),
            (
                vec![
                    host,
                    ("origin", "https://outside.example"),
                    ("sec-fetch-site", "same-origin"),
                ],
                true,
            ),
            (vec![host, ("origin", "https://evil.example")], false),
            (vec![host, ("origin", "null")], false),
            (vec![host, ("sec-fetch-site", "cross-site")], false),
            (vec![host, ("sec-fetch-site", "same-site")], false),
        ] {
            assert_eq!(from_here(&headers(&pairs)), fine, "{pairs:?}");
        }
    }

    #[test]
    fn the_login_page_comes_back_to_the_page_asked_for() {
        let parts = |method: &str, uri: &str| {
            http::Request::builder()
                .method(method)
                .uri(uri)
                .body(())
                .unwrap()
                .into_parts()
                .0
        };
        let location = |parts: &Parts| {
            to_login(parts).headers()[header::LOCATION]
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(location(&parts("GET", "/ui/")), "/ui/login");
        assert_eq!(
            location(&parts("GET", "/ui/pools/1?at=10.0.0.0")),
            "/ui/login?next=/ui/pools/1%3Fat%3D10.0.0.0"
        );
        let mut form = parts("POST", "/ui/pools/1/allocate");
        assert_eq!(location(&form), "/ui/login?ended=yes");
        for (referer, next) in [
            ("https://fipd.example/ui/pools/1?at=10.0.0.0", "/ui/pools/1"),
            ("https://fipd.example/ui/", ""),
            ("https://fipd.example/api/v1/pools", ""),
            ("/ui/pools/1", "/ui/pools/1"),
            ("no page", ""),
        ] {
            form.headers
                .insert(header::REFERER, referer.parse().unwrap());
            let pairs = [("next", next), ("ended", "yes")];
            let expected = with_query("/ui/login", &pairs);
            assert_eq!(location(&form), expected, "{referer}");
        }
        let page = "https://evil.example/ui/pools/1".parse().unwrap();
        form.headers.insert(header::REFERER, page);
        let site = "cross-site".parse().unwrap();
        form.headers.insert("sec-fetch-site", site);
        assert_eq!(location(&form), "/ui/login?ended=yes");
    }
}
