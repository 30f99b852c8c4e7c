//! With the crates base64, hmac and sha2.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const TOLERANCE: u64 = 5 * 60; // seconds

/// Whether the gateway that knows `secret` sent `body`, and not long before `now`, in Unix seconds.
pub fn verify(
    secret: &str,
    id: &str,
    timestamp: &str,
    signature: &str,
    body: &[u8],
    now: u64,
) -> bool {
    let recent = timestamp.parse().is_ok_and(|sent: u64| now.abs_diff(sent) <= TOLERANCE);
    let Ok(key) = STANDARD.decode(secret.trim_start_matches("whsec_")) else { return false };
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(&key) else { return false };
    let mac = mac.chain_update(format!("{id}.{timestamp}.")).chain_update(body);
    // While a secret is being rotated there are several, with spaces between.
    let genuine = signature.split(' ').any(|candidate| {
        let sum = candidate.strip_prefix("v1,").and_then(|sum| STANDARD.decode(sum).ok());
        sum.is_some_and(|sum| mac.clone().verify_slice(&sum).is_ok())
    });
    recent && genuine
}
