//! Posting lists of work requests.

use roce_transport::qp::PostError;
use thiserror::Error;

/// Why posting a list stopped. The requests before `index` are posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("request {index}: {error}")]
pub struct BadWorkRequest {
    /// The first request that is not posted.
    pub index: usize,
    /// What is wrong with it.
    pub error: PostError,
}

pub(super) fn post<W>(
    wrs: &[W],
    mut one: impl FnMut(&W) -> Result<(), PostError>,
) -> Result<(), BadWorkRequest> {
    wrs.iter()
        .enumerate()
        .try_for_each(|(index, wr)| one(wr).map_err(|error| BadWorkRequest { index, error }))
}
