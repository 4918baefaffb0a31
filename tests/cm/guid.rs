use std::sync::mpsc;

use roce::{
    OpenOptions,
    cm::{CmQpAttr, ConnParam, PortSpace},
    link::{Direction, Observed, Observer},
};

use super::{PATIENCE, World, resolve};

struct Requests(mpsc::Sender<[u8; 8]>);

impl Observer for Requests {
    fn observe(&mut self, observed: &Observed<'_>) {
        // BTH, DETH, and the MAD: attribute at 16, fields from 24
        let mad = observed.bytes.get(12 + 8..).unwrap_or_default();
        let is_request = mad.get(16..18) == Some(&[0, 0x10]);
        if observed.direction == Direction::Sent && is_request {
            let _ = self.0.send(mad[24 + 16..24 + 24].try_into().unwrap());
        }
    }
}

/// Peers see the verbs' GUID, and no part of the seed.
#[test]
fn the_guid_of_a_request_is_the_devices() {
    let world = World::new(PortSpace::Tcp);
    let (sender, requests) = mpsc::channel();
    let seed = core::array::from_fn(|i| i as u8 * 7);
    let options = OpenOptions {
        seed: Some(seed),
        observer: Some(Box::new(Requests(sender))),
        ..OpenOptions::default()
    };
    let context = world.fabric.open("10.0.0.3".parse().unwrap(), options).unwrap();
    let id = world.a_channel.create_id(PortSpace::Tcp);
    id.set_context(&context).unwrap();
    resolve(&world.a_channel, &id, world.address());
    id.create_qp(None, &CmQpAttr::default()).unwrap();
    id.connect(&ConnParam::default()).unwrap();
    world.request();
    let guid = requests.recv_timeout(PATIENCE).unwrap();
    assert_eq!(guid, context.query_device().node_guid.0);
    assert!(!seed.windows(3).any(|bytes| guid.windows(3).any(|part| part == bytes)));
}
