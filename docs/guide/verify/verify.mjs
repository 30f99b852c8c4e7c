// node verify.mjs SECRET ID TIMESTAMP SIGNATURE < body
import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const TOLERANCE = 5 * 60; // seconds

// Whether the gateway that knows `secret` sent `body` (a Buffer), and not long ago.
export function verify(secret, id, timestamp, signature, body) {
  if (!/^\d+$/.test(timestamp)) return false;
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > TOLERANCE) return false;
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const hmac = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body);
  const expected = Buffer.from(`v1,${hmac.digest("base64")}`);
  // While a secret is being rotated there are several, with spaces between.
  return signature.split(" ").some((text) => {
    const candidate = Buffer.from(text);
    return candidate.length === expected.length && timingSafeEqual(candidate, expected);
  });
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [secret, id, timestamp, signature] = process.argv.slice(2);
  process.exit(verify(secret, id, timestamp, signature, readFileSync(0)) ? 0 : 1);
}
