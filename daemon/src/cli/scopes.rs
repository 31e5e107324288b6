//! For whom a pool is there, as `fipd pool` reads and shows it.

use clap::Args;

use crate::api::wire::PoolScope;

/// Who may have addresses of a pool without naming it.
#[derive(Debug, Args)]
pub struct Scopes {
    /// Pools with a higher number are asked first where the asker names none
    #[arg(long, value_name = "NUMBER")]
    pub(super) priority: Option<u16>,
    /// For whom the pool is there without being named: any, or parts that must all fit of cluster=C, project=P,
    /// namespace=N (several: one of them), label=KEY=VALUE, with commas in between (repeatable)
    #[arg(long, value_name = "WHOM", value_parser = scope)]
    pub(super) scope: Vec<PoolScope>,
}

fn scope(text: &str) -> Result<PoolScope, String> {
    let mut scope = PoolScope::default();
    if text == "any" {
        return Ok(scope);
    }
    let allowed = || {
        "any, or cluster=C, project=P, namespace=N and label=KEY=VALUE with commas in between is allowed"
            .to_owned()
    };
    for part in text.split(',') {
        let (what, value) = part.split_once('=').ok_or_else(allowed)?;
        let value = value.to_owned();
        let twice = match what {
            "cluster" => scope.cluster.replace(value).is_some(),
            "project" => scope.project.replace(value).is_some(),
            "namespace" => {
                scope.namespaces.push(value);
                false
            }
            "label" => {
                let (key, value) = value.split_once('=').ok_or_else(allowed)?;
                let (key, value) = (key.to_owned(), value.to_owned());
                scope.labels.insert(key, value).is_some()
            }
            _ => return Err(allowed()),
        };
        if twice {
            return Err(format!("{what} is named twice in {text:?}"));
        }
    }
    Ok(scope)
}

/// The scope as it is written on the command line.
pub(super) fn text(scope: &PoolScope) -> String {
    let cluster = scope.cluster.iter().map(|name| format!("cluster={name}"));
    let project = scope.project.iter().map(|name| format!("project={name}"));
    let namespaces = scope.namespaces.iter();
    let namespaces = namespaces.map(|name| format!("namespace={name}"));
    let labels = scope.labels.iter();
    let labels = labels.map(|(key, value)| format!("label={key}={value}"));
    let parts: Vec<_> = cluster
        .chain(project)
        .chain(namespaces)
        .chain(labels)
        .collect();
    if parts.is_empty() {
        "any".to_owned()
    } else {
        parts.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_shown() {
        for line in [
            "any",
            "cluster=east,namespace=shop,namespace=bank",
            "project=p-12,label=tier=web,label=x=",
        ] {
            assert_eq!(text(&scope(line).unwrap()), line);
        }
        for bad in ["", "cluster", "cluster=a,cluster=b", "label=x", "zone=1"] {
            assert!(scope(bad).is_err(), "{bad}");
        }
    }
}
