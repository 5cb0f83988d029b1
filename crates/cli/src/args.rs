//! The command line: the global options, and the commands.
//!
//! Invariant: this is the public contract of `legwork`; existing scripts keep working.

use clap::{Parser, Subcommand};

use crate::{
    backup, check, cluster, compact, control, deadline, demo, deploy, deployed, executors, file,
    history, incidents, jobs, list, schedules, schema, show, start, token, up, work,
};

/// The default address of the server.
pub(crate) const SERVER_DEFAULT: &str = "http://127.0.0.1:7700";

/// With the commit, in a release.
const VERSION: &str = env!("LEGWORK_VERSION");

const AFTER_HELP: &str = "\
Ids may be shortened to any end that only one has, or `last` for the newest.
Exit codes: 0 done, 1 refused or failed, 2 a command line that cannot be read.";

/// Workflows that go where the work is
#[derive(Debug, Parser)]
#[command(name = "legwork", version = VERSION, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// The address of the server; of several with commas between them the first that can be reached
    #[arg(long, global = true, env = "LEGWORK_SERVER", value_name = "URL", default_value = SERVER_DEFAULT)]
    pub(crate) server: String,
    /// The token to show it
    #[arg(long, global = true, env = "LEGWORK_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The person you are, for worklists and starts
    #[arg(long = "as", global = true, env = "LEGWORK_AGENT", value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a server here
    Up(up::Args),
    /// See three sites at work, with people, a machine and cases that move
    Demo(demo::Args),
    /// Check definitions, organisations and topologies; needs no server
    Check(check::Args),
    /// Print the JSON Schema of definitions, organisations or topologies, for editors
    Schema(schema::Args),
    /// Take definitions and an organisation into service
    Deploy(deploy::Args),
    /// List what is deployed, or print a definition
    Processes(deployed::ProcessArgs),
    /// Print the organisation in force
    Organisation,
    /// Start a case of a process
    Start(start::Args),
    /// Ask for deadlines, see what is promised, and who is to do what when
    Deadline(deadline::Args),
    /// Start processes again and again, by a time-table or every so often
    Schedules(schedules::Args),
    /// Show an instance as a tree with states, its data and incidents
    Show(show::Args),
    /// Tell what happened in an instance, step by step
    History(history::Args),
    /// List instances, newest first
    List(list::Args),
    /// Fetch a file that an instance holds
    File(file::Args),
    /// See and do the work of a person
    Work(work::Args),
    /// List activities that cannot go on without a person's decision
    Incidents(incidents::ListArgs),
    /// Find a way out of an incident
    Resolve(incidents::ResolveArgs),
    /// Stop an instance for a while
    Suspend(control::Args),
    /// Let a suspended instance go on
    Resume(control::Args),
    /// End an instance for good
    Abort(control::Args),
    /// Do the jobs of automatic steps from the shell
    Jobs(jobs::Args),
    /// See the services that do automatic steps, register them, take them out
    Executors(executors::Args),
    /// Save everything a running server holds into a file
    Backup(backup::BackupArgs),
    /// Make a new store from a backup; needs no server
    Restore(backup::RestoreArgs),
    /// Make a store that no server uses as small as it can be; needs no server
    Compact(compact::Args),
    /// Make a cluster of several servers, change it, see the links between them
    Cluster(cluster::Args),
    /// Create, list and revoke tokens
    Token(token::Args),
    /// Print completions for your shell
    Completions(schema::CompletionArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// An argument with the name of a global one would be taken for it: the server to remove for
    /// the server to call.
    #[test]
    fn no_argument_of_a_command_is_called_like_one_that_counts_everywhere() {
        fn check(command: &clap::Command, everywhere: &[clap::Id], path: &str) {
            for part in command.get_subcommands() {
                let path = format!("{path} {}", part.get_name());
                for argument in part.get_arguments() {
                    assert!(!everywhere.contains(argument.get_id()), "{path}: {argument}");
                }
                check(part, everywhere, &path);
            }
        }
        let command = Cli::command();
        let everywhere: Vec<clap::Id> =
            command.get_arguments().map(|a| a.get_id().clone()).collect();
        assert!(everywhere.len() >= 4, "{everywhere:?}");
        check(&command, &everywhere, "legwork");
    }

    #[test]
    fn every_argument_says_what_it_is() {
        fn check(command: &clap::Command, path: &str) {
            for part in command.get_subcommands() {
                let path = format!("{path} {}", part.get_name());
                for argument in part.get_arguments() {
                    assert!(argument.get_help().is_some(), "{path}: {argument} has no text");
                }
                check(part, &path);
            }
        }
        check(&Cli::command(), "legwork");
    }

    #[test]
    fn every_command_takes_json() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let parsed = Cli::command().try_get_matches_from(["legwork", name, "--help"]);
            assert!(parsed.is_err_and(|e| e.to_string().contains("--json")), "{name}");
        }
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for line in [
            "legwork",
            "legwork check",
            "legwork start",
            "legwork start p --set amount",
            "legwork start p --wait=soon",
            "legwork start p --by 2026-11-20T17:00",
            "legwork start p --by soon",
            "legwork start p --by -1h",
            "legwork start p --unpromised",
            "legwork start p --by 3d --priority 10",
            "legwork deadline",
            "legwork schedules put n p",
            "legwork schedules put n p --every 15m --zone UTC",
            "legwork schedules put n p --every soon",
            "legwork deadline ask p",
            "legwork deadline plan ann --width 10",
            "legwork resolve x --retry --choose y",
            "legwork resolve x",
            "legwork work delegate x",
            "legwork token create x",
            "legwork completions klingon",
            "legwork processes --version 2",
            "legwork file",
            "legwork cluster init topology.yaml",
            "legwork cluster certify north-1 --dir d --valid-days 0",
            "legwork up --peer-listen 0.0.0.0:7710",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn common_command_lines_are_understood() {
        for line in [
            "legwork up --data d --listen 127.0.0.1:0 --log-format json",
            "legwork demo --for 30s --every 2s --json",
            "legwork check a.yaml b.yaml --org o.yaml --json",
            "legwork schema organisation",
            "legwork start p --set a=1 --set b=x=y --data {} --version 2 --wait --key k",
            "legwork start p --by 2026-11-20T17:00Z --unpromised --priority 9",
            "legwork start p --by 3d --set a=1",
            "legwork deadline ask p --by 3d --set a=1 --version 2",
            "legwork deadline list --process p --ended --json",
            "legwork deadline show last",
            "legwork schedules",
            "legwork schedules put n p --every 15m --set a=1 --by 4h --priority 7",
            "legwork schedules pause n --json",
            "legwork deadline plan ann --executor --width 120",
            "legwork start p --wait=5s --file contract=a.pdf --as ann",
            "legwork work --as ann complete last --answer yes",
            "legwork --as ann work list --follow",
            "legwork resolve x --complete --set a=1",
            "legwork resolve x --choose yes",
            "legwork jobs work mail --exec cat --once",
            "legwork abort last --reason enough",
            "legwork suspend last --reason audit",
            "legwork resume last --reason audited",
            "legwork processes p --version 2",
            "legwork organisation --json",
            "legwork file last offer --output offer.pdf --force",
            "legwork work file last photo --out photo.jpg --as ann",
            "legwork work file last",
            "legwork compact --data d",
            "legwork token create ann --scope work:ann --scope start",
            "legwork cluster init topology.yaml --out d --valid-days 30",
            "legwork cluster certify north-1 --dir d",
            "legwork cluster links --json",
            "legwork up --cluster d/north-1 --peer-listen 0.0.0.0:7710",
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}
