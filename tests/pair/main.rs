//! The rules of the transport, one file a concept: two adapters in virtual time, or one adapter
//! against packet values.

#[path = "../common/mod.rs"]
mod common;

mod acks;
mod answers;
mod atomics;
mod attacks;
mod attributes;
mod behind;
mod capture;
mod completion;
mod completion_counters;
mod congestion;
mod cq;
mod duplicates;
mod errors;
mod explain;
mod fairness;
mod faults;
mod flows;
mod gone;
mod handles;
mod holds;
mod injected;
mod late;
mod limits;
mod load;
mod loss;
mod memory;
mod middles;
mod modify;
mod multicast;
mod partition;
mod placement;
mod port;
mod read;
mod read_budget;
mod record;
mod recovery;
mod rnr;
mod segmentation;
mod send_queue;
mod srq;
mod states;
mod trust;
mod uc;
mod ud;
mod versions;
mod windows;
mod write_only;
mod xrc;
mod xrc_targets;
