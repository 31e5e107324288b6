//! Enums whose variants have one spelling each, the same in requests, answers, files and metrics.

use std::fmt;

/// A word that no variant has. Displays the allowed ones: `a, b or c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord(pub &'static [&'static str]);

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [first @ .., before, last] => {
                first.iter().try_for_each(|word| write!(f, "{word}, "))?;
                write!(f, "{before} or {last}")
            }
            few => f.write_str(few.first().unwrap_or(&"")),
        }
    }
}

impl std::error::Error for UnknownWord {}

/// Defines an enum with the word of each variant. serde, `as_str`, `Display`, `FromStr`, `ALL` and `WORDS` all follow this
/// one table. Needs a derive of serde.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $type:ident {
        $($(#[$of:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$meta])*
        $vis enum $type {
            $($(#[$of])* #[serde(rename = $word)] $variant,)+
        }

        impl $type {
            pub const ALL: [Self; Self::WORDS.len()] = [$(Self::$variant),+];
            /// The words of [`Self::ALL`].
            pub const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
                found.ok_or($crate::UnknownWord(&Self::WORDS))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use serde::{
        Deserialize,
        de::{IntoDeserializer, value},
    };

    use crate::{Action, EndsOf, LeaseState, Mark, Order, Protocol, Role};

    /// Reads each word as serde and as `FromStr` do.
    macro_rules! reads_alike {
        ($($type:ty),+) => {$(
            for (one, word) in <$type>::ALL.into_iter().zip(<$type>::WORDS) {
                let from: value::StrDeserializer<'_, value::Error> = word.into_deserializer();
                assert_eq!(<$type>::deserialize(from), Ok(one));
                assert_eq!(word.parse(), Ok(one));
                assert_eq!(one.to_string(), word);
            }
        )+};
    }

    #[test]
    fn serde_has_the_same_words() {
        reads_alike!(Action, EndsOf, LeaseState, Mark, Order, Protocol, Role);
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_allowed_ones() {
        let allowed = |error: super::UnknownWord| error.to_string();
        assert_eq!(
            "first".parse::<Order>().map_err(allowed),
            Err("lowest, random or least-recently-used".to_owned())
        );
        let of = "Prefix".parse::<EndsOf>().map_err(allowed);
        assert_eq!(of, Err("prefix or each-cidr".to_owned()));
    }
}
