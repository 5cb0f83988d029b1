//! `legwork token`: tokens and their scopes.
//!
//! Invariant: a secret is printed once, when it is created, and only on standard output.

use anyhow::Result;
use legwork_api::tokens::TokenRequest;
use serde_json::json;

use crate::context::Context;
use crate::output::remark;
use crate::style::{DIM, GOOD, STRONG, paint};
use crate::table::{Cell, Table};
use crate::when;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a token; the first one must be an admin's, and from then on nothing goes without
    Create {
        /// What it is called, for the list and for the history
        name: String,
        /// A right; may be repeated: admin, start, work:AGENT (work:* for anybody), worker
        #[arg(long = "scope", value_name = "SCOPE", required = true)]
        scopes: Vec<String>,
    },
    /// List tokens, without their secrets
    List,
    /// Take a token out of service
    Revoke {
        /// What it is called, as `token list` shows it
        name: String,
    },
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        Command::Create { name, scopes } => create(context, name, scopes).await,
        Command::List => list(context).await,
        Command::Revoke { name } => {
            context.client.revoke_token(name).await?;
            context.out.answer(&json!({"revoked": name}), || {
                format!("{} {} is revoked\n", paint(GOOD, "✔"), paint(STRONG, name))
            })
        }
    }
}

async fn create(context: &Context, name: &str, scopes: &[String]) -> Result<()> {
    let request = TokenRequest { name: name.to_owned(), scopes: scopes.to_vec() };
    let created = context.client.create_token(&request).await?;
    // The secret alone on standard output: `export LEGWORK_TOKEN=$(legwork token create …)`.
    context.out.answer(&created, || format!("{}\n", created.token))?;
    if !context.out.json {
        remark(&paint(DIM, "keep it now, it is not shown again; use it with LEGWORK_TOKEN"));
    }
    Ok(())
}

async fn list(context: &Context) -> Result<()> {
    let list = context.client.tokens().await?;
    context.out.answer(&list, || {
        if list.tokens.is_empty() {
            return "no tokens: whoever reaches the server may do everything\n".to_owned();
        }
        let mut table = Table::new(&["NAME", "SCOPES", "ISSUED"]);
        for token in &list.tokens {
            table.row([
                Cell::styled(STRONG, &token.name),
                Cell::from(token.scopes.join(", ")),
                Cell::styled(DIM, when::minute(token.issued_at)),
            ]);
        }
        table.render("")
    })
}
