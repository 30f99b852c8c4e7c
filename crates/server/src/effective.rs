//! What this gateway was started with, to be looked at: names and values, never a secret. It is told
//! by whoever puts the gateway together; nothing here reads it to decide anything.

/// The settings, as whoever started the gateway may see them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EffectiveSettings {
    pub groups: Vec<SettingsGroup>,
}

/// Settings that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsGroup {
    pub name: String,
    pub settings: Vec<Setting>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// As a user writes it, such as `--listen`.
    pub name: String,
    /// What it does, in a few words.
    pub about: String,
    /// Without anything that has to stay secret.
    pub value: String,
    pub origin: SettingOrigin,
}

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// Nobody said anything.
    Default,
    CommandLine,
    /// A variable of the environment, by its name.
    Variable(String),
    /// A line of a file.
    File {
        path: String,
        line: usize,
    },
    /// It is worked out from other things, such as the machine's name.
    Found,
}
