//! Takes secrets out of what is handed on.

use serde_json::Value;

const MASKED: &str = "(masked)";
/// Keys of the configuration whose values may be anything, secrets among them.
const FREE: [&str; 1] = ["values"];
/// And those that name a secret rather than a file with one.
const SECRET: [&str; 5] = ["secret", "password", "token", "client-secret", "key-data"];

/// A configuration: free values go, addresses keep their host.
pub fn table(table: &mut toml::Table) {
    for (key, value) in table.iter_mut() {
        let key = key.as_str();
        if FREE.contains(&key) || SECRET.contains(&key) {
            *value = MASKED.into();
            continue;
        }
        item(value);
    }
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

/// Receivers of webhooks often have their secret in the path.
fn without_path(text: &str) -> String {
    let address = ["https://", "http://"]
        .into_iter()
        .find(|scheme| text.starts_with(scheme));
    let Some(scheme) = address.filter(|_| !text.contains(char::is_whitespace)) else {
        return text.to_owned();
    };
    let rest = &text[scheme.len()..];
    match rest.find(['/', '?']) {
        Some(end) if rest.len() > end + 1 => {
            let host = rest[..end].rsplit('@').next().unwrap_or_default();
            format!("{scheme}{host}/{MASKED}")
        }
        Some(_) | None => text.to_owned(),
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
}
