<?php
// php verify.php SECRET ID TIMESTAMP SIGNATURE < body
const TOLERANCE = 5 * 60; // seconds

/** Whether the gateway that knows $secret sent $body, and not long ago. */
function verify(string $secret, string $id, string $timestamp, string $signature, string $body): bool
{
    if (!ctype_digit($timestamp) || abs(time() - (int) $timestamp) > TOLERANCE) {
        return false;
    }
    $key = base64_decode(preg_replace('/^whsec_/', '', $secret));
    $expected = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
    // While a secret is being rotated there are several, with spaces between.
    foreach (explode(' ', $signature) as $candidate) {
        if (hash_equals($expected, $candidate)) {
            return true;
        }
    }
    return false;
}

[, $secret, $id, $timestamp, $signature] = $argv;
exit(verify($secret, $id, $timestamp, $signature, stream_get_contents(STDIN)) ? 0 : 1);
