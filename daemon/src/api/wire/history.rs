//! How full a pool was, and when it will be full.

use std::fmt;

use fipd_core::Forecast;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Count;

/// When a pool is full, if it goes on as in the last seven days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum ForecastView {
    /// Its history is shorter than a day.
    TooLittleHistory,
    /// Not within ten years.
    NotAtThisPace,
    /// In about so many hours; 0: it is full.
    FullIn { hours: u32 },
}

impl From<Forecast> for ForecastView {
    fn from(forecast: Forecast) -> Self {
        match forecast {
            Forecast::TooLittle => Self::TooLittleHistory,
            Forecast::NotAtThisPace => Self::NotAtThisPace,
            Forecast::FullIn { hours } => Self::FullIn { hours },
        }
    }
}

impl fmt::Display for ForecastView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooLittleHistory => f.write_str("too little history"),
            Self::NotAtThisPace => f.write_str("not at this pace"),
            Self::FullIn { hours: 0 } => f.write_str("full"),
            Self::FullIn { hours: 1 } => f.write_str("full in about an hour"),
            Self::FullIn { hours } if hours < 48 => write!(f, "full in about {hours} hours"),
            Self::FullIn { hours } => write!(f, "full in about {} days", hours / 24),
        }
    }
}

/// Which part of a pool's history.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// RFC 3339; 7 days before `to` when left out, or 90 with step=day.
    pub from: Option<String>,
    /// RFC 3339, its hour or day included; the last hour that is over when left out.
    pub to: Option<String>,
    /// `hour` (when left out) or `day`.
    pub step: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryPage {
    /// How the pool was when the page begins; null before its first hour.
    pub before: Option<HistoryView>,
    /// In the order of time. An hour or day in which nothing happened is left out: it was as the row before says.
    pub rows: Vec<HistoryView>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

/// How an hour or a day ended, and what happened in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryView {
    /// When the hour or day began.
    pub at: String,
    /// Addresses the pool can give.
    pub size: Count,
    pub used: Count,
    /// Leases that cooled after a release; counted in `used`.
    pub quarantined: Count,
    /// The highest `used`.
    pub highest: Count,
    /// Addresses that got a holder.
    pub given: u64,
    /// Addresses that lost their last holder.
    pub released: u64,
    /// Requests refused because the pool was full; one that asks again is counted again.
    pub refused: u64,
}
