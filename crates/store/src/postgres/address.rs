//! Where the database is: a `postgres://` URL, read as `psql` reads it.
//!
//! `sslmode` and `sslrootcert` are read here, because the driver knows only half of them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Config, SslMode, TargetSessionAttrs};

use super::OpenError;
use super::config::KEEPALIVE;
use super::tls::{Roots, Tls, Trust};

/// How to reach the database.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
}

impl Address {
    pub(crate) fn parse(url: &str, connect_timeout: Duration) -> Result<Self, OpenError> {
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(bad("it does not begin with postgres://"));
        }
        let (plain, settings) = split(url)?;
        let mut config =
            Config::from_str(&plain).map_err(|error| bad(&super::fault::explain(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(bad("it names no host"));
        }
        if config.get_dbname().is_none() {
            return Err(bad("it names no database"));
        }
        let (ssl, trust) = settings.meaning()?;
        let roots = match settings.root.as_deref() {
            None | Some("system") => Roots::Public,
            Some(path) => Roots::File(PathBuf::from(path)),
        };
        config
            .ssl_mode(ssl)
            // A replica cannot take what is to be stored; of several hosts, the primary is meant.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE)
            .keepalives_retries(2);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(connect_timeout);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(3 * KEEPALIVE);
        }
        if config.get_application_name().is_none() {
            config.application_name("postrider");
        }
        Ok(Self { config, tls: Tls::new(trust, &roots)? })
    }
}

/// The driver hides the password too; this keeps it so.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("hosts", &self.config.get_hosts())
            .field("database", &self.config.get_dbname())
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Settings {
    mode: Option<String>,
    root: Option<String>,
}

impl Settings {
    fn meaning(&self) -> Result<(SslMode, Trust), OpenError> {
        Ok(match (self.mode.as_deref().unwrap_or("prefer"), &self.root) {
            ("disable", _) => (SslMode::Disable, Trust::Anyone),
            // As `psql` does: without verification there is no point in refusing plain text.
            ("allow" | "prefer", _) => (SslMode::Prefer, Trust::Anyone),
            ("require", None) => (SslMode::Require, Trust::Anyone),
            ("require" | "verify-ca", _) => (SslMode::Require, Trust::Authority),
            ("verify-full", _) => (SslMode::Require, Trust::Server),
            _ => {
                return Err(bad(
                    "sslmode is none of disable, prefer, require, verify-ca and verify-full",
                ));
            }
        })
    }
}

/// Takes the settings of TLS out of the URL.
fn split(url: &str) -> Result<(String, Settings), OpenError> {
    let mut settings = Settings::default();
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), settings)) };
    let mut rest = Vec::new();
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wanted = match name {
            "sslmode" => &mut settings.mode,
            "sslrootcert" => &mut settings.root,
            _ => {
                rest.push(pair);
                continue;
            }
        };
        let value = percent_decode_str(value).decode_utf8();
        *wanted = Some(value.map_err(|_| bad(&format!("{name} is not UTF-8")))?.into_owned());
    }
    let plain =
        if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((plain, settings))
}

/// Never with any part of the URL, which may hold a password.
fn bad(why: &str) -> OpenError {
    OpenError::Address(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, OpenError> {
        Address::parse(url, Duration::from_secs(5))
    }

    #[test]
    fn what_psql_takes_is_taken() {
        let cases = [
            ("postgres://u:p@db.example:5433/app", SslMode::Prefer, Trust::Anyone),
            ("postgresql://u@db.example/app?sslmode=disable", SslMode::Disable, Trust::Anyone),
            ("postgres://u@db.example/app?sslmode=require", SslMode::Require, Trust::Anyone),
            (
                "postgres://u@a.example,b.example/app?sslmode=verify-full&application_name=x",
                SslMode::Require,
                Trust::Server,
            ),
            ("postgres://u@a/app?sslmode=verify-ca", SslMode::Require, Trust::Authority),
            (
                "postgres://u@a/app?sslmode=require&sslrootcert=system",
                SslMode::Require,
                Trust::Authority,
            ),
            ("postgres:///app?host=/run/postgresql&user=u", SslMode::Prefer, Trust::Anyone),
        ];
        for (url, mode, trust) in cases {
            let address = parse(url).expect(url);
            assert_eq!(address.config.get_ssl_mode(), mode, "{url}");
            let (_, settings) = split(url).expect(url);
            assert_eq!(settings.meaning().expect(url), (mode, trust), "{url}");
            assert_eq!(address.config.get_dbname(), Some("app"), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let cases = [
            ("mysql://u:hunter2@a/app", "postgres://"),
            ("postgres://u:hunter2@a", "database"),
            ("postgres://u:hunter2@a/app?sslmode=maybe", "sslmode"),
            ("postgres://u:hunter2@a/app?colour=hunter2", "colour"),
            ("postgres://u:hunter2@a:port/app", "port"),
            ("postgres://u:hunter2@a/app?sslmode=verify-full&sslrootcert=/no/such.pem", "such.pem"),
        ];
        for (url, named) in cases {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(named), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let address = parse("postgres://u:hunter2@a/app").expect("an address");
        assert!(!format!("{address:?}").contains("hunter2"));
    }
}
