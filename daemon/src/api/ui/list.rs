//! What lists share: the order they are in, how the address of the page says it, and pages of rows.

use std::time::Duration;

use fipd_core::Ledger;
use fipd_web_ui::{Column, Direction, Form, Input, InputKind, Pager, count};

use super::fields::{Fields, with_query};
use crate::ipam::Ipam;

/// How long one page looks for leases before it shows what it has.
pub const PATIENCE: Duration = Duration::from_millis(40);

/// An order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// As the address says it.
    pub key: &'static str,
    pub direction: Direction,
    /// As the form offers it.
    pub label: &'static str,
}

impl Order {
    pub const fn up(key: &'static str, label: &'static str) -> Self {
        Self {
            key,
            direction: Direction::Up,
            label,
        }
    }

    pub const fn down(key: &'static str, label: &'static str) -> Self {
        Self {
            key,
            direction: Direction::Down,
            label,
        }
    }

    /// Upwards and the other way round.
    pub const fn up_first(key: &'static str, up: &'static str, down: &'static str) -> [Self; 2] {
        [Self::up(key, up), Self::down(key, down)]
    }

    /// Downwards and the other way round.
    pub const fn down_first(key: &'static str, down: &'static str, up: &'static str) -> [Self; 2] {
        [Self::down(key, down), Self::up(key, up)]
    }

    fn text(self) -> String {
        match self.direction {
            Direction::Up => self.key.to_owned(),
            Direction::Down => format!("-{}", self.key),
        }
    }
}

/// A list as its address says it: filters, order and page.
pub struct Listing<'a> {
    /// Its address without a query.
    here: &'a str,
    /// The orders it can be had in; the first one is meant where none is said.
    orders: &'a [Order],
    pub order: Order,
    pub filters: Form,
    /// The page that is asked for, from 1.
    pub page: usize,
}

impl<'a> Listing<'a> {
    /// The filters are `inputs`, filled in from the query; `orders` must not be empty.
    pub fn new(here: &'a str, mut inputs: Vec<Input>, orders: &'a [Order], query: &Fields) -> Self {
        const FALLBACK: Order = Order::up("", "");
        let first = orders.first().copied().unwrap_or(FALLBACK);
        let asked = query.get("sort");
        let order = orders.iter().find(|order| order.text() == asked).copied();
        let order = order.unwrap_or(first);
        for input in &mut inputs {
            input.field.value = query.get(input.name).to_owned();
        }
        let choice = |order: &Order| (order.text(), order.label.to_owned());
        if orders.len() > 1 {
            let choices = InputKind::Choice(orders.iter().map(choice).collect());
            let sort = Input::new("sort", "Order").kind(choices);
            inputs.push(sort.value(order.text()));
        }
        let filters = Form {
            target: here.to_owned(),
            inputs,
            ..Form::default()
        };
        Self {
            here,
            orders,
            order,
            filters,
            page: query.get("page").parse().unwrap_or(1),
        }
    }

    /// What was typed into a filter.
    pub fn filter(&self, name: &str) -> &str {
        self.filters.value(name)
    }

    /// The same list elsewhere: `more` says where, also instead of a filter of that name.
    pub fn link(&self, more: &[(&str, &str)]) -> String {
        self.in_order(self.order, more)
    }

    fn in_order(&self, order: Order, more: &[(&str, &str)]) -> String {
        let text = order.text();
        let usual = self.orders.first() == Some(&order);
        let sort = ("sort", if usual { "" } else { text.as_str() });
        let inputs = self.filters.inputs.iter();
        let said = |name: &str| name == "sort" || more.iter().any(|(other, _)| *other == name);
        let filters = inputs
            .filter(|input| !said(input.name))
            .map(|input| (input.name, input.field.value.as_str()));
        let pairs: Vec<_> = filters.chain([sort]).chain(more.iter().copied()).collect();
        with_query(self.here, &pairs)
    }

    /// The start and the next page of a list that only goes on; the pages say by `after` where they begin.
    pub fn onward(&self, after: &str, next: Option<String>) -> Pager {
        let next = next.map(|next| self.link(&[("after", &next)]));
        Pager::onward((!after.is_empty()).then(|| self.link(&[])), next)
    }

    /// A head of a column that leads to the list in its order, or in the other direction of it.
    pub fn column(&self, key: &str, label: &'static str) -> Column {
        let current = self.order.key == key;
        let of_key = || self.orders.iter().filter(|order| order.key == key);
        let other = of_key().find(|order| !current || **order != self.order);
        Column {
            label,
            link: other.map(|order| self.in_order(*order, &[])),
            order: current.then_some(self.order.direction),
            number: false,
        }
    }

    /// [`Listing::column`] of numbers.
    pub fn numbers(&self, key: &str, label: &'static str) -> Column {
        Column {
            number: true,
            ..self.column(key, label)
        }
    }

    /// Cuts the page out that the query asks for (`page`, from 1) of rows by the key, in the direction of the order, equals as
    /// they came, and says where the others are. Only what is on the page is sorted, so that it is fast with 100,000 rows.
    pub fn page_by<T, K: Ord>(
        &self,
        rows: Vec<T>,
        most: usize,
        key: impl Fn(&T) -> K,
    ) -> (Vec<T>, Pager) {
        let keyed = |(number, row): (usize, T)| (key(&row), number, row);
        let mut rows: Vec<_> = rows.into_iter().enumerate().map(keyed).collect();
        let compare = |left: &(K, usize, T), right: &(K, usize, T)| {
            let upwards = left.0.cmp(&right.0);
            let directed = match self.order.direction {
                Direction::Up => upwards,
                Direction::Down => upwards.reverse(),
            };
            directed.then(left.1.cmp(&right.1))
        };
        let (skip, pager) = self.pages(rows.len(), most);
        if skip > 0 {
            rows.select_nth_unstable_by(skip, compare);
        }
        let mut shown = rows.split_off(skip);
        if shown.len() > most {
            shown.select_nth_unstable_by(most, compare);
            shown.truncate(most);
        }
        shown.sort_unstable_by(compare);
        (shown.into_iter().map(|(_, _, row)| row).collect(), pager)
    }

