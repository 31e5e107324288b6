//! Calls to an API server: every call has a deadline, every failure says what the caller should do.

mod page;

use std::{fmt, time::Duration};

/// The field manager of what fipd applies, unless [`Remote::with_manager`] names another.
pub use fipd_crds::labels::FIELD_MANAGER as MANAGER;
use http::{
    Method, Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use kube::Client;
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};
use tokio::time::error::Elapsed;

use self::page::{Page, escaped};
use crate::clusters::{self, absence::Presence, adoption::SAME_PAGE, answers::SMALL_PAGE};

/// The longest a single call may take.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// The longest a list of several pages may take.
const LIST_DEADLINE: Duration = Duration::from_secs(60);
/// The most text of all pages of a list, in bytes.
const LIST_BYTES: usize = 64 << 20;
/// Pages of one list at most: what is listed here is fipd's own, or of one project.
const PAGES: usize = 1_000;
/// Objects of a page where metadata alone is asked for.
const METADATA_PAGE: u32 = 500;
/// How often a list that expired between two pages is begun again.
const RESTARTS: usize = 3;

/// A client of one cluster.
#[derive(Clone)]
pub struct Remote {
    client: Client,
    manager: &'static str,
}

/// One object (or, without name, one collection) of the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Server-side apply, taking over fields of others.
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
        Self {
            client,
            manager: MANAGER,
        }
    }

    /// The same as another field manager: what one of them applies takes nothing from what the other did.
    #[must_use]
    pub fn with_manager(&self, manager: &'static str) -> Self {
        Self {
            client: self.client.clone(),
            manager,
        }
    }

    pub fn client(&self) -> Client {
        self.client.clone()
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
        self.list_kept(target, label, Some).await
    }

    /// What `keep` makes of each of them. Only a page at a time is there as JSON.
    pub async fn list_kept<T>(
        &self,
        target: &Target,
        label: &str,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        let query = format!("labelSelector={label}&limit={SMALL_PAGE}");
        self.list_as(target, &query, "application/json", keep).await
    }

    /// What `keep` makes of all objects of a kind, which are read with so many a page.
    pub async fn list_paged<T>(
        &self,
        target: &Target,
        page: u32,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        let query = format!("limit={page}");
        self.list_as(target, &query, "application/json", keep).await
    }

    /// Those of them that have the target's name, in all namespaces. A role can allow these alone.
    pub async fn list_named(&self, target: &Target, label: &str) -> Result<Vec<Value>, CallError> {
        let name = &target.name;
        let query = format!(
            "labelSelector={label}&fieldSelector=metadata.name%3D{name}&limit={SMALL_PAGE}"
        );
        let all = Target {
            namespace: String::new(),
            name: String::new(),
            ..target.clone()
        };
        self.list_as(&all, &query, "application/json", Some).await
    }

    /// The same, but only their metadata.
    pub async fn list_meta(&self, target: &Target, label: &str) -> Result<Vec<Value>, CallError> {
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let query = format!("labelSelector={label}&limit={METADATA_PAGE}");
        self.list_as(target, &query, metadata, Some).await
    }

    /// All pages; one that expires midway is begun again.
    async fn list_as<T>(
        &self,
        target: &Target,
        query: &str,
        accept: &str,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        let pages = async {
            let mut expired = 0;
            loop {
                match self.pages(target, query, accept, &keep).await? {
                    Some(all) => return Ok(all),
                    None if expired < RESTARTS => expired += 1,
                    None => return Err(endless(target, "the list expires before its last page")),
                }
            }
        };
        match tokio::time::timeout(LIST_DEADLINE, pages).await {
            Ok(all) => all,
            Err(_) => Err(endless(target, "the list is not complete after a minute")),
        }
    }

    /// `None`: the list expired before its last page.
    async fn pages<T>(
        &self,
        target: &Target,
        query: &str,
        accept: &str,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, CallError> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        let mut next: Option<String> = None;
        for _ in 0..PAGES {
            let from = next.as_deref().map(escaped).unwrap_or_default();
            let path = format!("{}?{query}{from}", target.path());
            let request = Request::get(path).header(ACCEPT, accept);
            let request = request.body(Vec::new());
            let request = request.map_err(|error| unsent(target, &error))?;
            let text = self.client.request_text(request);
            let text = match tokio::time::timeout(DEADLINE, text).await {
                Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Ok(None),
                text => finish(target, text)?,
            };
            bytes += text.len();
            if bytes > LIST_BYTES {
                return Err(endless(target, "the list is longer than 64 MiB"));
            }
            let page: Page = serde_json::from_str(&text)
                .map_err(|error| classify(target, kube::Error::SerdeError(error)))?;
            drop(text);
            all.extend(page.items.into_iter().flatten().filter_map(&keep));
            let token = page.metadata.and_then(|metadata| metadata.token);
            match token.filter(|token| !token.is_empty()) {
                Some(token) if next.as_ref() == Some(&token) => {
                    return Err(endless(target, SAME_PAGE));
                }
                Some(token) => next = Some(token),
                None => return Ok(Some(all)),
            }
        }
        Err(endless(target, "the API server names page after page"))
    }

    /// Makes the object; a conflict if there is one of its name.
    pub async fn create(&self, target: &Target, body: &impl Serialize) -> Result<(), CallError> {
        self.create_seen::<IgnoredAny>(target, body).await.map(drop)
    }

    /// Asks the API server whether it would make the object, and makes none.
    pub async fn create_dry(
        &self,
        target: &Target,
        body: &impl Serialize,
    ) -> Result<(), CallError> {
        let made: Result<IgnoredAny, _> = self.post(target, "dryRun=All", body).await;
        made.map(drop)
    }

    /// Makes the object; what it is then.
    pub async fn create_seen<T: DeserializeOwned>(
        &self,
        target: &Target,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        let query = format!("fieldManager={}", self.manager);
        self.post(target, &query, body).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        target: &Target,
        query: &str,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        let all = Target {
            name: String::new(),
            ..target.clone()
        };
        let path = format!("{}?{query}", all.path());
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
            // The pods of a Job would stay.
            "propagationPolicy": "Background",
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
        let by = format!("{path}?fieldManager={}", self.manager);
        let (kind, path) = match patch {
            Patch::Merge => ("application/merge-patch+json", by),
            Patch::Strategic => ("application/strategic-merge-patch+json", by),
            Patch::Json => ("application/json-patch+json", path.to_owned()),
            Patch::Apply => ("application/apply-patch+yaml", by + "&force=true"),
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
        let (kind, bytes) = body.unzip();
        if let Some(kind) = kind {
            request = request.header(CONTENT_TYPE, kind);
        }
        let request = request.body(bytes.unwrap_or_default());
        let request = request.map_err(|error| unsent(target, &error))?;
        let call = self.client.request::<T>(request);
        finish(target, tokio::time::timeout(DEADLINE, call).await)
    }
}

