//! `fipd-tests`: the project's commands behind the cargo aliases.

fn main() {}
