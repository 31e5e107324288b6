//! The bodies of the stock LB controller. Go reads the keys of JSON in any case, so this does as well: the controller
//! sends `clientSecret`, the original's documents say `clientsecret`.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use crate::fip_v1::{Claim, Denied, FipRelease, Service, Wish};

/// The longest text of a field.
const LONGEST: usize = 1_024;
/// The longest value of a label.
const LABEL: usize = 63;

/// The texts that are read; the secret is one more.
const TEXTS: [&str; 8] = [
    "clientid",
    "cluster",
    "project",
    "floatingippool",
    "servicenamespace",
    "servicename",
    "ipaddr",
    "floatingipgroup",
];
const SECRET: &str = "clientsecret";

/// The fields of a body by their names in small letters.
#[derive(Debug)]
pub struct Fields {
    texts: BTreeMap<&'static str, String>,
    secret: SecretString,
}

impl Fields {
    /// Reads a body. What is `null` is as if it were not there; fields that nobody knows are ignored, whatever they hold.
    ///
    /// # Errors
    /// No JSON object, or a known field that is no text.
    pub fn read(body: &[u8]) -> Result<Self, Denied> {
        let Members(members) = serde_json::from_slice(body).map_err(|_| invalid(""))?;
        let mut fields = Self {
            texts: BTreeMap::new(),
            secret: SecretString::default(),
        };
        for (key, value) in members {
            let small = key.to_ascii_lowercase();
            let known = TEXTS.into_iter().find(|known| *known == small);
            if known.is_none() && small != SECRET {
                continue;
            }
            match value {
                Value::String(text) if text.len() <= LONGEST => match known {
                    Some(known) => drop(fields.texts.insert(known, text)),
                    None => fields.secret = text.into(),
                },
                Value::Null => {}
                Value::String(_) => {
                    let why = format!(": {key} is longer than {LONGEST} bytes");
                    return Err(invalid(&why));
                }
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    return Err(invalid(""));
                }
            }
        }
        Ok(fields)
    }

    /// A field; empty where it is missing.
    pub fn text(&self, key: &str) -> &str {
        self.texts.get(key).map_or("", String::as_str)
    }

    pub fn secret(&self) -> &str {
        self.secret.expose_secret()
    }

    /// A field that is not empty.
    fn some(&self, key: &str) -> Option<&str> {
        Some(self.text(key)).filter(|text| !text.is_empty())
    }

    fn address(&self) -> Result<Option<IpAddr>, Denied> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| invalid(&format!(": ipaddr: {text:?} is no IP address")))
        };
        self.some("ipaddr").map(parse).transpose()
    }

    /// A field that becomes the value of a label.
    fn label(&self, key: &str) -> Result<String, Denied> {
        let text = self.text(key);
        if is_label(text) {
            return Ok(text.to_owned());
        }
        let what = if text.is_empty() {
            format!(": {key} is required")
        } else {
            format!(
                ": {key}: {text:?} is not allowed: 1 to {LABEL} of a-z, A-Z, 0-9, '-', '_' and '.', \
                 starting and ending with a letter or digit"
            )
        };
        Err(invalid(&what))
    }

    fn service(&self) -> Result<Service, Denied> {
        Ok(Service {
            namespace: self.label("servicenamespace")?,
            name: self.label("servicename")?,
        })
    }

    fn group(&self) -> Result<Option<String>, Denied> {
        match self.some("floatingipgroup") {
            Some(_) => self.label("floatingipgroup").map(Some),
            None => Ok(None),
        }
    }

    /// Who asks. `client`: whom the token was given to.
    pub fn claim(&self, client: String, names_cluster: bool) -> Claim {
        Claim {
            client,
            project: self.text("project").to_owned(),
            secret: self.secret.clone(),
            cluster: names_cluster.then(|| self.text("cluster").to_owned()),
        }
    }

    /// # Errors
    /// A field is missing or cannot be what it says.
    pub fn wish(&self) -> Result<Wish, Denied> {
        let pool = self.some("floatingippool");
        Ok(Wish {
            service: self.service()?,
            pool: pool
                .ok_or_else(|| invalid(": floatingippool is required"))?
                .to_owned(),
            address: self.address()?,
            group: self.group()?,
        })
    }

    /// # Errors
    /// As [`Self::wish`].
    pub fn fip_release(&self) -> Result<FipRelease, Denied> {
        Ok(FipRelease {
            service: self.service()?,
            address: self.address()?,
            group: self.group()?,
        })
    }

    /// The address to delete.
    ///
    /// # Errors
    /// There is none.
    pub fn deleted(&self) -> Result<IpAddr, Denied> {
        self.address()?
            .ok_or_else(|| invalid(": ipaddr is required"))
    }
}

