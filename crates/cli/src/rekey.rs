//! `postrider rekey`: seals every stored secret with the newest key.

use crate::Failure;
use crate::stores::{Place, StoreArgs};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Put the new key before the old one in the key file, one a line; stop the gateway; run\nthis; start the gateway again; then take the old key out:\n\n  openssl rand -base64 32 | cat - postrider-data/postrider.key > new.key\n  chmod 600 new.key && mv new.key postrider-data/postrider.key\n  postrider rekey"
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let place = args.store.place()?;
    if let Place::File(path) = &place
        && !path.exists()
    {
        return Err(Failure::usage(anyhow::anyhow!("there is no database at {place}")));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let resealed = runtime.block_on(async {
        let store = args.store.open(&place).await?;
        let resealed = store.reseal().await?;
        store.close().await;
        Ok::<_, Failure>(resealed)
    })?;
    let what = match resealed {
        1 => "endpoint, source or declaration",
        _ => "endpoints, sources and declarations",
    };
    println!("The secrets of {resealed} {what} were sealed anew with the newest key.");
    Ok(())
}
