"""Signatures against the libraries that people really use, in both directions.

What the gateway sends must verify with them; what they sign must be accepted; what was tampered
with must be refused. Usage: libraries.py GATEWAY_URL ADMIN_KEY
"""

import base64
import http.server
import json
import queue
import sys
import threading
import urllib.error
import urllib.request
from datetime import datetime, timezone

import slack_sdk.signature
import standardwebhooks
import stripe

GATEWAY, KEY = sys.argv[1:3]
PATIENCE_SECONDS = 20


class Sink(http.server.BaseHTTPRequestHandler):
    """Remembers what it receives."""

    protocol_version = "HTTP/1.1"
    received = queue.Queue(maxsize=100)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.received.put((headers, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def request(method, path, body=None, headers=None):
    headers = dict(headers or {})
    if isinstance(body, dict):
        body = json.dumps(body).encode()
        headers.setdefault("content-type", "application/json")
    if path.startswith("/v1/"):
        headers["authorization"] = f"Bearer {KEY}"
    asked = urllib.request.Request(GATEWAY + path, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"null")


def check(condition, what):
    if not condition:
        raise AssertionError(what)
    print(f"  {what}")


def made(status_and_body):
    status, body = status_and_body
    assert status == 201, (status, body)
    return body


def sent_by_the_gateway(sink_url):
    payload = {"amount": 100.0, "text": "grüße \u2028 <&>"}
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    endpoint = made(
        request(
            "POST",
            "/v1/endpoints",
            {"url": sink_url, "event_types": ["library.standard"], "secret": secret},
        )
    )
    status, _ = request("POST", "/v1/events", {"type": "library.standard", "payload": payload})
    assert status == 202, status
    headers, body = Sink.received.get(timeout=PATIENCE_SECONDS)
    webhook = standardwebhooks.Webhook(secret)
    check(webhook.verify(body, headers) == payload, "standardwebhooks accepts what is sent")
    try:
        webhook.verify(body + b" ", headers)
        raise AssertionError("standardwebhooks accepted another body")
    except standardwebhooks.WebhookVerificationError:
        print("  standardwebhooks refuses another body")
    rotated = request("POST", f"/v1/endpoints/{endpoint['id']}/rotate-secret", {"overlap": "1h"})
    assert rotated[0] == 200, rotated
    _, secrets = request("GET", f"/v1/endpoints/{endpoint['id']}/secret")
    status, _ = request("POST", "/v1/events", {"type": "library.standard", "payload": payload})
    assert status == 202, status
    headers, body = Sink.received.get(timeout=PATIENCE_SECONDS)
    check(
        webhook.verify(body, headers) == payload
        and standardwebhooks.Webhook(secrets["secret"]).verify(body, headers) == payload,
        "both secrets sign while they overlap",
    )


def source(scheme, **options):
    secret = options.pop("secret")
    verify = {"scheme": scheme, "secret": secret, **options}
    return made(request("POST", "/v1/sources", {"name": scheme, "verify": verify}))["url"]


def post(url, body, headers):
    return request("POST", url, body, {"content-type": "application/json", **headers})[0]


def received_by_the_gateway():
    body = json.dumps({"id": "evt_1", "type": "invoice.paid", "object": "event"}).encode()
    now = datetime.now(tz=timezone.utc)

    secret = "whsec_" + base64.b64encode(b"s" * 24).decode()
    url = source("standard", secret=secret)
    signature = standardwebhooks.Webhook(secret).sign("msg_1", now, body.decode())
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }
    check(post(url, body, headers) == 202, "what standardwebhooks signs is accepted")
    check(post(url, body + b" ", headers) == 401, "and refused with another body")

    secret = "whsec_stripe_test_secret"
    url = source("stripe", secret=secret)
    at = int(now.timestamp())
    # The library's own way to make and to check a header.
    signed = stripe.WebhookSignature._compute_signature(f"{at}.{body.decode()}", secret)
    header = f"t={at},v1={'0' * 64},v1={signed}"
    stripe.WebhookSignature.verify_header(body.decode(), header, secret, tolerance=300)
    check(post(url, body, {"stripe-signature": header}) == 202, "what stripe signs is accepted")
    old = at - 3600
    late = stripe.WebhookSignature._compute_signature(f"{old}.{body.decode()}", secret)
    check(
        post(url, body, {"stripe-signature": f"t={old},v1={late}"}) == 401,
        "and refused when it is an hour old",
    )

    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    url = source("slack", secret=secret)
    verifier = slack_sdk.signature.SignatureVerifier(secret)
    signature = verifier.generate_signature(timestamp=str(at), body=body)
    headers = {"x-slack-request-timestamp": str(at), "x-slack-signature": signature}
    check(post(url, body, headers) == 202, "what slack_sdk signs is accepted")
    check(post(url, body + b" ", headers) == 401, "and refused with another body")
    challenge = json.dumps({"type": "url_verification", "challenge": "c0ffee"}).encode()
    signature = verifier.generate_signature(timestamp=str(at), body=challenge)
    asked = urllib.request.Request(
        GATEWAY + url,
        data=challenge,
        headers={
            "content-type": "application/json",
            "x-slack-request-timestamp": str(at),
            "x-slack-signature": signature,
        },
    )
    with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
        check(b"c0ffee" in answer.read(), "and its challenge is answered")


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sent_by_the_gateway(f"http://127.0.0.1:{server.server_port}/hook")
    received_by_the_gateway()
    server.shutdown()


main()
