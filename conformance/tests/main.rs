//! Cases, and devices that break a rule.

mod conforms;
mod language;
mod mutants;
