//! The admin pages of fipd: view structs in, HTML out.
//!
//! ```text
//!  daemon reads its ledger --> view struct (one per page) --render--> HTML
//! ```
//!
//! This crate owns the look and the wording of every page, and the assets (one style sheet, one small script,
//! one icon). It has no clock, no I/O and no state, and knows nothing of HTTP but the addresses of its pages
//! ([`links`]). Everything a page shows is escaped by the templates; the two types that write markup of their
//! own ([`Moment`], [`Usage`]) write only numbers into it.
//!
//! Pages need no script and no inline style, so that the strictest content security policy holds.
#![forbid(unsafe_code)]

mod about;
mod accounts;
pub mod assets;
mod audit;
mod backup;
mod blocks;
mod chart;
mod clusters;
mod confirm;
mod dashboard;
mod error;
mod flow;
mod guests;
mod hosts;
mod import;
mod input;
mod lease;
pub mod licences;
pub mod links;
mod list;
mod login;
pub mod map;
mod pool;
mod pools;
mod preview;
mod rules;
#[cfg(test)]
mod sample;
mod search;
mod settings;
mod shell;
mod system_list;
mod tenants;
mod text;
mod usage;

pub use about::AboutPage;
pub use accounts::{
    ProvidedRow, SessionRow, SessionsPage, TokenMadePage, TokenRow, TokensPage, UserRow, UsersPage,
};
pub use askama::Template;
pub use audit::{AuditPage, AuditRow};
pub use backup::{BackupPage, CopyRow};
pub use blocks::{BlockRow, Blocks};
pub use chart::{Chart, Point};
pub use clusters::{ClusterPage, ClusterRow, ClustersPage, Health, Known, Served};
pub use confirm::{AskedLease, ReleasePage, TransferPage};
pub use dashboard::{Dashboard, RulesCard, StoreCard, Warning};
pub use error::ErrorPage;
pub use flow::{Bar, Flow};
pub use guests::{DetailRow, DetailText, GuestRow, GuestsPage, ProjectRow, ReleaseRow};
pub use hosts::{AgentRow, HostCard, HostRow, HostsPage};
pub use import::{Fate, ImportPage, Outlook, OutlookRow};
pub use input::{AllocateForm, AllocatePage, Field, Form, FormPage, Input, InputKind};
pub use lease::{AddressPage, FreeAddress, LeaseRow, LeasesPage, Party};
pub use list::{Column, Direction};
pub use login::{LoginPage, ProviderLink, SignedInPage, SignedOutPage};
pub use map::{AddressMap, Cell, CellKind};
pub use pool::{Doubt, PoolPage, Waiter};
pub use pools::{PoolRow, PoolsPage};
pub use preview::{PreviewPage, TouchedQuota};
pub use rules::{RuleRow, RulesPage, StepRow};
pub use search::SearchPage;
pub use settings::{SettingRow, SettingsPage};
pub use shell::{Nav, Notice, Pager, Shell, Viewer};
pub use system_list::{SystemCell, SystemListPage, SystemPage, SystemSection, SystemTable};
pub use tenants::{TenantRow, TenantsPage};
pub use text::{Moment, count, percent, shorten};
pub use usage::Usage;
