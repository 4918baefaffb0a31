//! Profile parser.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
    sync::Arc,
};

use toml::{Table, Value as Toml};

use super::{
    Parsed, Profile, ProfileError,
    schema::{SECTIONS, Value, ValueType},
};

/// Longest device name (`IBV_SYSFS_NAME_MAX`) with terminator and number.
const LONGEST_NAME: usize = 56;
const TOP: [&str; 2] = ["name", "title"];

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(""));
            let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
            let what = error.message().replace('\n', "; ");
            ProfileError(format!("line {line}: {what}"))
        })?;
        let mut parsed = Parsed {
            name: top(&table, "name")?,
            title: top(&table, "title")?,
            values: BTreeMap::new(),
            sources: BTreeSet::new(),
        };
        for (name, value) in &table {
            if TOP.contains(&name.as_str()) {
                continue;
            }
            let Some((section, keys)) =
                SECTIONS.iter().find(|(section, _)| *section == name.as_str())
            else {
                let sections: Vec<_> =
                    SECTIONS.iter().map(|(name, _)| format!("[{name}]")).collect();
                let (name, keys) = (shown(name), sections.join(", "));
                return Err(ProfileError(format!(
                    "{name}: unknown key; expected name, title, {keys}"
                )));
            };
            let Toml::Table(values) = value else {
                return Err(ProfileError(format!("{name}: write it as a section, [{name}]")));
            };
            read_section(section, keys, values, &mut parsed)?;
        }
        Ok(Self(Arc::new(parsed)))
    }
}

fn top(table: &Table, key: &str) -> Result<String, ProfileError> {
    match table.get(key).map(|value| read(value, ValueType::Text(200))) {
        Some(Some(Value::Text(text))) => Ok(text),
        _ => Err(ProfileError(format!("{key}: give it {}", ValueType::Text(200)))),
    }
}

fn read_section(
    section: &'static str,
    keys: &'static [(&'static str, ValueType)],
    values: &Table,
    parsed: &mut Parsed,
) -> Result<(), ProfileError> {
    let common = values.get("source");
    if let Some(source) = common {
        parsed.sources.insert(address(&format!("{section}.source"), source)?);
    }
    for (name, value) in values.iter().filter(|(name, _)| *name != "source") {
        let Some((key, takes)) = keys.iter().find(|(key, _)| *key == name.as_str()) else {
            let keys: Vec<_> = keys.iter().map(|(key, _)| *key).collect();
            let (name, keys) = (shown(name), keys.join(", "));
            return Err(ProfileError(format!(
                "{section}.{name}: unknown key; [{section}] has source, {keys}"
            )));
        };
        let whole = format!("{section}.{key}");
        let value = match value {
            Toml::Table(both) => {
                let (Some(value), Some(source), 2) =
                    (both.get("value"), both.get("source"), both.len())
                else {
                    return Err(ProfileError(format!(
                        "{whole}: write the value alone, or {{ value = …, source = \"https://…\" }}"
                    )));
                };
                parsed.sources.insert(address(&format!("{whole}.source"), source)?);
                value
            }
            value if common.is_some() => value,
            _ => {
                return Err(ProfileError(format!(
                    "{whole}: no source; add source to [{section}], or write {{ value = …, source \
                     = \"https://…\" }}"
                )));
            }
        };
        let read = read(value, *takes);
        let read =
            read.ok_or_else(|| ProfileError(format!("{whole}: {} is not {takes}", said(value))))?;
        parsed.values.insert((section, key), read);
    }
    Ok(())
}

fn address(key: &str, source: &Toml) -> Result<String, ProfileError> {
    let text = source.as_str().unwrap_or_default();
    if text.starts_with("https://") && text.len() > 8 && !text.contains(char::is_whitespace) {
        Ok(text.into())
    } else {
        Err(ProfileError(format!(
            "{key}: {} is not the address of a page or a file, https://…",
            said(source)
        )))
    }
}

fn read(value: &Toml, takes: ValueType) -> Option<Value> {
    let is_text = |text: &str| !text.is_empty() && !text.contains(char::is_control);
    match (takes, value) {
        (ValueType::Text(most), Toml::String(text)) if is_text(text) && text.len() <= most => {
            Some(Value::Text(text.clone()))
        }
        (ValueType::OneOf(words), Toml::String(text)) if words.contains(&text.as_str()) => {
            Some(Value::Text(text.clone()))
        }
        (ValueType::Names, Toml::String(text)) => is_name(text).then(|| Value::Text(text.clone())),
        (ValueType::Number(least, most), value) => {
            number(value).filter(|number| (least..=most).contains(number)).map(Value::Number)
        }
        (ValueType::Flag, Toml::Boolean(flag)) => Some(Value::Flag(*flag)),
        _ => None,
    }
}

/// Numbers above TOML's 2^63 - 1 are text.
fn number(value: &Toml) -> Option<u64> {
    match value {
        Toml::Integer(number) => u64::try_from(*number).ok(),
        Toml::String(text) => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    let letters = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    text.split_once("{}").is_some_and(|(before, after)| {
        before.starts_with(|first: char| first.is_ascii_alphabetic())
            && letters(before)
            && letters(after)
            && text.len() <= LONGEST_NAME
    })
}

fn said(value: &Toml) -> String {
    match value {
        Toml::String(text) => format!("{:?}", shown(text)),
        Toml::Integer(number) => number.to_string(),
        Toml::Float(number) => number.to_string(),
        Toml::Boolean(flag) => flag.to_string(),
        Toml::Datetime(_) => "a date".into(),
        Toml::Array(_) => "a list".into(),
        Toml::Table(_) => "a table".into(),
    }
}

fn shown(text: &str) -> String {
    let shown = |char: char| match char.is_control() {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    };
    text.chars().take(60).map(shown).collect()
}
