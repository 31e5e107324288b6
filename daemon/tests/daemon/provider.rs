//! A stand-in for an OpenID Connect provider: discovery, keys, the authorization code with PKCE, tokens signed with RS256.
//! It signs in one person without asking, and does wrong what it is told to.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Form, Json, Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
    routing::{get, post},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    hmac,
    rand::SystemRandom,
    rsa::PublicKeyComponents,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rsa::{RsaPrivateKey, pkcs1::EncodeRsaPrivateKey as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::beside::serve_beside;

pub const CLIENT: &str = "fipd";
pub const SECRET: &str = "the client's secret, with a space";

/// What it does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    #[default]
    None,
    Nonce,
    Audience,
    Issuer,
    Expired,
    /// Signed with a key that it does not show, under the name of one that it shows.
    Signature,
    /// Not signed at all, and says so.
    Unsigned,
    /// Signed with what both know.
    Secret,
    /// Vouches for another access token.
    AccessToken,
    /// Nothing works.
    Down,
}

/// What it does.
#[derive(Clone, Debug)]
pub struct Script {
    pub flaw: Flaw,
    /// More claims, and others in the place of its own.
    pub claims: Value,
    /// Which of its keys signs and is shown.
    pub key: usize,
    /// How far its clock is ahead, in seconds.
    pub ahead: i64,
}

/// Runs as long as the process.
pub struct Provider {
    pub url: String,
    inner: Arc<Inner>,
}

struct Inner {
    url: String,
    script: Mutex<Script>,
    asked: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    keys: Vec<RsaKeyPair>,
}

impl Provider {
    /// Starts one on a free port of this host.
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        Self::serve(listener, address)
    }

    fn serve(listener: std::net::TcpListener, address: SocketAddr) -> Self {
        let url = format!("http://{address}");
        let script = Script {
            flaw: Flaw::None,
            claims: json!({ "preferred_username": "ann", "groups": ["ops"] }),
            key: 0,
            ahead: 0,
        };
        let inner = Arc::new(Inner {
            url: url.clone(),
            script: Mutex::new(script),
            asked: Mutex::default(),
            keys: vec![key(), key(), key()],
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(Arc::clone(&inner));
        serve_beside(listener, router);
        Self { url, inner }
    }

    /// Has it do otherwise from now on.
    pub fn does(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.inner.script.lock().unwrap());
    }

    /// What a browser that is sent here is sent back to.
    pub fn visit(&self, url: &str) -> String {
        let (_, query) = url.split_once('?').unwrap();
        let fields = query.split('&').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            (name.to_owned(), decoded(value))
        });
        self.inner.admit(fields.collect())
    }
}

impl Inner {
    fn admit(&self, asked: BTreeMap<String, String>) -> String {
        assert_eq!(asked["client_id"], CLIENT);
        assert_eq!(asked["response_type"], "code");
        assert_eq!(asked["code_challenge_method"], "S256");
        assert!(asked["scope"].split(' ').any(|scope| scope == "openid"));
        let code = format!("code-{}", self.asked.lock().unwrap().len());
        let back = format!(
            "{}?code={code}&state={}",
            asked["redirect_uri"], asked["state"]
        );
        self.asked.lock().unwrap().insert(code, asked);
        back
    }

    fn down(&self) -> bool {
        self.script.lock().unwrap().flaw == Flaw::Down
    }
}

fn key() -> RsaKeyPair {
    let mut random = getrandom::rand_core::UnwrapErr(getrandom::SysRng);
    let key = RsaPrivateKey::new(&mut random, 2048).unwrap();
    RsaKeyPair::from_der(key.to_pkcs1_der().unwrap().as_bytes()).unwrap()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap().to_owned();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

async fn discovery(State(inner): State<Arc<Inner>>) -> Response {
    if inner.down() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let at = |path: &str| format!("{}{path}", inner.url);
    Json(json!({
        "issuer": inner.url, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
        "jwks_uri": at("/keys"), "end_session_endpoint": at("/bye"), "response_types_supported": ["code"],
        "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"],
    }))
    .into_response()
}

