use std::{
    collections::VecDeque,
    fmt, io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    process,
    sync::{Arc, MutexGuard},
};

use roce_transport::cm::PortSpace;
use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    io::Errno,
};

use super::{
    datagrams::Datagrams,
    errors::{of_cm, of_system, reason},
    resolve::resolve,
    settings::Settings,
    stream::Stream,
    waiters::Waiters,
    wire::ConnData,
};
use roce_provider::{
    cm::{CmError, CmEvent, CmId, EventChannel, EventKind},
    sync::Mutex,
};

/// A stream or datagram socket, cheap to clone. The last handle closes it.
///
/// No call blocks: without progress it fails with `EAGAIN` (connecting: `EINPROGRESS`). To wait:
/// [`prepare_to_wait`](Self::prepare_to_wait), retry, sleep on the socket's descriptor and [the
/// thread's](super::wakeup_descriptor).
#[derive(Clone)]
pub struct Socket {
    inner: Arc<Inner>,
}

struct Inner {
    /// Readable after events; also the socket's number.
    descriptor: Arc<OwnedFd>,
    process: u32,
    waiters: Waiters,
    state: Mutex<State>,
}

/// Outermost lock.
pub(super) struct State {
    /// Unused by datagram sockets.
    pub(super) id: CmId,
    channel: EventChannel,
    pub(super) phase: Phase,
    pub(super) settings: Settings,
    options: Options,
    events: u64,
    /// Pending connect error.
    error: Option<Errno>,
}

#[derive(Clone, Copy, Default)]
struct Options {
    reuse_addr: bool,
    afonly: Option<bool>,
    tos: u8,
}

pub(super) enum Phase {
    /// Neither connected nor listening.
    Idle,
    Listening(VecDeque<(CmId, ConnData)>),
    Connecting(Box<Stream>),
    Connected(Box<Stream>),
    Datagrams(Box<Datagrams>),
}

/// Readiness as `poll` reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// `POLLIN`
    pub readable: bool,
    /// `POLLOUT`
    pub writable: bool,
    /// `POLLERR`
    pub failed: bool,
    /// `POLLHUP`
    pub hung_up: bool,
    /// `POLLRDHUP`: the peer sends no more.
    pub finished: bool,
}

impl Socket {
    /// Creates an unconnected stream socket (`rsocket`).
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn stream() -> Result<Self, Errno> {
        let channel = EventChannel::new().map_err(|error| of_system(&error))?;
        let id = channel.create_id(PortSpace::Tcp);
        Self::with(new_descriptor()?, id, channel, Settings::of_host(), Phase::Idle)
    }

