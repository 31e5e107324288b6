//! The OpenID Connect provider: what it says of itself, where browsers are sent, and whom it vouches for.
//!
//! ```text
//!  login page --> authorize (state, nonce, PKCE in the browser's cookie) --> provider
//!  callback --> state is the cookie's --> code for tokens --> ID token verified --> groups --> role
//! ```
//!
//! Discovery and keys are kept and read again after an hour, and when a token is signed with a key that is not known. A
//! provider that is down is asked again later and later; signing in with a password never waits for it.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fipd_core::{Role, Text};
use futures::future::BoxFuture;
use openidconnect::{
    AccessTokenHash, AuthType, AuthorizationCode, ClaimsVerificationError, ClientId, ClientSecret,
    CsrfToken, EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, IssuerUrl,
    Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier,
    ProviderMetadataWithLogout, RedirectUrl, RequestTokenError, Scope, SignatureVerificationError,
    TokenResponse as _,
    core::{
        CoreAuthenticationFlow, CoreClient, CoreClientAuthMethod, CoreErrorResponseType,
        CoreIdToken, CoreIdTokenClaims, CoreTokenResponse,
    },
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    backoff::Backoff,
    config, foreign_file,
    outgoing::{Outgoing, OutgoingError},
};

/// Of one request to the provider.
const DEADLINE: Duration = Duration::from_secs(5);
/// The largest answer of it.
const MOST: usize = 1024 * 1024;
/// How long discovery and keys are kept.
const KEEP: Duration = Duration::from_secs(3600);
/// How often at most they are read because of a key that is not known.
const KEYS_EVERY: Duration = Duration::from_secs(10);
/// How far its clock may be from ours.
pub const SKEW: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest name of somebody.
const NAME: usize = 64;
/// Where browsers come back to.
pub const CALLBACK: &str = "/ui/login/oidc/callback";

type Client = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;
type Metadata = ProviderMetadataWithLogout;
type Answering = BoxFuture<'static, Result<HttpResponse, OutgoingError>>;

/// Signing in by a provider; cheap to clone. The default: there is none.
#[derive(Clone, Default)]
pub struct Oidc(Option<Arc<Provider>>);

/// The provider of the configuration.
pub struct Provider {
    config: config::Oidc,
    issuer: IssuerUrl,
    redirect: RedirectUrl,
    outgoing: Outgoing,
    known: Mutex<KnownProvider>,
    /// One discovery at a time.
    looking: tokio::sync::Mutex<()>,
}

struct KnownProvider {
    metadata: Option<(Arc<Metadata>, Instant)>,
    failure: Option<(String, Instant)>,
    backoff: Backoff,
}

/// What the browser keeps while somebody is at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errand {
    pub state: String,
    pub nonce: String,
    pub verifier: String,
}

/// Somebody the provider vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// With the issuer: no account of fipd is called like that.
    pub name: Text,
    pub role: Role,
    pub subject: String,
}

/// Why nobody is signed in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    #[error("the provider cannot be reached: {0}")]
    Down(String),
    /// It said nothing of the code: it is down by now, or does not know fipd.
    #[error("the provider did not look at the code: {0}")]
    Exchange(String),
    #[error("the provider did not take the code: {0}")]
    Refused(String),
    #[error("the provider's answer does not hold: {0}")]
    Token(String),
    /// The person, who is in none of the groups that are mapped.
    #[error("{0} is in no group that has a role here")]
    Unmapped(String),
    #[error("{0}")]
    Here(String),
}

impl OidcError {
    /// Whether the provider or its keys were against what the browser brought; else it may be right.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Token(_))
    }
}

impl KnownProvider {
    /// What is known is better than nothing, where any age will do.
    fn old(&self, age: Option<Duration>) -> Option<Arc<Metadata>> {
        let old = self.metadata.as_ref().filter(|_| age.is_none());
        old.map(|(metadata, _)| Arc::clone(metadata))
    }
}

