//! Text within HTML and XML.

/// Text in which nothing is markup: a capture's content is not to be trusted.
pub(crate) fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => result += "&amp;",
            '<' => result += "&lt;",
            '>' => result += "&gt;",
            '"' => result += "&quot;",
            _ => result.push(c),
        }
    }
    result
}
