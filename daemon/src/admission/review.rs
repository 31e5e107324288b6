//! `AdmissionReview` of `admission.k8s.io/v1`, as values.

use fipd_crds::labels::FIELD_MANAGER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ReviewedKind;

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The longest reason for a refusal, in bytes.
const MESSAGE: usize = 2048;

/// What is asked, as far as rules look at it.
#[derive(Clone, Debug)]
pub struct Question {
    pub uid: String,
    pub operation: Operation,
    /// A subresource has no rules.
    pub subresource: bool,
    /// Empty where the API server makes the name.
    pub name: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Who writes.
    pub user: String,
    /// Whether the write says that it is fipd's, as anybody's may.
    pub own: bool,
    /// Whether a delete is of one instance alone, as all of fipd's are.
    pub by_uid: bool,
    pub object: Object,
    /// What it was before an update or a delete.
    pub old: Option<Object>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// An object whose spec and status may have any shape.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Object {
    pub metadata: ObjectMeta,
    pub spec: Value,
    pub status: Value,
}

/// Why a review cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the body is no AdmissionReview: {0}")]
    Json(String),
    #[error("{field}: {found:?} is not understood; {allowed} is")]
    Field {
        field: &'static str,
        found: String,
        allowed: String,
    },
}

/// What the answer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub denied: Option<Denial>,
    pub warnings: Vec<String>,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub code: u16,
    /// As `metav1.Status` has it.
    pub reason: &'static str,
    pub message: String,
    /// What fipd knows may be a moment behind what was written before.
    pub may_pass: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(default)]
    uid: String,
    resource: Resource,
    sub_resource: Option<String>,
    operation: Operation,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    user_info: User,
    #[serde(default)]
    options: Value,
    object: Option<Object>,
    old_object: Option<Object>,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct Resource {
    group: String,
    resource: String,
}

impl Question {
    /// Reads a review that is to be about this kind.
    ///
    /// # Errors
    /// What is not as an API server writes it.
    pub fn read(body: &[u8], kind: &ReviewedKind) -> Result<Self, Malformed> {
        let review: Review =
            serde_json::from_slice(body).map_err(|error| Malformed::Json(error.to_string()))?;
        expect("apiVersion", &review.api_version, VERSION)?;
        expect("kind", &review.kind, KIND)?;
        let request = review.request.ok_or_else(|| missing("request"))?;
        expect(
            "request.resource.group",
            &request.resource.group,
            kind.group,
        )?;
        let plural = &request.resource.resource;
        expect("request.resource.resource", plural, kind.plural)?;
        if request.uid.is_empty() {
            return Err(missing("request.uid"));
        }
        let judged = matches!(request.operation, Operation::Create | Operation::Update);
        if judged && request.object.is_none() {
            return Err(missing("request.object"));
        }
        Ok(Self {
            uid: request.uid,
            operation: request.operation,
            subresource: request.sub_resource.is_some_and(|name| !name.is_empty()),
            name: request.name,
            namespace: request.namespace,
            user: request.user_info.username,
            own: request.options.get("fieldManager").and_then(Value::as_str) == Some(FIELD_MANAGER),
            by_uid: request
                .options
                .pointer("/preconditions/uid")
                .is_some_and(Value::is_string),
            object: request.object.unwrap_or_default(),
            old: request.old_object,
        })
    }

    /// Whether there is nothing to judge, whoever writes. What is being deleted must never be kept from going.
    pub fn passes(&self) -> bool {
        let deleted = self.object.metadata.deletion_timestamp.is_some();
        let judged = matches!(self.operation, Operation::Create | Operation::Update);
        deleted || self.subresource || !judged || self.says_nothing_new()
    }

    fn says_nothing_new(&self) -> bool {
        self.before().is_some_and(|old| {
            old.spec == self.object.spec && old.metadata.labels == self.object.metadata.labels
        })
    }

    /// The object before an update.
    pub fn before(&self) -> Option<&Object> {
        let updated = self.operation == Operation::Update;
        self.old.as_ref().filter(|_| updated)
    }
}

impl Object {
    pub fn label(&self, key: &str) -> Option<&str> {
        let label = self.metadata.labels.as_ref()?.get(key)?;
        Some(label.as_str()).filter(|value| !value.is_empty())
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        Some(self.metadata.annotations.as_ref()?.get(key)?.as_str())
    }
}

impl Verdict {
    pub fn allowed() -> Self {
        Self::default()
    }

    pub fn warned(warnings: Vec<String>) -> Self {
        Self {
            denied: None,
            warnings,
        }
    }