impl Oidc {
    /// That of the configuration.
    ///
    /// # Errors
    /// Something of it cannot be used.
    pub fn new(config: Option<&config::Oidc>, advertise: Option<&str>) -> Result<Self, String> {
        let Some(config) = config else {
            return Ok(Self(None));
        };
        let advertise = advertise.ok_or("[oidc] needs [api] advertise: the URL by which browsers reach fipd, where the provider sends them back to")?;
        let failed = |what: &str, why: &dyn std::fmt::Display| format!("[oidc] {what}: {why}");
        let issuer = IssuerUrl::new(config.issuer.0.to_string());
        let redirect = format!("{}{CALLBACK}", advertise.trim_end_matches('/'));
        let redirect = RedirectUrl::new(redirect);
        Ok(Self(Some(Arc::new(Provider {
            config: config.clone(),
            issuer: issuer.map_err(|why| failed("issuer", &why))?,
            redirect: redirect.map_err(|why| failed("[api] advertise", &why))?,
            outgoing: Outgoing::new(config.ca_file.as_deref()),
            known: Mutex::new(KnownProvider {
                metadata: None,
                failure: None,
                backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            }),
            looking: tokio::sync::Mutex::default(),
        }))))
    }

    /// Whether the files of one can be used.
    ///
    /// # Errors
    /// Which cannot, and why.
    pub async fn check(config: &config::Oidc) -> Result<(), String> {
        let ready = Outgoing::new(config.ca_file.as_deref()).ready().await;
        ready.map_err(|why| format!("[oidc] {why}"))?;
        match &config.client_secret_file {
            Some(path) => read_secret(path)
                .await
                .map(drop)
                .map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// `None`: there is none.
    pub fn provider(&self) -> Option<&Arc<Provider>> {
        self.0.as_ref()
    }
}

impl Provider {
    /// What the login calls it.
    pub fn label(&self) -> &str {
        &self.config.label
    }

    /// Whether it could not be reached at the last look.
    pub fn is_down(&self) -> bool {
        self.known.lock().failure.is_some()
    }

    /// Looks whether it can be reached, where that is not known or was not so.
    pub async fn look(&self) {
        // What is found is kept, and told by `is_down`.
        let _ = self.metadata(None).await;
    }

    /// Where the browser goes, and what it keeps meanwhile.
    ///
    /// # Errors
    /// [`OidcError::Down`].
    pub async fn begin(&self) -> Result<(String, Errand), OidcError> {
        let client = self.client(&*self.metadata(None).await?).await?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let scopes = self
            .config
            .scopes
            .iter()
            .map(|one| Scope::new(one.to_string()));
        let (url, state, nonce) = client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                CsrfToken::new_random,
                Nonce::new_random,
            )
            .add_scopes(scopes)
            .set_pkce_challenge(challenge)
            .url();
        let errand = Errand {
            state: state.secret().clone(),
            nonce: nonce.secret().clone(),
            verifier: verifier.secret().clone(),
        };
        Ok((url.to_string(), errand))
    }

    /// Whom the provider vouches for by this code. The state was compared with the errand's.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn finish(&self, errand: &Errand, code: &str) -> Result<Person, OidcError> {
        let metadata = self.metadata(None).await?;
        let client = self.client(&metadata).await?;
        let response = self.exchange(&client, errand, code).await?;
        let token = response
            .id_token()
            .ok_or_else(|| OidcError::Token("there is no ID token".to_owned()))?;
        let nonce = Nonce::new(errand.nonce.clone());
        match verified(&client, token, &nonce, &response) {
            Err(Unsound::UnknownKey) => {
                // Its keys may have been changed.
                let fresh = self.metadata(Some(KEYS_EVERY)).await?;
                let client = self.client(&fresh).await?;
                verified(&client, token, &nonce, &response)
            }
            sound => sound,
        }
        .map_err(|why| OidcError::Token(why.to_string()))?;
        person(&self.config, &payload(&token.to_string())?)
    }

