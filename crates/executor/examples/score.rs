//! An executor in ten lines: scores loans, for a Legwork on the same machine.

use legwork_executor::{Executor, Task};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:7001").await?;
    let executor = Executor::new("crm", std::env::var("CRM_SECRET")?)
        .on("score", |task: Task| async move { Ok(json!({ "points": task.inputs.len() })) });
    Ok(executor.serve(listener, "http://127.0.0.1:7700", None).await?)
}
