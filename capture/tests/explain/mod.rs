//! Explained captures: the kernel's, generated runs with records as truth, and files of all forms.

mod files;
mod foreign;
mod forms;
mod infiniband;
mod kernel;
mod oracle;
mod pairing;
mod rules;
