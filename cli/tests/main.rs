//! The tool as users run it.

mod conform;
mod course;
mod demo;
mod devinfo;
mod explain;
mod fault;
mod hanging;
mod live;
mod log;
#[path = "../../tests/own_test/mod.rs"]
mod own_test;
mod pages;
mod perf;
mod pipe;
mod playground;
mod reaper;
mod run;
mod running;
mod sandbox;
mod share;
mod tools;
#[path = "../../tests/watchdog/mod.rs"]
mod watchdog;
