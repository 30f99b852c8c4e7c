//! `/v1/keys`, `/v1/tenants` and `/v1/audit`, described.

use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, maybe, maybe_text, page_of, reference, request, text, words,
};

const KEY: &str = "The key's id, which is not the key itself.";

pub(crate) fn create_key() -> Operation {
    let mut made = shown();
    made["key"] = "pr_4q3XwS1m7V0r8l2TzK9yB5nD6cF1gH3jL0pQ8sUeRtA".into();
    Operation::new(
        Tag::Keys,
        "createKey",
        "Make a key",
        "This answer is the only place where the key can be read; what is stored is its hash. An \
         admin key makes keys of any role and tenant, the key of a tenant those of its own tenant.",
    )
    .takes("NewKey", &json!({ "name": "the shop's backend", "role": "tenant" }))
    .gives(201, "The key.", "Key", &made)
    .refuses_when(409, "There are as many keys as are kept.")
}

pub(crate) fn list_keys() -> Operation {
    Operation::new(
        Tag::Keys,
        "listKeys",
        "List keys",
        "Newest first, revoked ones too. The key of a tenant sees those of its tenant, an admin \
         key all, or those of the tenant it names.",
    )
    .page()
    .gives(200, "A page of keys.", "Keys", &json!({ "data": [shown()], "next_cursor": null }))
}

pub(crate) fn show_key() -> Operation {
    Operation::new(Tag::Keys, "showKey", "Show a key", "What is known of it, but not the key.")
        .path("id", "KeyId", KEY)
        .gives(200, "What is known of the key.", "Key", &shown())
}

pub(crate) fn change_key() -> Operation {
    Operation::new(
        Tag::Keys,
        "changeKey",
        "Rename a key, or let it expire",
        "One that has expired lives again if it is given more time; one that was revoked does not.",
    )
    .path("id", "KeyId", KEY)
    .takes("KeyChange", &json!({ "expires_at": "2027-01-31T12:00:00.000Z" }))
    .gives(200, "The key as it is now.", "Key", &shown())
    .refuses_when(409, "It was revoked, or is the last admin key that stays.")
}

pub(crate) fn revoke_key() -> Operation {
    Operation::new(
        Tag::Keys,
        "revokeKey",
        "Revoke a key",
        "It opens nothing from now on, and stays in the list. It may be the one that asks.",
    )
    .path("id", "KeyId", KEY)
    .answers(204, json!({ "description": "It is revoked." }))
    .refuses_when(409, "It is the last admin key that stays: nobody could get in any more.")
}

pub(crate) fn create_tenant() -> Operation {
    Operation::new(
        Tag::Tenants,
        "createTenant",
        "Make a tenant",
        "Needs an admin key. A tenant stays: there is no way to delete one, because its history \
         is kept under it. Revoke its keys to close it.",
    )
    .takes("NewTenant", &json!({ "name": "acme" }))
    .gives(201, "The tenant.", "Tenant", &tenant_shown())
    .refuses_when(409, "The name is taken, or there are as many tenants as are kept.")
}

pub(crate) fn list_tenants() -> Operation {
    Operation::new(Tag::Tenants, "listTenants", "List tenants", "Needs an admin key. Newest first.")
        .page()
        .gives(
            200,
            "A page of tenants.",
            "Tenants",
            &json!({ "data": [tenant_shown()], "next_cursor": null }),
        )
}

pub(crate) fn show_tenant() -> Operation {
    Operation::new(Tag::Tenants, "showTenant", "Show a tenant", "Needs an admin key.")
        .path("name", "TenantName", "The tenant's name.")
        .gives(200, "The tenant.", "Tenant", &tenant_shown())
}

pub(crate) fn list_audit() -> Operation {
    let row = json!({
        "id": "42",
        "at": "2026-01-31T12:00:00.000Z",
        "tenant": "default",
        "actor": "key_0a1b2c3d4e5f6",
        "action": "endpoint.pause",
        "subject": "ep_0a1b2c3d4e5f6",
        "detail": null,
    });
    Operation::new(
        Tag::Audit,
        "listAudit",
        "List changes",
        "Newest first. A row is written in the same transaction as its change. The key of a tenant \
         sees the changes of its tenant, an admin key all, or those of the tenant it names.",
    )
    .page()
    .query("action", json!({ "type": "string" }), "Only this action, like `endpoint.pause`.")
    .query("subject", json!({ "type": "string" }), "Only changes of this id or name.")
    .gives(200, "A page of changes.", "Audit", &json!({ "data": [row], "next_cursor": null }))
}

fn shown() -> Value {
    json!({
        "id": "key_0a1b2c3d4e5f6",
        "name": "the shop's backend",
        "role": "tenant",
        "tenant": "default",
        "created_at": "2026-01-31T12:00:00.000Z",
        "expires_at": null,
        "revoked_at": null,
        "last_used_at": "2026-01-31T12:03:00.000Z",
    })
}

fn tenant_shown() -> Value {
    json!({ "name": "acme", "created_at": "2026-01-31T12:00:00.000Z" })
}

pub(super) fn schemas() -> Vec<Named> {
    vec![
        ("Role", words(&["admin", "tenant"], "What a key may do.")),
        ("NewKey", new_key()),
        ("KeyChange", key_change()),
        ("Key", key()),
        ("Keys", page_of("Key")),
        (
            "NewTenant",
            request("A tenant to be made.", json!({ "name": reference("TenantName") }), &["name"]),
        ),
        ("Tenant", tenant()),
        ("Tenants", page_of("Tenant")),
        ("AuditRow", audit_row()),
        ("Audit", page_of("AuditRow")),
    ]
}

fn name() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 200, "description": "For people." })
}

fn new_key() -> Value {
    let properties = json!({
        "name": name(),
        "role": about("Role", "`tenant` if not said."),
        "tenant": maybe("TenantName", "Whose key it is, if not that of the tenant it is made in."),
        "expires_at": maybe("Time", "When it stops to open anything."),
    });
    request("A key to be made.", properties, &["name"])
}

fn key_change() -> Value {
    let mut name = name();
    name["type"] = json!(["string", "null"]);
    let properties =
        json!({ "name": name, "expires_at": maybe("Time", "When it expires; `null` is never.") });
    request("What is to be otherwise.", properties, &[])
}

fn key() -> Value {
    let properties = json!({
        "id": reference("KeyId"),
        "name": text("For people."),
        "role": reference("Role"),
        "tenant": maybe("TenantName", "Whose key it is; none for an admin key."),
        "created_at": reference("Time"),
        "expires_at": maybe("Time", "When it stops to open anything."),
        "revoked_at": maybe("Time", "When it was revoked."),
        "last_used_at": maybe("Time", "When it was last used, to about a minute."),
        "key": text("The key itself. Only in the answer that made it."),
    });
    answer("What is known of a key.", properties, &["key"])
}

fn tenant() -> Value {
    let properties = json!({
        "name": reference("TenantName"),
        "created_at": maybe("Time", "None for the one that was there from the start."),
    });
    answer("A name space.", properties, &[])
}

fn audit_row() -> Value {
    let properties = json!({
        "id": text("Later rows have higher numbers."),
        "at": reference("Time"),
        "tenant": maybe_text("Whose change it was; none if it concerns no tenant alone."),
        "actor": text("The id of the key that did it, or `gateway`, or `file` for what its configuration file declares."),
        "action": text("What was done, like `endpoint.pause`."),
        "subject": text("To what, by its id or name."),
        "detail": {
            "type": ["object", "null"],
            "description": "More about it, without secrets.",
            "additionalProperties": true,
        },
    });
    answer("A change.", properties, &[])
}
