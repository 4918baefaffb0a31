use std::{env, fmt, fs::File, io::Read, path::Path};

/// ELF class, byte order and machine number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine([u8; 4]);

impl Machine {
    /// `None`: not ELF.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let mut header = [0; 20];
        File::open(path).ok()?.read_exact(&mut header).ok()?;
        let [0x7F, b'E', b'L', b'F', class, order, ..] = header else { return None };
        Some(Self([class, order, header[18], header[19]]))
    }

    pub(crate) fn foreign(path: &Path) -> Option<Self> {
        let own = env::current_exe().ok().and_then(|own| Self::of(&own))?;
        Self::of(path).filter(|found| *found != own)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [class, order, low, high] = self.0;
        let bits = if class == 1 { "32-bit" } else { "64-bit" };
        let bytes = [low, high];
        let number = if order == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
        match number {
            3 | 62 => write!(f, "{bits} x86"),
            40 | 183 => write!(f, "{bits} Arm"),
            243 => write!(f, "{bits} RISC-V"),
            other => write!(f, "another processor (ELF machine {other}, {bits})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_told_by_the_header() {
        let own = Machine::of(&env::current_exe().unwrap()).unwrap();
        let bits = if cfg!(target_pointer_width = "64") { "64-bit" } else { "32-bit" };
        assert!(own.to_string().starts_with(bits), "{own}");
        assert!(Machine::foreign(&env::current_exe().unwrap()).is_none());
        assert!(Machine::of(Path::new("/etc/passwd")).is_none());
        assert_eq!(Machine([2, 1, 183, 0]).to_string(), "64-bit Arm");
        assert_eq!(
            Machine([2, 2, 0, 22]).to_string(),
            "another processor (ELF machine 22, 64-bit)"
        );
    }
}