    /// Where somebody signs out of the provider as well; `None` where it has no such place.
    pub fn sign_out(&self) -> Option<String> {
        let known = self.known.lock();
        let (metadata, _) = known.metadata.as_ref()?;
        let end = metadata
            .additional_metadata()
            .end_session_endpoint
            .clone()?;
        let mut url = end.url().clone();
        url.query_pairs_mut()
            .append_pair("client_id", &self.config.client_id);
        Some(url.to_string())
    }

    async fn exchange(
        &self,
        client: &Client,
        errand: &Errand,
        code: &str,
    ) -> Result<CoreTokenResponse, OidcError> {
        let http = self.http();
        let request = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|error| OidcError::Exchange(told(&error)))?
            .set_pkce_verifier(PkceCodeVerifier::new(errand.verifier.clone()));
        let answer = request.request_async(&http).await;
        answer.map_err(|error| {
            // Providers have words of their own for a code that is wrong.
            if let RequestTokenError::ServerResponse(said) = &error
                && !matches!(said.error(), CoreErrorResponseType::InvalidClient)
                && !["server_error", "temporarily_unavailable"].contains(&said.error().as_ref())
            {
                return OidcError::Refused(told(&error));
            }
            OidcError::Exchange(told(&error))
        })
    }

    async fn client(&self, metadata: &Metadata) -> Result<Client, OidcError> {
        let secret = match &self.config.client_secret_file {
            Some(path) => Some(ClientSecret::new(read_secret(path).await?)),
            None => None,
        };
        let methods = metadata.token_endpoint_auth_methods_supported();
        let posts = methods.is_some_and(|all| {
            !all.contains(&CoreClientAuthMethod::ClientSecretBasic)
                && all.contains(&CoreClientAuthMethod::ClientSecretPost)
        });
        let id = ClientId::new(self.config.client_id.to_string());
        let client = CoreClient::from_provider_metadata(metadata.clone(), id, secret)
            .set_redirect_uri(self.redirect.clone());
        Ok(match posts {
            true => client.set_auth_type(AuthType::RequestBody),
            false => client,
        })
    }

    /// What the provider says of itself, not older than `age`, else [`KEEP`].
    async fn metadata(&self, age: Option<Duration>) -> Result<Arc<Metadata>, OidcError> {
        let _one = self.looking.lock().await;
        {
            let known = self.known.lock();
            if let Some((metadata, at)) = &known.metadata
                && at.elapsed() < age.unwrap_or(KEEP)
            {
                return Ok(Arc::clone(metadata));
            }
            if let Some((why, until)) = &known.failure
                && Instant::now() < *until
            {
                let why = why.clone();
                return known.old(age).ok_or(OidcError::Down(why));
            }
        }
        let http = self.http();
        let found = Metadata::discover_async(self.issuer.clone(), &http).await;
        let mut known = self.known.lock();
        match found {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                known.metadata = Some((Arc::clone(&metadata), Instant::now()));
                known.failure = None;
                known.backoff.reset();
                Ok(metadata)
            }
            Err(error) => {
                let why = told(&error);
                tracing::warn!(issuer = %self.config.issuer.0, error = why, "the OpenID Connect provider cannot be reached");
                let pause = known.backoff.pause();
                known.failure = Some((why.clone(), Instant::now() + pause));
                known.old(age).ok_or(OidcError::Down(why))
            }
        }
    }

    /// As the crate wants it.
    fn http(&self) -> impl Fn(HttpRequest) -> Answering + Send + Sync + use<> {
        let outgoing = self.outgoing.clone();
        move |request| {
            let outgoing = outgoing.clone();
            Box::pin(async move { outgoing.send(request, DEADLINE, MOST).await })
        }
    }
}

