//! Which gateway a command talks to, and with which key: flags, then the environment, then a profile.

use anyhow::anyhow;
use postrider_client::Gateway;

use crate::Failure;
use crate::profiles::{Profile, Profiles};
use crate::secret::Secret;

/// Where a gateway listens that was not told otherwise.
const DEFAULT_GATEWAY: &str = "http://127.0.0.1:7070";

#[derive(Debug, clap::Args)]
pub(crate) struct Connect {
    /// Where the gateway listens [default: the profile's, or `http://127.0.0.1:7070`]
    #[arg(long, env = "POSTRIDER_GATEWAY", value_name = "URL")]
    gateway: Option<String>,

    /// A key of the gateway's API [default: the profile's]. Rather set the variable: other users of
    /// this machine can see what stands on a command line
    #[arg(long, env = "POSTRIDER_KEY", hide_env_values = true, value_name = "KEY")]
    key: Option<Secret>,

    /// The tenant to act in, where the key is an admin key [default: the profile's, or the key's own]
    #[arg(long, env = "POSTRIDER_TENANT", value_name = "NAME")]
    tenant: Option<String>,

    /// A gateway and its key as `postrider profile add` has kept them [default: the one of `postrider
    /// profile use`, unless --gateway says another place]
    #[arg(long, env = "POSTRIDER_PROFILE", value_name = "NAME")]
    profile: Option<String>,
}

/// What was settled on.
struct Chosen {
    gateway: String,
    key: Option<Secret>,
    tenant: Option<String>,
}

impl Connect {
    pub(crate) fn gateway(&self) -> Result<Gateway, Failure> {
        let Chosen { gateway, key, tenant } = self.choose(Profiles::load)?;
        let Some(Secret(key)) = key else {
            return Err(Failure::usage(anyhow!(
                "a key is needed: set POSTRIDER_KEY, give it with --key, or keep it with `postrider \
                 profile add`"
            )));
        };
        let gateway = Gateway::new(&gateway, &key).map_err(Failure::usage)?;
        match tenant {
            Some(tenant) => gateway.in_tenant(&tenant).map_err(Failure::usage),
            None => Ok(gateway),
        }
    }

    fn choose(&self, load: impl FnOnce() -> Result<Profiles, Failure>) -> Result<Chosen, Failure> {
        let profile = self.profile(load)?;
        let (place, key, tenant) = match profile {
            Some(Profile { gateway, key, tenant }) => (Some(gateway), key, tenant),
            None => (None, None, None),
        };
        Ok(Chosen {
            gateway: self.gateway.clone().or(place).unwrap_or_else(|| DEFAULT_GATEWAY.to_owned()),
            key: self.key.clone().or(key),
            tenant: self.tenant.clone().or(tenant),
        })
    }

    /// The profile that was named, or the usual one. What was told everything asks for none, and a
    /// gateway that was named is never sent the key of another by mere habit.
    fn profile(
        &self,
        load: impl FnOnce() -> Result<Profiles, Failure>,
    ) -> Result<Option<Profile>, Failure> {
        if let Some(name) = self.profile.as_deref().filter(|name| !name.is_empty()) {
            return load()?.get(name).cloned().map(Some);
        }
        if self.gateway.is_some() && self.key.is_some() {
            return Ok(None);
        }
        let profiles = load()?;
        let Some(usual) = &profiles.default else { return Ok(None) };
        let usual = profiles.get(usual)?;
        let elsewhere = self.gateway.as_ref().is_some_and(|gateway| {
            gateway.trim_end_matches('/') != usual.gateway.trim_end_matches('/')
        });
        Ok((!elsewhere).then(|| usual.clone()))
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
            (&["sample", "--gateway", "http://a", "--key", "pr_hunter2\n"], "the key"),
            (
                &["sample", "--gateway", "http://a", "--key", "pr_hunter2", "--tenant", "\n"],
                "tenant",
            ),
        ] {
            let sample = Sample::try_parse_from(arguments).expect("parsed");
            let failure = sample.connect.gateway().expect_err("refused");
            let said = format!("{:#}", failure.error);
            assert!(failure.usage && said.contains(word), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    fn kept() -> Profiles {
        let profile = |gateway: &str, key: &str, tenant: Option<&str>| Profile {
            gateway: gateway.to_owned(),
            key: Some(Secret(key.to_owned())),
            tenant: tenant.map(str::to_owned),
        };
        let named = [
            ("prod", profile("https://prod", "pr_prod", Some("acme"))),
            ("test", profile("https://test", "pr_test", None)),
        ];
        let named = named.map(|(name, profile)| (name.to_owned(), profile)).into();
        Profiles { default: Some("prod".to_owned()), named }
    }

    #[test]
    fn flags_win_over_the_profile_and_the_profile_over_what_is_usual() {
        let none: &[&str] = &[];
        for (flags, expected) in [
            (none, ("https://prod", Some("pr_prod"), Some("acme"))),
            (&["--profile", "test"], ("https://test", Some("pr_test"), None)),
            (&["--profile", "test", "--key", "pr_k"], ("https://test", Some("pr_k"), None)),
            (&["--profile", "test", "--gateway", "http://a"], ("http://a", Some("pr_test"), None)),
            (&["--tenant", "t"], ("https://prod", Some("pr_prod"), Some("t"))),
            (&["--key", "pr_k"], ("https://prod", Some("pr_k"), Some("acme"))),
            // The key of the usual gateway is for the usual gateway.
            (&["--gateway", "http://a"], ("http://a", None, None)),
            (&["--gateway", "https://prod/"], ("https://prod/", Some("pr_prod"), Some("acme"))),
            (&["--gateway", "http://a", "--key", "pr_k"], ("http://a", Some("pr_k"), None)),
        ] {
            let arguments = ["sample"].iter().chain(flags);
            let sample = Sample::try_parse_from(arguments).expect("valid");
            let Chosen { gateway, key, tenant } =
                sample.connect.choose(|| Ok(kept())).expect("valid");
            let key = key.map(|Secret(key)| key);
            assert_eq!(
                (gateway.as_str(), key.as_deref(), tenant.as_deref()),
                expected,
                "{flags:?}"
            );
        }
        let sample = Sample::try_parse_from(["sample"]).expect("valid");
        let chosen = sample.connect.choose(|| Ok(Profiles::default())).expect("valid");
        assert_eq!((chosen.gateway.as_str(), chosen.key.is_none()), (DEFAULT_GATEWAY, true));
        let sample = Sample::try_parse_from(["sample", "--profile", "other"]).expect("valid");
        let failure = sample.connect.choose(|| Ok(kept())).err().expect("not there");
        assert!(failure.usage && failure.error.to_string().contains("prod, test"));
    }

    #[test]
    fn profiles_are_not_looked_at_where_everything_was_said() {
        let arguments = ["sample", "--gateway", "http://a", "--key", "pr_k"];
        let sample = Sample::try_parse_from(arguments).expect("valid");
        let broken = || Err(Failure::usage(anyhow!("broken")));
        assert!(sample.connect.choose(broken).is_ok());
    }
}
