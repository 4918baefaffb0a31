//! What needs real memory, sockets, threads, processes and namespaces; the structure of the
//! sources; and what pages say.

mod docs;
mod errors;
mod examples;
mod explained;
mod footprint;
mod interface;
mod live;
mod objects;
mod own_test;
mod signals;
mod structure;
mod watchdog;
