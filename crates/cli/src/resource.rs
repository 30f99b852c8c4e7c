//! What the commands for resources share: asking the gateway and saying what to do when it refuses,
//! finding a thing by its name, and lists that turn their own pages.

pub(crate) mod body;

use std::io::{self, Write};

use anyhow::anyhow;
use postrider_client::{Error, Gateway, Method};
use postrider_core::{EndpointId, HubId, KeyId, SourceId};
use serde_json::{Value, json};
use url::form_urlencoded::Serializer;

use crate::Failure;
use crate::connect::Connect;
use crate::output::{OutputArgs, cell, inert};
use crate::prompt::YesArgs;

/// The most rows of a list, and the most that a name is looked for in.
const MAX_ROWS: u32 = 100_000;

/// The most rows that the API gives at once.
const PAGE: u32 = 250;

/// How many of several things with one name are mentioned.
const MAX_MENTIONED: usize = 5;

/// A kind of thing that has an id and a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) noun: &'static str,
    /// The command that lists them.
    pub(crate) command: &'static str,
    pub(crate) path: &'static str,
    is_id: fn(&str) -> bool,
}

pub(crate) const ENDPOINT: Kind = Kind {
    noun: "endpoint",
    command: "endpoints",
    path: "/v1/endpoints",
    is_id: |text| text.parse::<EndpointId>().is_ok(),
};
pub(crate) const SOURCE: Kind = Kind {
    noun: "source",
    command: "sources",
    path: "/v1/sources",
    is_id: |text| text.parse::<SourceId>().is_ok(),
};
pub(crate) const HUB: Kind = Kind {
    noun: "hub",
    command: "hubs",
    path: "/v1/hubs",
    is_id: |text| text.parse::<HubId>().is_ok(),
};
pub(crate) const KEY: Kind = Kind {
    noun: "key",
    command: "keys",
    path: "/v1/keys",
    is_id: |text| text.parse::<KeyId>().is_ok(),
};

/// A command about many things.
#[derive(Debug, clap::Args)]
pub(crate) struct Many {
    #[command(flatten)]
    pub(crate) connect: Connect,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) list: ListArgs,
}

/// A command about one thing.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// Its id, or its name where no other has the same
    #[arg(value_name = "ID|NAME")]
    pub(crate) which: String,

    #[command(flatten)]
    pub(crate) connect: Connect,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A command that takes one thing away.
#[derive(Debug, clap::Args)]
pub(crate) struct Removal {
    /// Its id, or its name where no other has the same
    #[arg(value_name = "ID|NAME")]
    which: String,

    #[command(flatten)]
    yes: YesArgs,

