//! A connection of the bench's own to the server.

use anyhow::{Context, Result};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// Plans as the store has them: made once, and every row looked up by its key, whatever was in the
/// tables when they were made.
const PLANS: &str = "SET jit = off; SET plan_cache_mode = force_generic_plan; \
     SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
     SET enable_bitmapscan = off";

/// Ends when dropped.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    driver: JoinHandle<()>,
}

impl Session {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let (client, connection) =
            tokio_postgres::connect(url, NoTls).await.context("connecting to the server")?;
        // A broken connection shows in the statement that was under way.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { client, driver })
    }

    /// One whose plans and tables are those of the store.
    pub(crate) async fn open_planned(url: &str, schema: &str) -> Result<Self> {
        let session = Self::open(url).await?;
        session.client.batch_execute(PLANS).await?;
        session.run(&format!("SET search_path = {schema}")).await?;
        Ok(session)
    }

    pub(crate) async fn run(&self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).await.with_context(|| sql.to_owned())
    }

    /// The one number that a question is answered with.
    pub(crate) async fn number(&self, sql: &str) -> Result<i64> {
        let row = self.client.query_one(sql, &[]).await.with_context(|| sql.to_owned())?;
        row.try_get(0).with_context(|| sql.to_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
