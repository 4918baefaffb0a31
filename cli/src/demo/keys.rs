use std::process;

use rustix::{
    io::{read, retry_on_intr},
    stdio::stdin,
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr},
};

use crate::failure::Failure;

/// Ctrl-C and Ctrl-D
const INTERRUPT: u8 = 3;
const END: u8 = 4;

/// Waits for a key. q, Ctrl-C and Ctrl-D end the program.
pub(super) fn wait() -> Result<(), Failure> {
    let before = tcgetattr(stdin())?;
    let mut one_key = before.clone();
    one_key.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
    one_key.special_codes[SpecialCodeIndex::VMIN] = 1;
    one_key.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(stdin(), OptionalActions::Now, &one_key)?;
    // END: also the end of the input
    let mut key = [END];
    let read = retry_on_intr(|| read(stdin(), &mut key));
    tcsetattr(stdin(), OptionalActions::Now, &before)?;
    read?;
    if matches!(key[0], b'q' | INTERRUPT | END) {
        process::exit(0);
    }
    Ok(())
}