impl Target {
    pub(super) fn path(&self) -> String {
        let part = |before: &str, text: &str| match text {
            "" => String::new(),
            text => format!("{before}{text}"),
        };
        let namespace = part("/namespaces/", &self.namespace);
        let name = part("/", &self.name);
        format!("/{}{namespace}/{}{name}", self.api, self.plural)
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

fn finish<T>(
    target: &Target,
    result: Result<Result<T, kube::Error>, Elapsed>,
) -> Result<T, CallError> {
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(classify(target, error)),
        Err(_) => {
            let within = DEADLINE.as_secs();
            let why = format!("no answer from the API server within {within} s");
            Err(CallError::Unavailable(target.to_string(), why))
        }
    }
}

fn classify(target: &Target, error: kube::Error) -> CallError {
    let name = target.to_string();
    let kube::Error::Api(status) = error else {
        return CallError::Unavailable(name, clusters::explain(&error));
    };
    let message = clusters::short(&status.message);
    match status.code {
        404 => CallError::NotFound(name),
        409 => CallError::Conflict(name, message),
        400 | 403 | 405 | 413 | 415 | 422 => CallError::Rejected(name, message),
        _ => CallError::Unavailable(name, format!("{} {message}", status.code)),
    }
}

fn endless(target: &Target, why: &str) -> CallError {
    CallError::Unavailable(target.to_string(), why.to_owned())
}

/// The request could not be built.
fn unsent(target: &Target, error: &dyn fmt::Display) -> CallError {
    CallError::Rejected(target.to_string(), error.to_string())
}

fn encode(target: &Target, body: &impl Serialize) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(body).map_err(|error| unsent(target, &error))
}

