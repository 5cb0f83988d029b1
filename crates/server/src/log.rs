//! Logging.
//!
//! Invariant: to standard error, so that standard output is the caller's; never with secrets.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// Sets up logging for the whole process; `filter` such as `info` or `legwork_server=debug`. Does
/// nothing if it is set up already.
pub fn init(format: Format, filter: &str, colour: bool) -> Result<(), BadFilter> {
    let filter = read(filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only if logging is set up already, by a program that embeds the server.
    let _ = match format {
        Format::Text => builder.with_ansi(colour).with_target(false).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

fn read(filter: &str) -> Result<EnvFilter, BadFilter> {
    // A bare word would be taken for a target, and all other log lines be silenced.
    let words = filter.split(',').map(str::trim).filter(|part| !part.is_empty());
    let mut words = words.filter(|part| !part.contains(['=', '[', ']', '{', '}']));
    match words.find(|word| word.parse::<LevelFilter>().is_err()) {
        Some(word) => Err(BadFilter::Word(word.to_owned())),
        None => EnvFilter::try_new(filter).map_err(|error| BadFilter::Filter {
            filter: filter.to_owned(),
            reason: error.to_string(),
        }),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    #[error("`{0}` is not a level; write error, warn, info, debug or trace, or PART=LEVEL")]
    Word(String),
    #[error(
        "`{filter}` is not a log filter ({reason}); write error, warn, info, debug or trace, or \
         PART=LEVEL"
    )]
    Filter { filter: String, reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_does_not_silence_everything_else() {
        for fine in ["warn", "INFO", "off", "warn,legwork_server=debug", "legwork_server=debug", ""]
        {
            assert!(read(fine).is_ok(), "{fine}");
        }
        for (text, word) in
            [("inf", "inf"), ("warn, inf", "inf"), ("legwork_server", "legwork_server")]
        {
            assert_eq!(read(text).unwrap_err(), BadFilter::Word(word.to_owned()));
        }
        let refused = read("legwork_server=inf").unwrap_err().to_string();
        assert!(refused.starts_with("`legwork_server=inf` is not a log filter"), "{refused}");
    }
}
