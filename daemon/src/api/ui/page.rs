//! Answers of the web UI: pages, redirects, files; all with the same strict headers.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use fipd_web_ui::{ErrorPage, Shell, Template};
use http::{HeaderName, HeaderValue, StatusCode, header};

/// Nothing inline, nothing from elsewhere, no frames; forms go to this host only.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// For a year, also this host's other ports.
pub const STRICT_TRANSPORT: &str = "max-age=31536000";
/// Nothing of the device.
pub const PERMISSIONS: (HeaderName, &str) = (
    HeaderName::from_static("permissions-policy"),
    "camera=(), geolocation=(), microphone=()",
);

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::STRICT_TRANSPORT_SECURITY, STRICT_TRANSPORT),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    PERMISSIONS,
];

/// A page that cannot be shown, and why.
#[derive(Debug)]
pub struct Failure(Box<ErrorPage>);

/// What handlers of pages answer.
pub type Answered = Result<Response, Failure>;

/// A page with status 200.
pub fn page(template: &impl Template) -> Response {
    page_as(StatusCode::OK, template)
}

/// A page with another status, such as 422 for a form that has to be put right.
pub fn page_as(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => secured(status, "text/html; charset=utf-8", "no-store", html),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            let text = "This page could not be made. The log of fipd says why.";
            secured(
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain; charset=utf-8",
                "no-store",
                text,
            )
        }
    }
}

/// An embedded file; its name changes with its content.
pub fn file(content_type: &'static str, body: &'static str) -> Response {
    secured(
        StatusCode::OK,
        content_type,
        "public, max-age=31536000, immutable",
        body,
    )
}

/// Sends the browser on with GET (303), as after every form that did something.
pub fn go_to(address: &str) -> Response {
    let mut response = secured(
        StatusCode::SEE_OTHER,
        "text/plain; charset=utf-8",
        "no-store",
        "",
    );
    // Addresses are made by us or checked; one that is no header value cannot be followed.
    let target = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/ui/"));
    response.headers_mut().insert(header::LOCATION, target);
    response
}

/// Adds a `Set-Cookie`.
pub fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
    response
}

/// Adds the headers that every answer of the UI has.
pub fn harden(response: &mut Response) {
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
}

fn secured(
    status: StatusCode,
    content_type: &'static str,
    cache: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = (status, body.into()).into_response();
    harden(&mut response);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

impl Failure {
    /// An error page: its status, what is wrong, and what to do about it.
    pub fn new(
        shell: Shell,
        status: StatusCode,
        what: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        let title = match status {
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::FORBIDDEN => "Not allowed",
            StatusCode::BAD_REQUEST => "Not understood",
            StatusCode::CONFLICT => "Changed meanwhile",
            StatusCode::PAYLOAD_TOO_LARGE => "Too large",
            StatusCode::SERVICE_UNAVAILABLE => "Not available at the moment",
            StatusCode::GATEWAY_TIMEOUT => "It took too long",
            _ => "Something went wrong",
        };
        let (status, title) = (status.as_u16(), title.to_owned());
        Self(Box::new(ErrorPage {
            shell,
            status,
            title,
            what: what.into(),
            next: next.into(),
        }))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        page_as(status, &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_the_strict_headers() {
        let failure = Failure::new(Shell::default(), StatusCode::NOT_FOUND, "w", "n");
        for response in [failure.into_response(), go_to("/ui/"), file("text/css", "")] {
            let policy = response.headers()[header::CONTENT_SECURITY_POLICY]
                .to_str()
                .unwrap();
            assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"));
            assert!(policy.contains("frame-ancestors 'none'"));
            assert_eq!(
                response.headers()[header::X_CONTENT_TYPE_OPTIONS],
                "nosniff"
            );
            assert_eq!(response.headers()[header::X_FRAME_OPTIONS], "DENY");
            assert!(
                response
                    .headers()
                    .contains_key(header::STRICT_TRANSPORT_SECURITY)
            );
            assert!(response.headers().contains_key(header::CACHE_CONTROL));
        }
    }

    #[test]
    fn redirects_are_303_and_never_broken() {
        assert_eq!(
            go_to("/ui/pools/1").headers()[header::LOCATION],
            "/ui/pools/1"
        );
        assert_eq!(go_to("/ui/\r\nX: y").headers()[header::LOCATION], "/ui/");
        assert_eq!(go_to("/ui/").status(), StatusCode::SEE_OTHER);
    }
}
