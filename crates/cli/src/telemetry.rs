//! What the gateway tells of itself: its log, and traces for a collector.

mod collector;
mod exporter;
mod otlp;

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use anyhow::anyhow;
use clap::ValueEnum;
use postrider_engine::spans::Spans;
use tracing_subscriber::EnvFilter;

use crate::Failure;
use crate::output::Style;
use collector::Collector;
use exporter::Exporter;
use otlp::Resource;

#[derive(Debug, clap::Args)]
pub(crate) struct TelemetryArgs {
    /// The form of log lines
    #[arg(long, env = "POSTRIDER_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,

    /// What is logged: error, warn, info, debug, or a filter such as `info,postrider_engine=debug`
    #[arg(long, env = "POSTRIDER_LOG", default_value = "info", value_name = "FILTER")]
    log: String,

    /// Where traces are sent: a collector that takes OTLP over HTTP, such as
    /// `http://localhost:4318` [default: what `OTEL_EXPORTER_OTLP_ENDPOINT` says, or nowhere]
    #[arg(long, env = "POSTRIDER_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,

    /// A header for the collector, as NAME=VALUE; repeatable
    #[arg(
        long,
        env = "POSTRIDER_OTLP_HEADER",
        hide_env_values = true,
        value_name = "NAME=VALUE",
        value_delimiter = ','
    )]
    otlp_header: Vec<Hidden>,

    /// The part of the traces that begin here which is recorded, from 0 to 1; a trace that a
    /// producer began is recorded if the producer wants it to be
    #[arg(long, env = "POSTRIDER_TRACE_SAMPLE", default_value = "1", value_name = "RATIO", value_parser = ratio)]
    trace_sample: f64,
}

/// A text that is nobody's business.
#[derive(Clone)]
pub(crate) struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

impl FromStr for Hidden {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "expected a number from 0 to 1, such as 0.1".to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// For programs, one object a line
    Json,
}

/// What has to be ended, so that the last of it is told.
#[derive(Debug)]
pub(crate) struct Telemetry {
    traces: Option<(Spans, Exporter)>,
}

impl TelemetryArgs {
    /// Within a runtime. `node` is what this one is called among others.
    pub(crate) fn start(&self, node: &str) -> Result<Telemetry, Failure> {
        let collector = self.collector(|name| std::env::var(name).ok()).map_err(Failure::usage)?;
        log_to_stderr(&self.log, self.log_format)?;
        let traces = collector.map(|collector| {
            let service = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
            let resource = Resource::new(service.as_deref().unwrap_or("postrider"), node);
            let (spans, ended) = Spans::new(self.trace_sample);
            let exporter = Exporter::start(ended, spans.clone(), collector, resource);
            (spans, exporter)
        });
        Ok(Telemetry { traces })
    }

    fn collector(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Collector>, anyhow::Error> {
        let usual = || variable("OTEL_EXPORTER_OTLP_ENDPOINT").filter(|url| !url.is_empty());
        let Some(url) = self.otlp_endpoint.clone().or_else(usual) else {
            if self.otlp_header.is_empty() {
                return Ok(None);
            }
            return Err(anyhow!("--otlp-header says nothing without --otlp-endpoint"));
        };
        let headers = self.otlp_header.iter().map(|header| header.0.as_str());
        Collector::new(&url, headers).map(Some)
    }
}

impl Telemetry {
    /// Where the engine puts what it did, if anybody wants to know.
    pub(crate) fn spans(&self) -> Option<Spans> {
        self.traces.as_ref().map(|(spans, _)| spans.clone())
    }

    /// Sends what is left, within a time.
    pub(crate) async fn stop(self) {
        if let Some((_, exporter)) = self.traces {
            exporter.stop().await;
        }
    }
}

pub(crate) fn log_to_stderr(filter: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| Failure::usage(anyhow!("--log: {error}")))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let colours = Style::of_stderr().colours();
            builder.with_target(false).with_ansi(colours).init();
        }
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Sample {
        #[command(flatten)]
        telemetry: TelemetryArgs,
    }

    fn collector(
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Option<String>, anyhow::Error> {
        let sample = Sample::try_parse_from([&["sample"][..], arguments].concat())?;
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Ok(sample.telemetry.collector(variable)?.map(|collector| collector.to_string()))
    }

    #[test]
    fn the_collector_is_the_one_that_was_said() {
        const USUAL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:4318/");
        const EMPTY: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "");
        let own = ["--otlp-endpoint", "https://traces.example.com/otlp"];
        let whole = ["--otlp-endpoint", "http://127.0.0.1:9/v1/traces"];
        for (arguments, variables, expected) in [
            (&[][..], &[][..], None),
            (&[], &[EMPTY], None),
            (&[], &[USUAL], Some("http://otel:4318/v1/traces")),
            (&own, &[USUAL], Some("https://traces.example.com/otlp/v1/traces")),
            (&whole, &[], Some("http://127.0.0.1:9/v1/traces")),
        ] {
            let found = collector(arguments, variables).expect("valid");
            assert_eq!(found.as_deref(), expected, "{arguments:?} {variables:?}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_said_without_its_secret() {
        let url = ["--otlp-endpoint", "http://localhost:4318"];
        for (arguments, said) in [
            (vec!["--otlp-endpoint", "localhost:4318"], "--otlp-endpoint"),
            (vec!["--otlp-endpoint", "http://me:hunter2@localhost"], "--otlp-endpoint"),
            (vec!["--otlp-header", "a=hunter2"], "--otlp-endpoint"),
            ([&url[..], &["--otlp-header", "hunter2"]].concat(), "NAME=VALUE"),
            ([&url[..], &["--otlp-header", "a b=hunter2"]].concat(), "`a b`"),
            ([&url[..], &["--otlp-header", "a=hunter2\n"]].concat(), "`a`"),
            (vec!["--trace-sample", "1.5"], "from 0 to 1"),
            (vec!["--trace-sample", "NaN"], "from 0 to 1"),
        ] {
            let error = collector(&arguments, &[]).expect_err(said);
            let error = format!("{error:#}");
            assert!(error.contains(said), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let sample = Sample::try_parse_from(["sample", "--otlp-header", "a=hunter2"]);
        let sample = sample.expect("valid");
        assert!(!format!("{sample:?}").contains("hunter2"));
        let found = sample.telemetry.collector(|_| Some("http://localhost".to_owned()));
        assert!(!format!("{found:?}").contains("hunter2"));
    }
}