#[cfg(test)]
pub mod testing;

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, io::ErrorKind, sync::Arc};

    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::{clusters::CredentialError, controller::kind::SERVICE};

    #[test]
    fn what_is_in_credentials_is_not_told() {
        let target = Target {
            api: "api/v1",
            plural: "nodes",
            namespace: String::new(),
            name: "a".to_owned(),
        };
        let error = std::io::Error::from(ErrorKind::NotFound).to_string();
        let error = CredentialError::File(error.into());
        let said = classify(&target, kube::Error::Service(Box::new(error))).to_string();
        assert!(
            said.contains("tokenFile names cannot be read: entity not found"),
            "{said}"
        );
    }

    fn services() -> Target {
        Target {
            api: "api/v1",
            plural: "services",
            namespace: String::new(),
            name: String::new(),
        }
    }

    #[tokio::test]
    async fn a_list_is_read_page_by_page() {
        let (remote, asked) = testing::canned(&[
            (
                "GET",
                200,
                r#"{"items":[1,2],"metadata":{"continue":"a=&b"}}"#,
            ),
            ("GET", 200, r#"{"items":[3],"metadata":{"continue":""}}"#),
        ]);
        let all = remote.list(&services(), "").await.unwrap();
        assert_eq!(all, [json!(1), json!(2), json!(3)]);
        assert_eq!(asked.lock().len(), 2);
        assert_eq!(escaped("a=&b"), "&continue=a%3D%26b");
    }

    #[tokio::test]
    async fn a_list_that_expires_is_begun_again() {
        let (remote, _) = testing::canned(&[
            ("GET", 200, r#"{"items":[1],"metadata":{"continue":"a"}}"#),
            ("GET", 410, "expired"),
            ("GET", 200, r#"{"items":[1,2]}"#),
        ]);
        let all = remote.list(&services(), "").await.unwrap();
        assert_eq!(all, [json!(1), json!(2)]);
    }

    #[tokio::test]
    async fn the_same_page_for_ever_ends() {
        let (remote, asked) =
            testing::serving(|_| (200, json!({ "items": [], "metadata": { "continue": "a" } })));
        let error = remote.list(&services(), "").await.unwrap_err();
        assert!(error.to_string().contains("the same page"), "{error}");
        assert_eq!(asked.lock().len(), 2);
    }

    #[tokio::test]
    async fn other_pages_for_ever_end() {
        let pages = std::sync::atomic::AtomicUsize::new(0);
        let (remote, asked) = testing::serving(move |_| {
            let page = pages.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            (
                200,
                json!({ "items": [], "metadata": { "continue": page.to_string() } }),
            )
        });
        let error = remote.list(&services(), "").await.unwrap_err();
        assert!(error.to_string().contains("page after page"), "{error}");
        assert_eq!(asked.lock().len(), PAGES);
    }

    /// On a stopped clock: a busy machine may take longer than the deadline for so many bytes.
    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_too_long_as_a_whole_ends() {
        let pages = std::sync::atomic::AtomicUsize::new(0);
        let (remote, asked) = testing::serving(move |_| {
            let page = pages.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let metadata = json!({ "continue": page.to_string(), "pad": "x".repeat(20 << 20) });
            (200, json!({ "items": [], "metadata": metadata }))
        });
        let error = remote.list(&services(), "").await.unwrap_err();
        assert!(error.to_string().contains("longer than 64 MiB"), "{error}");
        assert_eq!(asked.lock().len(), 4);
    }

    #[tokio::test]
    async fn each_field_manager_writes_in_its_own_name() {
        let paths: Arc<Mutex<Vec<String>>> = Arc::default();
        let all = Arc::clone(&paths);
        let serve = move |request: Request<Body>| {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            all.lock().push(format!("{method} {uri}"));
            let answer = http::Response::new(Body::from(b"{}".to_vec()));
            std::future::ready(Ok::<_, Infallible>(answer))
        };
        let remote = Remote::new(Client::new(tower::service_fn(serve), "default"));
        let other = remote.with_manager("fipd-vips");
        let (target, body) = (SERVICE.named("ns", "a"), json!({}));
        for remote in [&remote, &other] {
            remote.create(&target, &body).await.unwrap();
            remote.patch(&target, Patch::Apply, &body).await.unwrap();
        }
        let all = "/api/v1/namespaces/ns/services";
        let writes = ["fipd", "fipd-vips"].map(|manager| {
            let by = format!("?fieldManager={manager}");
            [
                format!("POST {all}{by}"),
                format!("PATCH {all}/a{by}&force=true"),
            ]
        });
        assert_eq!(*paths.lock(), writes.concat());
    }

    #[test]
    fn what_an_api_server_says_is_shortened() {
        let status = kube::core::Status::failure(&"x".repeat(1 << 20), "Invalid").with_code(422);
        let error = classify(&services(), kube::Error::Api(status.boxed()));
        assert!(error.to_string().len() < 4 << 10);
    }
}