    /// A field is not as it must be.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::denied(422, "Invalid", message)
    }

    /// It cannot be done as things are.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::denied(400, "BadRequest", message)
    }

    /// It is understood, and not given.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::denied(403, "Forbidden", message)
    }

    fn denied(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE {
            message.truncate(message.floor_char_boundary(MESSAGE));
            message.push_str(" ...");
        }
        let denial = Denial {
            code,
            reason,
            message,
            may_pass: false,
        };
        Self {
            denied: Some(denial),
            warnings: Vec::new(),
        }
    }

    /// It rests on what fipd knows, which may be a moment behind.
    #[must_use]
    pub fn for_now(mut self) -> Self {
        self.denied.iter_mut().for_each(|one| one.may_pass = true);
        self
    }

    /// The review that answers the question with this uid.
    pub fn answer(&self, uid: &str) -> Value {
        let mut response = json!({ "uid": uid, "allowed": self.denied.is_none() });
        if let Some(denial) = &self.denied {
            response["status"] = json!({
                "status": "Failure", "code": denial.code, "reason": denial.reason,
                "message": denial.message,
            });
        }
        if !self.warnings.is_empty() {
            response["warnings"] = json!(self.warnings);
        }
        json!({ "apiVersion": VERSION, "kind": KIND, "response": response })
    }
}

fn expect(field: &'static str, found: &str, allowed: &str) -> Result<(), Malformed> {
    if found == allowed {
        return Ok(());
    }
    Err(Malformed::Field {
        field,
        found: found.chars().take(100).collect(),
        allowed: format!("{allowed:?}"),
    })
}

fn missing(field: &'static str) -> Malformed {
    Malformed::Field {
        field,
        found: String::new(),
        allowed: "what an API server writes there".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use fipd_crds::floating_ip::GROUP;

    use super::*;
    use crate::systems::rancher_fip::admission::{FLOATING_IP, POOL};

    fn body(request: Value) -> Vec<u8> {
        let mut whole = json!({
            "uid": "u-1", "operation": "CREATE", "name": "a", "namespace": "c-m-a",
            "resource": { "group": GROUP, "version": "v1beta1", "resource": "floatingips" },
            "options": { "kind": "CreateOptions", "fieldManager": "kubectl-create" },
            "object": { "metadata": { "name": "a" }, "spec": {} }, "oldObject": null,
        });
        for (key, value) in request.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let review = json!({ "apiVersion": VERSION, "kind": KIND, "request": whole });
        review.to_string().into_bytes()
    }

    fn read(request: Value) -> Question {
        Question::read(&body(request), &FLOATING_IP).expect("a question")
    }

    #[test]
    fn what_is_no_review_of_the_kind_is_refused_by_field() {
        let why = |body: &[u8], kind| {
            Question::read(body, kind)
                .expect_err("malformed")
                .to_string()
        };
        assert!(why(b"{", &POOL).starts_with("the body is no AdmissionReview"));
        assert!(why(b"[]", &POOL).starts_with("the body is no AdmissionReview"));
        let old = br#"{ "apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview" }"#;
        let text = "apiVersion: \"admission.k8s.io/v1beta1\" is not understood; \"admission.k8s.io/v1\" is";
        assert_eq!(why(old, &POOL), text);
        assert!(
            why(&body(json!({})), &POOL).starts_with("request.resource.resource: \"floatingips\"")
        );
        assert!(why(&body(json!({ "uid": "" })), &FLOATING_IP).starts_with("request.uid"));
        assert!(why(&body(json!({ "object": null })), &FLOATING_IP).starts_with("request.object"));
        let other = json!({ "group": "kubefip.k8s.binbash.org", "version": "v1", "resource": "floatingips" });
        let text = why(&body(json!({ "resource": other })), &FLOATING_IP);
        assert!(text.starts_with("request.resource.group"), "{text}");
    }

    #[test]
    fn defect_09_what_is_deleted_or_says_nothing_new_passes() {
        let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": { "a": 1 } });
        assert!(read(json!({ "object": deleted })).passes());
        let with = |finalizers: Value, labels: Value, spec: Value| json!({ "metadata": { "finalizers": finalizers, "labels": labels }, "spec": spec });
        let update = |old: Value, new: Value| {
            read(json!({ "operation": "UPDATE", "oldObject": old, "object": new })).passes()
        };
        let old = with(json!(["f"]), json!({ "a": "1" }), json!({ "x": 1 }));
        assert!(update(
            old.clone(),
            with(json!([]), json!({ "a": "1" }), json!({ "x": 1 }))
        ));
        assert!(!update(
            old.clone(),
            with(json!([]), json!({ "a": "2" }), json!({ "x": 1 }))
        ));
        assert!(!update(
            old,
            with(json!([]), json!({ "a": "1" }), json!({ "x": 2 }))
        ));
        assert!(!read(json!({})).passes());
        assert!(read(json!({ "operation": "DELETE", "object": null })).passes());
        assert!(read(json!({ "subResource": "status" })).passes());
    }

    #[test]
    fn the_answer_says_the_uid_and_why() {
        let fine = Verdict::warned(vec!["w".into()]).answer("u-1");
        assert_eq!(
            fine,
            json!({
                "apiVersion": VERSION, "kind": KIND,
                "response": { "uid": "u-1", "allowed": true, "warnings": ["w"] },
            })
        );
        let denied = Verdict::forbidden("quota exceeded: x").answer("u-2");
        assert_eq!(
            denied["response"],
            json!({
                "uid": "u-2", "allowed": false,
                "status": { "status": "Failure", "code": 403, "reason": "Forbidden", "message": "quota exceeded: x" },
            })
        );
    }
}