    /// Creates a datagram socket for IPv4, with `v6` for both families.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn datagram(v6: bool) -> Result<Self, Errno> {
        let channel = EventChannel::new().map_err(|error| of_system(&error))?;
        let id = channel.create_id(PortSpace::Udp);
        let descriptor = new_descriptor()?;
        let datagrams = Datagrams::new(v6, descriptor.clone(), channel.clone());
        let phase = Phase::Datagrams(Box::new(datagrams.map_err(|error| of_system(&error))?));
        Self::with(descriptor, id, channel, Settings::of_host(), phase)
    }

    fn with(
        descriptor: Arc<OwnedFd>,
        id: CmId,
        channel: EventChannel,
        settings: Settings,
        phase: Phase,
    ) -> Result<Self, Errno> {
        watch(&descriptor, &channel)?;
        if let Phase::Connected(stream) = &phase {
            watch(&descriptor, &stream.queues)?;
        }
        let state = State {
            id,
            channel,
            phase,
            settings,
            options: Options::default(),
            events: 0,
            error: None,
        };
        let inner = Inner {
            descriptor,
            process: process::id(),
            waiters: Waiters::default(),
            state: Mutex::new(state),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Descriptor number.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.inner.descriptor.as_raw_fd()
    }

    /// False in a forked child.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.inner.process == process::id()
    }

    /// Locks the state after handling all events.
    ///
    /// # Errors
    /// `EBADF` in a forked child.
    pub(super) fn lock_and_progress(&self) -> Result<MutexGuard<'_, State>, Errno> {
        if !self.is_of_this_process() {
            return Err(Errno::BADF);
        }
        let mut state = self.inner.state.lock();
        if state.process() {
            self.inner.waiters.wake();
        }
        Ok(state)
    }

    /// Binds (`rbind`).
    ///
    /// # Errors
    /// Those of [`CmId::bind_addr`]; for datagrams the system's.
    pub fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock_and_progress()?;
        match &mut state.phase {
            Phase::Datagrams(datagrams) => datagrams.bind(address),
            _ => state.id.bind_addr(address).map_err(|error| of_cm(&error)),
        }
    }

    /// Listens (`rlisten`).
    ///
    /// # Errors
    /// `EINVAL` if connected; `EOPNOTSUPP` for datagrams; those of [`CmId::listen`].
    pub fn listen(&self, backlog: usize) -> Result<(), Errno> {
        let mut state = self.lock_and_progress()?;
        match state.phase {
            Phase::Idle => {
                state.id.listen(backlog).map_err(|error| of_cm(&error))?;
                state.phase = Phase::Listening(VecDeque::new());
                Ok(())
            }
            Phase::Listening(_) => Ok(()),
            Phase::Datagrams(_) => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::INVAL),
        }
    }

    /// Accepts the next peer (`raccept`).
    ///
    /// # Errors
    /// `EAGAIN`; `EINVAL` if not listening; `EOPNOTSUPP` for datagrams; `EMFILE`, `ENOMEM`: the
    /// peer is refused.
    pub fn accept(&self) -> Result<Self, Errno> {
        let mut state = self.lock_and_progress()?;
        let settings = state.settings;
        let waiting = match &mut state.phase {
            Phase::Listening(waiting) => waiting,
            Phase::Datagrams(_) => return Err(Errno::OPNOTSUPP),
            _ => return Err(Errno::INVAL),
        };
        while let Some((id, conn_data)) = waiting.pop_front() {
            match Self::accept_id(&id, conn_data, settings) {
                // The peer is gone.
                Err(CmError::Protocol(_) | CmError::State(_) | CmError::NoDevice) => {}
                Err(error) => return Err(of_cm(&error)),
                Ok(socket) => return Ok(socket),
            }
        }
        Err(Errno::AGAIN)
    }

    fn accept_id(id: &CmId, conn_data: ConnData, settings: Settings) -> Result<Self, CmError> {
        let channel = EventChannel::new()?;
        id.migrate_id(&channel);
        let mut stream = Stream::new(id, settings)?;
        stream.set_peer(conn_data);
        let param = stream.conn_param();
        let phase = Phase::Connected(Box::new(stream));
        let descriptor = new_descriptor().map_err(io::Error::from)?;
        let socket = Self::with(descriptor, id.clone(), channel, settings, phase)
            .map_err(io::Error::from)?;
        id.accept(&param)?;
        Ok(socket)
    }

    /// Connects (`rconnect`). A datagram socket then has only this peer.
    ///
    /// # Errors
    /// `EINPROGRESS` once begun; `EALREADY` meanwhile; `EISCONN`; `ECONNREFUSED`, `ETIMEDOUT` and
    /// others of the attempt; `EINVAL` if listening.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock_and_progress()?;
        let settings = state.settings;
        match &mut state.phase {
            Phase::Idle => {}
            Phase::Datagrams(datagrams) => return datagrams.connect(peer, settings),
            Phase::Connecting(_) => return Err(Errno::ALREADY),
            Phase::Connected(_) => return Err(Errno::ISCONN),
            Phase::Listening(_) => return Err(Errno::INVAL),
        }
        state.error = None;
        let begun = state.begin(peer);
        match begun {
            Ok(stream) => {
                watch(&self.inner.descriptor, &stream.queues)?;
                state.phase = Phase::Connecting(Box::new(stream));
            }
            Err(error) => state.start_over(error),
        }
        drop(state);
        self.connected()
            .map_err(|error| if error == Errno::ALREADY { Errno::INPROGRESS } else { error })
    }

    /// Result of connecting.
    ///
    /// # Errors
    /// `EALREADY` while it runs; a failure's reason, once; `ENOTCONN`.
    pub fn connected(&self) -> Result<(), Errno> {
        let mut state = self.lock_and_progress()?;
        match &state.phase {
            Phase::Connecting(_) => Err(Errno::ALREADY),
            Phase::Connected(_) | Phase::Datagrams(_) => Ok(()),
            _ => Err(state.error.take().unwrap_or(Errno::NOTCONN)),
        }
    }

    /// Local address (`rgetsockname`), if known.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let mut state = self.inner.state.lock();
        match &mut state.phase {
            Phase::Datagrams(datagrams) => datagrams.local_addr(),
            _ => state.id.local_addr(),
        }
    }

    /// Peer address (`rgetpeername`).
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer_addr(&self) -> Result<SocketAddr, Errno> {
        let state = self.inner.state.lock();
        match &state.phase {
            Phase::Connected(_) => state.id.peer_addr(),
            Phase::Datagrams(datagrams) => datagrams.connected,
            _ => None,
        }
        .ok_or(Errno::NOTCONN)
    }

    /// Readiness (`rpoll`).
    ///
    /// # Errors
    /// `EBADF` in a forked child.
    pub fn readiness(&self) -> Result<Readiness, Errno> {
        let mut state = self.lock_and_progress()?;
        let failed = state.error.is_some();
        Ok(match &mut state.phase {
            // as with TCP
            Phase::Idle => Readiness {
                readable: failed,
                writable: true,
                failed,
                hung_up: true,
                finished: failed,
            },
            Phase::Listening(waiting) => {
                Readiness { readable: !waiting.is_empty(), ..Readiness::default() }
            }
            Phase::Connecting(_) => Readiness::default(),
            Phase::Connected(stream) => Readiness {
                readable: stream.is_readable(),
                writable: stream.is_writable(),
                failed: stream.failure().is_some(),
                hung_up: stream.is_over(),
                finished: stream.is_finished(),
            },
            Phase::Datagrams(datagrams) => Readiness {
                readable: datagrams.is_readable(),
                writable: datagrams.is_writable(),
                failed: false,
                hung_up: datagrams.read_shut && datagrams.write_shut,
                finished: datagrams.read_shut,
            },
        })
    }

    /// Later events make the descriptor readable and wake this thread. Check for earlier events
    /// afterwards.
    ///
    /// # Errors
    /// `EMFILE`; `EBADF` in a forked child.
    pub fn prepare_to_wait(&self) -> Result<(), Errno> {
        if !self.is_of_this_process() {
            return Err(Errno::BADF);
        }
        let state = self.inner.state.lock();
        self.inner.waiters.add().map_err(|error| of_system(&error))?;
        match &state.phase {
            Phase::Connecting(stream) | Phase::Connected(stream) => stream.queues.arm(),
            Phase::Datagrams(datagrams) => datagrams.arm(),
            Phase::Idle | Phase::Listening(_) => {}
        }
        Ok(())
    }

    /// Changes when the readiness grows.
    #[must_use]
    pub fn event_count(&self) -> u64 {
        let state = self.inner.state.lock();
        match &state.phase {
            Phase::Connecting(stream) | Phase::Connected(stream) => {
                state.events + stream.event_count
            }
            Phase::Datagrams(datagrams) => datagrams.event_count,
            _ => state.events,
        }
    }

    /// Takes the pending error (`SO_ERROR`).
    ///
    /// # Errors
    /// `EBADF` in a forked child.
    pub fn take_error(&self) -> Result<Option<Errno>, Errno> {
        let mut state = self.lock_and_progress()?;
        Ok(match &state.phase {
            Phase::Connected(stream) => stream.failure(),
            _ => state.error.take(),
        })
    }

    /// Sizes for the next connection.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.inner.state.lock().settings
    }

    /// An existing connection keeps its sizes.
    pub fn change_settings(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.inner.state.lock().settings);
    }

    /// Bytes per packet (`TCP_MAXSEG`).
    #[must_use]
    pub fn path_mtu(&self) -> u32 {
        self.inner.state.lock().id.path_mtu().bytes()
    }

    /// Sets `SO_REUSEADDR`.
    ///
    /// # Errors
    /// Those of [`CmId::set_reuse_addr`].
    pub fn set_reuse_addr(&self, reuse: bool) -> Result<(), Errno> {
        let mut state = self.inner.state.lock();
        match &state.phase {
            Phase::Datagrams(datagrams) => {
                datagrams.udp.set_reuse_addr(reuse).map_err(|error| of_system(&error))?;
            }
            _ => state.id.set_reuse_addr(reuse).map_err(|error| of_cm(&error))?,
        }
        state.options.reuse_addr = reuse;
        Ok(())
    }

    /// `SO_REUSEADDR`.
    #[must_use]
    pub fn reuse_addr(&self) -> bool {
        self.inner.state.lock().options.reuse_addr
    }

    /// Sets `IPV6_V6ONLY`.
    ///
    /// # Errors
    /// Those of [`CmId::set_afonly`].
    pub fn set_v6_only(&self, only: bool) -> Result<(), Errno> {
        let mut state = self.inner.state.lock();
        match &state.phase {
            Phase::Datagrams(datagrams) => {
                datagrams.udp.set_only_v6(only).map_err(|error| of_system(&error))?;
            }
            _ => state.id.set_afonly(only).map_err(|error| of_cm(&error))?,
        }
        state.options.afonly = Some(only);
        Ok(())
    }

    /// `IPV6_V6ONLY`.
    #[must_use]
    pub fn v6_only(&self) -> bool {
        self.inner.state.lock().options.afonly.unwrap_or_default()
    }

    /// Sets `IP_TOS`, `IPV6_TCLASS`.
    pub fn set_tos(&self, tos: u8) {
        let mut state = self.inner.state.lock();
        match &mut state.phase {
            Phase::Datagrams(datagrams) => datagrams.tos = tos,
            _ => state.id.set_tos(tos),
        }
        state.options.tos = tos;
    }

    /// `IP_TOS`, `IPV6_TCLASS`.
    #[must_use]
    pub fn tos(&self) -> u8 {
        self.inner.state.lock().options.tos
    }

    /// True for datagrams.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        matches!(self.inner.state.lock().phase, Phase::Datagrams(_))
    }

    /// True while listening (`SO_ACCEPTCONN`).
    #[must_use]
    pub fn is_listening(&self) -> bool {
        matches!(self.inner.state.lock().phase, Phase::Listening(_))
    }
}

