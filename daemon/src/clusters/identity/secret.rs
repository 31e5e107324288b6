//! The Secret `fipd-identity` that fipd keeps in each cluster: reading and writing it.
//!
//! Every read asks for the latest state, without a resourceVersion, so that no cache answers it. Every write names the version
//! that was read.

use std::collections::BTreeMap;

use fipd_core::Text;
use fipd_crds::labels::{FIELD_MANAGER, MANAGED_BY};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use super::{Reached, Seen};
use crate::clusters::connect::{self, ConnectError};

pub(crate) const NAME: &str = "fipd-identity";
const NONCE: &str = "nonce";
const CHALLENGE: &str = "challenge";
const EPOCH: &str = "epoch";
const COMMIT: &str = "commit";

/// What a link is to do with the Secret.
#[derive(Clone, Debug)]
pub(in crate::clusters) enum SecretOrder {
    /// Only read it, now.
    Look,
    /// Create it where it is not there.
    Create { nonce: Text, value: Text },
    /// Replace the challenge value where it is one of `from`.
    Replace {
        nonce: Text,
        from: Vec<Text>,
        value: Text,
    },
    /// An admin says that the cluster is this one: write it, whatever is there.
    Claim { nonce: Text, value: Text },
    /// Only note how far the store has come.
    Note { nonce: Text },
}

/// How a write ended.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::clusters) enum SecretWrite {
    Done,
    /// Something else is there than was expected.
    Changed,
    /// fipd has not the right, or there is no such namespace.
    Refused(String),
}

/// What is there, with how far the store had come when it was written.
pub(in crate::clusters) async fn read(
    client: &Client,
    namespace: &str,
) -> Result<(Seen, Option<Reached>), ConnectError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match get(&api).await {
        Ok(secret) => Ok((seen(secret.as_ref()), secret.as_ref().and_then(reached))),
        Err(SecretError::Status(401 | 403 | 405, _)) => Ok((Seen::Hidden, None)),
        Err(SecretError::Status(_, text)) => Err(ConnectError::Api(text)),
        Err(SecretError::Other(error)) => Err(error),
    }
}

/// Carries an order out; [`SecretOrder::Look`] needs nothing more than the read that follows each.
pub(in crate::clusters) async fn write(
    client: &Client,
    namespace: &str,
    order: &SecretOrder,
    reached: Reached,
) -> Result<SecretWrite, ConnectError> {
    let place = IdentitySecret {
        api: Api::namespaced(client.clone(), namespace),
        reached,
    };
    let written = match order {
        SecretOrder::Look => return Ok(SecretWrite::Done),
        SecretOrder::Create { nonce, value } => place.create(nonce, value).await,
        SecretOrder::Replace { nonce, from, value } => place.replace(nonce, from, value).await,
        SecretOrder::Claim { nonce, value } => place.claim(nonce, value).await,
        SecretOrder::Note { nonce } => place.note(nonce).await,
    };
    match written {
        Ok(written) => Ok(written),
        Err(SecretError::Status(409, _)) => Ok(SecretWrite::Changed),
        Err(SecretError::Status(408 | 429, text)) => Err(ConnectError::Api(text)),
        Err(SecretError::Status(400..=499, text)) => Ok(SecretWrite::Refused(text)),
        Err(SecretError::Status(_, text)) => Err(ConnectError::Api(text)),
        Err(SecretError::Other(error)) => Err(error),
    }
}

enum SecretError {
    Status(u16, String),
    Other(ConnectError),
}

async fn call<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, SecretError> {
    match tokio::time::timeout(connect::CALL, call).await {
        Err(_) => Err(SecretError::Other(ConnectError::Deadline(connect::CALL))),
        Ok(Err(error)) => {
            let text = format!("Secret {NAME}: {}", connect::explain(&error));
            Err(if let kube::Error::Api(status) = &error {
                SecretError::Status(status.code, text)
            } else {
                SecretError::Other(ConnectError::Api(text))
            })
        }
        Ok(Ok(value)) => Ok(value),
    }
}

