use std::{io::IsTerminal, process};

use rustix::{
    io::{Errno, read},
    stdio::stdin,
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr},
};

use crate::failure::Failure;

#[derive(Debug)]
pub(super) struct Keys(());

/// Ctrl-C and Ctrl-D
const INTERRUPT: u8 = 3;
const END: u8 = 4;

impl Keys {
    pub(super) fn new() -> Result<Self, Failure> {
        if std::io::stdin().is_terminal() {
            Ok(Self(()))
        } else {
            Err("--step needs a terminal on standard input; omit it".into())
        }
    }

    /// q, Ctrl-C and Ctrl-D end the program.
    pub(super) fn wait(&self) -> Result<(), Failure> {
        let before = tcgetattr(stdin())?;
        let mut one_key = before.clone();
        one_key.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        one_key.special_codes[SpecialCodeIndex::VMIN] = 1;
        one_key.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &one_key)?;
        let mut key = [END];
        let result = loop {
            match read(stdin(), &mut key) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        tcsetattr(stdin(), OptionalActions::Now, &before)?;
        match result {
            Ok(0) => process::exit(0),
            Ok(_) if matches!(key[0], b'q' | INTERRUPT | END) => process::exit(0),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
