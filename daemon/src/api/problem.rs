//! What goes wrong in a request, as `application/problem+json` (RFC 9457).
//!
//! Owns the mapping from every refusal to a status and a stable `code`. Clients decide by `code`; `detail` is for people.

use axum::response::{IntoResponse, Response};
use fipd_core::{NameError, Refusal, RefusalClass, Refused};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ipam::IpamError;

/// The media type of every error body.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Stable names of what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The pool has no free address or prefix.
    Exhausted,
    /// The tenant holds as much of the pool as it may.
    QuotaExceeded,
    /// Another holder has the address, or some of the prefix.
    AddressTaken,
    /// The address or prefix is excluded, reserved or outside the pool.
    NotAssignable,
    /// A pool of another network may mean the same address, and nobody chose the networks.
    NetworkAmbiguous,
    /// The network waits for clusters to be adopted.
    NetworkHeld,
    /// A backup was restored lately: free addresses are held.
    RestoreHeld,
    PoolClosed,
    PoolInUse,
    /// The edit would leave leases out of range.
    WouldOrphan,
    /// The network that the pool was to go to has some of its addresses in use.
    Collision,
    /// The name is taken.
    Exists,
    /// The holder already holds something that contradicts the request.
    Conflict,
    /// `If-Match` names another generation.
    Stale,
    /// Several things have that name; `candidates` lists them.
    Ambiguous,
    /// A field has a value that is not allowed.
    Invalid,
    NotFound,
    MethodNotAllowed,
    UnsupportedMediaType,
    TooLarge,
    /// No or unknown credentials.
    Unauthenticated,
    /// The caller's role does not suffice.
    Forbidden,
    /// The account that fipd has in a cluster may not do it there.
    ClusterForbidden,
    DiskFull,
    /// What is asked for is being done already.
    Busy,
    /// The store or the daemon cannot take it at the moment; asking again is safe.
    Unavailable,
    Timeout,
    Internal,
    /// From a newer fipd.
    #[serde(other)]
    Other,
}

/// An error as the client sees it. Kept small: it is the error of most functions here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:fipd:problem:` and the code.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: Box<str>,
    #[schema(value_type = String)]
    pub title: Box<str>,
    /// The HTTP status again.
    pub status: u16,
    /// One sentence: what is wrong and what to do.
    #[schema(value_type = String)]
    pub detail: Box<str>,
    pub code: Code,
    /// The field at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub field: Option<Box<str>>,
    /// The value given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub value: Option<Box<str>>,
    /// What would be accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub allowed: Option<Box<str>>,
    /// Full names to choose from where a name is ambiguous.
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub candidates: Box<[String]>,
}

impl Code {
    /// The HTTP status that goes with the code.
    pub fn status(self) -> StatusCode {
        self.status_and_title().0
    }

    fn status_and_title(self) -> (StatusCode, &'static str) {
        use StatusCode as Http;
        match self {
            Self::Exhausted => (Http::CONFLICT, "No address available"),
            Self::QuotaExceeded => (Http::CONFLICT, "Quota exceeded"),
            Self::AddressTaken => (Http::CONFLICT, "Address taken"),
            Self::NetworkAmbiguous => (Http::CONFLICT, "Network ambiguous"),
            Self::NotAssignable => (Http::UNPROCESSABLE_ENTITY, "Address not assignable"),
            Self::NetworkHeld => (Http::CONFLICT, "Network held"),
            Self::RestoreHeld => (Http::CONFLICT, "Held after a restore"),
            Self::PoolClosed => (Http::CONFLICT, "Pool closed"),
            Self::PoolInUse => (Http::CONFLICT, "Pool in use"),
            Self::WouldOrphan => (Http::CONFLICT, "Leases would be out of range"),
            Self::Collision => (Http::CONFLICT, "Addresses in use there"),
            Self::Exists => (Http::CONFLICT, "Already exists"),
            Self::Conflict => (Http::CONFLICT, "Conflict"),
            Self::Stale => (Http::PRECONDITION_FAILED, "Changed meanwhile"),
            Self::Ambiguous => (Http::CONFLICT, "Ambiguous name"),
            Self::Invalid => (Http::UNPROCESSABLE_ENTITY, "Invalid request"),
            Self::NotFound => (Http::NOT_FOUND, "Not found"),
            Self::MethodNotAllowed => (Http::METHOD_NOT_ALLOWED, "Method not allowed"),
            Self::UnsupportedMediaType => (Http::UNSUPPORTED_MEDIA_TYPE, "Unsupported media type"),
            Self::TooLarge => (Http::PAYLOAD_TOO_LARGE, "Request too large"),
            Self::Unauthenticated => (Http::UNAUTHORIZED, "Not signed in"),
            Self::Forbidden => (Http::FORBIDDEN, "Not allowed"),
            Self::ClusterForbidden => (Http::BAD_GATEWAY, "Not allowed in the cluster"),
            Self::DiskFull => (Http::INSUFFICIENT_STORAGE, "Disk full"),
            Self::Busy => (Http::TOO_MANY_REQUESTS, "Being done already"),
            Self::Unavailable => (Http::SERVICE_UNAVAILABLE, "Not available"),
            Self::Timeout => (Http::GATEWAY_TIMEOUT, "Took too long"),
            Self::Internal | Self::Other => (Http::INTERNAL_SERVER_ERROR, "Internal error"),
        }
    }

