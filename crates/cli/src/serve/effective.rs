//! The settings in force, as the dashboard shows them to admins: every flag with its value and where
//! that comes from. What a flag marks as secret is never in it.

use std::net::SocketAddr;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use postrider_core::policy::InboxOverrides;
use postrider_core::span;
use postrider_engine::NodeOptions;
use postrider_server::{EffectiveSettings, Setting, SettingOrigin, SettingsGroup};
use postrider_store::postgres;

use super::Args;
use crate::stores::Place;

/// Which flags belong together, by what clap calls them, in the order in which they are shown.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Reaching it",
        &[
            "listen",
            "public_url",
            "requests_per_key",
            "requests_per_address",
            "max_event_bytes",
            "admin_key",
        ],
    ),
    (
        "Store and history",
        &[
            "data",
            "store",
            "secret_key_file",
            "housekeeping",
            "keep_delivered",
            "keep_failed",
            "keep_dead",
        ],
    ),
    ("Sending", &["max_in_flight", "timeout", "disable_after", "drain"]),
    (
        "Destinations",
        &[
            "allow_destination",
            "allow_port",
            "deny_port",
            "dns_server",
            "allow_command",
            "crl_file",
            "egress_proxy",
        ],
    ),
    ("Nodes", &["node_name", "lease", "lanes", "writers", "readers"]),
    ("Log", &["log_format", "log"]),
];
const PRESET: &str = "The inbox preset";
/// Where flags are shown that no group names.
const REST: &str = "Others";

const UNSET: &str = "not set";
const HIDDEN: &str = "set, and not shown";

/// What is known once everything is in its place.
pub(super) struct Known<'a> {
    pub(super) address: SocketAddr,
    pub(super) place: &'a Place,
    pub(super) node: &'a NodeOptions,
    pub(super) pool: postgres::Options,
}

pub(super) fn settings(given: &ArgMatches, args: &Args, known: &Known<'_>) -> EffectiveSettings {
    let command = <Args as clap::Args>::augment_args(Command::new("serve"));
    let shown = |arg: &Arg| setting(arg, given, found(arg.get_id().as_str(), args, known));
    let grouped = |id: &str| GROUPS.iter().any(|(_, ids)| ids.contains(&id));
    let mut groups = Vec::new();
    for (name, ids) in GROUPS {
        let args =
            ids.iter().filter_map(|id| command.get_arguments().find(|arg| arg.get_id() == id));
        groups.push(SettingsGroup { name: name.to_owned(), settings: args.map(shown).collect() });
    }
    groups.push(SettingsGroup {
        name: PRESET.to_owned(),
        settings: preset(|name| std::env::var(name).ok()),
    });
    let rest: Vec<_> =
        command.get_arguments().filter(|arg| !grouped(arg.get_id().as_str())).map(shown).collect();
    if !rest.is_empty() {
        groups.push(SettingsGroup { name: REST.to_owned(), settings: rest });
    }
    EffectiveSettings { groups }
}

/// What a setting has come to, where that is not what was given: worked out, or without a password.
fn found(id: &str, args: &Args, known: &Known<'_>) -> Option<String> {
    match id {
        "listen" => Some(known.address.to_string()),
        "store" => Some(known.place.to_string()),
        "egress_proxy" => args.egress_proxy.as_ref().map(ToString::to_string),
        "node_name" => Some(known.node.name.clone()),
        "lease" | "lanes" | "writers" | "readers" => Some(match known.place {
            Place::File(_) => "nothing: the store is a file".to_owned(),
            Place::Server(_) => match id {
                "lease" => span::format(known.node.lease),
                "lanes" => known.node.lanes.to_string(),
                "writers" => known.pool.writers.to_string(),
                _ => known.pool.journal_readers.to_string(),
            },
        }),
        "secret_key_file" => std::env::var_os("POSTRIDER_SECRET_KEY")
            .map(|_| "none: the key itself is in POSTRIDER_SECRET_KEY".to_owned()),
        _ => None,
    }
}

