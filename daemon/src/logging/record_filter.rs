//! Which records are written: by the level of the process, but those of a module with a level of its own by that.

use std::fmt;

use tracing::{
    Event, Metadata, Span, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
    subscriber::Interest,
};
use tracing_subscriber::{EnvFilter, Layer, layer::Context, registry::LookupSpan};

/// Records of other modules belong to that of a system while they are written within [`work_for`] it: what is shared works for it.
const OWN_RECORDS: &str = "fipd";
/// The field of a span that names the system.
const SYSTEM: &str = "system";

/// The module of the system that a span is work for.
#[derive(Default)]
struct WorkFor(String);

/// The span of work for a system.
pub fn work_for(system: &str) -> Span {
    tracing::error_span!("work", system)
}

impl Visit for WorkFor {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == SYSTEM {
            self.0 = format!("fipd::systems::{}", value.replace('-', "_"));
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn fmt::Debug) {}
}

/// Takes a record or not.
pub struct RecordFilter {
    process: EnvFilter,
    modules: Vec<(&'static str, LevelFilter)>,
}

impl RecordFilter {
    pub fn new(process: EnvFilter, modules: Vec<(&'static str, LevelFilter)>) -> Self {
        Self { process, modules }
    }

    fn level_of(&self, target: &str) -> Option<LevelFilter> {
        let is_in = |module: &str| {
            let rest = target.strip_prefix(module);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let mut modules = self.modules.iter();
        modules
            .find(|(module, _)| is_in(module))
            .map(|(_, level)| *level)
    }

    /// The level of the module that a record belongs to; `None`: it is that of the process.
    fn module_level<S>(
        &self,
        metadata: &Metadata<'_>,
        context: &Context<'_, S>,
    ) -> Option<LevelFilter>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let target = metadata.target();
        if self.modules.is_empty() || !metadata.is_event() || !target.starts_with(OWN_RECORDS) {
            return None;
        }
        self.level_of(target).or_else(|| {
            let mut spans = context.lookup_current()?.scope();
            spans.find_map(|span| self.level_of(&span.extensions().get::<WorkFor>()?.0))
        })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RecordFilter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        let interest = Layer::<S>::register_callsite(&self.process, metadata);
        match self.modules.is_empty() {
            true => interest,
            false => Interest::sometimes(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let process = self.process.max_level_hint()?;
        let modules = self.modules.iter().map(|(_, level)| *level);
        Some(modules.fold(process, LevelFilter::max))
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        match self.module_level(metadata, &context) {
            Some(level) => *metadata.level() <= level,
            None => self.process.enabled(metadata, context),
        }
    }

    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        let mut system = WorkFor::default();
        attributes.record(&mut system);
        if let Some(span) = context.span(id).filter(|_| !system.0.is_empty()) {
            span.extensions_mut().replace(system);
        }
        Layer::on_new_span(&self.process, attributes, id, context);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        Layer::on_record(&self.process, id, values, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        Layer::on_event(&self.process, event, context);
    }

    fn on_enter(&self, id: &span::Id, context: Context<'_, S>) {
        Layer::on_enter(&self.process, id, context);
    }

    fn on_exit(&self, id: &span::Id, context: Context<'_, S>) {
        Layer::on_exit(&self.process, id, context);
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        Layer::on_close(&self.process, id, context);
    }
}
