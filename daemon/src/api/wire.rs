//! The JSON of `/api/v1`, as the server writes it and the command line reads it.
//!
//! Plain data only. Addresses, times and owners are text, so that every client can read them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, Type},
};

mod account;
mod bulk;
mod cluster;
mod daemon;
mod history;
mod lease;
mod log;
mod network;
mod pool;
mod quota;
mod rules;
mod scope;

pub use account::*;
pub use bulk::*;
pub use cluster::*;
pub use daemon::*;
pub use history::*;
pub use lease::*;
pub use log::*;
pub use network::*;
pub use pool::*;
pub use quota::*;
pub use rules::*;
pub use scope::*;

/// A count of addresses: a JSON number up to 2^53, above that (IPv6) its decimal digits as a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u128);

impl PartialSchema for Count {
    fn schema() -> RefOr<Schema> {
        let of = |kind: Type| ObjectBuilder::new().schema_type(kind);
        let either = OneOfBuilder::new();
        either
            .item(of(Type::Integer).minimum(Some(0)))
            .item(of(Type::String).pattern(Some("^[0-9]+$")))
            .into()
    }
}

impl ToSchema for Count {}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(self.0) {
            Ok(small) if small <= 1 << 53 => to.serialize_u64(small),
            Ok(_) | Err(_) => to.collect_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Digits(String),
        }
        match Either::deserialize(from)? {
            Either::Number(number) => Ok(Self(number.into())),
            Either::Digits(digits) => digits.parse().map(Self).map_err(serde::de::Error::custom),
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_at_any_size() {
        for (count, text) in [
            (0, "0"),
            (1 << 53, "9007199254740992"),
            ((1 << 53) + 1, "\"9007199254740993\""),
            (1 << 64, "\"18446744073709551616\""),
        ] {
            assert_eq!(serde_json::to_string(&Count(count)).unwrap(), text);
            assert_eq!(serde_json::from_str::<Count>(text).unwrap(), Count(count));
        }
    }
}
