use roce_transport::qp::PostError;
use thiserror::Error;

/// Error of posting a list; requests before `index` are posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("request {index}: {error}")]
pub struct BadWorkRequest {
    /// Index of the first request not posted.
    pub index: usize,
    /// Error of that request.
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
