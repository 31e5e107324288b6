//! The tokens of the stock LB controller: JWT, RS256, with `client_id`, `iat` and `exp`.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use fipd_core::Timestamp;
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How long a token counts, in seconds.
pub const LASTS: u64 = 3_600;
/// Nothing longer is looked at.
const LONGEST: usize = 4_096;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub client_id: String,
    /// Seconds since 1970.
    pub iat: u64,
    pub exp: u64,
}

impl Claims {
    /// For a client, from now on.
    pub fn starting(client: &str, now: Timestamp) -> Self {
        let iat = now.0 / 1_000;
        Self {
            client_id: client.to_owned(),
            iat,
            exp: iat.saturating_add(LASTS),
        }
    }

    /// When it ends.
    pub fn end(&self) -> Timestamp {
        Timestamp(self.exp.saturating_mul(1_000))
    }
}

/// Signs.
///
/// # Errors
/// The system has no randomness.
pub fn sign(claims: &Claims, key: &RsaKeyPair) -> Result<String, ring::error::Unspecified> {
    let part = |value: &Value| BASE64.encode(value.to_string());
    let header = part(&json!({ "alg": "RS256", "typ": "JWT" }));
    let body = part(&json!(claims));
    let mut text = format!("{header}.{body}");
    let mut signature = vec![0; key.public().modulus_len()];
    let random = SystemRandom::new();
    key.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature)?;
    text.push('.');
    text.push_str(&BASE64.encode(signature));
    Ok(text)
}

/// What a token says that one of the keys signed and that has not ended.
pub fn verify<K: AsRef<RsaKeyPair>>(text: &str, keys: &[K], now: Timestamp) -> Option<Claims> {
    if text.len() > LONGEST {
        return None;
    }
    let (signed, signature) = text.rsplit_once('.')?;
    let (header, body) = signed.split_once('.')?;
    let header: Value = serde_json::from_slice(&BASE64.decode(header).ok()?).ok()?;
    if header["alg"] != "RS256" {
        return None;
    }
    let signature = BASE64.decode(signature).ok()?;
    let signs = |key: &K| {
        let public = key.as_ref().public().as_ref();
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public)
            .verify(signed.as_bytes(), &signature)
            .is_ok()
    };
    if !keys.iter().any(signs) {
        return None;
    }
    let claims: Claims = serde_json::from_slice(&BASE64.decode(body).ok()?).ok()?;
    (claims.end() > now).then_some(claims)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::fip_v1::tokens::make;

    const NOW: Timestamp = Timestamp(1_700_000_000_123);

    fn key() -> Arc<RsaKeyPair> {
        Arc::new(RsaKeyPair::from_der(&make().unwrap()).unwrap())
    }

    #[test]
    fn a_token_counts_for_an_hour_under_its_key() {
        let (old, new) = (key(), key());
        let claims = Claims::starting("client-c-m-a", NOW);
        assert_eq!(claims.exp - claims.iat, 3_600);
        let text = sign(&claims, &old).unwrap();
        let both = [Arc::clone(&new), Arc::clone(&old)];
        assert_eq!(verify(&text, &both, NOW), Some(claims.clone()));
        assert_eq!(verify(&text, &both, claims.end()), None);
        assert_eq!(verify(&text, &[new], NOW), None);
    }

    #[test]
    fn what_was_changed_or_signed_otherwise_does_not_count() {
        let keys = [key()];
        let claims = Claims::starting("client-c-m-a", NOW);
        let text = sign(&claims, &keys[0]).unwrap();
        let parts: Vec<&str> = text.split('.').collect();
        let other = BASE64.encode(json!(Claims::starting("client-c-m-b", NOW)).to_string());
        let none = BASE64.encode(json!({ "alg": "none" }).to_string());
        let hmac = BASE64.encode(json!({ "alg": "HS256" }).to_string());
        for forged in [
            format!("{}.{other}.{}", parts[0], parts[2]),
            format!("{none}.{}.", parts[1]),
            format!("{hmac}.{}.{}", parts[1], parts[2]),
            format!("{}.{}", parts[0], parts[1]),
            String::new(),
            "a".repeat(LONGEST + 1),
        ] {
            assert_eq!(verify(&forged, &keys, NOW), None, "{forged}");
        }
    }
}
