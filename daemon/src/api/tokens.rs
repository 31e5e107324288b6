//! Bearer tokens: their text, how they are made, and who is behind one.
//!
//! The text is `fipd_<id>_<secret>`: the id finds the row, the secret (32 random bytes as hex) is compared with the
//! stored SHA-256 in constant time.

use std::fmt::Write as _;

use fipd_core::{Role, Timestamp, Token, TokenId};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::auth::{Caller, Via};
use crate::{clock, ipam::Ipam};

const PREFIX: &str = "fipd_";
const SECRET_BYTES: usize = 32;

/// A fresh token and the text that is shown once.
pub struct Minted {
    pub token: Token,
    pub text: String,
}

/// Makes a token. Fails only where the system has no randomness.
pub fn mint(
    name: &str,
    role: Role,
    created: Timestamp,
    expires: Option<Timestamp>,
) -> Result<Minted, getrandom::Error> {
    let mut secret = [0_u8; SECRET_BYTES];
    getrandom::fill(&mut secret)?;
    // 48 bits: exact in every JSON reader, and never given twice in practice.
    let id = TokenId(getrandom::u64()? >> 16);
    let hash = Sha256::digest(secret).into();
    let text = format!("{PREFIX}{}_{}", id.0, hex(&secret));
    let token = Token {
        id,
        name: name.into(),
        role,
        hash,
        created,
        expires,
    };
    Ok(Minted { token, text })
}

/// Who is behind a token's text; `None` for unknown, revoked and expired ones.
pub fn caller(ipam: &Ipam, text: &str) -> Option<Caller> {
    let (id, secret) = parse(text)?;
    let hash: [u8; 32] = Sha256::digest(secret).into();
    let now = clock::now();
    ipam.read(|ledger| {
        let token = ledger.token(id)?;
        let fresh = token.expires.is_none_or(|end| end > now);
        let same = bool::from(token.hash.ct_eq(&hash));
        (fresh && same).then(|| Caller {
            actor: format!("token:{}", token.name).into(),
            role: token.role,
            via: Via::Token,
        })
    })
}

fn parse(text: &str) -> Option<(TokenId, [u8; SECRET_BYTES])> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let id = id.parse().ok()?;
    let mut bytes = [0_u8; SECRET_BYTES];
    if secret.len() != SECRET_BYTES * 2 || !secret.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(secret.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some((TokenId(id), bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_text() {
        let minted = mint("ci", Role::Operator, Timestamp(1), None).unwrap();
        let (id, secret) = parse(&minted.text).unwrap();
        assert_eq!(id, minted.token.id);
        assert_eq!(<[u8; 32]>::from(Sha256::digest(secret)), minted.token.hash);
        assert!(!format!("{:?}", minted.token).contains("hash"));
    }

    #[test]
    fn other_texts_are_no_tokens() {
        for text in [
            "",
            "fipd_",
            "fipd_1_",
            "fipd_x_00",
            "fipd_1_zz",
            "Fipd_1_00",
            "fipd_-1_00",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
        let euro = format!("fipd_1_{}", "€".repeat(SECRET_BYTES));
        assert!(parse(&euro).is_none());
        assert!(parse(&format!("fipd_1_{}+1", "0".repeat(62))).is_none());
    }
}
