//! What every page has around it: the way to the other pages, who is there, in which tenant.

use postrider_core::Timestamp;

use super::session::{Csrf, Visitor};

/// Where a page belongs in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Overview,
    Events,
    Deliveries,
    DeadLetters,
    Endpoints,
    Policies,
    Sources,
    Hubs,
    Nodes,
    Keys,
    Audit,
    Settings,
}

/// A field of every page's template, which `base.html` reads.
#[derive(Debug)]
pub(crate) struct Chrome {
    pub(crate) section: Section,
    /// The name of the key that was signed in with.
    pub(crate) who: String,
    pub(crate) is_admin: bool,
    pub(crate) tenant: String,
    /// Those an admin can look at; none for others.
    pub(crate) tenants: Vec<String>,
    /// To be sent with every change.
    pub(crate) csrf: Csrf,
    /// What the last change came to.
    pub(crate) said: Option<String>,
    pub(crate) version: &'static str,
    /// So that what is relative to it can be kept true.
    pub(crate) now: Timestamp,
}

impl Chrome {
    pub(crate) fn new(visitor: &Visitor, section: Section) -> Self {
        Self {
            section,
            who: visitor.who.clone(),
            is_admin: visitor.is_admin(),
            tenant: visitor.tenant_name.clone(),
            tenants: visitor.tenants(),
            csrf: visitor.csrf.clone(),
            said: visitor.said.clone(),
            version: env!("CARGO_PKG_VERSION"),
            now: visitor.now,
        }
    }

    /// The way to the other pages, in the order of a day's work.
    pub(crate) fn links(&self) -> impl Iterator<Item = Link> {
        let for_everybody = |section: &Section| self.is_admin || !section.is_for_admins();
        let shown = Section::ALL.into_iter().filter(for_everybody);
        shown.map(|section| Link {
            path: section.path(),
            name: section.name(),
            is_current: self.section == section,
        })
    }

    /// Where this page's section begins.
    pub(crate) fn path(&self) -> &'static str {
        self.section.path()
    }
}

/// One way to another page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    pub(crate) is_current: bool,
}

impl Section {
    const ALL: [Self; 12] = [
        Self::Overview,
        Self::Events,
        Self::Deliveries,
        Self::DeadLetters,
        Self::Endpoints,
        Self::Policies,
        Self::Sources,
        Self::Hubs,
        Self::Nodes,
        Self::Keys,
        Self::Audit,
        Self::Settings,
    ];

    /// What the API tells admins alone.
    const fn is_for_admins(self) -> bool {
        match self {
            Self::Nodes | Self::Settings => true,
            Self::Overview
            | Self::Events
            | Self::Deliveries
            | Self::DeadLetters
            | Self::Endpoints
            | Self::Policies
            | Self::Sources
            | Self::Hubs
            | Self::Keys
            | Self::Audit => false,
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Events => "/events",
            Self::Deliveries => "/deliveries",
            Self::DeadLetters => "/dead-letters",
            Self::Endpoints => "/endpoints",
            Self::Policies => "/policies",
            Self::Sources => "/sources",
            Self::Hubs => "/hubs",
            Self::Nodes => "/nodes",
            Self::Keys => "/keys",
            Self::Audit => "/audit",
            Self::Settings => "/settings",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Events => "Events",
            Self::Deliveries => "Deliveries",
            Self::DeadLetters => "Dead letters",
            Self::Endpoints => "Endpoints",
            Self::Policies => "Policies",
            Self::Sources => "Sources",
            Self::Hubs => "Hubs",
            Self::Nodes => "Nodes",
            Self::Keys => "Keys",
            Self::Audit => "Audit",
            Self::Settings => "Settings",
        }
    }
}
