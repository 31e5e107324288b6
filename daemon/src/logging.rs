//! Where log records go: the journal under systemd, text or JSON lines on stderr elsewhere.
//!
//! In the journal each event is one record. Its own fields and those of the spans around it become `FIPD_<NAME>`,
//! so that `journalctl FIPD_POOL=vips` finds them, and follow the message, as `journalctl -u fipd` shows nothing else.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::OnceLock,
};

use log::Log as _;
use systemd_journal_logger::JournalLog;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::filter_fn,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt as _,
};

/// The level in force; set once logging has started.
static LEVEL: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// How records look on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// The journal where stderr is connected to it, else text.
    #[default]
    Auto,
    Text,
    Json,
    /// The journal, wherever stderr goes.
    Journal,
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "log level: {value:?} is not allowed: error, warn, info, debug, trace, or directives such as fipd=debug,kube=info ({reason})"
    )]
    Level { value: String, reason: String },
    #[error("the journal cannot be reached: {0}")]
    Journal(#[from] std::io::Error),
    #[error("logging was started twice: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts logging for the process. `level` is a filter such as `info` or `fipd=debug,info`.
pub fn start(format: LogFormat, level: &str) -> Result<(), LogError> {
    let filter = parse_filter(level)?;
    let (filter, handle) = reload::Layer::new(filter);
    let registry = filtered(filter);
    let stderr = || tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let journal = match format {
        LogFormat::Auto => systemd_journal_logger::connected_to_journal(),
        LogFormat::Journal => true,
        LogFormat::Text | LogFormat::Json => false,
    };
    if journal {
        registry
            .with(JournalLayer {
                journal: JournalLog::new()?,
            })
            .try_init()?;
    } else if format == LogFormat::Json {
        registry
            .with(stderr().json().flatten_event(true))
            .try_init()?;
    } else {
        registry.with(stderr().with_ansi(false)).try_init()?;
    }
    // Nobody else sets it: logging is started once.
    let _ = LEVEL.set(handle);
    Ok(())
}

/// Whether [`start`] takes the level.
///
/// # Errors
/// What is wrong with it.
pub fn check_level(level: &str) -> Result<(), LogError> {
    parse_filter(level).map(drop)
}

/// Changes the level while the process runs.
///
/// # Errors
/// A level that is none.
pub fn set_level(level: &str) -> Result<(), LogError> {
    let filter = parse_filter(level)?;
    if let Some(handle) = LEVEL.get() {
        // The subscriber lives as long as the process.
        let _ = handle.reload(filter);
    }
    Ok(())
}

fn parse_filter(level: &str) -> Result<EnvFilter, LogError> {
    let wrong = |reason: String| LogError::Level {
        value: level.to_owned(),
        reason,
    };
    // A single word that is no level would be taken as the name of a crate and silence everything else.
    let words = ["off", "error", "warn", "info", "debug", "trace"];
    if !level.contains(['=', ',']) && !words.iter().any(|word| word.eq_ignore_ascii_case(level)) {
        return Err(wrong("not a level".to_owned()));
    }
    EnvFilter::try_new(level).map_err(|error| wrong(error.to_string()))
}

/// What of all records goes on.
fn filtered(
    level: impl Layer<Registry> + Send + Sync,
) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync {
    let registry = tracing_subscriber::registry().with(level);
    registry.with(filter_fn(harmless))
}

/// Whatever the level: what kube_runtime says of errors below `info` has all that a kubeconfig's program has printed, tokens
/// among it, and kube's client tells an answer that it cannot read as a whole, Secrets among them. Both return the error.
fn harmless(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    target != "kube_client::client"
        && (*metadata.level() <= Level::INFO || !target.starts_with("kube_runtime"))
}

/// Turns each event into one record of the journal.
struct JournalLayer {
    journal: JournalLog,
}

/// Of records whose message says what their fields do.
pub const DECISION: &str = "fipd::decision";

/// Before the names of fields in the journal.
const PREFIX: &str = "FIPD_";

/// Fields by their journal name; later ones win, so that an event's own beat those of its spans.
#[derive(Clone, Default)]
struct Fields {
    message: String,
    values: BTreeMap<String, String>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

impl Fields {
    fn put(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            // Fields that come with records of the `log` crate.
            name if name.starts_with("log.") => {}
            name => {
                self.values.insert(
                    format!("{PREFIX}{}", name.replace('.', "_").to_uppercase()),
                    value,
                );
            }
        }
    }
}

/// The message and what belongs to it, on one line that the terminal of who reads it takes for plain text.
impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Plain(&self.message).fmt(f)?;
        for (name, value) in &self.values {
            let name = name.strip_prefix(PREFIX).unwrap_or(name);
            write!(f, " {}={}", name.to_lowercase(), Plain(value))?;
        }
        Ok(())
    }
}

