//! Verification of inbound webhooks, scheme by scheme, against published vectors and against every
//! way of getting a request wrong.

mod case;
mod hmac;
mod properties;
mod providers;
mod secrets;
mod spec;
mod standard;
mod token;
mod twilio;