/// A JSON object in its order: of keys that differ in case alone, the last one counts.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// The body is not what it must be.
pub fn invalid(why: &str) -> Denied {
    Denied::new(
        StatusCode::BAD_REQUEST,
        format!("Invalid request body{why}"),
    )
}

fn is_label(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= LABEL
        && ends(text.chars().next())
        && ends(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(body: Value) -> Fields {
        Fields::read(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn keys_count_in_any_case() {
        let sent = json!({
            "clientSecret": "s", "cluster": "c-m-a", "project": "p-a", "FloatingIPPool": "net",
            "servicenamespace": "shop", "servicename": "web", "ipaddr": "", "floatingIPGroup": "g", "more": null,
        });
        let fields = fields(sent);
        let claim = fields.claim("client-c-m-a".to_owned(), true);
        assert_eq!(
            (claim.secret.expose_secret(), &*claim.project),
            ("s", "p-a")
        );
        assert_eq!(claim.cluster.as_deref(), Some("c-m-a"));
        let wish = fields.wish().unwrap();
        assert_eq!((&*wish.pool, wish.address), ("net", None));
        assert_eq!(wish.group.as_deref(), Some("g"));
        assert_eq!(
            wish.service,
            Service {
                namespace: "shop".to_owned(),
                name: "web".to_owned()
            }
        );
    }

    #[test]
    fn no_secret_is_in_what_is_printed() {
        let fields = fields(json!({ "clientSecret": "0123456789abcdef", "project": "p-a" }));
        let claim = fields.claim(String::new(), true);
        for printed in [format!("{fields:?}"), format!("{claim:?}")] {
            assert!(printed.contains("p-a"), "{printed}");
            assert!(!printed.contains("0123456789abcdef"), "{printed}");
        }
    }

    #[test]
    fn fields_that_nobody_knows_are_ignored_and_the_last_of_one_name_counts() {
        let body = br#"{ "project": "p-a", "retries": 3, "meta": { "a": [1, null] }, "new": true, "Project": "p-b" }"#;
        let fields = Fields::read(body).unwrap();
        assert_eq!(fields.text("project"), "p-b");
        let long = json!({ "more": "x".repeat(LONGEST + 1) });
        assert!(Fields::read(long.to_string().as_bytes()).is_ok());
    }

    #[test]
    fn what_is_no_object_of_texts_is_refused_in_the_originals_words() {
        for body in [
            "",
            "[]",
            "nil",
            "{\"project\": 1}",
            "{\"project\": \"p\"} {",
        ] {
            let denied = Fields::read(body.as_bytes()).unwrap_err();
            assert_eq!(
                denied,
                Denied::new(StatusCode::BAD_REQUEST, "Invalid request body"),
                "{body}"
            );
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let mut body =
            json!({ "floatingippool": "net", "servicenamespace": "shop", "servicename": "web" });
        assert!(fields(body.clone()).wish().is_ok());
        for (key, value) in [
            ("servicename", ""),
            ("servicename", "-web"),
            ("servicenamespace", "a b"),
            ("ipaddr", "10.0.0.300"),
            ("floatingipgroup", "g!"),
            ("floatingippool", ""),
        ] {
            let before = body[key].take();
            body[key] = json!(value);
            let denied = fields(body.clone()).wish().unwrap_err();
            assert!(denied.message.contains(key), "{denied}");
            assert_eq!(denied.code, StatusCode::BAD_REQUEST);
            body[key] = before;
        }
        assert!(fields(json!({})).deleted().is_err());
    }
}
