//! HTTP over the daemon's Unix socket.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::exit::Failure;
use crate::api::{
    problem::{MEDIA_TYPE, Problem},
    wire::PageQuery,
};

/// How long one request may take, from connecting to the last byte, where nothing else is said.
const DEADLINE: Duration = Duration::from_secs(60);

/// A way to the daemon.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    deadline: Duration,
}

impl Client {
    /// A client of the daemon behind this socket.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            deadline: DEADLINE,
        }
    }

    /// The same for requests that may take this long.
    pub fn within(&self, deadline: Duration) -> Self {
        Self {
            deadline,
            ..self.clone()
        }
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        answer(&self.send(Method::GET, path, None).await?)
    }

    /// The first `most` rows of a list, or all, as one page; they are in `field`.
    /// Other fields are those of the first page.
    pub async fn rows<T: DeserializeOwned>(
        &self,
        path: &str,
        field: &str,
        most: usize,
    ) -> Result<T, Failure> {
        let (mut rows, mut cursor, mut whole) = (Vec::new(), None, None::<Map<_, _>>);
        loop {
            let limit = Some((most - rows.len()).min(1_000));
            let query = PageQuery { cursor, limit };
            let mut page: Map<String, Value> = self.get(&with_query(path, &query)?).await?;
            if let Some(Value::Array(found)) = page.get_mut(field) {
                rows.append(found);
            }
            let next = page.remove("next").unwrap_or_default();
            cursor = next.as_str().map(str::to_owned);
            let whole = whole.get_or_insert(page);
            if cursor.is_none() || rows.len() >= most {
                whole.insert(field.to_owned(), rows.into());
                whole.insert("next".to_owned(), next);
                let whole = std::mem::take(whole);
                return serde_json::from_value(whole.into()).map_err(not_understood);
            }
        }
    }

    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.write(Method::POST, path, body).await
    }

    pub async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(Failure::failed)?;
        answer(&self.send(method, path, Some(body)).await?)
    }

    pub async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.send(Method::DELETE, path, None).await.map(drop)
    }

    /// One request; an answer that is a problem becomes the failure of the command.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Bytes, Failure> {
        let work = async {
            let response = self.open(method, path, body).await?;
            let body = response.into_body().collect().await;
            Ok(body.map_err(Failure::failed)?.to_bytes())
        };
        match tokio::time::timeout(self.deadline, work).await {
            Ok(body) => body,
            Err(_) => Err(Failure::Failed(format!(
                "fipd at {} did not answer within {} s; asking again is safe",
                self.socket.display(),
                self.deadline.as_secs()
            ))),
        }
    }

    /// Like `send`, with the body left to be read piece by piece and without a deadline for it.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<http::Response<Incoming>, Failure> {
        let stream = tokio::net::UnixStream::connect(&self.socket)
            .await
            .map_err(|error| unreachable(&self.socket, &error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(Failure::failed)?;
        // Ends with the connection; what goes wrong in it the request sees too.
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "fipd");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())));
        let request = request.map_err(Failure::failed)?;
        let response = sender.send_request(request).await.map_err(|error| {
            Failure::Failed(format!(
                "fipd at {} went away: {error}",
                self.socket.display()
            ))
        })?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(problem_of(response).await)
        }
    }
}

/// What a body says.
pub fn answer<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(not_understood)
}

fn not_understood(error: serde_json::Error) -> Failure {
    Failure::Failed(format!(
        "the daemon's answer is not understood ({error}); is it another version?"
    ))
}

async fn problem_of(response: http::Response<Incoming>) -> Failure {
    let status = response.status();
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value == MEDIA_TYPE);
    let body = response
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    match body.map(|body| serde_json::from_slice::<Problem>(&body)) {
        Ok(Ok(problem)) if is_problem => problem.into(),
        Ok(_) | Err(_) => Failure::Failed(format!("the daemon answered {status}")),
    }
}

fn unreachable(socket: &Path, error: &std::io::Error) -> Failure {
    let (socket, kind) = (socket.display(), error.kind());
    Failure::Failed(
        if matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused) {
            format!(
                "no fipd is listening at {socket}; start it with `fipd serve`, or name its socket with --socket"
            )
        } else if kind == ErrorKind::PermissionDenied {
            format!("{socket}: permission denied; run as root or as a member of the socket's group")
        } else {
            format!("{socket}: {error}")
        },
    )
}

/// What needs no escape anywhere in an address (RFC 3986, 2.3).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A path segment with everything but unreserved characters escaped.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// A path with the fields of `query` that are set, after those that it has.
pub fn with_query(path: &str, query: &impl Serialize) -> Result<String, Failure> {
    let value = serde_json::to_value(query).map_err(Failure::failed)?;
    let fields = value.as_object().into_iter().flatten();
    let pairs: Vec<String> = fields
        .filter(|(_, value)| !value.is_null())
        .flat_map(|(name, value)| {
            let several = value.as_array().map(Vec::as_slice);
            let several = several.unwrap_or(std::slice::from_ref(value));
            several.iter().map(move |value| (name, value))
        })
        .map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            format!("{name}={}", segment(&text))
        })
        .collect();
    Ok(if pairs.is_empty() {
        path.to_owned()
    } else {
        let sign = if path.contains('?') { '&' } else { '?' };
        format!("{path}{sign}{}", pairs.join("&"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::LeaseQuery;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_says_nothing_is_waited_for_as_long_as_was_said() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("fipd.sock");
        let _silent = tokio::net::UnixListener::bind(&socket).unwrap();
        let client = Client::new(&socket);
        for (client, seconds) in [
            (client.within(Duration::from_secs(1800)), "within 1800 s"),
            (client, "within 60 s"),
        ] {
            let error = client.get::<Value>("/").await.unwrap_err();
            assert!(error.to_string().contains(seconds), "{error}");
        }
    }

    #[test]
    fn queries_name_only_what_is_set() {
        let query = LeaseQuery {
            pool: Some("a/b".into()),
            limit: Some(3),
            ..LeaseQuery::default()
        };
        assert_eq!(with_query("/x", &query).unwrap(), "/x?limit=3&pool=a%2Fb");
        let query = LeaseQuery {
            label: vec!["app".into(), "team=red".into()],
            ..LeaseQuery::default()
        };
        let path = "/x?label=app&label=team%3Dred";
        assert_eq!(with_query("/x", &query).unwrap(), path);
        assert_eq!(
            with_query("/x?a=1", &query).unwrap(),
            path.replace('?', "?a=1&")
        );
        assert_eq!(with_query("/x", &LeaseQuery::default()).unwrap(), "/x");
    }
}
