//! Which gateway a command talks to, and with which key.

use anyhow::anyhow;
use postrider_client::Gateway;

use crate::Failure;
use crate::secret::Secret;

#[derive(Debug, clap::Args)]
pub(crate) struct Connect {
    /// Where the gateway listens
    #[arg(
        long,
        env = "POSTRIDER_GATEWAY",
        default_value = "http://127.0.0.1:7070",
        value_name = "URL"
    )]
    gateway: String,

    /// A key of the gateway's API. Rather set the variable: other users of this machine can see
    /// what stands on a command line
    #[arg(long, env = "POSTRIDER_KEY", hide_env_values = true, value_name = "KEY")]
    key: Option<Secret>,

    /// The tenant to act in, where the key is an admin key [default: the key's own]
    #[arg(long, env = "POSTRIDER_TENANT", value_name = "NAME")]
    tenant: Option<String>,
}

impl Connect {
    pub(crate) fn gateway(&self) -> Result<Gateway, Failure> {
        let Some(Secret(key)) = &self.key else {
            return Err(Failure::usage(anyhow!(
                "a key is needed: set POSTRIDER_KEY, or give it with --key"
            )));
        };
        let gateway = Gateway::new(&self.gateway, key).map_err(Failure::usage)?;
        match &self.tenant {
            Some(tenant) => gateway.in_tenant(tenant).map_err(Failure::usage),
            None => Ok(gateway),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Sample {
        #[command(flatten)]
        connect: Connect,
    }

    #[test]
    fn the_key_is_not_shown() {
        let arguments = ["sample", "--key", "pr_hunter2", "--gateway", "http://127.0.0.1:1"];
        let sample = Sample::try_parse_from(arguments).expect("valid");
        assert!(!format!("{sample:?}").contains("hunter2"));
        let gateway = sample.connect.gateway().expect("valid");
        assert!(!format!("{gateway:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_wrong_with_the_gateway_or_the_key_is_a_matter_of_usage() {
        for (arguments, word) in [
            (&["sample", "--gateway", "nowhere", "--key", "pr_hunter2"][..], "URL"),
            (&["sample", "--key", "pr_hunter2\n"], "the key"),
            (&["sample", "--key", "pr_hunter2", "--tenant", "\n"], "tenant"),
        ] {
            let sample = Sample::try_parse_from(arguments).expect("parsed");
            let failure = sample.connect.gateway().expect_err("refused");
            let said = format!("{:#}", failure.error);
            assert!(failure.usage && said.contains(word), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