    /// The code of an answer that was made elsewhere (router, body limit) and has only a status.
    pub fn of_status(status: StatusCode) -> Self {
        match status.as_u16() {
            401 => Self::Unauthenticated,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            408 | 504 => Self::Timeout,
            409 => Self::Conflict,
            412 => Self::Stale,
            413 => Self::TooLarge,
            415 => Self::UnsupportedMediaType,
            429 => Self::Busy,
            400..=499 => Self::Invalid,
            503 => Self::Unavailable,
            _ => Self::Internal,
        }
    }

    fn as_str(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    }
}

impl Problem {
    /// A problem with a sentence for people.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let (status, title) = code.status_and_title();
        Self {
            kind: format!("urn:fipd:problem:{}", code.as_str()).into(),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into().into_boxed_str(),
            code,
            field: None,
            value: None,
            allowed: None,
            candidates: Box::default(),
        }
    }

    /// `field` has a `value` that is not `allowed`.
    pub fn invalid(field: &str, value: impl Into<String>, allowed: impl Into<String>) -> Self {
        let (value, allowed) = (shorten(value.into()), allowed.into());
        let mut problem = Self::new(
            Code::Invalid,
            format!("{field}: {value:?} is not allowed: {allowed}"),
        );
        problem.field = Some(field.into());
        problem.value = Some(value.into());
        problem.allowed = Some(allowed.into());
        problem
    }

    /// There is no `what` called `name`.
    pub fn not_found(what: &str, name: impl std::fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("there is no {what} {name}"))
    }

    /// The status line of the answer.
    pub fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Says which field of the request a refusal is about.
    pub fn about(mut self, field: &str, value: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self.value = Some(shorten(value.into()).into());
        self
    }
}

/// Echoes at most 200 characters of what was sent.
fn shorten(value: String) -> String {
    match value.char_indices().nth(200) {
        Some((cut, _)) => format!("{}...", value.get(..cut).unwrap_or_default()),
        None => value,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (self.status_code(), body).into_response();
        let mut insert = |name, value| {
            let headers = response.headers_mut();
            headers.insert(name, HeaderValue::from_static(value));
        };
        insert(header::CONTENT_TYPE, MEDIA_TYPE);
        if self.code == Code::Unauthenticated {
            insert(header::WWW_AUTHENTICATE, "Bearer realm=\"fipd\"");
        }
        if self.code == Code::Unavailable {
            insert(header::RETRY_AFTER, "1");
        }
        response
    }
}