/// An error with its cause.
fn told(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Why an ID token is not believed.
#[derive(Debug, thiserror::Error)]
enum Unsound {
    #[error("it is signed with a key that the provider does not show")]
    UnknownKey,
    #[error("{0}")]
    Other(String),
}

fn verified<'a>(
    client: &Client,
    token: &'a CoreIdToken,
    nonce: &Nonce,
    response: &CoreTokenResponse,
) -> Result<&'a CoreIdTokenClaims, Unsound> {
    let skew = chrono::Duration::seconds(i64::try_from(SKEW.as_secs()).unwrap_or(60));
    let verifier = client
        .id_token_verifier()
        .set_time_fn(move || chrono::Utc::now() - skew)
        .set_issue_time_verifier_fn(move |issued| match issued > chrono::Utc::now() + skew {
            true => Err("it is from the future: compare the clocks".to_owned()),
            false => Ok(()),
        });
    let claims = token.claims(&verifier, nonce).map_err(|error| {
        if let ClaimsVerificationError::SignatureVerification(why) = &error {
            return match *why == SignatureVerificationError::NoMatchingKey {
                true => Unsound::UnknownKey,
                false => Unsound::Other(why.to_string()),
            };
        }
        Unsound::Other(error.to_string())
    })?;
    if let Some(expected) = claims.access_token_hash() {
        let other = |why: &dyn std::fmt::Display| Unsound::Other(why.to_string());
        let algorithm = token.signing_alg().map_err(|why| other(&why))?;
        let key = token.signing_key(&verifier).map_err(|why| other(&why))?;
        let actual = AccessTokenHash::from_token(response.access_token(), algorithm, key);
        if actual.map_err(|why| other(&why))? != *expected {
            return Err(other(&"the access token is not the one it was made with"));
        }
    }
    Ok(claims)
}

/// All claims of a token that was verified.
fn payload(token: &str) -> Result<Value, OidcError> {
    let part = token.split('.').nth(1).unwrap_or_default();
    let bytes = URL_SAFE_NO_PAD.decode(part).ok();
    let claims = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    claims.ok_or_else(|| OidcError::Token("its claims cannot be read".to_owned()))
}

/// Who it is that these are claimed of.
fn person(config: &config::Oidc, claims: &Value) -> Result<Person, OidcError> {
    let text = |name: &str| claim(claims, name).and_then(Value::as_str);
    let subject = text("sub").unwrap_or_default();
    let plain = |name: &&str| {
        let fine = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>' | '"' | '\'');
        (1..=NAME).contains(&name.len()) && name.chars().all(fine)
    };
    let name = text(&config.name_claim).filter(plain);
    let name = name.or(Some(subject).filter(plain)).ok_or_else(|| {
        OidcError::Token("neither the name claim nor sub has a plain name".to_owned())
    })?;
    let name = format!("{name}@{}", config.issuer.0);
    let groups = match claim(claims, &config.role_claim) {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => one.split([' ', ',']).collect(),
        Some(_) | None => Vec::new(),
    };
    let role = config.roles.of(&groups);
    let role = role.ok_or_else(|| OidcError::Unmapped(name.clone()))?;
    Ok(Person {
        name: name.into(),
        role,
        subject: subject.to_owned(),
    })
}

/// A claim by its name, else by its path.
fn claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| {
        name.split('.')
            .try_fold(claims, |value, part| value.get(part))
    })
}

/// Any bytes as an ID token or as its claims: whoever is let in has a plain name, with the provider's.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz(config: &config::Oidc, bytes: &[u8]) {
    let claims = serde_json::from_slice::<Value>(bytes).ok();
    let claims = claims.or_else(|| payload(&String::from_utf8_lossy(bytes)).ok());
    let found = claims.and_then(|claims| person(config, &claims).ok());
    if let Some(Person { name, .. }) = found {
        let issuer = format!("@{}", config.issuer.0);
        assert!(name.ends_with(&issuer), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_graphic()), "{name}");
    }
}

