//! What the server says about itself while it runs.
//!
//! Invariant: goes to standard error, so that standard output is the caller's; never says secrets.

use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// Sets up logging for the whole process; `filter` such as `info` or `legwork_server=debug`.
/// Does nothing if it is set up already.
pub fn init(format: Format, filter: &str, colour: bool) -> Result<(), BadFilter> {
    let bad = |error: tracing_subscriber::filter::ParseError| BadFilter {
        filter: filter.to_owned(),
        reason: error.to_string(),
    };
    let filter = EnvFilter::try_new(filter).map_err(bad)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only if logging is set up already, by whoever embeds the server.
    let _ = match format {
        Format::Text => builder.with_ansi(colour).with_target(false).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{filter}` is not a log filter ({reason}); use error, warn, info, debug or trace")]
pub struct BadFilter {
    pub filter: String,
    pub reason: String,
}
