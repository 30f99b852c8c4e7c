//! The API as a program outside meets it: a real engine on a real database, real HTTP on loopback
//! in both directions. Only time is virtual.

mod gateway;
mod hub_client;
mod sink;

mod access;
mod audit;
mod bad_input;
mod connections;
mod dead_letters;
mod deliveries;
mod destinations;
mod docs;
mod endpoints;
mod events;
mod filters;
mod history;
mod hub_socket;
mod hubs;
mod ingest;
mod keys;
mod limits;
mod metrics;
mod nodes;
mod operator;
mod policies;
mod pull;
mod sources;
mod stream;
mod tenancy;
mod tenants;