async fn read_secret(path: &Path) -> Result<String, OidcError> {
    let read = foreign_file::read_text(path, foreign_file::LONGEST).await;
    let failed = |error: io::Error| {
        let text = format!("[oidc] client-secret-file {}: {error}", path.display());
        OidcError::Here(text)
    };
    read.map(|text| text.trim().to_owned()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn provider(more: &str) -> Arc<Provider> {
        let text = format!(
            "issuer = \"https://idp.example/realms/a\"\nclient-id = \"fipd\"\n{more}\n[roles]\nadmin = [\"root\"]\n"
        );
        let config: config::Oidc = toml::from_str(&text).unwrap();
        let oidc = Oidc::new(Some(&config), Some("https://fipd.example")).unwrap();
        Arc::clone(oidc.provider().unwrap())
    }

    #[tokio::test]
    async fn a_fifo_as_client_secret_is_refused_and_waits_for_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = read_secret(&path).await.unwrap_err().to_string();
        assert!(
            error.contains("client-secret-file") && error.contains("not a regular file"),
            "{error}"
        );
    }

    #[test]
    fn people_are_named_with_their_issuer_and_by_nothing_odd() {
        let provider = provider("");
        let name = |claims: Value| person(&provider.config, &claims).map(|person| person.name);
        let groups = json!(["root"]);
        let ann = json!({ "sub": "1", "preferred_username": "ann", "groups": groups });
        assert_eq!(name(ann).as_deref(), Ok("ann@https://idp.example/realms/a"));
        for odd in ["<b>", "a b", "", "\u{202e}x"] {
            let claims = json!({ "sub": "1", "preferred_username": odd, "groups": groups });
            assert_eq!(
                name(claims).as_deref(),
                Ok("1@https://idp.example/realms/a")
            );
        }
        let nobody = json!({ "sub": "a b", "groups": groups });
        assert!(matches!(name(nobody), Err(OidcError::Token(_))));
        let stranger = json!({ "sub": "1", "groups": ["other"] });
        assert!(matches!(name(stranger), Err(OidcError::Unmapped(_))));
    }

    #[test]
    fn groups_are_found_by_name_and_by_path() {
        for (setting, claims) in [
            (
                "role-claim = \"realm_access.roles\"",
                json!({ "sub": "1", "realm_access": { "roles": ["x", "root"] } }),
            ),
            (
                "role-claim = \"https://a/roles\"",
                json!({ "sub": "1", "https://a/roles": ["root"] }),
            ),
            (
                "role-claim = \"role\"",
                json!({ "sub": "1", "role": "x root" }),
            ),
        ] {
            let person = person(&provider(setting).config, &claims).unwrap();
            assert_eq!(person.role, Role::Admin, "{setting}");
        }
    }

    #[tokio::test]
    async fn what_was_known_goes_on_while_the_provider_is_down() {
        let text = "issuer = \"http://127.0.0.1:1\"\nclient-id = \"x\"\n[roles]\nadmin = [\"r\"]\n";
        let config: config::Oidc = toml::from_str(text).unwrap();
        let oidc = Oidc::new(Some(&config), Some("https://fipd.example")).unwrap();
        let provider = oidc.provider().unwrap();
        assert!(matches!(provider.begin().await, Err(OidcError::Down(_))));
        let said = json!({
            "issuer": "http://127.0.0.1:1", "authorization_endpoint": "http://127.0.0.1:1/authorize",
            "token_endpoint": "http://127.0.0.1:1/token", "jwks_uri": "http://127.0.0.1:1/keys",
            "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        });
        let metadata: Metadata = serde_json::from_str(&said.to_string()).unwrap();
        let before = Instant::now().checked_sub(KEEP).unwrap();
        {
            let mut known = provider.known.lock();
            known.metadata = Some((Arc::new(metadata), before));
            known.failure = None;
        }
        assert!(provider.begin().await.is_ok(), "who finds out that it is");
        assert!(provider.is_down(), "it was asked");
        assert!(provider.begin().await.is_ok(), "and who comes after");
        // New keys are not to be had from what was known.
        let keys = provider.metadata(Some(KEYS_EVERY)).await;
        assert!(matches!(keys, Err(OidcError::Down(_))));
    }

    #[test]
    fn without_an_address_to_come_back_to_it_is_refused() {
        let text = "issuer = \"https://a\"\nclient-id = \"x\"\n[roles]\nadmin = [\"r\"]\n";
        let config: config::Oidc = toml::from_str(text).unwrap();
        let refused = Oidc::new(Some(&config), None).err().unwrap();
        assert!(refused.contains("advertise"), "{refused}");
    }
}
