//! Secret of an agent's client.

use std::{env, fmt, str::FromStr};

use crate::failure::Failure;

pub(super) const VARIABLE: &str = "ROCE_AGENT_TOKEN";

/// 128 bits in hexadecimal.
#[derive(Clone, Copy)]
pub(super) struct Token([u8; 16]);

impl Token {
    pub(super) fn random() -> Result<Self, Failure> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
        Ok(Self(bytes))
    }

    pub(super) fn from_environment() -> Result<Option<Self>, Failure> {
        let Some(text) = env::var_os(VARIABLE) else { return Ok(None) };
        let token = text.to_string_lossy().parse();
        Ok(Some(token.map_err(|problem| format!("{VARIABLE}: {problem}"))?))
    }

    /// In constant time.
    pub(super) fn is(&self, said: &str) -> bool {
        let Ok(Self(said)) = said.parse() else { return false };
        self.0.iter().zip(said).fold(0, |differ, (own, said)| differ | (own ^ said)) == 0
    }
}

impl FromStr for Token {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_right = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_right);
        Ok(Self(number.ok_or("not a token; expected 32 hexadecimal digits")?.to_be_bytes()))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_same_or_not() {
        let text = "00112233445566778899aabbccddeeff";
        let token: Token = text.parse().unwrap();
        assert_eq!(token.to_string(), text);
        assert!(token.is(text) && token.is(&text.to_uppercase()));
        for other in ["", &text[1..], &format!("{text}0"), &format!("+{}", &text[1..])] {
            assert!(!token.is(other) && other.parse::<Token>().is_err(), "{other}");
        }
        for place in 0..32 {
            let mut other = text.to_owned();
            other.replace_range(place..=place, if &text[place..=place] == "7" { "8" } else { "7" });
            assert!(!token.is(&other), "{other}");
        }
        assert!(!Token::random().unwrap().is(&Token::random().unwrap().to_string()));
    }
}