async fn keys(State(inner): State<Arc<Inner>>) -> Response {
    let shown = inner.script.lock().unwrap().key;
    let public = PublicKeyComponents::<Vec<u8>>::from(inner.keys[shown].public());
    let part = |bytes: &Vec<u8>| URL_SAFE_NO_PAD.encode(bytes);
    Json(json!({ "keys": [{
        "kty": "RSA", "use": "sig", "alg": "RS256", "kid": format!("key-{shown}"),
        "n": part(&public.n), "e": part(&public.e),
    }] }))
    .into_response()
}

async fn authorize(
    State(inner): State<Arc<Inner>>,
    Query(asked): Query<BTreeMap<String, String>>,
) -> Response {
    Redirect::to(&inner.admit(asked)).into_response()
}

async fn token(
    State(inner): State<Arc<Inner>>,
    headers: HeaderMap,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    let wrong = |why: &str| {
        let body = json!({ "error": why });
        (StatusCode::BAD_REQUEST, Json(body)).into_response()
    };
    if inner.down() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let secret = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
    let secret = secret.and_then(|text| STANDARD.decode(text).ok());
    let secret = secret.and_then(|bytes| String::from_utf8(bytes).ok());
    let expected = |text: String| {
        let (id, secret) = text.split_once(':').unwrap();
        decoded(id) == CLIENT && decoded(secret) == SECRET
    };
    if !secret.is_some_and(expected) {
        return wrong("invalid_client");
    }
    // A code counts once.
    let Some(asked) = inner.asked.lock().unwrap().remove(&form["code"]) else {
        return wrong("invalid_grant");
    };
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(form["code_verifier"].as_bytes()));
    if challenge != asked["code_challenge"] || form["redirect_uri"] != asked["redirect_uri"] {
        return wrong("invalid_grant");
    }
    let id = id_token(&inner, &asked["nonce"]);
    Json(json!({ "access_token": "an-access-token", "token_type": "Bearer", "id_token": id }))
        .into_response()
}

fn id_token(inner: &Inner, nonce: &str) -> String {
    let script = inner.script.lock().unwrap().clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_secs()).unwrap() + script.ahead;
    let of = |flaw, wrong: Value, right: Value| if script.flaw == flaw { wrong } else { right };
    let mut claims = json!({
        "iss": of(Flaw::Issuer, json!("https://other.example"), json!(inner.url)),
        "sub": "subject-1",
        "aud": of(Flaw::Audience, json!("another"), json!(CLIENT)),
        "nonce": of(Flaw::Nonce, json!("another"), json!(nonce)),
        "iat": of(Flaw::Expired, json!(now - 7200), json!(now)),
        "exp": of(Flaw::Expired, json!(now - 3600), json!(now + 300)),
    });
    for (name, value) in script.claims.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    if script.flaw == Flaw::AccessToken {
        let half = &Sha256::digest(b"another-access-token")[..16];
        claims["at_hash"] = json!(URL_SAFE_NO_PAD.encode(half));
    }
    let usual = of(Flaw::Unsigned, json!("none"), json!("RS256"));
    let algorithm = of(Flaw::Secret, json!("HS256"), usual);
    let head = json!({ "alg": algorithm, "typ": "JWT", "kid": format!("key-{}", script.key) });
    let mut text = format!("{}.{}", part(&head), part(&claims));
    if script.flaw == Flaw::Unsigned {
        return text + ".";
    }
    if script.flaw == Flaw::Secret {
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let tag = hmac::sign(&key, text.as_bytes());
        return format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag));
    }
    let signer = if script.flaw == Flaw::Signature {
        (script.key + 1) % inner.keys.len()
    } else {
        script.key
    };
    let signer = &inner.keys[signer];
    let mut signature = vec![0; signer.public().modulus_len()];
    signer
        .sign(
            &RSA_PKCS1_SHA256,
            &SystemRandom::new(),
            text.as_bytes(),
            &mut signature,
        )
        .unwrap();
    text.push('.');
    text.push_str(&URL_SAFE_NO_PAD.encode(signature));
    text
}
