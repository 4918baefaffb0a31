//! Random calls and losses: no panic or hang, and nothing left at the end.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use roce::cm::{CmEvent, CmId, CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace};

use super::{PATIENCE, World, eventually};

struct Run {
    rng: ChaCha8Rng,
    world: World,
    channels: Vec<EventChannel>,
    ids: Vec<CmId>,
    events: Vec<CmEvent>,
    established: usize,
}

impl Run {
    fn below(&mut self, count: usize) -> usize {
        self.rng.next_u32() as usize % count.max(1)
    }

    fn step(&mut self) {
        let channel = self.below(self.channels.len());
        let channel = self.channels[channel].clone();
        match self.below(16) {
            // an id, mostly with some steps towards a connection
            0 | 1 => {
                let id = channel.create_id(self.world.port_space());
                let context = if self.below(8) == 0 { &self.world.b } else { &self.world.a };
                id.set_context(context).unwrap();
                id.set_ack_timeout(8).unwrap();
                let steps = self.below(5);
                if steps > 0 {
                    let _ = id.resolve_addr(None, self.world.address(), PATIENCE);
                }
                if steps > 1 {
                    let _ = id.create_qp(None, &CmQpAttr::default());
                }
                if steps > 2 {
                    let _ = id.resolve_route(PATIENCE);
                }
                if steps > 3 {
                    let _ = id.connect(&ConnParam::default());
                }
                self.ids.push(id);
            }
            2..=6 => {
                let Some(event) = channel.poll() else { return };
                match event.kind() {
                    EventKind::ConnectRequest if self.below(4) > 0 => {
                        let _ = event.id().create_qp(None, &CmQpAttr::default());
                        let _ = event.id().accept(&ConnParam::default());
                    }
                    EventKind::Established => self.established += 1,
                    _ => {}
                }
                self.ids.push(event.id().clone());
                if self.below(3) == 0 {
                    self.events.push(event);
                }
            }
            7 | 8 if !self.ids.is_empty() => {
                let gone = self.below(self.ids.len());
                self.ids.swap_remove(gone);
            }
            9 => drop(std::mem::take(&mut self.events)),
            _ if !self.ids.is_empty() => {
                let id = self.below(self.ids.len());
                let id = self.ids[id].clone();
                let _ = match self.below(14) {
                    0 => id.bind_addr(self.world.address()),
                    1 => id.resolve_addr(None, self.world.address(), PATIENCE),
                    2 => id.resolve_route(PATIENCE),
                    3 => id.connect(&ConnParam::default()),
                    4 => id.accept(&ConnParam::default()),
                    5 => id.reject(b"no"),
                    6 => id.disconnect(),
                    7 => id.establish(),
                    8 => id.notify(),
                    9 => id.listen(2),
                    10 => id.create_qp(None, &CmQpAttr::default()),
                    11 => {
                        id.destroy_qp();
                        Ok(())
                    }
                    12 => id.join_multicast("239.1.1.1".parse().unwrap()),
                    _ => {
                        id.migrate_id(&channel);
                        Ok(())
                    }
                };
            }
            _ => {}
        }
    }
}

#[test]
fn calls_in_any_order() {
    let mut established = 0;
    for seed in 0..40 {
        let port_space = if seed % 4 == 3 { PortSpace::Udp } else { PortSpace::Tcp };
        let world = World::new(port_space);
        if seed % 2 == 1 {
            world.fabric.with_faults(|faults| {
                faults.add("drop every 7".parse().unwrap());
            });
        }
        let channels = vec![world.a_channel.clone(), world.b_channel.clone()];
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let mut run =
            Run { rng, world, channels, ids: Vec::new(), events: Vec::new(), established: 0 };
        for _ in 0..400 {
            run.step();
        }
        let Run { world, channels, ids, events, .. } = run;
        established += run.established;
        drop((channels, ids, events));
        let World { a, b, a_channel, b_channel, listener, .. } = world;
        drop(listener);
        eventually("connections are left", || a.cm_count() == 0 && b.cm_count() == 0);
        assert!(a_channel.poll().is_none() && b_channel.poll().is_none());
    }
    assert!(established > 100, "{established}");
}
