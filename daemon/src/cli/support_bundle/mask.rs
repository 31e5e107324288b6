//! Takes secrets out of what is handed on.

use serde_json::Value;

const MASKED: &str = "(masked)";
/// Keys of the configuration whose values may be anything, secrets among them.
const FREE: [&str; 1] = ["values"];
/// Parts of the names of keys that may have a secret rather than a file with one, also where fipd does not know them.
const SECRET: [&str; 7] = [
    "secret",
    "passw",
    "token",
    "credential",
    "private",
    "keydata",
    "apikey",
];

/// A configuration: free values go, addresses keep their host.
pub fn table(table: &mut toml::Table) {
    for (key, value) in table.iter_mut() {
        let key = key.as_str();
        if FREE.contains(&key) || may_be_secret(key) {
            *value = MASKED.into();
            continue;
        }
        item(value);
    }
}

fn may_be_secret(key: &str) -> bool {
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    !plain.ends_with("file") && SECRET.iter().any(|part| plain.contains(part))
}

fn item(value: &mut toml::Value) {
    match value {
        toml::Value::String(text) => *text = without_path(text),
        toml::Value::Array(all) => all.iter_mut().for_each(item),
        toml::Value::Table(more) => table(more),
        toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => {}
    }
}

/// The same in an answer of the daemon.
pub fn urls(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_path(text),
        Value::Array(all) => all.iter_mut().for_each(urls),
        Value::Object(more) => more.values_mut().for_each(urls),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Receivers of webhooks often have their secret in the path, and others have a name and a password before the host.
fn without_path(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    if text.contains(char::is_whitespace) {
        return text.to_owned();
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    match scheme {
        "http" | "https" if path.len() > 1 => format!("{scheme}://{host}/{MASKED}"),
        _ => format!("{scheme}://{host}{path}"),
    }
}

/// Anything that looks like a token, a hash or a key, wherever it is.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.lines() {
        if line.contains("-----BEGIN") && line.contains("PRIVATE KEY") {
            in_key = true;
            out.push_str(MASKED);
            out.push('\n');
        }
        if !in_key {
            words(line, &mut out);
            out.push('\n');
        }
        if line.contains("-----END") {
            in_key = false;
        }
    }
    out
}

fn words(line: &str, out: &mut String) {
    let inside = |c: char| c.is_ascii_alphanumeric() || "_-.$+/=,".contains(c);
    let mut rest = line;
    let mut after_bearer = false;
    while let Some(first) = rest.chars().next() {
        let end = match inside(first) {
            true => rest.find(|c| !inside(c)).unwrap_or(rest.len()),
            false => rest.find(inside).unwrap_or(rest.len()),
        };
        let (word, more) = rest.split_at(end);
        rest = more;
        if inside(first) {
            let hide = is_secret(word) || (after_bearer && word.len() > 8);
            out.push_str(if hide { MASKED } else { word });
            after_bearer = word.eq_ignore_ascii_case("bearer");
        } else {
            out.push_str(word);
        }
    }
}

fn is_secret(word: &str) -> bool {
    // fipd_NUMBER_SECRET
    let own = word.find("fipd_").is_some_and(|at| {
        let mut parts = word[at + 5..].splitn(2, '_');
        let number = parts.next().unwrap_or_default();
        let secret = parts.next().unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && secret.len() > 15
    });
    let jwt = word.contains("eyJ") && word.len() > 40;
    own || jwt || word.contains("$argon2") || word.contains("whsec_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_hashes_and_keys_go_and_the_rest_stays() {
        let seen = text(concat!(
            "token=fipd_17_0123456789abcdef0123 of ann\n",
            "hash $argon2id$v=19$m=19456,t=2,p=1$AAAA$BBBB.\n",
            "authorization: Bearer abcdefghijkl, next\n",
            "jwt eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ\n",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n",
            "fipd_pool_free{pool=\"a\"} 3\n",
        ));
        for secret in [
            "0123456789abcdef",
            "BBBB",
            "abcdefghijkl",
            "c2lnbmF0dXJl",
            "MfKQ",
            "MIIE",
        ] {
            assert!(!seen.contains(secret), "{secret}: {seen}");
        }
        assert!(seen.contains("fipd_pool_free{pool=\"a\"} 3") && seen.contains("of ann"));
    }

    #[test]
    fn free_values_and_paths_of_addresses_go_from_a_configuration() {
        let mut given: toml::Table = toml::from_str(
            "[api]\nadvertise = \"https://a:8443\"\n[[webhook]]\nurl = \"https://hooks.example/T1/secret?x=1\"\nsecret-file = \"/etc/fipd/s\"\n[a.metallb]\nvalues = { password = \"p\" }\n",
        )
        .unwrap();
        table(&mut given);
        let text = toml::to_string(&given).unwrap();
        assert!(
            text.contains("https://a:8443") && text.contains("/etc/fipd/s"),
            "{text}"
        );
        assert!(text.contains("https://hooks.example/(masked)"), "{text}");
        assert!(
            !text.contains("secret?x") && !text.contains("\"p\""),
            "{text}"
        );
    }

    #[test]
    fn a_configuration_that_fipd_would_refuse_keeps_its_secrets_too() {
        let text = concat!(
            "[oidc]\nclient_secret = \"hidden\"\nclientSecret = \"hidden\"\n",
            "[[webhook]]\nurl = \"https://me:hidden@hooks.example\"\nwebhook-secret = \"hidden\"\n",
            "[a]\nchart = \"oci://user:hidden@registry.example/x\"\nAPI_KEY = \"hidden\"\n",
            "secret-file = \"/etc/fipd/shown\"\nkey = \"/etc/fipd/tls.key\"\n",
        );
        let mut given: toml::Table = toml::from_str(text).unwrap();
        table(&mut given);
        let text = toml::to_string(&given).unwrap();
        assert!(!text.contains("hidden"), "{text}");
        for shown in [
            "/etc/fipd/shown",
            "/etc/fipd/tls.key",
            "https://hooks.example",
            "oci://registry.example/x",
        ] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }
}
