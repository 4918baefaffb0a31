//! Equals the capture of `roce demo --pcap`.

use roce_capture::CaptureWriter;
use roce_world::SentDatagram;

use crate::{
    spec::Spec,
    state::{Until, play_to_end},
};

pub(crate) fn capture(spec: &Spec, lines: usize) -> Result<Vec<u8>, String> {
    let mut writer = CaptureWriter::new(Vec::new()).map_err(|error| error.to_string())?;
    let mut until = Until::new(lines, |datagram: &SentDatagram<'_>| {
        let comment = datagram.verdict.lost.then(|| "lost on the way".into());
        writer.write(datagram.at, datagram.net, datagram.bytes, comment)?;
        Ok(())
    });
    play_to_end(spec, &mut until)?;
    Ok(writer.into_inner())
}
