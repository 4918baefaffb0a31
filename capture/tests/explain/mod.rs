//! Explanations of captures: of the kernel's, of generated runs whose records are the truth, and of
//! files in every form.

mod files;
mod foreign;
mod forms;
mod infiniband;
mod kernel;
mod oracle;
mod pairing;
mod rules;
