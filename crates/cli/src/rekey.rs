//! `postrider rekey`: seals every stored secret with the newest key.

use std::path::PathBuf;

use postrider_store::{Journal as _, Registry as _};

use crate::secret_key::KeyArgs;
use crate::{Failure, serve};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Put the new key before the old one in the key file, one a line; stop the gateway; run\nthis; start the gateway again; then take the old key out:\n\n  openssl rand -base64 32 | cat - postrider-data/postrider.key > new.key\n  chmod 600 new.key && mv new.key postrider-data/postrider.key\n  postrider rekey"
)]
pub(crate) struct Args {
    /// Directory of the database
    #[arg(long, env = "POSTRIDER_DATA", default_value = "postrider-data", value_name = "DIR")]
    data: PathBuf,

    /// The store, instead of a database in --data: `sqlite:PATH`
    #[arg(long, env = "POSTRIDER_STORE", value_name = "URL")]
    store: Option<String>,

    #[command(flatten)]
    secret_key: KeyArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = serve::path_of(args.store.as_deref(), &args.data)?;
    if !path.exists() {
        return Err(Failure::usage(anyhow::anyhow!("there is no database at {}", path.display())));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let resealed = runtime.block_on(async {
        let store = serve::open(&path, &args.secret_key)?;
        let resealed = store.reseal().await?;
        store.close().await;
        Ok::<_, Failure>(resealed)
    })?;
    let what = if resealed == 1 { "endpoint or source" } else { "endpoints and sources" };
    println!("The secrets of {resealed} {what} were sealed anew with the newest key.");
    Ok(())
}
