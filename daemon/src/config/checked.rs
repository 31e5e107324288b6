//! Values that are allowed within bounds only.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use crate::clock;

/// Reads a type from what is written, by a function that says what is allowed. `= DEFAULT` is what holds where nothing is.
macro_rules! checked {
    ($type:ident($raw:ty) $(= $default:expr)?, $read:expr) => {
        $(impl Default for $type {
            fn default() -> Self {
                Self($default)
            }
        })?

        impl TryFrom<$raw> for $type {
            type Error = String;

            fn try_from(written: $raw) -> Result<Self, Self::Error> {
                let read: fn($raw) -> Result<_, String> = $read;
                read(written).map(Self)
            }
        }
    };
}
pub(super) use checked;

/// The number of a key; `unit` follows the bounds in the error.
pub(super) fn number<N: Copy + Display + PartialOrd, T: TryFrom<N>>(
    key: &str,
    number: N,
    allowed: RangeInclusive<N>,
    unit: &str,
) -> Result<T, String> {
    let fits = T::try_from(number)
        .ok()
        .filter(|_| allowed.contains(&number));
    fits.ok_or_else(|| {
        let (least, most) = allowed.into_inner();
        format!("{key} = {number}: allowed is {least} to {most}{unit}")
    })
}

/// The time of a key, in seconds from the least to the most; `words` are these bounds in the error.
pub(super) fn time(
    key: &str,
    text: &str,
    allowed: RangeInclusive<u64>,
    words: &str,
) -> Result<Duration, String> {
    let given = clock::duration(text).ok();
    let given = given.filter(|given| allowed.contains(&given.as_secs()));
    given.ok_or_else(|| format!("{key} = {text:?}: allowed is {words}"))
}
