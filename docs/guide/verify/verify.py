# python3 verify.py SECRET ID TIMESTAMP SIGNATURE < body
import base64, hashlib, hmac, sys, time

TOLERANCE = 5 * 60  # seconds


def verify(secret: str, id: str, timestamp: str, signature: str, body: bytes) -> bool:
    """Whether the gateway that knows `secret` sent `body`, and not long ago."""
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    # While a secret is being rotated there are several, with spaces between.
    return any(
        hmac.compare_digest(candidate.encode(), b"v1," + expected)
        for candidate in signature.split(" ")
    )


if __name__ == "__main__":
    sys.exit(0 if verify(*sys.argv[1:5], sys.stdin.buffer.read()) else 1)