fn setting(arg: &Arg, given: &ArgMatches, found: Option<String>) -> Setting {
    let id = arg.get_id().as_str();
    let source = given.value_source(id);
    let origin = match (source, arg.get_env()) {
        (Some(ValueSource::CommandLine), _) => SettingOrigin::CommandLine,
        (Some(ValueSource::EnvVariable), Some(name)) => {
            SettingOrigin::Variable(name.to_string_lossy().into_owned())
        }
        (None, _) if found.is_some() => SettingOrigin::Found,
        (_, _) => SettingOrigin::Default,
    };
    let raw = given.get_raw(id).map(|values| {
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        values.join(", ")
    });
    let value = match (found, raw) {
        (Some(found), _) => found,
        (None, None) => UNSET.to_owned(),
        (None, Some(_)) if arg.is_hide_env_values_set() => HIDDEN.to_owned(),
        (None, Some(raw)) => raw,
    };
    let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let name = arg.get_long().map_or_else(|| id.to_owned(), |long| format!("--{long}"));
    Setting { name, about, value, origin }
}

/// The variables that change the preset `inbox`. They have been found good.
fn preset(variable: impl Fn(&str) -> Option<String>) -> Vec<Setting> {
    let usual = InboxOverrides::default();
    let settings = [
        ("RETRY_BASE_DELAY", "The base of its delays", span::format(usual.base_delay)),
        ("RETRY_MAX_DELAY", "Its longest delay", span::format(usual.max_delay)),
        ("MAX_ATTEMPTS", "After how many attempts it gives up", usual.max_attempts.to_string()),
    ];
    let settings = settings.into_iter().map(|(name, about, usual)| {
        let said = variable(name);
        Setting {
            name: name.to_owned(),
            about: about.to_owned(),
            origin: match said {
                Some(_) => SettingOrigin::Variable(name.to_owned()),
                None => SettingOrigin::Default,
            },
            value: said.unwrap_or(usual),
        }
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Sample {
        #[command(flatten)]
        serve: Args,
    }

    fn settings_of(arguments: &[&str]) -> Vec<Setting> {
        let given = Sample::command().get_matches_from([&["sample"][..], arguments].concat());
        let Sample { serve } = Sample::from_arg_matches(&given).expect("valid");
        let place = serve.store.place().unwrap_or_else(|failure| panic!("{failure:?}"));
        let address = "127.0.0.1:4321".parse().expect("an address");
        let node = NodeOptions { name: "office".into(), ..NodeOptions::default() };
        let known =
            Known { address, place: &place, node: &node, pool: postgres::Options::default() };
        settings(&given, &serve, &known)
            .groups
            .into_iter()
            .flat_map(|group| group.settings)
            .collect()
    }

    fn find<'a>(settings: &'a [Setting], name: &str) -> &'a Setting {
        settings.iter().find(|setting| setting.name == name).expect(name)
    }

    #[test]
    fn every_flag_is_in_a_group_and_says_where_its_value_comes_from() {
        let settings = settings_of(&["--timeout", "3s", "--allow-port", "81,82"]);
        for (name, value, origin) in [
            ("--timeout", "3s", SettingOrigin::CommandLine),
            ("--allow-port", "81, 82", SettingOrigin::CommandLine),
            ("--drain", "20s", SettingOrigin::Default),
            ("--listen", "127.0.0.1:4321", SettingOrigin::Default),
            ("--public-url", UNSET, SettingOrigin::Default),
            ("--node-name", "office", SettingOrigin::Found),
            ("--lanes", "nothing: the store is a file", SettingOrigin::Found),
            ("MAX_ATTEMPTS", "5", SettingOrigin::Default),
        ] {
            let found = find(&settings, name);
            assert_eq!((found.value.as_str(), &found.origin), (value, &origin), "{name}");
        }
        let command = <Args as clap::Args>::augment_args(Command::new("serve"));
        for arg in command.get_arguments() {
            let id = arg.get_id().as_str();
            let groups = GROUPS.iter().filter(|(_, ids)| ids.contains(&id)).count();
            assert_eq!(groups, 1, "{id}");
            assert!(!find(&settings, &format!("--{}", id.replace('_', "-"))).about.is_empty());
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let settings = settings_of(&[
            "--admin-key",
            "pr_hunter2hunter2hunter2hunter2hunter2",
            "--egress-proxy",
            "http://me:hunter2@proxy.example:3128",
            "--store",
            "postgres://me:hunter2@db.example/hooks",
        ]);
        assert!(!format!("{settings:?}").contains("hunter2"), "{settings:?}");
        assert_eq!(find(&settings, "--admin-key").value, HIDDEN);
        assert_eq!(find(&settings, "--egress-proxy").value, "proxy.example:3128");
        assert_eq!(find(&settings, "--store").value, "postgres://me@db.example/hooks");
        assert_eq!(find(&settings, "--lanes").value, "64");
        assert_eq!(find(&settings, "--readers").value, "2");
    }
}