impl State {
    fn process(&mut self) -> bool {
        let settings = self.settings;
        if let Phase::Datagrams(datagrams) = &mut self.phase {
            return datagrams.process(settings);
        }
        let mut changed = false;
        // While connected, polling for completions serves the device.
        let is_connected = matches!(self.phase, Phase::Connected(_));
        while let Some(event) = if is_connected { self.channel.take() } else { self.channel.poll() }
        {
            changed = true;
            self.events += 1;
            self.follow(&event);
        }
        // After the connection's end: all earlier data has then arrived.
        if let Phase::Connecting(stream) | Phase::Connected(stream) = &mut self.phase {
            changed |= stream.process();
        }
        changed
    }

    fn follow(&mut self, event: &CmEvent) {
        match &mut self.phase {
            Phase::Idle | Phase::Datagrams(_) => {}
            Phase::Listening(waiting) => match event.kind() {
                EventKind::ConnectRequest => match ConnData::parse(event.private_data()) {
                    Some(conn_data) => waiting.push_back((event.id().clone(), conn_data)),
                    None => {
                        let _ = event.id().reject(&[]); // its peer may be gone
                    }
                },
                // A peer gave up.
                _ => waiting.retain(|(id, _)| id != event.id()),
            },
            Phase::Connecting(_) => self.follow_attempt(event),
            Phase::Connected(stream) => match event.kind() {
                EventKind::Established => stream.open(),
                EventKind::TimewaitExit | EventKind::AddrChange => {}
                _ => stream.hang_up(),
            },
        }
    }

