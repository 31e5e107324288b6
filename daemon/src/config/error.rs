//! Why a configuration is not used.

use std::path::PathBuf;

/// The file cannot be used. The daemon does not start with it; a running one keeps what it had.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    /// `what` starts with line and column, where one place is wrong.
    #[error("{}: {what}", path.display())]
    Invalid { path: PathBuf, what: String },
    /// What the command line and the environment say does not fit.
    #[error("{0}")]
    Given(String),
}

/// `what`, with line and column of the byte `offset` of `text`, both counted from 1.
pub(super) fn at(text: &str, offset: usize, what: &str) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    format!("line {line}, column {column}: {what}")
}

/// What TOML is wrong, with its place and its key. Not the line itself: a secret may be in it.
pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> String {
    let Some(span) = error.span() else {
        // Without a place it has no line either.
        return error.to_string().trim_end().to_owned();
    };
    let message = error.message();
    let before = text.get(..span.start).unwrap_or(text);
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(begin..).unwrap_or_default().lines().next();
    // A line of something else, such as a key in base64, may end with such signs.
    let pair = line.and_then(|line| line.split_once('='));
    let pair = pair.filter(|(_, value)| !value.trim_matches('=').trim().is_empty());
    let key = pair.map(|(key, _)| key.trim());
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    match key {
        Some(key) if key.chars().all(plain) && !message.contains(key) => {
            at(text, span.start, &format!("{key}: {message}"))
        }
        Some(_) | None => at(text, span.start, message),
    }
}

/// A wrong address as messages show it: at most scheme and host, since a secret may be in the rest.
pub(super) fn shown(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return "...".to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    // A password may have what ends a host.
    let sure = authority.contains('@') || !rest.contains('@');
    match [scheme, host].concat().chars().all(plain) && sure {
        true => format!("{scheme}://{host}..."),
        false => "...".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        let error = super::super::File::read(*crate::systems::SYSTEMS, text).err();
        of_toml(text, &error.expect("this is wrong"))
    }

    #[test]
    fn wrong_toml_is_named_without_its_line() {
        for (text, place, said) in [
            (
                "[oidc]\nclient-secret = \"hunter2\"\n",
                "line 2, column 1: ",
                "unknown field `client-secret`",
            ),
            (
                "[oidc]\nclient-secret = hunter2\n",
                "line 2, column ",
                "client-secret: ",
            ),
            ("[oidc]\nclient-secret = \"hunter2\n", "line ", ": "),
            (
                "[api]\n\nlisten = \"nowhere\" # hunter2\n",
                "line 3, column ",
                "listen: ",
            ),
            ("hunter2", "line 1, column ", ": "),
            ("hunter2=", "line 1, column ", ": "),
            ("[api]\nhunter2==\n", "line 2, column ", ": "),
        ] {
            let what = wrong(text);
            assert!(what.starts_with(place) && what.contains(said), "{what}");
            assert!(!what.contains("hunter2"), "{what}");
        }
    }

    #[test]
    fn of_a_wrong_address_scheme_and_host_are_shown() {
        for (address, said) in [
            (
                "https://hooks.example:9/T0/hunter2?x=1",
                "https://hooks.example:9...",
            ),
            (
                "https://me:hunter2@hooks.example/x",
                "https://hooks.example...",
            ),
            ("ftp://hooks.example", "ftp://hooks.example..."),
            ("https://me:hunter2/x@hooks.example", "..."),
            ("https://hooks example/hunter2", "..."),
            ("me:hunter2@hooks.example", "..."),
        ] {
            assert_eq!(shown(address), said);
        }
    }
}
