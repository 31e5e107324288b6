//! Who may ask what: the table of rights, as it is served.
//!
//! It is made of the routes themselves, so that none can be forgotten, and is in the docs as `packaging/docs/rights.md`.

use std::fmt::Write as _;

use super::{
    AgentApi,
    access::{Access, Routes},
    routes::{beside, of_host, open_routes, routes},
};
use crate::api::rest::{export, leases};
use crate::config::{Serve, Systems};

/// One operation of one listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub port: Port,
    /// With variables in braces, and with a query where that is for fewer than the route.
    pub path: String,
    pub method: &'static str,
    pub access: Access,
}

/// Where it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// `[api] listen` and the Unix socket.
    Api,
    /// A `[[listener]]` with this word.
    Listener(Serve),
    /// The Unix socket of a host with `role = "agent"`.
    Agent,
}

/// All of them, by listener and path.
pub fn all(known: Systems) -> Vec<Right> {
    let mut rights = of(Port::Api, routes(known));
    rights.extend(of(Port::Api, beside()));
    rights.extend(of_queries());
    rights.sort();
    for word in Serve::all(known) {
        rights.extend(of(
            Port::Listener(word),
            open_routes(Routes::default(), word),
        ));
    }
    rights.extend(of(
        Port::Agent,
        of_host(Routes::<AgentApi>::default(), known),
    ));
    rights
}

fn of<S: Clone + Send + Sync + 'static>(port: Port, routes: Routes<S>) -> Vec<Right> {
    let (_, table) = routes.finish();
    let right = |(method, path, access): (&'static str, &str, Access)| Right {
        port,
        path: path.to_owned(),
        method,
        access,
    };
    let mut rights: Vec<Right> = table.iter().map(right).collect();
    rights.sort();
    rights
}

/// What is for fewer than may call the route, by what its query asks for; the handlers ask for the same access.
fn of_queries() -> Vec<Right> {
    let right = |method, path: String, access: Access| Right {
        port: Port::Api,
        path,
        method,
        access,
    };
    let mut rights = Vec::new();
    for (what, access) in export::CLOSER {
        rights.push(right("GET", format!("/api/v1/export?what={what}"), access));
    }
    let freed = "/api/v1/leases/{network}/{address}?end_quarantine=true";
    rights.push(right("DELETE", freed.to_owned(), leases::END_QUARANTINE));
    rights
}

const HEAD: &str = "\
# Who may ask what

Made by `fipd docs rights` from the routes that are served; a test compares them. \"From\" is the least role: an operator may
what a viewer may, an admin everything. People have their role by their account or their provider, programs by their token. Root,
fipd's own user and members of the socket's group are admins at the Unix socket. A token with a scope (`--pool`, `--network`,
`--tenant`) sees and changes only what is in it, and is refused where \"scoped token\" says no. A path has a row with what its query
asks for where that is for fewer. What `/api/v1/bulk` does needs what it needs alone; `force` of a transfer, and at a page the end
of a quarantine before its time, need an admin. The cookie of a page reads the REST API, and never writes. A host with
`role = \"agent\"` serves at a `[[listener]]` nothing but GET of `/health`, `/healthz`, `/ready`, `/readyz` and `/metrics`, to
everybody, where the listener is told to.
";

/// The table as Markdown.
pub fn markdown(known: Systems) -> String {
    let mut text = HEAD.to_owned();
    let mut last = None;
    for right in all(known) {
        if last.replace(right.port) != Some(right.port) {
            let _ = write!(
                text,
                "\n## {}\n\n| method | path | from | scoped token |\n|---|---|---|---|\n",
                heading(right.port)
            );
        }
        let (from, scoped) = match right.access {
            Access::Open => ("everybody", "as everybody"),
            Access::Own => ("everybody who knows what it asks for", "as everybody"),
            Access::Api(role) => (role.as_str(), "no"),
            Access::Scoped(role) => (role.as_str(), "within its scope"),
            Access::Pooled(role) => (role.as_str(), "within its scope, but not with `--tenant`"),
            Access::Page(role) => (role.as_str(), "no: a page"),
        };
        let Right { path, method, .. } = &right;
        let _ = writeln!(text, "| {method} | `{path}` | {from} | {scoped} |");
    }
    text
}

fn heading(port: Port) -> String {
    match port {
        Port::Api => "At `[api] listen` and the Unix socket".to_owned(),
        Port::Listener(word) => format!("At a `[[listener]]` with `serve = [\"{}\"]`", word.word()),
        Port::Agent => "At the Unix socket of a host with `role = \"agent\"`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::SYSTEMS;

    #[test]
    fn the_table_in_the_docs_is_that_of_the_routes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/docs/rights.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == markdown(*SYSTEMS),
            "{path} is not what is served; write it again: fipd docs rights > packaging/docs/rights.md"
        );
    }

    #[test]
    fn what_is_open_is_what_the_design_lists() {
        for Right {
            port,
            path,
            method,
            access,
        } in all(*SYSTEMS)
        {
            let open = match (port, access) {
                (_, Access::Api(_) | Access::Scoped(_) | Access::Pooled(_) | Access::Page(_)) => {
                    continue;
                }
                // Health, the login and what it looks like.
                (Port::Api, Access::Open) => {
                    ["/healthz", "/readyz", "/ui/login"].contains(&path.as_str())
                        || path.starts_with("/ui/login/")
                        || path.starts_with("/ui/static/")
                }
                // LB controllers, and questions that are only answered.
                (Port::Api, Access::Own) => {
                    let path = path.strip_prefix("/v1").unwrap_or(&path);
                    path.starts_with("/auth/token")
                        || path.starts_with("/fip/")
                        || path.starts_with("/admission/")
                        || path.starts_with("/hooks/")
                }
                // The next test has them by the word.
                (Port::Listener(_), Access::Open | Access::Own) => true,
                (Port::Agent, Access::Open | Access::Own) => false,
            };
            assert!(open, "{method} {path} is open at {port:?}");
        }
    }

    #[test]
    fn a_listener_serves_what_its_word_says_and_nothing_else() {
        for word in Serve::all(*SYSTEMS) {
            let expected: &[&str] = match word {
                Serve::Metrics | Serve::SystemMetrics(_) => &["GET /metrics"],
                Serve::Health => &["GET /health", "GET /healthz", "GET /ready", "GET /readyz"],
                Serve::FipV1 => &[
                    "POST /auth/token",
                    "DELETE /fip/delete",
                    "POST /fip/list",
                    "POST /fip/release",
                    "POST /fip/request",
                    "POST /v1/auth/token",
                    "DELETE /v1/fip/delete",
                    "POST /v1/fip/list",
                    "POST /v1/fip/release",
                    "POST /v1/fip/request",
                ],
                Serve::Ipam => &["GET /ipam"],
                Serve::Admission => &["POST /admission/{cluster}/{rule}"],
                Serve::Hooks => &["POST /hooks/{cluster}/{*hook}"],
                Serve::Ping => &["GET /hostname", "GET /ping"],
            };
            let mut served = Vec::new();
            for right in all(*SYSTEMS) {
                if right.port != Port::Listener(word) {
                    continue;
                }
                served.push(format!("{} {}", right.method, right.path));
                // Nobody asks there who it is.
                let open = matches!(right.access, Access::Open | Access::Own);
                assert!(open, "{right:?}");
            }
            assert_eq!(served, expected, "{}", word.word());
        }
    }
}
