//! The file of profiles: addresses and keys of several gateways, which only its owner can read.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use toml::{Table, Value};

use crate::Failure;
use crate::secret::Secret;

/// Whoever else can read the file can use the keys.
const OTHERS: u32 = 0o077;
const PRIVATE_DIRECTORY: u32 = 0o700;

const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_PROFILES: usize = 1_000;
const MAX_NAME_CHARS: usize = 63;

/// How much of a key is shown, to tell one from another.
const SHOWN_KEY_CHARS: usize = 6;

#[derive(Debug, Default)]
pub(crate) struct Profiles {
    /// Used where none is named.
    pub(crate) default: Option<String>,
    pub(crate) named: BTreeMap<String, Profile>,
}

#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) gateway: String,
    pub(crate) key: Option<Secret>,
    pub(crate) tenant: Option<String>,
}

impl Profile {
    /// The beginning of its key.
    pub(crate) fn key_hint(&self) -> Option<String> {
        let Secret(key) = self.key.as_ref()?;
        Some(format!("{}…", key.chars().take(SHOWN_KEY_CHARS).collect::<String>()))
    }
}

/// Where the profiles are kept; nowhere if there is no home.
pub(crate) fn path() -> Option<PathBuf> {
    let directory =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let configuration =
        directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
    Some(configuration.join("postrider").join("profiles.toml"))
}

impl Profiles {
    /// What there is; nothing if there is no file yet.
    pub(crate) fn load() -> Result<Self, Failure> {
        path().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        match read_private(path) {
            Ok(None) => Ok(Self::default()),
            Ok(Some(text)) => {
                let parsed = Self::parse(&text);
                parsed.map_err(|error| Failure::usage(anyhow!("{}: {error:#}", path.display())))
            }
            Err(error) => Err(Failure::usage(error)),
        }
    }

