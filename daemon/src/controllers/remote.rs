//! Calls to an API server: every call has a deadline, every failure says what the caller should do.

use std::{fmt, future::Future, time::Duration};

use http::{
    Method, Request,
    header::{ACCEPT, CONTENT_TYPE},
    request::Builder,
};
use kube::Client;
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};

use crate::clusters::{self, absence::Presence};

/// The longest a single call may take.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// The field manager of everything fipd applies.
pub const MANAGER: &str = "fipd";

/// A client of one cluster.
#[derive(Clone)]
pub struct Remote {
    client: Client,
}

/// One object (or, without name, one collection) of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `api/v1` or `apis/GROUP/VERSION`.
    pub api: &'static str,
    pub plural: &'static str,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

/// How a patch is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, for built-in kinds only: lists with a merge key are merged.
    Strategic,
    /// RFC 6902.
    Json,
    /// Server-side apply as field manager [`MANAGER`], taking over fields of others.
    Apply,
}

/// Why a call failed, by what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The object, its namespace or its kind does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// Somebody else changed it; look again.
    #[error("{0} was changed meanwhile: {1}")]
    Conflict(String, String),
    /// The server will not have it; the same again changes nothing until somebody changes something.
    #[error("{0}: refused by the API server: {1}")]
    Rejected(String, String),
    /// The server or the way to it is in trouble; try again later.
    #[error("{0}: {1}")]
    Unavailable(String, String),
}

