//! Cookies and the secrets in them.
//!
//! The `__Host-` prefix makes browsers insist on `Secure`, `Path=/` and no `Domain`.

use data_encoding::HEXLOWER;
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The value of a cookie; the first one where a name is sent twice.
pub fn get<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .filter_map(|pair| std::str::from_utf8(pair).ok()?.trim().split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))
}

/// `Set-Cookie` of a cookie that ends with the browser.
pub fn set(name: &str, value: &str) -> String {
    format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Strict")
}

/// `Set-Cookie` that removes a cookie.
pub fn clear(name: &str) -> String {
    format!("{name}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0")
}

/// 256 random bits as text; `None` where the system gives none.
pub fn random() -> Option<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).ok()?;
    Some(HEXLOWER.encode(&bytes))
}

/// What a secret is stored and found by.
pub fn fingerprint(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Compares secrets in a time that does not depend on where they differ. An empty one equals nothing.
pub fn same(left: &str, right: &str) -> bool {
    !left.is_empty() && bool::from(left.as_bytes().ct_eq(right.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::COOKIE,
            "a=1; __Host-fipd-x=2;__Host-fipd=3".parse().unwrap(),
        );
        headers.append(header::COOKIE, "b=4".parse().unwrap());
        assert_eq!(get(&headers, "__Host-fipd"), Some("3"));
        assert_eq!(get(&headers, "b"), Some("4"));
        assert_eq!(get(&headers, "fipd"), None);
    }

    #[test]
    fn odd_cookies_of_others_on_the_host_hide_none() {
        for other in [&b"name=M\xc3\xbcller"[..], b"name=M\xfcller", b"=", b""] {
            let value = [other, b"; __Host-fipd=3"].concat();
            let value = header::HeaderValue::from_bytes(&value).unwrap();
            let headers = HeaderMap::from_iter([(header::COOKIE, value)]);
            assert_eq!(get(&headers, "__Host-fipd"), Some("3"), "{other:?}");
        }
    }

    #[test]
    fn secrets_are_long_differ_and_compare() {
        let (first, second) = (random().unwrap(), random().unwrap());
        assert_eq!(first.len(), 64);
        assert!(!same(&first, &second) && same(&first, &first.clone()));
        assert!(!same("", "") && !same(&first, &first[1..]));
    }

    #[test]
    fn cookies_stay_on_this_host_and_out_of_scripts() {
        for cookie in [set("__Host-a", "1"), clear("__Host-a")] {
            for flag in ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
                assert!(cookie.contains(flag), "{cookie}");
            }
            assert!(!cookie.contains("Domain"));
        }
    }
}
