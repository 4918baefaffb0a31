//! Tests with real memory, sockets, threads, processes and namespaces, and of sources and pages.

mod docs;
mod errors;
mod examples;
mod explained;
mod footprint;
mod forked;
mod interface;
mod live;
mod objects;
mod own_test;
mod signals;
mod structure;
mod watchdog;