impl From<RefusalClass<'_>> for Code {
    fn from(class: RefusalClass<'_>) -> Self {
        match class {
            RefusalClass::Exhausted => Self::Exhausted,
            RefusalClass::OverQuota(_) => Self::QuotaExceeded,
            RefusalClass::AddressTaken(_) | RefusalClass::ChangedHands => Self::AddressTaken,
            RefusalClass::NotAssignable => Self::NotAssignable,
            RefusalClass::Ambiguous => Self::NetworkAmbiguous,
            RefusalClass::Held => Self::NetworkHeld,
            RefusalClass::RestoreHeld => Self::RestoreHeld,
            RefusalClass::PoolClosed => Self::PoolClosed,
            RefusalClass::PoolNotFound | RefusalClass::NotFound => Self::NotFound,
            RefusalClass::InvalidPool | RefusalClass::Invalid => Self::Invalid,
            RefusalClass::Exists => Self::Exists,
            RefusalClass::PoolInUse => Self::PoolInUse,
            RefusalClass::WouldOrphan => Self::WouldOrphan,
            RefusalClass::Collision => Self::Collision,
            RefusalClass::Stale => Self::Stale,
            RefusalClass::Conflict => Self::Conflict,
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = refusal.decisive().class().into();
        let mut problem = Self::new(code, refusal.to_string());
        if let Some((field, value)) = refusal.field() {
            problem = problem.about(field, value);
        }
        if let Refusal::NotAssignable { why, .. } = refusal {
            problem.allowed = Some(why.into());
        } else if let Refusal::Invalid {
            field,
            value,
            allowed,
        } = refusal
        {
            return Self::invalid(field, value, allowed);
        }
        problem
    }
}

impl From<IpamError> for Problem {
    fn from(error: IpamError) -> Self {
        let detail = error.to_string();
        match error {
            IpamError::Refused(refusal) => refusal.into(),
            IpamError::Forbidden(_) => Self::new(Code::Forbidden, detail),
            IpamError::Stale(_) => Self::new(Code::Stale, detail),
            IpamError::Store(Refused::DiskFull { .. }) => Self::new(Code::DiskFull, detail),
            IpamError::Store(Refused::Failed(_) | Refused::OtherHost) | IpamError::Stopping => {
                Self::new(Code::Unavailable, detail)
            }
            IpamError::Store(Refused::Conflict(_)) => Self::new(Code::Conflict, detail),
        }
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        let detail = error.to_string();
        match error {
            NameError::Unknown { .. } => Self::new(Code::NotFound, detail),
            NameError::Ambiguous { candidates, .. } => {
                let mut problem = Self::new(Code::Ambiguous, detail);
                problem.candidates = candidates.iter().map(ToString::to_string).collect();
                problem
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_survives_the_wire() {
        let problem = Problem::new(Code::Exhausted, "pool p has no free address");
        let text = serde_json::to_string(&problem).unwrap();
        assert!(text.contains("\"code\":\"exhausted\""), "{text}");
        assert!(
            text.contains("\"type\":\"urn:fipd:problem:exhausted\""),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), problem);
    }

    #[test]
    fn a_newer_code_is_read_as_other() {
        let text = serde_json::to_string(&Problem::new(Code::Invalid, "x")).unwrap();
        let newer = text.replace("\"code\":\"invalid\"", "\"code\":\"from-the-future\"");
        assert_eq!(
            serde_json::from_str::<Problem>(&newer).unwrap().code,
            Code::Other
        );
    }

    #[test]
    fn refusals_keep_their_reaction() {
        let exhausted = Refusal::Exhausted {
            pool: "p".into(),
            used: 3,
            size: 3,
            of_prefixes: false,
            cooling: None,
        };
        let problem = Problem::from(exhausted);
        assert_eq!((problem.status, problem.code), (409, Code::Exhausted));
        assert_eq!(problem.value.as_deref(), Some("p"));
        let stale = Refusal::Stale {
            pool: "p".into(),
            expected: 1,
            actual: 2,
        };
        assert_eq!(Problem::from(stale).status, 412);
        let invalid = Refusal::Invalid {
            field: "count",
            value: "0".into(),
            allowed: "1 to 1024".into(),
        };
        let problem = Problem::from(invalid);
        assert_eq!(problem.status, 422);
        assert_eq!(&*problem.detail, "count: \"0\" is not allowed: 1 to 1024");
    }

    #[test]
    fn long_values_are_not_echoed_whole() {
        let problem = Problem::invalid("name", "é".repeat(5000), "short names");
        assert!(problem.value.unwrap().chars().count() <= 203);
    }
}
