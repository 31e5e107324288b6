//! Extractors whose refusals are problems.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
};
use http::{
    HeaderMap, StatusCode,
    header::{self, AsHeaderName},
    request::Parts,
};
use serde::de::DeserializeOwned;

use super::{
    problem::{Code, Problem},
    wire::LeaseQuery,
};

/// A JSON body.
pub struct Body<T>(pub T);

/// The query string.
pub struct Query<T>(pub T);

/// Which leases to list, with any number of labels.
pub struct LabelledQuery(pub LeaseQuery);

/// The variable parts of the path, decoded.
pub struct Path<T>(pub T);

fn malformed(detail: String) -> Problem {
    let mut problem = Problem::new(Code::Invalid, detail);
    problem.status = StatusCode::BAD_REQUEST.as_u16();
    problem
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = header_text(headers, header::CONTENT_TYPE);
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || essence.eq_ignore_ascii_case("application/merge-patch+json")
}

/// The text of a header; empty where it is missing or no text.
pub fn header_text(headers: &HeaderMap, name: impl AsHeaderName) -> &str {
    let value = headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        if !is_json(request.headers()) {
            let detail = "send the body as Content-Type: application/json";
            return Err(Problem::new(Code::UnsupportedMediaType, detail));
        }
        let body = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| {
                let code = Code::of_status(rejection.status());
                Problem::new(code, rejection.body_text())
            })?;
        // Serde would take a list for the fields of an object, in their order.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(malformed("body: send a JSON object".to_owned()));
        }
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| malformed(format!("body: {error}")))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        axum::extract::Query::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Query(query)| Self(query))
            .map_err(|rejection| malformed(format!("query: {}", rejection.body_text())))
    }
}

/// A serde struct takes each field of a query once only.
impl<S: Send + Sync> FromRequestParts<S> for LabelledQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let Query(pairs): Query<Vec<(String, String)>> =
            Query::from_request_parts(parts, state).await?;
        let is_label = |pair: &str| pair.split('=').next() == Some("label");
        let query = parts.uri.query().unwrap_or_default();
        let rest: Vec<&str> = query.split('&').filter(|pair| !is_label(pair)).collect();
        let rest = format!("/?{}", rest.join("&"));
        let rest = rest
            .parse()
            .map_err(|error| malformed(format!("query: {error}")))?;
        let query = axum::extract::Query::<LeaseQuery>::try_from_uri(&rest);
        let axum::extract::Query(mut query) =
            query.map_err(|rejection| malformed(format!("query: {}", rejection.body_text())))?;
        let labels = pairs.into_iter().filter(|(name, _)| name == "label");
        query.label = labels.map(|(_, label)| label).collect();
        Ok(Self(query))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        axum::extract::Path::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Path(path)| Self(path))
            .map_err(|rejection| malformed(format!("path: {}", rejection.body_text())))
    }
}

/// Refuses a number that the document has no room for: it calls them 64-bit integers, which have a sign there.
pub fn in_document(field: &str, number: Option<u64>, allowed: &str) -> Result<(), Problem> {
    match number.filter(|number| i64::try_from(*number).is_err()) {
        Some(number) => Err(Problem::invalid(field, number.to_string(), allowed)),
        None => Ok(()),
    }
}