    /// How many rows are before the page that the query asks for, fewer than there are, and where the others are.
    fn pages(&self, total: usize, most: usize) -> (usize, Pager) {
        let pages = total.div_ceil(most).max(1);
        let page = self.page.clamp(1, pages);
        let skip = (page - 1) * most;
        if pages == 1 {
            return (skip, Pager::default());
        }
        let (first, last) = (skip + 1, total.min(skip + most));
        let link = |page: usize| self.link(&[("page", &page.to_string())]);
        let pager = Pager {
            first: (page > 1).then(|| self.link(&[])),
            next: (page < pages).then(|| link(page + 1)),
            label: format!("{} to {} of {}", count(first), count(last), count(total)),
        };
        (skip, pager)
    }
}

/// All rows of a list, read step by step. A step gets the key that it begins behind; it tells what it found among at
/// most [`Ledger::SCAN`] rows, and where it ended unless nothing follows. Others get their turn between two steps.
pub async fn all<K, T>(
    ipam: &Ipam,
    step: impl Fn(&Ledger, Option<K>) -> (Vec<T>, Option<K>),
) -> Vec<T> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let (found, next) = ipam.read(|ledger| step(ledger, after.take()));
        rows.extend(found);
        if next.is_none() {
            return rows;
        }
        after = next;
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;

    const ORDERS: &[Order] = &[
        Order::up("name", "by name"),
        Order::down("name", "by name, from the end"),
        Order::down("use", "fullest first"),
    ];

    fn listing(query: &Fields) -> Listing<'static> {
        let inputs = vec![Input::new("filter", "Name contains")];
        Listing::new("/ui/pools", inputs, ORDERS, query)
    }

    #[test]
    fn the_address_holds_filter_order_and_page() {
        let query = Fields::parse(b"filter=a+b&sort=-use&page=2");
        let list = listing(&query);
        assert_eq!((list.order, list.filter("filter")), (ORDERS[2], "a b"));
        assert_eq!(list.link(&[]), "/ui/pools?filter=a%20b&sort=-use");
        let other = list.link(&[("filter", "c")]);
        assert_eq!(other, "/ui/pools?sort=-use&filter=c");
        assert_eq!(list.link(&[("filter", "")]), "/ui/pools?sort=-use");
        let head = list.column("name", "Name");
        assert_eq!(head.link.unwrap(), "/ui/pools?filter=a%20b");
        let head = list.column("use", "Use");
        assert_eq!((head.link, head.order), (None, Some(Direction::Down)));
        let rows: Vec<u32> = (1..=25).collect();
        let (rows, pager) = list.page_by(rows, 10, |row| *row);
        assert_eq!(rows, (6..=15).rev().collect::<Vec<u32>>());
        assert_eq!(pager.label, "11 to 20 of 25");
        assert_eq!(
            pager.next.unwrap(),
            "/ui/pools?filter=a%20b&sort=-use&page=3"
        );
    }

    #[test]
    fn nonsense_is_the_usual_order_and_the_nearest_page() {
        let query = Fields::parse(b"sort=%3Cb%3E&page=99");
        let list = listing(&query);
        assert_eq!(list.order, ORDERS[0]);
        let head = list.column("name", "Name");
        assert_eq!(head.link.unwrap(), "/ui/pools?sort=-name");
        let rows: Vec<u32> = (1..=25).collect();
        let (rows, pager) = list.page_by(rows, 10, |row| *row);
        assert_eq!((rows, pager.next), ((21..=25).collect::<Vec<u32>>(), None));
        for page in ["-1", "0", "x"] {
            let query = Fields::parse(format!("page={page}").as_bytes());
            let (rows, _) = listing(&query).page_by(vec![3, 1, 2], 10, |row| *row);
            assert_eq!(rows, [1, 2, 3]);
        }
        let none = list.page_by(Vec::<u8>::new(), 10, |row| *row);
        assert_eq!(none, (Vec::new(), Pager::default()));
    }

    #[test]
    fn a_page_that_is_sorted_alone_is_the_page_of_all_that_are_sorted() {
        let rows: Vec<(u32, u32)> = (0..57).map(|number| (number * 31 % 7, number)).collect();
        for sort in ["name", "-name"] {
            for (page, skip) in [
                ("", 0),
                ("1", 0),
                ("2", 10),
                ("5", 40),
                ("6", 50),
                ("7", 50),
            ] {
                let query = Fields::parse(format!("sort={sort}&page={page}").as_bytes());
                let mut all = rows.clone();
                match sort {
                    "name" => all.sort_by_key(|row| row.0),
                    _ => all.sort_by_key(|row| Reverse(row.0)),
                }
                let (found, _) = listing(&query).page_by(rows.clone(), 10, |row| row.0);
                let expected: Vec<_> = all.into_iter().skip(skip).take(10).collect();
                assert_eq!(found, expected, "{sort} {page}");
            }
        }
    }
}
