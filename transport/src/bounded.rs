use alloc::collections::VecDeque;

/// Appends to a queue of at most `most` elements; the oldest one goes.
pub(crate) fn push<T>(queue: &mut VecDeque<T>, new: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(new);
}
