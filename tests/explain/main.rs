//! Explanations of captures: of the kernel's, of generated runs whose records are the truth, and of
//! files in every form.

#[path = "../common/mod.rs"]
mod common;

mod files;
mod forms;
mod kernel;
mod oracle;
mod rules;
