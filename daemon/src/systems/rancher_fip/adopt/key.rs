//! The key with which the original API server signs tokens.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ring::signature::RsaKeyPair;

const BEGIN: &str = "-----BEGIN RSA PRIVATE KEY-----";
const END: &str = "-----END RSA PRIVATE KEY-----";

/// Why a key cannot be taken over. Never says anything of the key itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongKey {
    #[error("it is empty")]
    Empty,
    #[error("it is no PEM text of an RSA PRIVATE KEY (PKCS#1)")]
    NoPem,
    /// What `ring` says.
    #[error("it is no RSA key of 2048 bits or more: {0}")]
    Unusable(String),
}

/// The key in DER, as it will be kept.
pub fn read(pem: &[u8]) -> Result<Vec<u8>, WrongKey> {
    let text = std::str::from_utf8(pem).map_err(|_| WrongKey::NoPem)?;
    if text.trim().is_empty() {
        return Err(WrongKey::Empty);
    }
    let (_, rest) = text.split_once(BEGIN).ok_or(WrongKey::NoPem)?;
    let (body, _) = rest.split_once(END).ok_or(WrongKey::NoPem)?;
    let body: String = body.split_whitespace().collect();
    let der = BASE64.decode(body).map_err(|_| WrongKey::NoPem)?;
    let pair = RsaKeyPair::from_der(&der);
    pair.map_err(|error| WrongKey::Unusable(error.to_string()))?;
    Ok(der)
}

#[cfg(test)]
mod tests {
    use getrandom::{SysRng, rand_core::UnwrapErr};
    use rsa::{RsaPrivateKey, pkcs1::EncodeRsaPrivateKey as _};

    use super::*;

    fn pem(bits: usize) -> (Vec<u8>, String) {
        let key = RsaPrivateKey::new(&mut UnwrapErr(SysRng), bits).expect("a key");
        let der = key.to_pkcs1_der().expect("DER").as_bytes().to_vec();
        let lines = BASE64.encode(&der);
        let lines: Vec<&str> = lines
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).expect("ASCII"))
            .collect();
        let text = format!("{BEGIN}\n{}\n{END}\n", lines.join("\n"));
        (der, text)
    }

    #[test]
    fn a_key_as_the_original_writes_it_is_read_and_any_other_is_told_apart() {
        let (der, text) = pem(2_048);
        assert_eq!(read(text.as_bytes()), Ok(der));
        for empty in ["", "\n"] {
            assert_eq!(read(empty.as_bytes()), Err(WrongKey::Empty));
        }
        let pkcs8 = text.replace("RSA PRIVATE", "PRIVATE");
        let cut = &text[..300];
        for wrong in [
            "nil",
            &*pkcs8,
            cut,
            "-----BEGIN RSA PRIVATE KEY-----\n%\n-----END RSA PRIVATE KEY-----",
        ] {
            assert_eq!(read(wrong.as_bytes()), Err(WrongKey::NoPem));
        }
        assert_eq!(read(&[0xff, 0xfe]), Err(WrongKey::NoPem));
        let garbled = format!("{BEGIN}\n{}\n{END}", BASE64.encode([0_u8; 64]));
        assert!(matches!(
            read(garbled.as_bytes()),
            Err(WrongKey::Unusable(_))
        ));
        let (_, small) = pem(1_024);
        let said = read(small.as_bytes()).expect_err("too small").to_string();
        assert!(said.contains("2048 bits"), "{said}");
    }
}
