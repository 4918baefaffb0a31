//! Unreliable connections: whole messages or nothing (9.8.2).

use super::{
    common::{Common, Env},
    responder::{Message, Outcome, Refused, Responder},
};
use crate::{
    event::{Disposition, DropReason, Refusal},
    wire::{NakCode, Packet},
};

impl Responder {
    /// A gap or misfit drops the message; the next may start at any PSN.
    pub(super) fn handle_unreliable(
        &mut self,
        packet: &Packet<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Outcome {
        let bth = packet.headers.bth();
        let starts = bth.opcode.operation().position().starts();
        if bth.psn != self.expected || starts {
            self.abandon(common, env);
        }
        self.expected = bth.psn.plus(1);
        if !starts && matches!(self.message, Message::None) {
            return Outcome::Done(Disposition::Dropped(DropReason::MessageBroken));
        }
        match self.take_message(packet, common, env) {
            Ok(()) => Outcome::Done(Disposition::Executed),
            // an invalid receive request fails the queue pair
            Err(Refused::Fatal(
                code @ NakCode::RemoteOperationalError,
                refusal @ Refusal::LocalBuffer(_),
            )) => {
                self.fail_receive(code, refusal, common, env);
                Outcome::Fatal {
                    disposition: Disposition::Dropped(DropReason::RequestRefused),
                    event: None,
                }
            }
            Err(refused) => {
                self.abandon(common, env);
                let reason = match refused {
                    Refused::NotReady => DropReason::NoReceiveRequest,
                    Refused::Fatal(..)
                    | Refused::Busy
                    | Refused::BehindRead
                    | Refused::Invalidate(_) => DropReason::RequestRefused,
                };
                Outcome::Done(Disposition::Dropped(reason))
            }
        }
    }

    /// The message's receive request serves the next.
    fn abandon(&mut self, common: &Common, env: &mut Env<'_>) {
        if let Message::Send { wqe, .. } = core::mem::replace(&mut self.message, Message::None) {
            self.receives(common, env).put_back(wqe);
        }
    }
}
