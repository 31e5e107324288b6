//! Pages of lists: the same `limit`, `cursor` and `next` everywhere.
//!
//! A cursor is the key of the last row that was looked at. Its text means nothing to clients.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use fipd_core::Ledger;
use http::StatusCode;
use serde::{Serialize, de::DeserializeOwned};

use super::problem::Problem;

/// Steps of one request, each of which holds the ledger for at most [`Ledger::SCAN`] rows.
const STEPS: usize = 50;
/// Rows of a page where the client does not say.
const USUAL: usize = 100;

/// What page of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<K> {
    pub limit: usize,
    pub after: Option<K>,
}

impl<K> Ask<K> {
    /// As much as may be looked at in one step.
    pub fn step() -> Self {
        Self {
            limit: Ledger::SCAN,
            after: None,
        }
    }
}

impl<K: Serialize + DeserializeOwned> Ask<K> {
    pub fn new(limit: Option<usize>, cursor: Option<&str>) -> Result<Self, Problem> {
        let limit = limit.unwrap_or(USUAL);
        if !(1..=Ledger::SCAN).contains(&limit) {
            return Err(Problem::invalid("limit", limit.to_string(), "1 to 1000"));
        }
        let after = cursor.map(read).transpose()?;
        Ok(Self { limit, after })
    }

    /// Steps through a list until the page is full, the list ends or enough was looked at. `step` gets where it begins and
    /// how many rows are wanted, and tells the rows it found and where the next begins; it may find none.
    pub fn walk<V>(
        self,
        mut step: impl FnMut(Option<K>, usize) -> (Vec<V>, Option<K>),
    ) -> (Vec<V>, Option<String>) {
        let (mut rows, mut after) = (Vec::new(), self.after);
        for _ in 0..STEPS {
            let (found, next) = step(after, self.limit - rows.len());
            rows.extend(found);
            after = next;
            if after.is_none() || rows.len() >= self.limit {
                break;
            }
        }
        (rows, after.as_ref().map(text))
    }

    /// A page of a list whose rows come by key, of those that `view` shows.
    pub fn of<T, V>(
        self,
        rows: impl Iterator<Item = T>,
        key: impl Fn(&T) -> K,
        view: impl Fn(&T) -> Option<V>,
    ) -> (Vec<V>, Option<K>) {
        let (mut shown, mut last) = (Vec::new(), None);
        let mut rows = rows.take(Ledger::SCAN + 1).peekable();
        let mut looked = 0;
        while let Some(row) = rows.next() {
            looked += 1;
            shown.extend(view(&row));
            if shown.len() >= self.limit || looked >= Ledger::SCAN {
                last = rows.peek().map(|_| key(&row));
                break;
            }
        }
        (shown, last)
    }
}

/// The text of a cursor.
pub fn text<K: Serialize>(key: &K) -> String {
    HEXLOWER.encode(&postcard::to_stdvec(key).unwrap_or_default())
}

/// The key of a cursor.
pub fn read<K: DeserializeOwned>(text: &str) -> Result<K, Problem> {
    let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
    let key = bytes.and_then(|bytes| match postcard::take_from_bytes(&bytes) {
        Ok((key, [])) => Some(key),
        Ok(_) | Err(_) => None,
    });
    key.ok_or_else(|| {
        let mut problem = Problem::invalid("cursor", text, "the `next` of an earlier page");
        problem.status = StatusCode::BAD_REQUEST.as_u16();
        problem
    })
}

#[cfg(test)]
mod tests {
    use fipd_core::{LeaseKey, NetworkId, PoolId, Tenant};

    use super::*;

    #[test]
    fn cursors_survive_their_text() {
        let key = LeaseKey {
            network: NetworkId(7),
            address: "2001:db8::7".parse().unwrap(),
        };
        assert_eq!(read::<LeaseKey>(&text(&key)).unwrap(), key);
        let pair = (PoolId(3), Tenant("a_b".into()));
        assert_eq!(read::<(PoolId, Tenant)>(&text(&pair)).unwrap(), pair);
        let longer = text(&key) + "00";
        for bad in ["", "7", "zz", "€", "+1", &longer] {
            let problem = read::<LeaseKey>(bad).unwrap_err();
            assert_eq!(problem.status, 400, "{bad}");
            assert_eq!(problem.field.as_deref(), Some("cursor"), "{bad}");
        }
    }

    #[test]
    fn pages_end_when_they_are_full_or_enough_was_looked_at() {
        let page = |limit, after: Option<u32>, shown: fn(&u32) -> bool| {
            let ask = Ask { limit, after };
            ask.walk(|after, limit| {
                let from = after.map_or(0, |after| after + 1);
                let view = |row: &u32| shown(row).then_some(*row);
                Ask { limit, after }.of(from..60_000, |row| *row, view)
            })
        };
        let (rows, next) = page(3, None, |_| true);
        assert_eq!((rows, next), (vec![0, 1, 2], Some(text(&2_u32))));
        let (rows, next) = page(9, Some(59_997), |_| true);
        assert_eq!((rows, next), (vec![59_998, 59_999], None));
        let (rows, next) = page(2, Some(59_997), |_| true);
        assert_eq!((rows.len(), next), (2, None), "nothing follows");
        let (rows, next) = page(9, None, |row| *row == 59_999);
        assert_eq!((rows, next), (vec![], Some(text(&49_999_u32))));
    }
}