    fn follow_attempt(&mut self, event: &CmEvent) {
        let established = event.kind() == EventKind::Established;
        match (ConnData::parse(event.private_data()), &mut self.phase) {
            (Some(conn_data), phase @ Phase::Connecting(_)) if established => {
                if let Phase::Connecting(mut stream) = std::mem::replace(phase, Phase::Idle) {
                    stream.set_peer(conn_data);
                    stream.open();
                    *phase = Phase::Connected(stream);
                }
            }
            _ => self.start_over(reason(event)),
        }
    }

    fn begin(&mut self, peer: SocketAddr) -> Result<Stream, Errno> {
        resolve(&self.id, &self.channel, None, peer)?;
        let stream = Stream::new(&self.id, self.settings).map_err(|error| of_cm(&error))?;
        self.id.connect(&stream.conn_param()).map_err(|error| of_cm(&error))?;
        Ok(stream)
    }

    /// Resets a failed attempt; the local address stays.
    fn start_over(&mut self, error: Errno) {
        let id = self.channel.create_id(PortSpace::Tcp);
        let Options { reuse_addr, afonly, tos } = self.options;
        id.set_tos(tos);
        // a new id accepts them
        let _ = id.set_reuse_addr(reuse_addr);
        let _ = afonly.map(|only| id.set_afonly(only));
        (self.id, self.phase, self.error) = (id, Phase::Idle, Some(error));
    }
}

fn new_descriptor() -> Result<Arc<OwnedFd>, Errno> {
    Ok(Arc::new(epoll::create(CreateFlags::CLOEXEC)?))
}

fn watch(epoll: &OwnedFd, descriptor: &impl AsFd) -> Result<(), Errno> {
    epoll::add(epoll, descriptor, EventData::new_u64(0), EventFlags::IN)
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("descriptor", &self.inner.descriptor).finish_non_exhaustive()
    }
}
