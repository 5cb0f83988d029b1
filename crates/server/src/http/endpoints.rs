//! The table of endpoints: one row for each.
//!
//! Invariant: one table. Routing, dispatch, metrics and the OpenAPI document follow from it. Method, path and types
//! of a row are those of the constant of the same name in `legwork_api::endpoints`, which the client uses too.

use legwork_api::cluster::Method;
use legwork_api::endpoints;

use super::exchange::Exchange;
use super::query::{
    AGENT, AGENT_OF_LIST, CURSOR, LIMIT, PAGE, PAGE_BY_NUMBER, Parameter, SINCE, WAIT, flag,
    header, number, text, word,
};
use super::reply::Result;
use super::route::{Needs, Route, Size};
use super::{
    cluster, deadlines, definitions, documents, events, executors, files, instances, jobs, links,
    schedules, starts, system, tokens, topology, work,
};

/// A row: the summary in the OpenAPI document, the name, the handler, the scope that a caller needs, the tag, and the
/// fields of `Route` that differ from the default.
macro_rules! table {
    ($(
        $(#[doc = $about:literal])+
        $name:ident => $handler:path, $needs:ident, $tag:literal $(, $field:ident: $value:expr)*;
    )+) => {
        /// The place of an endpoint in the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of constants")]
        pub(crate) enum Operation {
            $($name),+
        }

        pub(crate) static ROUTES: &[Route] = &[$(Route {
            name: stringify!($name),
            about: &[$($about),+],
            tag: $tag,
            $($field: $value,)*
            ..Route::new(&endpoints::$name, Operation::$name, Needs::$needs)
        }),+];

        pub(super) async fn carry_out(x: Exchange<'_>) -> Result {
            match x.route.operation {
                $(Operation::$name => $handler(x).await),+
            }
        }
    };
}

// Those in use at every step of every instance come first.
table! {
    /// The work is done. Exactly one completion of an activity is ever accepted.
    COMPLETE => work::complete, Work, "work", is_for_letters: true, parameters: &[
        header("Idempotency-Key", "A repetition with the same key and content is answered like the \
            first; with another content it is refused"),
    ];
    /// Asks for jobs. With `wait_ms` the answer comes when there is one.
    ACTIVATE_JOBS => jobs::activate, Worker, "jobs";
    /// Reports jobs as done.
    COMPLETE_JOBS => jobs::complete, Worker, "jobs";
    /// Reports jobs as failed; they are tried again after a pause, or become incidents.
    FAIL_JOBS => jobs::fail, Worker, "jobs";
    /// Asks for more time for jobs that are being worked on.
    EXTEND_JOBS => jobs::extend, Worker, "jobs";
    /// Gives jobs back that will not be done; others get them at once.
    RETURN_JOBS => jobs::give_back, Worker, "jobs";
    /// Starts an instance of a process.
    START => starts::start, Start, "instances",
        statuses: &[(201, ""), (200, "The same request had started it before")],
        is_for_schedules: true, parameters: &[
        header("Idempotency-Key", "A repetition with the same key and content, at any server of \
            the same domain, answers the instance that the first one started; a start of the same \
            process with the key and another content is refused"),
    ];
    /// Lists the instances of all servers, newest first.
    INSTANCES => instances::list, Start, "instances", parameters: &[
        text("process", ""), text("state", "`open` (the default) or `ended`"),
        flag("deadline", "Only those with a deadline"), LIMIT, CURSOR,
        flag("here", "Only those the server asked has a part in"),
    ];
    /// An instance as a whole, put together from all servers that control a part of it. With `wait_ms`
    /// the answer comes when it has ended.
    INSTANCE => instances::show, Start, "instances",
        parameters: &[WAIT, flag("here", "Only what the server asked knows")];
    /// The execution history of an instance, put together from all servers that have a part in it. While
    /// the instance runs, reading on with `next` leaves nothing out and brings nothing twice.
    HISTORY => instances::history, Start, "instances", parameters: &[
        text("from", "`next` of the page before"),
        Parameter { about: "How many records, each with all entries of one command", ..LIMIT },
        flag("here", "Only what the server asked holds, in the order in which it came there; \
            `from` is the number of the first record then"),
    ];
    /// Holds an instance: nothing new of it is offered.
    SUSPEND => instances::suspend, Admin, "instances";
    /// Lets a suspended instance go on.
    RESUME => instances::resume, Admin, "instances";
    /// Ends an instance for good.
    ABORT => instances::abort, Admin, "instances";
    /// What is in a person's worklist, or has changed in it.
    WORKLIST => work::worklist, Work, "work", parameters: &[
        AGENT_OF_LIST, SINCE, LIMIT,
        Parameter { about: "Answer only when something has changed, or after this time", ..WAIT },
    ];
    /// The whole list first (unless `since` is given), then every change, as events named `items`
    /// whose data is a `Worklist`.
    WORKLIST_EVENTS => events::worklist_events, Work, "work", parameters: &[
        AGENT_OF_LIST, SINCE,
        header("Last-Event-ID", "The same, as readers of events send it when they connect again"),
    ];
    /// An item with what is needed to work on it.
    ITEM => work::item, Work, "work", parameters: &[AGENT];
    /// The content of a file that an item shows, for whoever may see the item.
    ITEM_FILE => files::of_item, Work, "work", parameters: &[
        Parameter {
            is_required: true,
            ..text("element", "The data element, among the `inputs` of the item, that holds the file")
        },
        AGENT,
    ];
    /// Reserves an item for oneself; exactly one of several succeeds.
    CLAIM => work::claim, Work, "work";
    /// Gives a claimed item back to all who may do it.
    RELEASE => work::release, Work, "work";
    /// Hands an item to somebody else.
    DELEGATE => work::delegate, Work, "work";
    /// Tells whether the deadline of a start could be promised, and how. Nothing is started. What was found is
    /// held for five minutes, for the next start of the same process by the same caller.
    ASK_DEADLINE => deadlines::ask, Start, "deadlines";
    /// What a person or an executor is to do when.
    PLAN => deadlines::plan, Plan, "deadlines", parameters: &[
        text("kind", "`person` or `executor`; without it of two of the same name the person"),
    ];
    /// Activities of all servers that cannot go on without somebody's decision.
    INCIDENTS => instances::incidents, Admin, "instances",
        parameters: &[LIMIT, CURSOR, flag("here", "Only those of the server asked")];
    /// The way out of an incident.
    RESOLVE => instances::resolve, Admin, "instances";
    /// Takes a definition into service if it passes the check.
    DEPLOY => definitions::deploy, Admin, "definitions",
        example: "process: hello\n…", size: Size::Source, writes_catalog: true;
    /// The latest version of every process, by name.
    DEFINITIONS => definitions::list, Any, "definitions", parameters: PAGE;
    /// One version of a process, with its text.
    DEFINITION => definitions::show, Any, "definitions",
        parameters: &[number("version", "Without one, the latest")];
    /// All versions of a process, oldest first.
    DEFINITION_VERSIONS => definitions::definition_versions, Any, "definitions",
        parameters: PAGE_BY_NUMBER;
    /// Puts an organisation in force.
    PUBLISH_ORGANISATION => definitions::publish_organisation, Admin, "definitions",
        example: "organisation: acme\n…", size: Size::Source, writes_catalog: true;
    /// The organisation in force, or another version of it.
    ORGANISATION => definitions::organisation, Any, "definitions",
        parameters: &[number("version", "Without one, the one in force")];
    /// All versions of the organisation, oldest first.
    ORGANISATION_VERSIONS => definitions::organisation_versions, Any, "definitions",
        parameters: PAGE_BY_NUMBER;
    /// Puts a topology in force at all servers: the next epoch. What moves instances or servers is a
    /// change, which is under way when this is answered (202).
    PUBLISH_TOPOLOGY => topology::publish, Admin, "cluster", statuses: &[(200, ""), (202, "")],
        example: "topology: group\ndomains: …", size: Size::Source, writes_catalog: true,
        parameters: &[
        word::<Method>("method", "For which instances new weights count"),
        flag("dry_run", "Only tell what it would change"),
        text("without", "Servers that are down for good, with commas between them"),
        flag("here", "With `dry_run`: at this server alone"),
    ];
    /// The topology in force, or another epoch of it.
    TOPOLOGY => topology::show, Any, "cluster",
        parameters: &[number("epoch", "Without one, the one in force")];
    /// All epochs of the topology, oldest first.
    TOPOLOGY_VERSIONS => topology::epochs, Any, "cluster", parameters: PAGE_BY_NUMBER;
    /// Checks a definition, and an organisation with it, without storing anything.
    CHECK => definitions::check, Any, "definitions";
    /// Stores a file. The answer is what a data element of type `file` takes as its value.
    UPLOAD => files::upload, Any, "files", parameters: &[text("name", "")], size: Size::File;
    /// The content of a file.
    DOWNLOAD => files::download, Any, "files", segment: "The hash that the upload answered";
    /// What came of a task that an executor had taken. For executors, with their signature.
    REPORT_TASK => executors::report, Signature, "executors", statuses: &[(202, "")];
    /// Registers an executor, or changes what is known of it. The same again changes nothing.
    REGISTER_EXECUTOR => executors::register, Worker, "executors", writes_catalog: true;
    /// Takes an executor out; what it has is given to others.
    REMOVE_EXECUTOR => executors::remove, Worker, "executors", writes_catalog: true;
    /// The executors there are, by name, and what this server has seen of them.
    EXECUTORS => executors::list, Any, "executors", parameters: PAGE;
    /// Says who chooses the executors of a type of jobs from now on, at all servers.
    SET_POLICY => executors::set_policy, Admin, "executors", writes_catalog: true;
    /// The types of jobs whose executors are not chosen as usual, by name.
    POLICIES => executors::policies, Any, "executors";
    /// Starts a process again and again from now on. The same again changes nothing; anything else begins anew.
    PUT_SCHEDULE => schedules::put, Start, "schedules", writes_catalog: true;
    /// Takes a schedule out; what it has started goes on.
    REMOVE_SCHEDULE => schedules::remove, Start, "schedules", writes_catalog: true;
    /// Starts nothing until it is resumed.
    PAUSE_SCHEDULE => schedules::pause, Start, "schedules", writes_catalog: true;
    /// Goes on with the next moment; those that have passed meanwhile are not started.
    RESUME_SCHEDULE => schedules::resume, Start, "schedules", writes_catalog: true;
    /// One schedule, and what came of it.
    SCHEDULE => schedules::show, Start, "schedules";
    /// The schedules there are, by name, and what came of them.
    SCHEDULES => schedules::list, Start, "schedules", parameters: PAGE;
    /// Makes a token. From the first one on, nothing goes without.
    CREATE_TOKEN => tokens::create, Admin, "tokens", statuses: &[(201, "")], writes_catalog: true;
    /// The tokens there are, by name, without their secrets.
    TOKENS => tokens::list, Admin, "tokens", parameters: PAGE;
    /// Takes a token back.
    REVOKE_TOKEN => tokens::revoke, Admin, "tokens", writes_catalog: true;
    /// Who the caller is and what they may do.
    WHOAMI => tokens::whoami, Any, "tokens";
    /// The links to the other servers: their state, what waits for them, what they have carried.
    LINKS => links::list, Admin, "cluster";
    /// All servers with their parts and their load, and the change that is under way.
    CLUSTER => cluster::show, Admin, "cluster",
        parameters: &[flag("here", "What the server says of itself alone: a `ServerLoad`")];
    /// The change that is under way, and what came of the one before.
    CHANGES => cluster::changes, Any, "cluster";
    /// Gives the change up that is under way.
    UNDO_CHANGE => cluster::undo, Admin, "cluster", writes_catalog: true;
    /// Copies a server's store into the process of another, ahead of the move; asked again and again it
    /// tells how far that is. Of a server into its own it tells whether the new process that is to
    /// replace the present one has copied nearly all. Nothing moves by it.
    PREPARE_MOVE => cluster::prepare, Admin, "cluster";
    /// A backup of the whole store of one server, taken while it runs. The file ends with a checksum. A
    /// process that holds guests as well has a store for each: `GET /v1/cluster` tells whose host it is.
    BACKUP => system::backup, Admin, "system", parameters: &[
        text("server", "A guest of the server that is asked, instead of that server itself"),
    ];
    /// The JSON Schema of definitions, for editors.
    DEFINITION_SCHEMA => documents::definition_schema, Open, "system", is_of_the_process: true;
    /// The JSON Schema of organisations, for editors.
    ORGANISATION_SCHEMA => documents::organisation_schema, Open, "system", is_of_the_process: true;
    /// The JSON Schema of topologies, for editors.
    TOPOLOGY_SCHEMA => documents::topology_schema, Open, "system", is_of_the_process: true;
    /// This document.
    OPENAPI => system::openapi, Open, "system", is_of_the_process: true;
    /// What the server counts, in the text format of Prometheus.
    METRICS => system::metrics, Open, "system", is_of_the_process: true;
    /// The process is alive.
    HEALTH => system::health, Open, "system", is_of_the_process: true;
    /// The server has recovered and stores; if not, the problem says what it is waiting for.
    READY => system::ready, Open, "system";
}
