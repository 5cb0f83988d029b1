//! `legwork up`: starts one server.
//!
//! Invariant: the banner is printed when the server takes requests, not before; with `--json` it is one
//! document, so that a program that starts a server knows where it listens. The log goes to
//! standard error.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use legwork_mail::Settings;
use legwork_model::time::parse_duration;
use legwork_server::{
    Config, DatabaseUrl, News, Peering, Server, StoreChoice, api_of, log, serves,
};
use serde_json::json;

use crate::args::SERVER_DEFAULT;
use crate::cluster::tell_findings;
use crate::output::{Output, remark};
use crate::progress::Spinner;
use crate::source;
use crate::style::{DIM, GOOD, STRONG, WARN, paint};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder of the store; it is made if it does not exist
    #[arg(long, env = "LEGWORK_DATA", value_name = "DIR", default_value = ".legwork")]
    data: PathBuf,
    /// Keep everything in memory: it is gone when the server stops
    #[arg(long, conflicts_with = "data")]
    in_memory: bool,
    /// Keep everything in a PostgreSQL database, which other servers may share:
    /// postgres://user:password@host/database
    #[arg(
        long,
        env = "LEGWORK_STORE",
        hide_env_values = true,
        value_name = "URL",
        conflicts_with_all = ["data", "in_memory"]
    )]
    store: Option<String>,
    /// Where to listen; without any token on this machine only. Port 0 takes any that is free
    /// [default: 127.0.0.1:7700, or the `api` in the topology]
    #[arg(long, env = "LEGWORK_LISTEN", value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// The folder that `cluster init` has made for this server, to be one of several
    #[arg(long, env = "LEGWORK_CLUSTER", value_name = "DIR")]
    cluster: Option<PathBuf>,
    /// Where to listen for other servers [default: the address in the topology]
    #[arg(long, value_name = "ADDRESS", requires = "cluster", value_parser = address)]
    peer_listen: Option<SocketAddr>,
    /// Take the place of the process of this server that other servers reach at ADDRESS: copy its
    /// store into an empty folder while it works, and go on with it when the topology says so
    #[arg(long, value_name = "ADDRESS", requires = "cluster", conflicts_with_all = ["in_memory", "store"])]
    replace: Option<String>,
    /// Where executors send results to, if not where the server listens
    #[arg(long, env = "LEGWORK_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Tell people of their work by mail, and read their replies, as this file says
    #[arg(long, env = "LEGWORK_MAIL", value_name = "FILE")]
    mail: Option<PathBuf>,
    /// Requests a second per token, or per address without one; 0 does not limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    rate: u32,
    /// Threads that serve connections; 0 chooses by the number of processors
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// How long requests under way may take when the server stops
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    grace: Duration,
    /// What to log: error, warn, info, debug or trace, also per part (warn,legwork_server=debug)
    #[arg(long, env = "LEGWORK_LOG", value_name = "FILTER", default_value = "warn")]
    log: String,
    /// How to log
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

pub(crate) fn run(args: Args, out: Output) -> Result<()> {
    let format = match args.log_format {
        LogFormat::Text => log::Format::Text,
        LogFormat::Json => log::Format::Json,
    };
    let colour = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    log::init(format, &args.log, colour)?;
    let store = match (args.in_memory, args.store) {
        (true, _) => StoreChoice::Memory,
        (false, Some(url)) => StoreChoice::Postgres(DatabaseUrl::new(url)),
        (false, None) => StoreChoice::Directory(args.data),
    };
    let mut config = Config::new(store.clone());
    config.commit = env!("LEGWORK_COMMIT");
    config.threads = args.threads;
    config.grace = args.grace;
    config.limits.rate_per_s = args.rate;
    config.public_url = args.public_url.map(|url| url.trim_end_matches('/').into());
    config.mail = args.mail.as_deref().map(|path| read_mail(path, out)).transpose()?;
    if let Some(folder) = &args.cluster {
        let replaces = args.replace.as_deref().map(Into::into);
        let peering = Peering { listen: args.peer_listen, replaces, ..Peering::read(folder)? };
        config.listen = api(&peering).unwrap_or(config.listen);
        config.peering = Some(peering);
    }
    if let Some(listen) = args.listen {
        if let Some(api) = config.peering.as_ref().and_then(api)
            && !serves(listen, api)
        {
            remark(&overridden(listen, api));
        }
        config.listen = listen;
    }
    let mut told = Ok(());
    let mut spinner = Spinner::default();
    legwork_server::run(config, |news| match news {
        News::Starting(state) => spinner.say(state),
        News::Ready(server) => {
            spinner.stop();
            told = tell(server, &store, out);
        }
    })?;
    told?;
    if !out.json && std::io::stdout().is_terminal() {
        remark("stopped; everything acknowledged is stored");
    }
    Ok(())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| "write an IP address and a port, such as 127.0.0.1:7700".to_owned();
    text.parse().map_err(wrong)
}

/// The mail settings; mistakes are reported like those of a topology.
fn read_mail(path: &Path, out: Output) -> Result<Settings> {
    let source = source::read(path).map_err(|error| {
        anyhow!("{error:#}; name the file with the settings of mail, or leave out --mail and LEGWORK_MAIL")
    })?;
    let (settings, findings) = Settings::parse(&source.text);
    match settings {
        Some(settings) => Ok(settings),
        None => Err(tell_findings(path, &source.text, &findings, out)),
    }
}

/// The API address of the server in its topology file.
fn api(peering: &Peering) -> Option<SocketAddr> {
    api_of(&peering.topology, &peering.name)
}

