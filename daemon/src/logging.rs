//! Where log records go: the journal under systemd, text or JSON lines on stderr elsewhere.
//!
//! In the journal each event is one record. Its own fields and those of the spans around it become `FIPD_<NAME>`,
//! so that `journalctl FIPD_POOL=vips` finds them, and follow the message, as `journalctl -u fipd` shows nothing else.
//!
//! Whoever logs puts the record into a [`Queue`] and goes on; one thread writes. What API servers and others have written into a
//! record is shortened to [`LONGEST`] and has its control characters escaped, in every format.

mod levels;
mod queue;
mod record_filter;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    io::{self, Write as _},
    os::unix::net::UnixDatagram,
    sync::{Arc, OnceLock},
    time::Duration,
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

pub use levels::{level, set_level, set_module_level};
pub use queue::DROPPED;
use queue::Queue;
use record_filter::RecordFilter;
pub use record_filter::work_for;

/// The longest message and the longest value of a field, in bytes.
pub const LONGEST: usize = 4 << 10;
/// The longest line on stderr, in bytes: a message and some fields of the greatest length.
const LONGEST_LINE: usize = 4 * LONGEST;

/// Where journald takes records.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The level in force; set once logging has started.
static LEVEL: OnceLock<reload::Handle<RecordFilter, Registry>> = OnceLock::new();
/// The queue in use; set once logging has started.
static QUEUE: OnceLock<Queue<Record>> = OnceLock::new();

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
    Journal(#[from] io::Error),
    #[error("the thread that writes the log cannot be started: {0}")]
    Thread(io::Error),
    #[error("logging was started twice: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// A record that waits to be written.
enum Record {
    /// A line for stderr, with its end.
    Line(Vec<u8>),
    Journal(Entry),
}

/// Starts logging for the process. `level` is a filter such as `info` or `fipd=debug,info`.
pub fn start(format: LogFormat, level: &str) -> Result<(), LogError> {
    let filter = levels::begin(level)?;
    let (filter, handle) = reload::Layer::new(filter);
    let registry = filtered(filter);
    let journal = match format {
        LogFormat::Auto => systemd_journal_logger::connected_to_journal(),
        LogFormat::Journal => true,
        LogFormat::Text | LogFormat::Json => false,
    };
    let json = format == LogFormat::Json;
    if journal {
        // Says whether it is there; unlike the first record this waits for nobody.
        UnixDatagram::unbound()?.connect(JOURNAL)?;
    }
    let lost = move |dropped| Record::lost(dropped, journal, json);
    let mut sink = None;
    let write = move |record| write(record, &mut sink);
    let queue = Queue::start(write, lost, DROPPED.clone()).map_err(LogError::Thread)?;
    let lines = Arc::new(Lines {
        queue: queue.clone(),
        json,
    });
    let stderr = || tracing_subscriber::fmt::layer().with_writer(Arc::clone(&lines));
    if journal {
        let queue = queue.clone();
        registry.with(JournalLayer { queue }).try_init()?;
    } else if json {
        registry
            .with(stderr().json().flatten_event(true))
            .try_init()?;
    } else {
        registry.with(stderr().with_ansi(false)).try_init()?;
    }
    // Nobody else sets them: logging is started once.
    let _ = LEVEL.set(handle);
    let _ = QUEUE.set(queue);
    Ok(())
}

/// Waits until what was logged is written, for `most` at most: for the end of the process.
pub fn flush(most: Duration) {
    if let Some(queue) = QUEUE.get() {
        queue.flush(most);
    }
}

/// Blocks as long as nobody reads. The journal is opened with its first record, since that blocks, too.
fn write(record: Record, journal: &mut Option<JournalLog>) {
    match record {
        // There is nowhere to report an error of the log.
        Record::Line(line) => drop(io::stderr().write_all(&line)),
        Record::Journal(entry) => {
            if journal.is_none() {
                *journal = JournalLog::new().ok();
            }
            if let Some(journal) = journal {
                entry.send(journal);
            }
        }
    }
}

impl Record {
    /// Reports how many were dropped.
    fn lost(dropped: u64, journal: bool, json: bool) -> Self {
        let text = format!(
            "{dropped} log records were dropped: the log is not read as fast as it is written"
        );
        if journal {
            let fields = JournalFields {
                message: text,
                values: BTreeMap::from([("FIPD_DROPPED".to_owned(), dropped.to_string())]),
            };
            return Self::Journal(Entry {
                level: log::Level::Warn,
                target: module_path!(),
                module: None,
                file: None,
                line: None,
                text: fields.message.clone(),
                fields,
            });
        }
        let at = jiff::Timestamp::now();
        let target = module_path!();
        let line = match json {
            true => {
                let line = serde_json::json!({
                    "timestamp": at.to_string(), "level": "WARN", "message": text, "dropped": dropped, "target": target,
                });
                format!("{line}\n")
            }
            false => format!("{at}  WARN {target}: {text} dropped={dropped}\n"),
        };
        Self::Line(line.into_bytes())
    }
}

/// Lines for stderr, one for each event.
struct Lines {
    queue: Queue<Record>,
    json: bool,
}

impl io::Write for &Lines {
    /// Takes a whole record: the formatter writes each at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = match self.json {
            true => fit_json(line),
            false => fit_text(line),
        };
        let bytes = text.len();
        self.queue.push(Record::Line(text), bytes);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line with its control characters escaped, and shortened.
fn fit_text(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let mut fit = shortened(Plain(text).to_string(), LONGEST_LINE);
    fit.push('\n');
    fit.into_bytes()
}

/// JSON escapes by itself; what is too long is shortened value by value, so that the line stays JSON.
fn fit_json(line: &[u8]) -> Vec<u8> {
    fn shorten(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) => *text = shortened(std::mem::take(text), LONGEST),
            serde_json::Value::Array(all) => all.iter_mut().for_each(shorten),
            serde_json::Value::Object(all) => all.values_mut().for_each(shorten),
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
            }
        }
    }
    if line.len() <= LONGEST {
        return line.to_vec();
    }
    match serde_json::from_slice(line) {
        Ok(mut value) => {
            shorten(&mut value);
            format!("{value}\n").into_bytes()
        }
        Err(_) => fit_text(line),
    }
}