    #[command(flatten)]
    connect: Connect,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct ListArgs {
    /// How many to show at most
    #[arg(
        long,
        default_value_t = 50,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROWS))
    )]
    limit: u32,

    /// Show all there are (up to 100,000)
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Runs what has nothing else to do than to ask a gateway.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Asks for anything the API has.
pub(crate) async fn ask(
    gateway: &Gateway,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Failure> {
    gateway.request(method, path, body).await.map_err(refused)
}

/// What the gateway said, and what can be done about it. What it will refuse as often as it is asked
/// is for the user to put right.
pub(crate) fn refused(error: Error) -> Failure {
    let advice = match &error {
        Error::Refused { status: 401, .. } => {
            "check the key: --key, POSTRIDER_KEY, or the profile's (`postrider profile list`)"
        }
        Error::Refused { status: 403, .. } => "use a key that may, such as an admin key",
        Error::Unreachable { .. } => {
            "is it running there? --gateway, POSTRIDER_GATEWAY or --profile say where to look"
        }
        Error::Refused { .. } | Error::BadAnswer { .. } | Error::Invalid(_) => "",
    };
    let usage = match &error {
        Error::Refused { .. } => !error.is_temporary(),
        Error::Invalid(_) => true,
        Error::Unreachable { .. } | Error::BadAnswer { .. } => false,
    };
    let error = match advice {
        "" => error.into(),
        advice => anyhow!("{error}; {advice}"),
    };
    Failure { error, usage }
}

impl Kind {
    /// Lists them; `table` writes the list for people.
    pub(crate) async fn show_all(
        self,
        args: &Many,
        table: impl FnOnce(&mut dyn Write, &Value) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let gateway = args.connect.gateway()?;
        let answer = list(&gateway, self.path, &[], args.list).await?;
        Ok(args.output.show(&answer, |out| table(out, &answer))?)
    }

    /// Shows one of them; `page` writes it for people.
    pub(crate) async fn show(
        self,
        args: &One,
        page: impl FnOnce(&mut dyn Write, &Value, &Gateway) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.act(args, Method::GET, "", None, page).await
    }

    /// Asks for one of them, or for something of it, and shows the answer. `below` is a path such as
    /// `/stats`, or empty.
    pub(crate) async fn act(
        self,
        One { which, connect, output }: &One,
        method: Method,
        below: &str,
        body: Option<&Value>,
        page: impl FnOnce(&mut dyn Write, &Value, &Gateway) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let gateway = connect.gateway()?;
        let answer = self.ask_of(&gateway, which, method, below, body).await?;
        Ok(output.show(&answer, |out| page(out, &answer, &gateway))?)
    }

    /// Takes one of them away, if the user means it. `question` is told what it is called, and `done`
    /// is the word for what was done then.
    pub(crate) async fn remove(
        self,
        args: &Removal,
        question: impl FnOnce(&str) -> String,
        done: &str,
    ) -> Result<(), Failure> {
        let gateway = args.connect.gateway()?;
        let (path, called) = self.known(&gateway, &args.which).await?;
        args.yes.confirm(&question(&called))?;
        self.ask(&gateway, Method::DELETE, &path, None).await?;
        println!("{done} {called}");
        Ok(())
    }

    /// The path of one of them, and what people call it.
    pub(crate) async fn known(
        self,
        gateway: &Gateway,
        which: &str,
    ) -> Result<(String, String), Failure> {
        let path = self.path_of(gateway, which).await?;
        let found = self.ask(gateway, Method::GET, &path, None).await?;
        Ok((path, called(&found)))
    }

    /// Asks for one of them, or for something of it, by what the user called it.
    pub(crate) async fn ask_of(
        self,
        gateway: &Gateway,
        which: &str,
        method: Method,
        below: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let path = format!("{}{below}", self.path_of(gateway, which).await?);
        self.ask(gateway, method, &path, body).await
    }

    /// The path of one of them, found by its id or its name.
    async fn path_of(self, gateway: &Gateway, which: &str) -> Result<String, Failure> {
        Ok(format!("{}/{}", self.path, self.id_of(gateway, which).await?))
    }

    /// The id of what is called so.
    pub(crate) async fn id_of(self, gateway: &Gateway, which: &str) -> Result<String, Failure> {
        self.seek(gateway, which).await.map_err(refused)?
    }

    /// The same, for whoever asks again where the gateway could not be asked. The inner failure is
    /// that none, or several, are called so.
    pub(crate) async fn seek(
        self,
        gateway: &Gateway,
        which: &str,
    ) -> Result<Result<String, Failure>, Error> {
        if (self.is_id)(which) {
            return Ok(Ok(which.to_owned()));
        }
        let rows = rows(gateway, self.path, &[], MAX_ROWS).await?.0;
        Ok(self.choose(&named(&rows, which), which))
    }

    /// The only one of the ids of those that are called so.
    fn choose(self, ids: &[&str], which: &str) -> Result<String, Failure> {
        let Self { noun, command, .. } = self;
        let name = inert(which);
        match ids {
            [id] => Ok((*id).to_owned()),
            [] => Err(Failure::usage(anyhow!(
                "no {noun} is called `{name}`; `postrider {command} list` shows those there are"
            ))),
            [..] => {
                let more = if ids.len() > MAX_MENTIONED { ", …" } else { "" };
                let mentioned = &ids[..ids.len().min(MAX_MENTIONED)];
                Err(Failure::usage(anyhow!(
                    "{} {command} are called `{name}`: {}{more}; say which by its id",
                    ids.len(),
                    mentioned.join(", "),
                )))
            }
        }
    }

    /// Asks for one whose path is known.
    pub(crate) async fn ask(
        self,
        gateway: &Gateway,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        gateway.request(method, path, body).await.map_err(|error| {
            let gone = matches!(&error, Error::Refused { status: 404, .. });
            let mut failure = refused(error);
            if gone {
                let command = self.command;
                failure.error = anyhow!(
                    "{}; `postrider {command} list` shows those there are, in this tenant",
                    failure.error
                );
            }
            failure
        })
    }
}

/// `billing (ep_…)`, or its id alone.
pub(crate) fn called(thing: &Value) -> String {
    let id = inert(&cell(&thing["id"]));
    match thing["name"].as_str() {
        Some(name) if !name.is_empty() => format!("{} ({id})", inert(name)),
        Some(_) | None => id,
    }
}

/// The ids of those with this name. What has been revoked is only meant if nothing else is.
fn named<'a>(rows: &'a [Value], name: &str) -> Vec<&'a str> {
    let named: Vec<&Value> = rows.iter().filter(|row| row["name"] == name).collect();
    let live: Vec<&Value> =
        named.iter().copied().filter(|row| row["revoked_at"].is_null()).collect();
    let meant = if live.is_empty() { named } else { live };
    meant.into_iter().filter_map(|row| row["id"].as_str()).collect()
}

