//! Cases, their language, and devices that break one rule each.

mod conforms;
mod language;
mod mutants;
