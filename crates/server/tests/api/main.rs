//! The API as a program outside meets it: a real engine on a real database, real HTTP on loopback
//! in both directions. Only time is virtual.

mod gateway;
mod sink;

mod access;
mod bad_input;
mod connections;
mod dead_letters;
mod deliveries;
mod endpoints;
mod events;
mod policies;
mod stream;
