mod files;
mod foreign;
mod forms;
mod infiniband;
mod kernel;
mod oracle;
mod pairing;
mod rules;
