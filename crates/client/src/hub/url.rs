//! The URLs an agent is given: plain ones, of a gateway or of a target.

use url::Url;

/// Says what is wrong with a URL in words that follow its name. The URL itself is not repeated: it
/// may hold a password.
pub(super) fn plain(text: &str, schemes: &[&str]) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|_| "is no URL".to_owned())?;
    if !schemes.contains(&url.scheme()) || url.host_str().is_none_or(str::is_empty) {
        return Err("must begin with http:// or https:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must have no user name or password".to_owned());
    }
    if url.fragment().is_some() {
        return Err("must have no fragment".to_owned());
    }
    Ok(url)
}
