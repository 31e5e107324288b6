//! How objects from an API server are decoded without ever failing a whole list.
//!
//! A list is decoded at once, so one object that does not decode would hide all the others. Decoding therefore
//! takes absent and null as empty, and leaves judging what it got to the controllers. It must not judge itself.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};

/// Null counts as the default, as it does for a Go decoder.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A value of any other shape than the wanted one counts as absent. For foreign kinds whose schema keeps unknown fields.
pub(crate) fn any<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// A whole number of any size; one that does not fit an `i64` becomes the nearest end of it.
pub(crate) fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let number = Option::<Number>::deserialize(deserializer)?;
    Ok(number.as_ref().map_or(0, saturate))
}

/// [`integer`], but absent stays absent.
pub(crate) fn optional_integer<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<i64>, D::Error> {
    let number = Option::<Number>::deserialize(deserializer)?;
    Ok(number.as_ref().map(saturate))
}

/// [`integer`] for the values of a map.
pub(crate) fn integers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, i64>, D::Error> {
    let numbers =
        Option::<BTreeMap<String, Option<Number>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(numbers
        .into_iter()
        .map(|(key, number)| (key, number.as_ref().map_or(0, saturate)))
        .collect())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a float to integer cast saturates, which is what is wanted"
)]
fn saturate(number: &Number) -> i64 {
    number
        .as_i64()
        .or_else(|| number.as_u64().map(|_| i64::MAX))
        .or_else(|| number.as_f64().map(|float| float as i64))
        .unwrap_or_default()
}

/// Go's `omitempty`.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Makes an object without `spec`, or with a null one, decode as one with an empty spec.
///
/// For types with `#[serde(remote = "Self")]`. It rests on serde's rule that an absent field is offered to its type as an
/// `Option` before it is called missing.
macro_rules! absent_is_default {
    ($spec:ty) => {
        impl<'de> serde::Deserialize<'de> for $spec {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Present($spec);
                impl<'de> serde::Deserialize<'de> for Present {
                    fn deserialize<D: serde::Deserializer<'de>>(
                        deserializer: D,
                    ) -> Result<Self, D::Error> {
                        <$spec>::deserialize(deserializer).map(Present)
                    }
                }
                Ok(Option::<Present>::deserialize(deserializer)?
                    .map_or_else(Self::default, |present| present.0))
            }
        }
        impl serde::Serialize for $spec {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$spec>::serialize(self, serializer)
            }
        }
    };
}
pub(crate) use absent_is_default;
