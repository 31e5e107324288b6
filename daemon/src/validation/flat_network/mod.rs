//! What subnets, pods and workloads of flat networks may say: one set of rules, for the controllers and for the admission
//! webhook. Pure.
//!
//! Rules are named as in the contract: S for subnets, W for workloads.

pub mod annotations;
pub mod changes;
pub mod clash;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod interfaces;
pub mod labels;
pub mod link;
pub mod mac;
pub mod multus;
pub mod pools;
pub mod routes;
pub mod spans;
pub mod spelling;
pub mod subnet;
pub mod workload;

#[cfg(test)]
mod tests;

/// The first few of a list, for a message.
fn some<T: ToString>(all: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut texts: Vec<String> = all
        .into_iter()
        .take(most + 1)
        .map(|one| one.to_string())
        .collect();
    if texts.len() > most {
        texts.truncate(most);
        texts.push("...".to_owned());
    }
    texts.join(", ")
}
