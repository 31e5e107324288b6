//! The pure address book of fipd.
//!
//! ```text
//!  Request --plan--> draft --(Authority commits its Ops)--> confirm --> Change
//!                    \------(commit refused)--------------> abort
//! ```
//!
//! This crate owns the meaning of networks, pools and leases and every decision about them. It has no clock,
//! no randomness, no lock, no async and no I/O: time and identifiers are arguments, and everything that must
//! become durable leaves it as a list of [`Op`]s.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod account;
mod address;
mod adoption;
mod audit;
mod book_time;
mod collision;
mod contender;
mod epoch;
pub mod host;
mod identity;
mod import;
mod labels;
mod layout;
mod lease;
mod ledger;
mod network;
mod op;
mod past;
mod pool;
mod probe;
mod quota;
mod redating;
mod refusal;
mod request;
mod rollup;
mod scope;
mod select;
pub mod sighting;
mod signing;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod time;
mod words;

pub use account::{Account, Role, Token, TokenId};
pub use address::{AddressError, AddressSpec, Family, Span, prefix_text};
pub use adoption::{Adoption, ClusterProof, ClusterRecord, Expectation, Hold};
pub use audit::{Action, Actor, AuditEntry};
pub use book_time::{BookTime, BootId, ClockLine, ClockReading};
pub use collision::Collision;
pub use contender::Contender;
pub use epoch::{Epoch, RestoreHold};
pub use identity::{ClusterId, Holder, Identity, IdentityError, System, Tenant, Text};
pub use import::{Import, ImportRow, ImportedLease, ImportedPool, RowFate};
pub use labels::{Label, LabelWanted, Labels};
pub use layout::PoolSize;
pub use lease::{
    Lease, LeaseKey, LeasePrefix, LeaseState, Mark, Member, PortClaim, PortError, Protocol,
};
pub use ledger::{
    Change, CheckedPage, LeaseFilter, LeasePage, Ledger, Lookout, MovePage, NameError, Overlap,
    Planned, PoolPreview, PoolSpans, PoolStanding, PoolUsage, Ticket, TooOld, Trial, Violation,
    count_rows,
};
pub use network::{Network, NetworkId, Separation};
pub use op::{Authority, Decision, Op, Outcome, Refused};
pub use past::PastLease;
pub use pool::{Ends, EndsOf, Order, Origin, Pool, PoolError, PoolId, PoolSpec, QuotaUnit, Sticky};
pub use probe::{ProbeVerdict, Probed};
pub use quota::{Quota, QuotaUsage, Tenancy};
pub use redating::Redating;
pub use refusal::{Refusal, RefusalClass};
pub use request::{
    AccountEdit, Adopt, Allocate, Answer, Handover, PoolEdit, Release, ReleaseScope, Request,
    Reserve, Share, Transfer, Want,
};
pub use rollup::{Forecast, Hour, Retention, Rollup};
pub use scope::Scope;
pub use select::{Asker, Choice, PoolScope, Selection};
pub use signing::{KeyBytes, KeyId, SigningKey};
pub use time::Timestamp;
pub use words::UnknownWord;
