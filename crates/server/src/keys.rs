//! API keys: who a caller is, by the hash of what it shows.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::id::Sequence;
use postrider_core::{KeyId, TenantId, Timestamp};
use postrider_store::Registry;
use postrider_store::registry::{KeyRecord, Role};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "pr_";
/// A key given by an operator has at least this much after its prefix.
const MIN_KEY_CHARS: usize = 32;
const MAX_KEY_CHARS: usize = 512;

/// The keys and tenants of the store, held in memory: a request costs one hash and one look-up.
/// Whoever times the look-up learns of hashes, which lead back to no 256-bit secret.
#[derive(Clone)]
pub struct Keys {
    table: Arc<ArcSwap<Table>>,
}

struct Table {
    roles: HashMap<[u8; 32], Role>,
    tenants: Vec<(TenantId, String)>,
}

/// Why there is no admin key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(
        "an admin key is `{PREFIX}` and {MIN_KEY_CHARS} to {MAX_KEY_CHARS} letters, digits, `-` or `_`"
    )]
    Malformed,
    #[error("the admin key that was given is already the key of a tenant; give another")]
    IsATenants,
    #[error(transparent)]
    Store(#[from] postrider_store::Error),
}

impl Keys {
    pub async fn load(store: &dyn Registry) -> Result<Self, postrider_store::Error> {
        let table = Arc::new(ArcSwap::from_pointee(Table::read(store).await?));
        Ok(Self { table })
    }

    /// Takes over what has changed in the store.
    pub async fn reload(&self, store: &dyn Registry) -> Result<(), postrider_store::Error> {
        self.table.store(Arc::new(Table::read(store).await?));
        Ok(())
    }

    pub(crate) fn role(&self, key: &str) -> Option<Role> {
        self.table.load().roles.get(&hash(key)).copied()
    }

    pub(crate) fn tenant_named(&self, name: &str) -> Option<TenantId> {
        self.table.load().tenants.iter().find(|(_, known)| known == name).map(|(id, _)| *id)
    }

    pub(crate) fn tenant_name(&self, id: TenantId) -> Option<String> {
        self.table
            .load()
            .tenants
            .iter()
            .find(|(known, _)| *known == id)
            .map(|(_, name)| name.clone())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("known", &self.table.load().roles.len()).finish()
    }
}

impl Table {
    async fn read(store: &dyn Registry) -> Result<Self, postrider_store::Error> {
        let roles = store.keys().await?.into_iter().map(|key| (key.sha256, key.role)).collect();
        let tenants = store.tenants().await?.into_iter().map(|row| (row.id, row.name)).collect();
        Ok(Self { roles, tenants })
    }
}

/// Sees to it that somebody can get in: stores the key that was `given`, or, where there is no key
/// at all, makes one of the `random` bytes and returns it. That is the only time it can be read.
pub async fn ensure_admin_key(
    store: &dyn Registry,
    now: Timestamp,
    random: [u8; 32],
    given: Option<&str>,
) -> Result<Option<String>, KeyError> {
    let known = store.keys().await?;
    let (key, name, made) = match given {
        Some(given) => {
            check(given)?;
            (given.to_owned(), "given at start", false)
        }
        None if known.is_empty() => {
            (format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)), "made at first start", true)
        }
        None => return Ok(None),
    };
    let sha256 = hash(&key);
    if let Some(same) = known.iter().find(|record| record.sha256 == sha256) {
        return match same.role {
            Role::Admin => Ok(None),
            Role::Tenant(_) => Err(KeyError::IsATenants),
        };
    }
    let last = known.iter().map(|record| record.id.as_i64()).max().unwrap_or(0);
    let id = KeyId::from_i64(Sequence::after(last).take(now, 1));
    let record =
        KeyRecord { id, name: name.to_owned(), sha256, role: Role::Admin, created_at: now };
    store.put_key(record).await?;
    Ok(made.then_some(key))
}

fn check(key: &str) -> Result<(), KeyError> {
    let secret = key.strip_prefix(PREFIX).ok_or(KeyError::Malformed)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (MIN_KEY_CHARS..=MAX_KEY_CHARS).contains(&secret.len()) && secret.bytes().all(allowed) {
        Ok(())
    } else {
        Err(KeyError::Malformed)
    }
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_key_has_the_prefix_and_is_long_enough() {
        let long_enough = "a".repeat(MIN_KEY_CHARS);
        assert!(check(&format!("pr_{long_enough}")).is_ok());
        let short = format!("pr_{}", &long_enough[1..]);
        let spaced = format!("pr_{long_enough} ");
        let huge = format!("pr_{}", "a".repeat(MAX_KEY_CHARS + 1));
        for key in ["", "pr_", &long_enough, &short, &spaced, &huge] {
            assert!(matches!(check(key), Err(KeyError::Malformed)), "{key}");
        }
    }
}