/// As many rows as were asked for, in the form of one page of the API.
pub(crate) async fn list(
    gateway: &Gateway,
    path: &str,
    query: &[(&str, &str)],
    args: ListArgs,
) -> Result<Value, Failure> {
    let limit = if args.all { MAX_ROWS } else { args.limit };
    let (rows, cursor) = rows(gateway, path, query, limit).await.map_err(refused)?;
    Ok(json!({ "data": rows, "next_cursor": cursor }))
}

/// What stands below a list that is not whole.
pub(crate) fn say_if_more(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    if answer["next_cursor"].is_null() {
        Ok(())
    } else {
        writeln!(out, "\nThere are more: --limit N shows so many, --all shows them all.")
    }
}

async fn rows(
    gateway: &Gateway,
    path: &str,
    query: &[(&str, &str)],
    limit: u32,
) -> Result<(Vec<Value>, Option<String>), Error> {
    let mut rows = Vec::new();
    let mut cursor: Option<String> = None;
    let mut left = limit;
    loop {
        let path = format!("{path}?{}", page_query(query, left.min(PAGE), cursor.as_deref()));
        let mut page = gateway.request(Method::GET, &path, None).await?;
        let Value::Array(data) = page["data"].take() else {
            let reason = "it answers with no list".to_owned();
            return Err(Error::BadAnswer { gateway: gateway.url().to_owned(), reason });
        };
        // A page without rows ends the list whatever it says, so that there is an end.
        let got = u32::try_from(data.len()).unwrap_or(u32::MAX);
        left = left.saturating_sub(got);
        rows.extend(data);
        cursor = page["next_cursor"].as_str().filter(|_| got > 0).map(str::to_owned);
        if cursor.is_none() || left == 0 {
            return Ok((rows, cursor));
        }
    }
}

fn page_query(query: &[(&str, &str)], limit: u32, cursor: Option<&str>) -> String {
    let mut page = Serializer::new(String::new());
    page.extend_pairs(query).append_pair("limit", &limit.to_string());
    if let Some(cursor) = cursor {
        page.append_pair("cursor", cursor);
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_one_that_is_still_of_use() {
        let rows = [
            json!({ "id": "key_1", "name": "ci", "revoked_at": "2026-01-01T00:00:00.000Z" }),
            json!({ "id": "key_2", "name": "ci", "revoked_at": null }),
            json!({ "id": "key_3", "name": "old", "revoked_at": "2026-01-01T00:00:00.000Z" }),
            json!({ "id": "ep_1", "name": "a" }),
            json!({ "id": "ep_2", "name": "a" }),
            json!({ "id": "ep_3", "name": null }),
        ];
        for (name, ids) in
            [("ci", &["key_2"][..]), ("old", &["key_3"]), ("a", &["ep_1", "ep_2"]), ("b", &[])]
        {
            assert_eq!(named(&rows, name), ids, "{name}");
        }
    }

    #[test]
    fn what_a_thing_is_called_cannot_move_the_cursor() {
        let hostile = json!({ "id": "ep_1", "name": "\u{1b}[2Ja\nb\u{202e}" });
        assert_eq!(called(&hostile), "\\u{1b}[2Ja\\u{a}b\\u{202e} (ep_1)");
        for nameless in [json!({ "id": "ep_1", "name": null }), json!({ "id": "ep_1", "name": "" })]
        {
            assert_eq!(called(&nameless), "ep_1");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do_and_whose_matter_it_is() {
        let refusal = |status| Error::Refused {
            status,
            kind: String::new(),
            detail: "no".into(),
            retry_after: None,
        };
        for (status, usage, word) in [
            (401, true, "--key"),
            (403, true, "admin key"),
            (404, true, "404"),
            (409, true, "409"),
            (422, true, "422"),
            (503, false, "503"),
        ] {
            let failure = refused(refusal(status));
            let said = format!("{:#}", failure.error);
            assert!(failure.usage == usage && said.contains(word), "{status}: {said}");
        }
        let unreachable = Error::Unreachable { gateway: "http://a".into(), reason: "gone".into() };
        let failure = refused(unreachable);
        assert!(!failure.usage && failure.error.to_string().contains("--gateway"));
    }
}
