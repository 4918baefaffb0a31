use std::{
    fs,
    path::{Path, PathBuf},
};

/// Frames of rxe, with their files.
pub(super) fn captured() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transport/tests/captures");
    let mut frames = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let mut rest = &fs::read(&path).unwrap()[..];
        let little = rest[..4] == [0xD4, 0xC3, 0xB2, 0xA1] || rest[..4] == [0x4D, 0x3C, 0xB2, 0xA1];
        assert!(little && rest[20] == 1, "{path:?} is of Ethernet");
        rest = &rest[24..];
        while let Some((header, behind)) = rest.split_first_chunk::<16>() {
            let length = u32::from_le_bytes(*header[8..].first_chunk().unwrap()) as usize;
            let (bytes, behind) = behind.split_at(length);
            rest = behind;
            frames.push((path.clone(), bytes.to_vec()));
        }
    }
    frames
}
