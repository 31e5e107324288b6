//! Name patterns.

use schemars::JsonSchema;
use serde::Deserialize;

use super::checked::checked;

/// A name in which `*` stands for any run of characters and `?` for one. Not empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Pattern(String);

impl Pattern {
    /// Whether `name` as a whole is of this pattern.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) =
            (self.0.chars().collect(), name.chars().collect());
        let (mut p, mut n) = (0, 0);
        // Where to go on when the rest does not fit: after the last star, one character further.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match (pattern.get(p), name.get(n)) {
                (None, None) => return true,
                (Some('*'), _) => {
                    retry = Some((p + 1, n));
                    p += 1;
                }
                (Some(want), Some(have)) if *want == '?' || want == have => {
                    p += 1;
                    n += 1;
                }
                (_, _) => match retry {
                    Some((after, from)) if from < name.len() => {
                        retry = Some((after, from + 1));
                        p = after;
                        n = from + 1;
                    }
                    Some(_) | None => return false,
                },
            }
        }
    }

    /// Whether it is of every name.
    pub fn matches_all(&self) -> bool {
        self.0.chars().all(|c| c == '*')
    }
}

checked!(Pattern(String), |text| match &*text {
    "" =>
        Err("an empty pattern fits no name; write \"*\" for every name or leave the key out".into(),),
    _ => Ok(text),
});