async fn get(api: &Api<Secret>) -> Result<Option<Secret>, SecretError> {
    match call(api.get(NAME)).await {
        Ok(secret) => Ok(Some(secret)),
        Err(SecretError::Status(404, _)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Where the Secret is, and what is noted there with each write.
struct IdentitySecret {
    api: Api<Secret>,
    reached: Reached,
}

impl IdentitySecret {
    async fn create(&self, nonce: &Text, value: &Text) -> Result<SecretWrite, SecretError> {
        let fresh = self.secret(nonce, value, ObjectMeta::default());
        call(self.api.create(&PostParams::default(), &fresh)).await?;
        Ok(SecretWrite::Done)
    }

    async fn replace(
        &self,
        nonce: &Text,
        from: &[Text],
        value: &Text,
    ) -> Result<SecretWrite, SecretError> {
        match self.known(nonce).await? {
            Some((_, now)) if now == *value => Ok(SecretWrite::Done),
            Some((before, now)) if from.contains(&now) => self.put(before, nonce, value).await,
            Some(_) | None => Ok(SecretWrite::Changed),
        }
    }

    async fn claim(&self, nonce: &Text, value: &Text) -> Result<SecretWrite, SecretError> {
        match get(&self.api).await? {
            None => self.create(nonce, value).await,
            Some(before) => self.put(before, nonce, value).await,
        }
    }

    async fn note(&self, nonce: &Text) -> Result<SecretWrite, SecretError> {
        match self.known(nonce).await? {
            Some((before, value)) => self.put(before, nonce, &value).await,
            None => Ok(SecretWrite::Changed),
        }
    }

    /// What is there with its challenge value, where the nonce is this one.
    async fn known(&self, nonce: &Text) -> Result<Option<(Secret, Text)>, SecretError> {
        let Some(secret) = get(&self.api).await? else {
            return Ok(None);
        };
        match seen(Some(&secret)) {
            Seen::Value {
                nonce: known,
                value,
            } if known == *nonce => Ok(Some((secret, value))),
            Seen::Value { .. } | Seen::Absent | Seen::Hidden => Ok(None),
        }
    }

    async fn put(
        &self,
        before: Secret,
        nonce: &Text,
        value: &Text,
    ) -> Result<SecretWrite, SecretError> {
        let after = self.secret(nonce, value, before.metadata);
        call(self.api.replace(NAME, &PostParams::default(), &after)).await?;
        Ok(SecretWrite::Done)
    }

    fn secret(&self, nonce: &Text, value: &Text, mut metadata: ObjectMeta) -> Secret {
        metadata.name = Some(NAME.to_owned());
        metadata.managed_fields = None;
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(MANAGED_BY.to_owned(), FIELD_MANAGER.to_owned());
        let entry = |key: &str, text: &str| (key.to_owned(), ByteString(text.as_bytes().to_vec()));
        let data = BTreeMap::from([
            entry(NONCE, nonce),
            entry(CHALLENGE, value),
            entry(EPOCH, &self.reached.epoch.to_string()),
            entry(COMMIT, &self.reached.commit.to_string()),
        ]);
        Secret {
            metadata,
            data: Some(data),
            ..Secret::default()
        }
    }
}

fn reached(secret: &Secret) -> Option<Reached> {
    let number = |key: &str| {
        let bytes = &secret.data.as_ref()?.get(key)?.0;
        std::str::from_utf8(bytes).ok()?.parse().ok()
    };
    Some(Reached {
        epoch: number(EPOCH)?,
        commit: number(COMMIT)?,
    })
}

/// A Secret without a nonce is none of fipd's.
fn seen(secret: Option<&Secret>) -> Seen {
    /// Longer ones were not written by fipd.
    const MOST: usize = 128;
    let entry = |key: &str| {
        let bytes = &secret?.data.as_ref()?.get(key)?.0;
        let text = std::str::from_utf8(bytes).ok()?;
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        let ok = !text.is_empty() && text.len() <= MOST && text.bytes().all(plain);
        ok.then(|| Text::from(text))
    };
    match (secret, entry(NONCE)) {
        (None, _) => Seen::Absent,
        (Some(_), Some(nonce)) => Seen::Value {
            nonce,
            value: entry(CHALLENGE).unwrap_or_default(),
        },
        // Somebody emptied it: no nonce is right.
        (Some(_), None) => Seen::Value {
            nonce: Text::default(),
            value: Text::default(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// Without a resource version the API server answers from etcd by quorum; with one it may answer from its cache
    /// (Kubernetes API concepts, "Resource versions").
    #[tokio::test]
    async fn the_secret_is_never_read_from_a_cache() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        let answer = move |request: http::Request<Body>| {
            let line = format!("{} {}", request.method(), request.uri());
            heard.lock().push(line);
            let number = heard.lock().len();
            let value = ByteString(format!("value-{number}").into_bytes());
            let nonce = ByteString(b"n1".to_vec());
            let secret =
                json!({ "metadata": { "name": NAME }, "data": { NONCE: nonce, CHALLENGE: value } });
            async move {
                Ok::<_, Infallible>(http::Response::new(Body::from(
                    secret.to_string().into_bytes(),
                )))
            }
        };
        let client = Client::new(tower::service_fn(answer), "default");
        for number in 1..=3 {
            let (seen, _) = read(&client, "kube-system").await.unwrap();
            let value = format!("value-{number}").into();
            let nonce = "n1".into();
            assert_eq!(seen, Seen::Value { nonce, value }, "each read asks anew");
        }
        let line = format!("GET /api/v1/namespaces/kube-system/secrets/{NAME}");
        let asked = asked.lock().clone();
        assert!(
            asked.iter().all(|one| one.trim_end_matches('?') == line),
            "{asked:?}"
        );
    }
}