fn overridden(listen: SocketAddr, api: SocketAddr) -> String {
    format!(
        "{} it listens on {listen} (--listen or LEGWORK_LISTEN), and the topology sends people and \
         other servers to http://{api}: unset LEGWORK_LISTEN, or publish another `api`, unless \
         something in front passes it on",
        paint(WARN, "warning:")
    )
}

fn tell(server: &Server, store: &StoreChoice, out: Output) -> Result<()> {
    let url = format!("http://{}", server.address());
    let data = match store {
        StoreChoice::Memory => None,
        StoreChoice::Directory(path) => {
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            Some(path.display().to_string())
        }
        StoreChoice::Postgres(url) => Some(url.to_string()),
    };
    let document = json!({
        "url": url,
        "data": data,
        "tokens": server.has_tokens(),
        "withheld": server.withheld().map(|address| address.to_string()),
        "server": server.among_others().map(|(name, _)| name),
        "peer_address": server.among_others().map(|(_, address)| address.to_string()),
        "pid": std::process::id(),
    });
    // One line: a program that starts a server reads it and goes on.
    out.event(&document, || {
        let data = data.unwrap_or_else(|| "memory only, gone when the server stops".to_owned());
        let end = match store {
            StoreChoice::Memory => "Ctrl-C stops it, and everything is gone.",
            StoreChoice::Directory(_) | StoreChoice::Postgres(_) => {
                "Ctrl-C stops it; nothing acknowledged is lost, even by kill -9."
            }
        };
        let place = server
            .among_others()
            .map(|(name, address)| format!("{name}, for other servers at {address}"));
        banner(&url, place.as_deref(), &data, server.has_tokens(), server.withheld(), end)
    })
}

fn banner(
    url: &str,
    place: Option<&str>,
    data: &str,
    tokens: bool,
    withheld: Option<SocketAddr>,
    end: &str,
) -> String {
    let version = env!("LEGWORK_VERSION");
    let mut out = format!("{} {version} is up\n\n", paint(GOOD.bold(), "legwork"));
    let mut line = |name: &str, text: &str| {
        out.push_str(&format!("  {}  {text}\n", paint(DIM, format!("{name:<6}"))));
    };
    line("API", &paint(STRONG, url));
    if let Some(place) = place {
        line("Server", place);
    }
    line("Store", data);
    match (tokens, withheld) {
        (true, _) => line("Access", "with a token only"),
        (false, None) => {
            line("Access", "everybody on this machine, as no token was made yet");
        }
        (false, Some(address)) => {
            let why = format!("this machine only, not {address}, as no token was made yet");
            line("Access", &paint(WARN, why));
            line("", "make one (`legwork token create NAME --scope admin`) and start again");
        }
    }
    let server = if url == SERVER_DEFAULT { String::new() } else { format!(" --server {url}") };
    out.push_str(&format!(
        "\n  Try next, in another terminal:\n    \
         legwork{server} deploy FILE...\n    \
         legwork{server} start PROCESS\n    \
         legwork{server} work list --as AGENT\n\n  \
         {}\n",
        paint(DIM, end)
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str, tokens: bool, withheld: Option<&str>) -> String {
        let withheld = withheld.map(|address| address.parse().unwrap());
        let text = banner(url, None, "/srv/legwork", tokens, withheld, "Ctrl-C stops it.");
        anstream::adapter::strip_str(&text).to_string().replace(env!("LEGWORK_VERSION"), "1.2.3")
    }

    #[test]
    fn the_banner_tells_where_how_and_what_next() {
        insta::assert_snapshot!(shown(SERVER_DEFAULT, false, None), @r"
        legwork 1.2.3 is up

          API     http://127.0.0.1:7700
          Store   /srv/legwork
          Access  everybody on this machine, as no token was made yet

          Try next, in another terminal:
            legwork deploy FILE...
            legwork start PROCESS
            legwork work list --as AGENT

          Ctrl-C stops it.
        ");
    }

    #[test]
    fn listening_elsewhere_than_where_others_are_sent_is_told() {
        let text = overridden("127.0.0.1:7700".parse().unwrap(), "10.0.0.1:7701".parse().unwrap());
        assert!(text.contains("http://10.0.0.1:7701: unset LEGWORK_LISTEN"), "{text}");
    }

    #[test]
    fn settings_of_mail_that_are_not_there_name_a_way_on() {
        let error = read_mail(Path::new("nowhere.yaml"), Output { json: false }).err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with("cannot read nowhere.yaml: "), "{text}");
        assert!(
            text.contains("; name the file with the settings of mail, or leave out --mail"),
            "{text}"
        );
    }

    #[test]
    fn an_address_is_one_of_ip_and_says_so() {
        assert!(address("127.0.0.1:0").is_ok() && address("[::]:7700").is_ok());
        for wrong in ["localhost:7799", "127.0.0.1", ":7700", "7700"] {
            assert!(address(wrong).unwrap_err().contains("127.0.0.1:7700"), "{wrong}");
        }
    }

    #[test]
    fn the_banner_says_when_it_does_not_listen_where_it_was_told() {
        let text = shown("http://127.0.0.1:8000", false, Some("0.0.0.0:8000"));
        assert!(text.contains("this machine only, not 0.0.0.0:8000"), "{text}");
        assert!(text.contains("legwork --server http://127.0.0.1:8000 start PROCESS"), "{text}");
        assert!(shown("http://10.0.0.1:7700", true, None).contains("with a token only"));
    }
}