/// Without characters that journalctl hides the whole record for, or that end the line: others have written some of it.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char.is_control() {
                true => write!(f, "{}", char.escape_default())?,
                false => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

impl log::kv::Source for Fields {
    fn visit<'kvs>(
        &'kvs self,
        visitor: &mut dyn log::kv::VisitSource<'kvs>,
    ) -> Result<(), log::kv::Error> {
        for (name, value) in &self.values {
            visitor.visit_pair(
                log::kv::Key::from_str(name),
                log::kv::Value::from(value.as_str()),
            )?;
        }
        Ok(())
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for JournalLayer {
    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root())
        {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.values.extend(of_span.values.clone());
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        let text = match metadata.target() {
            DECISION => Plain(&fields.message).to_string(),
            _ => fields.to_string(),
        };
        self.journal.log(
            &log::Record::builder()
                .level(level(*metadata.level()))
                .target(metadata.target())
                .module_path(metadata.module_path())
                .file(metadata.file())
                .line(metadata.line())
                .args(format_args!("{text}"))
                .key_values(&fields)
                .build(),
        );
    }
}

fn level(level: Level) -> log::Level {
    match level {
        Level::ERROR => log::Level::Error,
        Level::WARN => log::Level::Warn,
        Level::INFO => log::Level::Info,
        Level::DEBUG => log::Level::Debug,
        Level::TRACE => log::Level::Trace,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use log::kv::Source as _;

    use super::*;

    #[test]
    fn levels_are_words_or_directives() {
        for good in ["info", "OFF", "fipd=debug,info", "fipd::store=trace"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in ["loud", "", "fipd=loud"] {
            let error = parse_filter(bad).unwrap_err().to_string();
            assert!(error.starts_with(&format!("log level: {bad:?}")), "{error}");
        }
    }

    #[test]
    fn what_may_have_a_secret_is_for_nobody() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let filtered = filtered(parse_filter("trace").unwrap());
        let subscriber = filtered.with(Capture(Arc::clone(&seen)));
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "kube_runtime::watcher", "a token");
            tracing::info!(target: "kube_runtime::watcher", "a watch ended");
            tracing::warn!(target: "kube_client::client", "all of a Secret");
            tracing::warn!(target: "kube_client::config", "a file is missing");
            tracing::trace!("a step");
        });
        let seen: Vec<_> = seen.lock().unwrap().drain(..).collect();
        let messages = seen.iter().map(|fields| fields.message.as_str());
        assert_eq!(
            messages.collect::<Vec<_>>(),
            ["a watch ended", "a file is missing", "a step"]
        );
    }

    /// Collects what the journal layer would send.
    struct Capture(Arc<Mutex<Vec<Fields>>>);

    impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.0.lock().unwrap().push(fields);
        }
    }

    #[test]
    fn fields_become_journal_fields() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Capture(Arc::clone(&seen)));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(pool = "vips", count = 3, cluster.name = %"c1", "gave addresses");
        });
        let fields = seen.lock().unwrap().pop().unwrap();
        assert_eq!(fields.message, "gave addresses");
        let names: Vec<_> = fields.values.keys().map(String::as_str).collect();
        assert_eq!(names, ["FIPD_CLUSTER_NAME", "FIPD_COUNT", "FIPD_POOL"]);
        assert_eq!(fields.values["FIPD_POOL"], "vips");
        assert_eq!(fields.count(), 3);
        assert_eq!(
            fields.to_string(),
            "gave addresses cluster_name=c1 count=3 pool=vips"
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_spelled_out() {
        let values = [("FIPD_ERROR".to_owned(), "no\n\u{1b}[2Jway".to_owned())];
        let fields = Fields {
            message: "fai\u{7}led".to_owned(),
            values: values.into(),
        };
        assert_eq!(fields.to_string(), r"fai\u{7}led error=no\n\u{1b}[2Jway");
    }
}