    /// The one that is named.
    pub(crate) fn get(&self, name: &str) -> Result<&Profile, Failure> {
        self.named.get(name).ok_or_else(|| {
            let known = self.named.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Failure::usage(if known.is_empty() {
                anyhow!(
                    "there is no profile `{name}`, nor any other: make one with `postrider profile \
                     add {name} --gateway URL`"
                )
            } else {
                anyhow!("there is no profile `{name}`; there are {known}")
            })
        })
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        // The parser's own message shows the line that it stopped at, which may hold a key.
        let file: Table = text.parse().map_err(|error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text.get(..start).unwrap_or(text).split('\n').count();
            anyhow!("line {line} is no TOML")
        })?;
        let mut profiles = Self::default();
        for (name, value) in &file {
            match (name.as_str(), value) {
                ("default", Value::String(name)) => profiles.default = Some(name.clone()),
                ("profiles", Value::Table(named)) => {
                    if named.len() > MAX_PROFILES {
                        return Err(anyhow!("there are more than {MAX_PROFILES} profiles"));
                    }
                    for (name, profile) in named {
                        let read = Profile::read(profile);
                        let read = read.with_context(|| format!("profiles.{name}"))?;
                        profiles.named.insert(name.clone(), read);
                    }
                }
                (name, _) => return Err(anyhow!("`{name}` cannot stand here")),
            }
        }
        Ok(profiles)
    }

    /// Writes a new file and puts it in the place of the old one.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let directory = path.parent().context("the profiles are in no directory")?;
        let mut make = DirBuilder::new();
        make.recursive(true).mode(PRIVATE_DIRECTORY);
        make.create(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        let write = || {
            // Only its owner can read what this makes.
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(self.text().as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            File::open(directory)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }

    fn text(&self) -> String {
        let mut named = Table::new();
        for (name, profile) in &self.named {
            named.insert(name.clone(), Value::Table(profile.table()));
        }
        let mut file = Table::new();
        if let Some(default) = &self.default {
            file.insert("default".into(), Value::String(default.clone()));
        }
        file.insert("profiles".into(), Value::Table(named));
        file.to_string()
    }
}

impl Profile {
    fn read(value: &Value) -> anyhow::Result<Self> {
        let fields = value.as_table().context("a table is needed, with a gateway and a key")?;
        let (mut gateway, mut key, mut tenant) = (None, None, None);
        for (name, value) in fields {
            let text = || {
                value.as_str().map(str::to_owned).with_context(|| format!("`{name}` is no text"))
            };
            match name.as_str() {
                "gateway" => gateway = Some(text()?),
                "key" => key = Some(Secret(text()?)),
                "tenant" => tenant = Some(text()?),
                name => return Err(anyhow!("`{name}` is none of gateway, key and tenant")),
            }
        }
        Ok(Self { gateway: gateway.context("`gateway` is missing")?, key, tenant })
    }

    fn table(&self) -> Table {
        let key = self.key.as_ref().map(|Secret(key)| key);
        let fields =
            [("gateway", Some(&self.gateway)), ("key", key), ("tenant", self.tenant.as_ref())];
        let said = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
        said.map(|(name, value)| (name.to_owned(), Value::String(value.clone()))).collect()
    }
}

/// A name that needs no quotes in a shell or in the file.
pub(crate) fn check_name(name: &str) -> Result<String, String> {
    let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    if (1..=MAX_NAME_CHARS).contains(&name.len()) && name.chars().all(plain) {
        Ok(name.to_owned())
    } else {
        Err(format!("a name has 1 to {MAX_NAME_CHARS} letters, digits, `-` and `_`"))
    }
}

/// The text of a file that nobody else can read; none where there is no file.
fn read_private(path: &Path) -> anyhow::Result<Option<String>> {
    let shown = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    let (mode, text) = read(file).with_context(|| format!("cannot read {shown}"))?;
    if mode & OTHERS != 0 {
        return Err(anyhow!(
            "{shown} holds keys, and others can get at it (mode {:04o}): run `chmod 600 {shown}`, and \
             replace the keys if others use this machine",
            mode & 0o7777
        ));
    }
    Ok(Some(text))
}

/// The mode of a file, and what stands in it.
fn read(file: File) -> std::io::Result<(u32, String)> {
    let mode = file.metadata()?.permissions().mode();
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length <= MAX_FILE_BYTES) {
        Ok((mode, text))
    } else {
        Err(std::io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    fn sample() -> Profiles {
        let mut profiles = Profiles { default: Some("prod".into()), ..Profiles::default() };
        let profile = Profile {
            gateway: "https://hooks.example.com".into(),
            key: Some(Secret("pr_0123456789\"\\".into())),
            tenant: Some("acme".into()),
        };
        let plain = Profile { gateway: "http://127.0.0.1:7070".into(), key: None, tenant: None };
        profiles.named.insert("prod".into(), profile);
        profiles.named.insert("local".into(), plain);
        profiles
    }

    #[test]
    fn what_is_written_is_read_again_and_nobody_else_can() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a/b/profiles.toml");
        assert!(Profiles::read(&path).expect("nothing yet").named.is_empty());
        sample().write(&path).expect("written");
        sample().write(&path).expect("written over");
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("a directory"))), (0o600, 0o700));
        let read = Profiles::read(&path).expect("readable");
        assert_eq!(read.default.as_deref(), Some("prod"));
        let prod = read.get("prod").expect("there");
        assert_eq!(prod.gateway, "https://hooks.example.com");
        assert_eq!(prod.key.as_ref().map(|Secret(key)| key.as_str()), Some("pr_0123456789\"\\"));
        assert_eq!(prod.tenant.as_deref(), Some("acme"));
        assert_eq!(prod.key_hint().as_deref(), Some("pr_012…"));
        assert!(read.get("local").expect("there").key.is_none());
        assert!(!format!("{read:?}").contains("pr_"), "{read:?}");
        let left =
            std::fs::read_dir(path.parent().expect("a directory")).expect("readable").count();
        assert_eq!(left, 1, "a temporary file was left");

        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
            let failure = Profiles::read(&path).expect_err("refused");
            let said = format!("{:#}", failure.error);
            assert!(failure.usage && said.contains("chmod 600"), "{said}");
            assert!(!said.contains("pr_0"), "{said}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named_without_its_keys() {
        for (text, word) in [
            ("default = 7", "default"),
            ("colour = \"red\"", "colour"),
            ("[profiles]\na = 1", "profiles.a"),
            ("[profiles.a]\nkey = \"pr_hunter2\"", "gateway"),
            ("[profiles.a]\ngateway = \"http://a\"\nkeys = \"pr_hunter2\"", "keys"),
            ("[profiles.a]\ngateway = \"http://a\"\nkey = pr_hunter2", "line 3"),
        ] {
            let said = format!("{:#}", Profiles::parse(text).expect_err(text));
            assert!(said.contains(word) && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn one_that_is_not_there_is_told_from_those_that_are() {
        let said = |profiles: &Profiles| {
            format!("{:#}", profiles.get("staging").expect_err("not there").error)
        };
        assert!(said(&sample()).contains("local, prod"), "{}", said(&sample()));
        assert!(said(&Profiles::default()).contains("profile add staging"));
    }

    #[test]
    fn a_name_is_plain() {
        for name in ["a", "prod-eu_2", &"x".repeat(MAX_NAME_CHARS)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "a b", "a.b", "é", "a\n", &"x".repeat(MAX_NAME_CHARS + 1)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
