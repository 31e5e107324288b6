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
        toml::Value::String(text) => *text = without_paths(text),
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
        Value::String(text) => *text = without_paths(text),
        Value::Array(all) => all.iter_mut().for_each(urls),
        Value::Object(more) => more.values_mut().for_each(urls),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Receivers of webhooks often have their secret in the path, and others have a name and a password before the host. All
/// addresses in the text are without them.
fn without_paths(text: &str) -> String {
    let beyond = |c: char| c.is_whitespace() || "\"'`<>\\".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, more) = rest.split_at(at + "://".len());
        let (address, more) = more.split_at(more.find(beyond).unwrap_or(more.len()));
        rest = more;
        let end = address.find(['/', '?', '#']).unwrap_or(address.len());
        let (authority, path) = address.split_at(end);
        out.push_str(before);
        out.push_str(authority.rsplit('@').next().unwrap_or_default());
        let web = before.ends_with("http://") || before.ends_with("https://");
        match web && path.len() > 1 {
            true => out.extend(["/", MASKED]),
            false => out.push_str(path),
        }
    }
    out.push_str(rest);
    out
}

/// What is said of keys that may be secrets: `key = value`, `"key": "value"` and the like.
fn without_values(line: &str) -> String {
    let of_key = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| !of_key(c)).unwrap_or(rest.len());
        let (key, more) = rest.split_at(end);
        out.push_str(key);
        rest = more;
        if key.is_empty() {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else if may_be_secret(key)
            && let Some((before, after)) = around_value(more)
        {
            out.extend([before, MASKED]);
            rest = after;
        }
    }
    out
}

/// What is before and behind the value of a key, in the text behind the key. Of a list or words without quotes that is all.
fn around_value(text: &str) -> Option<(&str, &str)> {
    let sign = text.trim_start_matches(['\\', '"', '\'']).trim_start();
    let given = sign.strip_prefix([':', '='])?;
    let value = given.trim_start();
    // A count is no secret, and what is below a bracket is in lines of its own.
    let alone = value.trim_end_matches([',', ' ']);
    let open = ["", "[", "{", "true", "false", "null"].contains(&alone);
    if open || alone.parse::<u16>().is_ok() || value.starts_with(':') {
        return None;
    }
    let before = |value: &str| &text[..text.len() - value.len()];
    let plain = value.trim_start_matches('\\');
    if let Some(quote @ ('"' | '\'')) = plain.chars().next() {
        let inside = plain.trim_start_matches(quote);
        // Nothing is in them.
        if plain.len() - inside.len() == 2 {
            return None;
        }
        let escaped = plain.len() < value.len();
        let mut ends = inside.match_indices(quote);
        let end = ends.find(|(at, _)| inside[..*at].ends_with('\\') == escaped);
        let end = end.map_or(inside.len(), |(at, _)| at - usize::from(escaped));
        return Some((before(inside), &inside[end..]));
    }
    let bearer = value
        .get(..6)
        .is_some_and(|word| word.eq_ignore_ascii_case("bearer"));
    let whole = given.len() > value.len() || value.starts_with(['[', '{']) || bearer;
    let end = value.find(char::is_whitespace).filter(|_| !whole);
    Some((before(value), &value[end.unwrap_or(value.len())..]))
}

/// Anything that looks like a token, a hash or a key, wherever it is, what is given to keys that may be secrets, and of
/// addresses all but the host.
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
            words(&without_paths(&without_values(line)), &mut out);
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
            after_bearer = word.to_ascii_lowercase().ends_with("bearer");
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
    fn values_of_secret_keys_go_from_lines_in_any_form() {
        for line in [
            "3 | client-secret = \"hunter2 hunter2\" # of idp",
            "client_secret='hunter2' of idp",
            "password: hunter2 hunter2",
            "what={\"apiKey\":\"hunter2\",\"of\": \"idp\"} of idp",
            "error=\"line 3: \\\"token\\\": \\\"hunter2\\\"\" of idp",
            "token=hunter2 of idp",
            "token=Bearer hunter2",
            "authorization=Bearer hunter2hunter2 of idp",
            "secret = \"\"\"hunter2\"\"\" of idp",
            "tokens = [\"hunter2\", \"hunter2\"]",
            "posted to https://me:hunter2@hooks.example/hunter2?x=hunter2, of idp",
            "url=\"http://hooks.example?hunter2\" of idp",
            "token=\"\" password=\"hunter2\" of idp",
        ] {
            let seen = text(line);
            assert!(!seen.contains("hunter2") && seen.contains(MASKED), "{seen}");
            assert_eq!(seen.contains("of idp"), line.contains("of idp"), "{seen}");
            assert_eq!(text(&seen), seen, "a second time changes nothing");
        }
        for line in [
            "\"tokens\": 17,",
            "\"tokens\": [",
            "client-secret-file = \"/etc/fipd/oidc.secret\"",
            "fipd::api::tokens::made a token of ann",
            "listening at https://127.0.0.1:8443, unix:///run/fipd/fipd.sock",
            "https://127.0.0.1:8443/ is 1/2 of \u{e4}",
        ] {
            assert_eq!(text(line).trim_end(), line);
        }
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
