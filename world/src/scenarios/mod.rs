pub(crate) mod congestion;
pub(crate) mod connecting;
pub(crate) mod datagrams;
pub(crate) mod loss;
pub(crate) mod reliable;
pub(crate) mod scripted;
pub(crate) mod shared;
