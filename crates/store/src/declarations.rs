//! What configuration as code needs of a store: what a file has declared, so that it can be told from
//! what was made by hand, and whose turn it is to make something of a file.

use std::fmt;

use async_trait::async_trait;
use postrider_core::TenantId;

use crate::error::Error;

#[async_trait]
pub trait Declarations: Send + Sync + 'static {
    /// Those of all tenants.
    async fn declarations(&self) -> Result<Vec<Declaration>, Error>;

    /// Inserts or replaces. A thing has one name: an older declaration of the same object goes.
    async fn put_declaration(&self, declaration: Declaration) -> Result<(), Error>;

    /// Forgets that it was declared; the object stays. One that is not there is no error.
    async fn remove_declaration(
        &self,
        tenant: TenantId,
        kind: DeclaredKind,
        name: String,
    ) -> Result<(), Error>;

    /// Waits until no node, this one included, makes anything of a file. Nobody else does until what
    /// is returned is dropped, or this process ends.
    async fn declaring(&self) -> Result<DeclaringTurn, Error>;
}

/// Something that is there because a file says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub tenant: TenantId,
    pub kind: DeclaredKind,
    /// As it stands in the file.
    pub name: String,
    /// What was made of it.
    pub object: i64,
    pub applied: Applied,
}

/// A digest of the secrets that were declared. It is sealed where it is kept: the digest of a weak
/// secret can be guessed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Applied(pub [u8; 32]);

impl fmt::Debug for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Applied(…)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeclaredKind {
    Hub,
    Source,
    Endpoint,
}

impl DeclaredKind {
    /// The number that stands for it in the database. Its meaning never changes.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Hub => 1,
            Self::Source => 2,
            Self::Endpoint => 3,
        }
    }

    pub(crate) fn decode(code: i64) -> Result<Self, Error> {
        match code {
            1 => Ok(Self::Hub),
            2 => Ok(Self::Source),
            3 => Ok(Self::Endpoint),
            other => Err(Error::Damaged(format!("{other} is no kind of declaration"))),
        }
    }
}

/// The right to make something of a file, held until it is dropped.
pub struct DeclaringTurn {
    /// Has with it what holds the turn.
    is_held: Box<dyn Fn() -> bool + Send + Sync>,
}

impl DeclaringTurn {
    pub(crate) fn new(is_held: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { is_held: Box::new(is_held) }
    }

    /// False if somebody else may have taken it meanwhile: then nothing more may be made.
    pub fn is_held(&self) -> bool {
        (self.is_held)()
    }
}

impl fmt::Debug for DeclaringTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeclaringTurn").finish_non_exhaustive()
    }
}