impl Remote {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The object, or `None` if it does not exist.
    pub async fn get<T: DeserializeOwned>(&self, target: &Target) -> Result<Option<T>, CallError> {
        match self.send(Method::GET, target, &target.path(), None).await {
            Ok(object) => Ok(Some(object)),
            Err(CallError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the object is there, by a fresh read.
    pub async fn presence(&self, target: &Target) -> Presence {
        match self.get::<IgnoredAny>(target).await {
            Ok(Some(_)) => Presence::Present,
            Ok(None) => Presence::Gone,
            Err(_) => Presence::Unknown,
        }
    }

    /// All objects of a kind with a label, in one namespace or in all where `target.namespace` is empty.
    pub async fn list(&self, target: &Target, label: &str) -> Result<Vec<Value>, CallError> {
        let query = format!("labelSelector={label}");
        self.list_as(target, &query, "application/json").await
    }

    /// Those of them that have the target's name, in all namespaces. A role can allow these alone.
    pub async fn list_named(&self, target: &Target, label: &str) -> Result<Vec<Value>, CallError> {
        let name = &target.name;
        let query = format!("labelSelector={label}&fieldSelector=metadata.name%3D{name}");
        let all = Target {
            namespace: String::new(),
            name: String::new(),
            ..target.clone()
        };
        self.list_as(&all, &query, "application/json").await
    }

    /// The same, but only their metadata.
    pub async fn list_meta(&self, target: &Target, label: &str) -> Result<Vec<Value>, CallError> {
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let query = format!("labelSelector={label}");
        self.list_as(target, &query, metadata).await
    }

    async fn list_as(
        &self,
        target: &Target,
        query: &str,
        accept: &str,
    ) -> Result<Vec<Value>, CallError> {
        let path = format!("{}?{query}", target.path());
        let request = Request::get(path).header(ACCEPT, accept);
        let mut list: Value = self.ask(target, request, Vec::new()).await?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Makes the object; a conflict if there is one of its name.
    pub async fn create(&self, target: &Target, body: &impl Serialize) -> Result<(), CallError> {
        self.create_seen::<IgnoredAny>(target, body).await.map(drop)
    }

    /// Makes the object; what it is then.
    pub async fn create_seen<T: DeserializeOwned>(
        &self,
        target: &Target,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        let all = Target {
            name: String::new(),
            ..target.clone()
        };
        let path = format!("{}?fieldManager={MANAGER}", all.path());
        let body = ("application/json", encode(target, body)?);
        self.send(Method::POST, target, &path, Some(body)).await
    }

    /// Changes the object.
    pub async fn patch(
        &self,
        target: &Target,
        patch: Patch,
        body: &impl Serialize,
    ) -> Result<(), CallError> {
        self.patch_seen::<IgnoredAny>(target, patch, body)
            .await
            .map(drop)
    }

    /// Changes the object; what it is afterwards.
    pub async fn patch_seen<T: DeserializeOwned>(
        &self,
        target: &Target,
        patch: Patch,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        self.send_patch(target, &target.path(), patch, body).await
    }

    /// Changes the status of the object.
    pub async fn patch_status(
        &self,
        target: &Target,
        patch: Patch,
        body: &impl Serialize,
    ) -> Result<(), CallError> {
        self.patch_status_seen::<IgnoredAny>(target, patch, body)
            .await
            .map(drop)
    }

    /// Changes the status of the object; what it is afterwards.
    pub async fn patch_status_seen<T: DeserializeOwned>(
        &self,
        target: &Target,
        patch: Patch,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        self.send_patch(target, &format!("{}/status", target.path()), patch, body)
            .await
    }

    /// Deletes the object if it still is the one with this uid; one that is gone is fine.
    pub async fn delete(&self, target: &Target, uid: &str) -> Result<(), CallError> {
        self.delete_if(target, &json!({ "uid": uid })).await
    }

    async fn delete_if(&self, target: &Target, only: &Value) -> Result<(), CallError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": only,
        });
        let body = ("application/json", encode(target, &options)?);
        match self
            .send::<Value>(Method::DELETE, target, &target.path(), Some(body))
            .await
        {
            Ok(_) | Err(CallError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes the object if nobody has changed it since this version; one that is gone is fine.
    pub async fn delete_version(
        &self,
        target: &Target,
        uid: &str,
        version: &str,
    ) -> Result<(), CallError> {
        let only = json!({ "uid": uid, "resourceVersion": version });
        self.delete_if(target, &only).await
    }

    /// Takes `finalizer` off the object with this uid by JSON Patch; an object that is gone or does not carry
    /// it is fine.
    pub async fn drop_finalizer(
        &self,
        target: &Target,
        uid: &str,
        finalizers: &[String],
        finalizer: &str,
    ) -> Result<(), CallError> {
        let Some(index) = finalizers.iter().position(|one| one == finalizer) else {
            return Ok(());
        };
        let patch = json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "test", "path": format!("/metadata/finalizers/{index}"), "value": finalizer },
            { "op": "remove", "path": format!("/metadata/finalizers/{index}") },
        ]);
        match self.patch(target, Patch::Json, &patch).await {
            Err(CallError::NotFound(_)) => Ok(()),
            // A failed `test` comes as 422: somebody changed the list of finalizers.
            Err(CallError::Rejected(target, why)) => Err(CallError::Conflict(target, why)),
            other => other,
        }
    }

    async fn send_patch<T: DeserializeOwned>(
        &self,
        target: &Target,
        path: &str,
        patch: Patch,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        let (kind, query) = match patch {
            Patch::Merge => ("application/merge-patch+json", ""),
            Patch::Strategic => ("application/strategic-merge-patch+json", ""),
            Patch::Json => ("application/json-patch+json", ""),
            Patch::Apply => ("application/apply-patch+yaml", "&force=true"),
        };
        let path = match patch {
            Patch::Json => path.to_owned(),
            Patch::Merge | Patch::Strategic | Patch::Apply => {
                format!("{path}?fieldManager={MANAGER}{query}")
            }
        };
        let body = encode(target, body)?;
        self.send(Method::PATCH, target, &path, Some((kind, body)))
            .await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &Target,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<T, CallError> {
        let mut request = Request::builder().method(method).uri(path);
        let mut bytes = Vec::new();
        if let Some((kind, body)) = body {
            request = request.header(CONTENT_TYPE, kind);
            bytes = body;
        }
        self.ask(target, request, bytes).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        target: &Target,
        request: Builder,
        body: Vec<u8>,
    ) -> Result<T, CallError> {
        let request = request
            .body(body)
            .map_err(|error| CallError::Rejected(target.to_string(), error.to_string()))?;
        within(target, self.client.request::<T>(request)).await
    }
}

impl Target {
    fn path(&self) -> String {
        let Self {
            api,
            plural,
            namespace,
            name,
        } = self;
        let mut path = format!("/{api}");
        if !namespace.is_empty() {
            path.push_str(&format!("/namespaces/{namespace}"));
        }
        path.push_str(&format!("/{plural}"));
        if !name.is_empty() {
            path.push_str(&format!("/{name}"));
        }
        path
    }
}

/// `PLURAL NAMESPACE/NAME`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.plural, self.name)
        } else {
            write!(f, "{} {}/{}", self.plural, self.namespace, self.name)
        }
    }
}

