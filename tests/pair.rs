//! The rules of the transport, one file a concept: two adapters in virtual time, or one adapter against packet values.

mod harness;

#[path = "pair/acks.rs"]
mod acks;
#[path = "pair/atomics.rs"]
mod atomics;
#[path = "pair/attacks.rs"]
mod attacks;
#[path = "pair/attributes.rs"]
mod attributes;
#[path = "pair/capture.rs"]
mod capture;
#[path = "pair/completion.rs"]
mod completion;
#[path = "pair/congestion.rs"]
mod congestion;
#[path = "pair/cq.rs"]
mod cq;
#[path = "pair/duplicates.rs"]
mod duplicates;
#[path = "pair/errors.rs"]
mod errors;
#[path = "pair/fairness.rs"]
mod fairness;
#[path = "pair/faults.rs"]
mod faults;
#[path = "pair/gone.rs"]
mod gone;
#[path = "pair/handles.rs"]
mod handles;
#[path = "pair/limits.rs"]
mod limits;
#[path = "pair/loss.rs"]
mod loss;
#[path = "pair/memory.rs"]
mod memory;
#[path = "pair/modify.rs"]
mod modify;
#[path = "pair/multicast.rs"]
mod multicast;
#[path = "pair/partition.rs"]
mod partition;
#[path = "pair/placement.rs"]
mod placement;
#[path = "pair/port.rs"]
mod port;
#[path = "pair/read.rs"]
mod read;
#[path = "pair/rnr.rs"]
mod rnr;
#[path = "pair/segmentation.rs"]
mod segmentation;
#[path = "pair/srq.rs"]
mod srq;
#[path = "pair/states.rs"]
mod states;
#[path = "pair/trust.rs"]
mod trust;
#[path = "pair/uc.rs"]
mod uc;
#[path = "pair/ud.rs"]
mod ud;
#[path = "pair/windows.rs"]
mod windows;
#[path = "pair/xrc.rs"]
mod xrc;
#[path = "pair/xrc_targets.rs"]
mod xrc_targets;
