//! The table of who may call what.
//!
//! A route can only be registered together with its [`Access`]; a request whose route is not in the table is refused. What
//! a token with a scope sees of the ledger is in [`visible`], what it may ask of it in [`permit`].

pub mod accounts;
pub mod auth;
pub mod permit;
pub mod visible;

use std::collections::BTreeMap;

use axum::{
    Router,
    handler::Handler,
    routing::{MethodFilter, on},
};
use fipd_core::Role;
use http::Method;

use super::Api;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Everybody, without login.
    Open,
    /// Everybody who reaches the port; the handler asks for what it needs (the secret of a project), or only judges.
    Own,
    /// REST: from this role up. Socket peers and bearer tokens without a scope; the session cookie for GET and HEAD only.
    Api(Role),
    /// As [`Access::Api`], and for tokens with a scope: the handler keeps to it.
    Scoped(Role),
    /// As [`Access::Scoped`], but for no token that is for some tenants only: the audit log does not say who is charged, and
    /// who raises its own quota has none.
    Pooled(Role),
    /// A page: from this role up; without a session the visitor is sent to the login page.
    Page(Role),
}

/// The table, as the middleware uses it: method and route pattern to access.
#[derive(Clone, Debug, Default)]
pub struct AccessTable(BTreeMap<(&'static str, String), Access>);

/// Collects routes and the table of their access.
pub struct Routes<S = Api> {
    router: Router<S>,
    table: AccessTable,
    /// What the patterns begin with that are added.
    prefix: &'static str,
}

impl AccessTable {
    /// The access of a matched route; `None` where it is not in the table. HEAD counts as GET.
    pub fn get(&self, method: &Method, pattern: &str) -> Option<Access> {
        let method = method_name(method)?;
        self.0.get(&(method, pattern.to_owned())).copied()
    }

    /// The methods of a route, as the header `Allow` has them.
    pub fn allowed(&self, pattern: &str) -> String {
        let methods = self.iter().filter(|(_, of, _)| *of == pattern);
        let names = methods.map(|(method, _, _)| match method {
            "GET" => "GET,HEAD",
            other => other,
        });
        names.collect::<Vec<_>>().join(",")
    }

    /// All routes: method, pattern, access.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, Access)> {
        self.0
            .iter()
            .map(|((method, pattern), access)| (*method, pattern.as_str(), *access))
    }
}

fn method_name(method: &Method) -> Option<&'static str> {
    match method.as_str() {
        "GET" | "HEAD" => Some("GET"),
        "POST" => Some("POST"),
        "PUT" => Some("PUT"),
        "PATCH" => Some("PATCH"),
        "DELETE" => Some("DELETE"),
        _ => None,
    }
}

macro_rules! verb {
    ($name:ident, $text:literal, $filter:ident) => {
        /// Registers a handler for this method.
        pub fn $name<H, T>(self, pattern: &str, access: Access, handler: H) -> Self
        where
            H: Handler<T, S>,
            T: 'static,
        {
            self.add($text, MethodFilter::$filter, pattern, access, handler)
        }
    };
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self {
            router: Router::new(),
            table: AccessTable::default(),
            prefix: "",
        }
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    verb!(get, "GET", GET);
    verb!(post, "POST", POST);
    verb!(put, "PUT", PUT);
    verb!(patch, "PATCH", PATCH);
    verb!(delete, "DELETE", DELETE);

    /// Registers a page with a form, and what the form is sent to.
    pub fn form<G, P, T, U>(self, pattern: &str, access: Access, page: G, sent: P) -> Self
    where
        G: Handler<T, S>,
        P: Handler<U, S>,
        T: 'static,
        U: 'static,
    {
        self.get(pattern, access, page).post(pattern, access, sent)
    }

    /// Adds routes whose patterns begin with `prefix`.
    pub fn below(self, prefix: &'static str, add: impl FnOnce(Self) -> Self) -> Self {
        let outer = self.prefix;
        debug_assert!(outer.is_empty(), "one prefix is not within another");
        let below = add(Self { prefix, ..self });
        Self {
            prefix: outer,
            ..below
        }
    }

    fn add<H, T>(
        mut self,
        method: &'static str,
        filter: MethodFilter,
        pattern: &str,
        access: Access,
        handler: H,
    ) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let pattern = format!("{}{pattern}", self.prefix);
        self.router = self.router.route(&pattern, on(filter, handler));
        self.table.0.insert((method, pattern), access);
        self
    }

    /// The router without its layers, and the finished table.
    pub fn finish(self) -> (Router<S>, AccessTable) {
        (self.router, self.table)
    }
}