async fn within<T>(
    target: &Target,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(classify(target, error)),
        Err(_) => Err(CallError::Unavailable(
            target.to_string(),
            format!(
                "no answer from the API server within {} s",
                DEADLINE.as_secs()
            ),
        )),
    }
}

fn classify(target: &Target, error: kube::Error) -> CallError {
    let name = target.to_string();
    let kube::Error::Api(status) = error else {
        return CallError::Unavailable(name, clusters::explain(&error));
    };
    let message = status.message.clone();
    match status.code {
        404 => CallError::NotFound(name),
        409 => CallError::Conflict(name, message),
        400 | 403 | 405 | 413 | 415 | 422 => CallError::Rejected(name, message),
        _ => CallError::Unavailable(name, format!("{} {message}", status.code)),
    }
}

fn encode(target: &Target, body: &impl Serialize) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(body)
        .map_err(|error| CallError::Rejected(target.to_string(), error.to_string()))
}

#[cfg(test)]
pub mod testing {
    //! A server of canned answers.

    use std::{collections::VecDeque, convert::Infallible, sync::Arc};

    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;

    /// A call as it came in.
    pub struct Asked {
        pub path: String,
        pub body: Value,
    }

    /// Answers every call by its path with a code and a body, or the text of a failure.
    pub fn serving(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (Remote, Arc<Mutex<Vec<Asked>>>) {
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (all, answer) = (Arc::clone(&asked), Arc::new(answer));
        let serve = move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let (code, body) = answer(&path);
            let body = match code {
                200 => body,
                _ => json!({ "status": "Failure", "code": code, "message": body, "reason": "" }),
            };
            all.lock().push(Asked {
                path,
                body: Value::Null,
            });
            let answer = http::Response::builder().status(code);
            let answer = answer.body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
        };
        let client = Client::new(tower::service_fn(serve), "default");
        (Remote::new(client), asked)
    }

    /// Answers with these in order: method that is expected, code and body.
    pub fn canned(
        answers: &[(&'static str, u16, &'static str)],
    ) -> (Remote, Arc<Mutex<Vec<Asked>>>) {
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect::<VecDeque<_>>()));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let all = Arc::clone(&asked);
        let serve =
            move |request: Request<Body>| {
                let (answers, all) = (Arc::clone(&answers), Arc::clone(&all));
                async move {
                    let (head, body) = request.into_parts();
                    let bytes = body.collect().await.map(|body| body.to_bytes());
                    let body = serde_json::from_slice(&bytes.unwrap_or_default());
                    all.lock().push(Asked {
                        path: head.uri.path().to_owned(),
                        body: body.unwrap_or_default(),
                    });
                    let (method, code, text) = answers.lock().pop_front().unwrap();
                    assert_eq!(head.method.as_str(), method, "{}", head.uri);
                    let text = match code {
                    200 => text.to_owned(),
                    _ => json!({ "status": "Failure", "code": code, "message": text, "reason": "" })
                        .to_string(),
                };
                    let answer = http::Response::builder().status(code);
                    Ok::<_, Infallible>(answer.body(Body::from(text.into_bytes())).unwrap())
                }
            };
        let client = Client::new(tower::service_fn(serve), "default");
        (Remote::new(client), asked)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use kube::client::AuthError;

    use super::*;

    #[test]
    fn what_is_in_credentials_is_not_told() {
        let target = Target {
            api: "api/v1",
            plural: "nodes",
            namespace: String::new(),
            name: "a".to_owned(),
        };
        let error = AuthError::ReadTokenFile(ErrorKind::NotFound.into(), "hunter2".into());
        let said = classify(&target, kube::Error::Service(Box::new(error))).to_string();
        assert!(said.contains("tokenFile"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