/// The text, or its beginning and how much was cut.
pub fn shortened(mut text: String, most: usize) -> String {
    if text.len() > most {
        let cut = text.len() - text.floor_char_boundary(most);
        text.truncate(text.len() - cut);
        // A String takes every write.
        let _ = write!(text, "... ({cut} bytes more)");
    }
    text
}

/// Whether [`start`] takes the level.
///
/// # Errors
/// What is wrong with it.
pub fn check_level(level: &str) -> Result<(), LogError> {
    parse_filter(level).map(drop)
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
/// among it, and kube's client tells an answer that it cannot read as a whole, Secrets among them. Both return the error, and so does
/// kube_runtime where it warns: whoever gets the error logs it once.
fn harmless(metadata: &Metadata<'_>) -> bool {
    let (target, level) = (metadata.target(), *metadata.level());
    let reported = level == Level::WARN || level > Level::INFO;
    target != "kube_client::client" && !(reported && target.starts_with("kube_runtime"))
}

/// Turns each event into one record of the journal.
struct JournalLayer {
    queue: Queue<Record>,
}

/// A record for the journal.
struct Entry {
    level: log::Level,
    target: &'static str,
    module: Option<&'static str>,
    file: Option<&'static str>,
    line: Option<u32>,
    /// The message as `journalctl` shows it.
    text: String,
    fields: JournalFields,
}

impl Entry {
    fn new(metadata: &'static Metadata<'static>, fields: JournalFields) -> Self {
        let text = match metadata.target() {
            DECISION => Plain(&fields.message).to_string(),
            _ => fields.to_string(),
        };
        Self {
            // Both crates have the same five names.
            level: (metadata.level().as_str().parse()).unwrap_or(log::Level::Error),
            target: metadata.target(),
            module: metadata.module_path(),
            file: metadata.file(),
            line: metadata.line(),
            text: shortened(text, LONGEST_LINE),
            fields,
        }
    }

    fn bytes(&self) -> usize {
        let values = self.fields.values.iter();
        let values = values.map(|(name, value)| name.len() + value.len());
        self.text.len() + self.fields.message.len() + values.sum::<usize>()
    }

    /// Blocks until journald takes it.
    fn send(&self, journal: &JournalLog) {
        journal.log(
            &log::Record::builder()
                .level(self.level)
                .target(self.target)
                .module_path_static(self.module)
                .file_static(self.file)
                .line(self.line)
                .args(format_args!("{}", self.text))
                .key_values(&self.fields.values)
                .build(),
        );
    }
}

/// Of records whose message says what their fields do.
pub const DECISION: &str = "fipd::decision";

/// Before the names of fields in the journal.
const PREFIX: &str = "FIPD_";

/// Fields by their journal name; later ones win, so that an event's own beat those of its spans.
#[derive(Clone, Default)]
struct JournalFields {
    message: String,
    values: BTreeMap<String, String>,
}

impl Visit for JournalFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

impl JournalFields {
    fn put(&mut self, field: &Field, value: String) {
        let value = shortened(value, LONGEST);
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
impl fmt::Display for JournalFields {
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

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for JournalLayer {
    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        let mut fields = JournalFields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<JournalFields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = JournalFields::default();
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root())
        {
            if let Some(of_span) = span.extensions().get::<JournalFields>() {
                fields.values.extend(of_span.values.clone());
            }
        }
        event.record(&mut fields);
        let entry = Entry::new(event.metadata(), fields);
        let bytes = entry.bytes();
        self.queue.push(Record::Journal(entry), bytes);
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::Mutex;

    use log::kv::Source as _;
    use tracing::{level_filters::LevelFilter, subscriber::DefaultGuard};

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
        let seen = Capture::default();
        let filtered = filtered(parse_filter("trace").unwrap());
        let subscriber = filtered.with(seen.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "kube_runtime::watcher", "a token");
            tracing::info!(target: "kube_runtime::watcher", "a watch ended");
            tracing::warn!(target: "kube_client::client", "all of a Secret");
            tracing::warn!(target: "kube_runtime::watcher", "an error that is returned as well");
            tracing::warn!(target: "kube_client::config", "a file is missing");
            tracing::trace!("a step");
        });
        assert_eq!(
            seen.messages(),
            ["a watch ended", "a file is missing", "a step"]
        );
    }

    /// Collects what is written in this thread at the level `info`, where a module has a level of its own.
    pub fn capture(module: &'static str, level: Option<LevelFilter>) -> (Capture, DefaultGuard) {
        let modules = level.map(|level| (module, level)).into_iter().collect();
        let filter = RecordFilter::new(parse_filter("info").unwrap(), modules);
        let capture = Capture::default();
        let subscriber = tracing_subscriber::registry().with(filter);
        let subscriber = subscriber.with(capture.clone());
        (capture, tracing::subscriber::set_default(subscriber))
    }

    /// Collects what the journal layer would send.
    #[derive(Clone, Default)]
    pub struct Capture(Arc<Mutex<Vec<JournalFields>>>);

    impl Capture {
        /// The messages so far, once.
        pub fn messages(&self) -> Vec<String> {
            let seen = std::mem::take(&mut *self.0.lock().unwrap());
            seen.into_iter().map(|fields| fields.message).collect()
        }

        fn last(&self) -> JournalFields {
            self.0.lock().unwrap().pop().unwrap()
        }
    }

    impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            let mut fields = JournalFields::default();
            event.record(&mut fields);
            self.0.lock().unwrap().push(fields);
        }
    }

    #[test]
    fn fields_become_journal_fields() {
        let seen = Capture::default();
        let subscriber = tracing_subscriber::registry().with(seen.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(pool = "vips", count = 3, cluster.name = %"c1", "gave addresses");
        });
        let fields = seen.last();
        assert_eq!(fields.message, "gave addresses");
        let names: Vec<_> = fields.values.keys().map(String::as_str).collect();
        assert_eq!(names, ["FIPD_CLUSTER_NAME", "FIPD_COUNT", "FIPD_POOL"]);
        assert_eq!(fields.values["FIPD_POOL"], "vips");
        assert_eq!(fields.values.count(), 3);
        assert_eq!(
            fields.to_string(),
            "gave addresses cluster_name=c1 count=3 pool=vips"
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_spelled_out() {
        let values = [("FIPD_ERROR".to_owned(), "no\n\u{1b}[2Jway".to_owned())];
        let fields = JournalFields {
            message: "fai\u{7}led".to_owned(),
            values: values.into(),
        };
        assert_eq!(fields.to_string(), r"fai\u{7}led error=no\n\u{1b}[2Jway");
    }

    #[test]
    fn text_of_others_is_shortened_and_escaped_in_every_format() {
        let long = "x".repeat(1 << 20);
        let hostile = format!("\u{1b}[2J\nfake line {long}");
        let text = fit_text(format!("2026 WARN fipd: failed error={hostile}\n").as_bytes());
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(
            !text.contains('\u{1b}') && text.len() < 2 * LONGEST_LINE,
            "{}",
            text.len()
        );
        assert!(text.contains(r"\u{1b}[2J\nfake line") && text.contains("bytes more)"));

        let line =
            serde_json::json!({ "level": "WARN", "error": hostile, "spans": [{ "x": long }] });
        let json = fit_json(format!("{line}\n").as_bytes());
        assert!(json.len() < 3 * LONGEST, "{}", json.len());
        assert_eq!(json.iter().filter(|byte| **byte == b'\n').count(), 1);
        let read: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(read["level"], "WARN");

        let seen = Capture::default();
        let subscriber = tracing_subscriber::registry().with(seen.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(error = %hostile, "failed {hostile}");
        });
        let fields = seen.last();
        assert!(fields.message.len() < 2 * LONGEST);
        assert!(fields.values["FIPD_ERROR"].len() < 2 * LONGEST);
    }

    #[test]
    fn what_is_cut_ends_between_characters() {
        assert_eq!(shortened("äöü".to_owned(), 3), "ä... (4 bytes more)");
        assert_eq!(shortened("äöü".to_owned(), 6), "äöü");
    }

    #[test]
    fn a_report_of_dropped_records_fits_its_format() {
        let Record::Line(line) = Record::lost(7, false, true) else {
            panic!("a line")
        };
        let read: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            (&read["dropped"], &read["level"]),
            (&7.into(), &"WARN".into())
        );
        let Record::Journal(entry) = Record::lost(7, true, false) else {
            panic!("an entry")
        };
        assert_eq!(entry.fields.values["FIPD_DROPPED"], "7");
    }
}
