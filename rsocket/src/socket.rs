//! Sockets: what they are, and how they connect.

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
    wire::Hello,
};
use roce_provider::{
    cm::{CmError, CmEvent, CmId, EventChannel, EventKind},
    sync::Mutex,
};

/// A stream socket over a connection, or a datagram socket. Cheap to clone; its last handle ends
/// it.
///
/// No call waits: each does what can be done now, and says `EAGAIN` (connecting: `EINPROGRESS`) if
/// that is nothing. To wait, a thread calls [`prepare_to_wait`](Self::prepare_to_wait), tries once
/// more, and then sleeps on the socket's descriptor and [its own](super::wakeup_descriptor).
#[derive(Clone)]
pub struct Socket {
    inner: Arc<Inner>,
}

struct Inner {
    /// Readable when something may have happened; also the socket's number.
    descriptor: Arc<OwnedFd>,
    process: u32,
    waiters: Waiters,
    state: Mutex<State>,
}

/// What a socket is at a time, under its lock, which is taken before all others.
pub(super) struct State {
    /// Of a datagram socket one that has no part in anything.
    pub(super) id: CmId,
    channel: EventChannel,
    pub(super) phase: Phase,
    pub(super) settings: Settings,
    options: Options,
    /// Number of events of the id.
    events: u64,
    /// Why the last attempt to connect has failed, until it is asked for.
    error: Option<Errno>,
}

/// Options of the id, to be set again on the next one.
#[derive(Clone, Copy, Default)]
struct Options {
    reuse_addr: bool,
    afonly: Option<bool>,
    tos: u8,
}

pub(super) enum Phase {
    /// Not connected, nor listening.
    Idle,
    Listening(VecDeque<(CmId, Hello)>),
    Connecting(Box<Stream>),
    Connected(Box<Stream>),
    Datagrams(Box<Datagrams>),
}

/// What a socket is ready for, as `poll` says it.
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
    /// `POLLRDHUP`: the peer sends nothing more.
    pub finished: bool,
}

impl Socket {
    /// Makes a stream socket that is not connected (`rsocket`).
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn stream() -> Result<Self, Errno> {
        let channel = EventChannel::new().map_err(|error| of_system(&error))?;
        let id = channel.create_id(PortSpace::Tcp);
        Self::with(new_descriptor()?, id, channel, Settings::of_host(), Phase::Idle)
    }

    /// Makes a datagram socket, for IPv4 or, with `v6`, for both.
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
            watch(&descriptor, &**stream)?;
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

    /// Its number.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.inner.descriptor.as_raw_fd()
    }

    /// False in a child that was forked.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.inner.process == process::id()
    }

    /// What it is now, with all that has happened.
    ///
    /// # Errors
    /// `EBADF` in a child that was forked.
    pub(super) fn served(&self) -> Result<MutexGuard<'_, State>, Errno> {
        if !self.is_of_this_process() {
            return Err(Errno::BADF);
        }
        let mut state = self.inner.state.lock();
        if state.process() {
            self.inner.waiters.wake();
        }
        Ok(state)
    }

    /// Binds it to an own address (`rbind`).
    ///
    /// # Errors
    /// Those of [`CmId::bind_addr`]; of a datagram socket those of the system.
    pub fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        let mut state = self.served()?;
        match &mut state.phase {
            Phase::Datagrams(datagrams) => datagrams.bind(address),
            _ => state.id.bind_addr(address).map_err(|error| of_cm(&error)),
        }
    }

    /// Waits for peers (`rlisten`).
    ///
    /// # Errors
    /// `EINVAL` when it is connected; `EOPNOTSUPP` for datagrams; those of [`CmId::listen`].
    pub fn listen(&self, backlog: usize) -> Result<(), Errno> {
        let mut state = self.served()?;
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

    /// The next peer's socket (`raccept`).
    ///
    /// # Errors
    /// `EAGAIN`; `EINVAL` when it does not listen; `EOPNOTSUPP` for datagrams; `EMFILE`, `ENOMEM`:
    /// the peer is refused.
    pub fn accept(&self) -> Result<Self, Errno> {
        let mut state = self.served()?;
        let settings = state.settings;
        let waiting = match &mut state.phase {
            Phase::Listening(waiting) => waiting,
            Phase::Datagrams(_) => return Err(Errno::OPNOTSUPP),
            _ => return Err(Errno::INVAL),
        };
        while let Some((id, hello)) = waiting.pop_front() {
            match Self::answer(&id, hello, settings) {
                // its peer is gone
                Err(CmError::Protocol(_) | CmError::State(_) | CmError::NoDevice) => {}
                Err(error) => return Err(of_cm(&error)),
                Ok(socket) => return Ok(socket),
            }
        }
        Err(Errno::AGAIN)
    }

    fn answer(id: &CmId, hello: Hello, settings: Settings) -> Result<Self, CmError> {
        let channel = EventChannel::new()?;
        id.migrate_id(&channel);
        let mut stream = Stream::new(id, settings)?;
        stream.meet(hello);
        let param = stream.conn_param();
        let phase = Phase::Connected(Box::new(stream));
        let descriptor = new_descriptor().map_err(io::Error::from)?;
        let socket = Self::with(descriptor, id.clone(), channel, settings, phase)
            .map_err(io::Error::from)?;
        id.accept(&param)?;
        Ok(socket)
    }

    /// Connects it (`rconnect`), or says how far that is. A datagram socket has this peer alone
    /// from then on.
    ///
    /// # Errors
    /// `EINPROGRESS` when it has begun; `EALREADY` while it goes on; `EISCONN`; `ECONNREFUSED`,
    /// `ETIMEDOUT` and others of the attempt; `EINVAL` when it listens.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), Errno> {
        let mut state = self.served()?;
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
                watch(&self.inner.descriptor, &stream)?;
                state.phase = Phase::Connecting(Box::new(stream));
            }
            Err(error) => state.start_over(Some(error)),
        }
        drop(state);
        self.connected()
            .map_err(|error| if error == Errno::ALREADY { Errno::INPROGRESS } else { error })
    }

    /// How the attempt to connect has ended.
    ///
    /// # Errors
    /// `EALREADY` while it goes on; the reason of a failure, once; `ENOTCONN`.
    pub fn connected(&self) -> Result<(), Errno> {
        let mut state = self.served()?;
        match &state.phase {
            Phase::Connecting(_) => Err(Errno::ALREADY),
            Phase::Connected(_) | Phase::Datagrams(_) => Ok(()),
            _ => Err(state.error.take().unwrap_or(Errno::NOTCONN)),
        }
    }

    /// Its own address (`rgetsockname`), as far as it is known.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let mut state = self.inner.state.lock();
        match &mut state.phase {
            Phase::Datagrams(datagrams) => datagrams.local_addr(),
            _ => state.id.local_addr(),
        }
    }

    /// The peer's address (`rgetpeername`).
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer_addr(&self) -> Result<SocketAddr, Errno> {
        let state = self.inner.state.lock();
        match &state.phase {
            Phase::Connected(_) => state.id.peer_addr(),
            Phase::Datagrams(datagrams) => datagrams.peer_addr(),
            _ => None,
        }
        .ok_or(Errno::NOTCONN)
    }

    /// What it is ready for now (`rpoll`).
    ///
    /// # Errors
    /// `EBADF` in a child that was forked.
    pub fn readiness(&self) -> Result<Readiness, Errno> {
        let mut state = self.served()?;
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
                hung_up: datagrams.is_shut().1,
                finished: datagrams.is_shut().0,
            },
        })
    }

    /// From now on the descriptor becomes readable when something happens, and whoever notices it
    /// wakes this thread. What has happened before is to be looked for once more.
    ///
    /// # Errors
    /// `EMFILE`; `EBADF` in a child that was forked.
    pub fn prepare_to_wait(&self) -> Result<(), Errno> {
        if !self.is_of_this_process() {
            return Err(Errno::BADF);
        }
        let state = self.inner.state.lock();
        self.inner.waiters.add().map_err(|error| of_system(&error))?;
        match &state.phase {
            Phase::Connecting(stream) | Phase::Connected(stream) => stream.arm(),
            Phase::Datagrams(datagrams) => datagrams.arm(),
            Phase::Idle | Phase::Listening(_) => {}
        }
        Ok(())
    }

    /// A number that changes when it becomes ready for more than before.
    #[must_use]
    pub fn news(&self) -> u64 {
        let state = self.inner.state.lock();
        match &state.phase {
            Phase::Connecting(stream) | Phase::Connected(stream) => state.events + stream.news(),
            Phase::Datagrams(datagrams) => datagrams.news(),
            _ => state.events,
        }
    }

    /// The error that the program has not been told of (`SO_ERROR`), which it is now.
    ///
    /// # Errors
    /// `EBADF` in a child that was forked.
    pub fn take_error(&self) -> Result<Option<Errno>, Errno> {
        let mut state = self.served()?;
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

    /// Changes them; of no effect on a connection that there is.
    pub fn change_settings(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.inner.state.lock().settings);
    }

    /// The bytes that one packet carries (`TCP_MAXSEG`).
    #[must_use]
    pub fn path_mtu(&self) -> u32 {
        self.inner.state.lock().id.path_mtu().bytes()
    }

    /// `SO_REUSEADDR`
    ///
    /// # Errors
    /// Those of [`CmId::set_reuse_addr`].
    pub fn set_reuse_addr(&self, reuse: bool) -> Result<(), Errno> {
        let mut state = self.inner.state.lock();
        match &state.phase {
            Phase::Datagrams(datagrams) => {
                datagrams.udp().set_reuse_addr(reuse).map_err(|error| of_system(&error))?;
            }
            _ => state.id.set_reuse_addr(reuse).map_err(|error| of_cm(&error))?,
        }
        state.options.reuse_addr = reuse;
        Ok(())
    }

    /// The option as it is set.
    #[must_use]
    pub fn reuse_addr(&self) -> bool {
        self.inner.state.lock().options.reuse_addr
    }

    /// `IPV6_V6ONLY`
    ///
    /// # Errors
    /// Those of [`CmId::set_afonly`].
    pub fn set_v6_only(&self, only: bool) -> Result<(), Errno> {
        let mut state = self.inner.state.lock();
        match &state.phase {
            Phase::Datagrams(datagrams) => {
                datagrams.udp().set_only_v6(only).map_err(|error| of_system(&error))?;
            }
            _ => state.id.set_afonly(only).map_err(|error| of_cm(&error))?,
        }
        state.options.afonly = Some(only);
        Ok(())
    }

    /// The option as it is set.
    #[must_use]
    pub fn v6_only(&self) -> bool {
        self.inner.state.lock().options.afonly.unwrap_or_default()
    }

    /// `IP_TOS`, `IPV6_TCLASS`
    pub fn set_tos(&self, tos: u8) {
        let mut state = self.inner.state.lock();
        match &mut state.phase {
            Phase::Datagrams(datagrams) => datagrams.set_tos(tos),
            _ => state.id.set_tos(tos),
        }
        state.options.tos = tos;
    }

    /// The option as it is set.
    #[must_use]
    pub fn tos(&self) -> u8 {
        self.inner.state.lock().options.tos
    }

    /// True if it sends and receives datagrams.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        matches!(self.inner.state.lock().phase, Phase::Datagrams(_))
    }

    /// True once it listens (`SO_ACCEPTCONN`).
    #[must_use]
    pub fn is_listening(&self) -> bool {
        matches!(self.inner.state.lock().phase, Phase::Listening(_))
    }
}

impl State {
    /// Takes what has happened; true if there was anything.
    fn process(&mut self) -> bool {
        let settings = self.settings;
        if let Phase::Datagrams(datagrams) = &mut self.phase {
            return datagrams.process(settings);
        }
        let mut changed = false;
        // while connected, polling for completions serves the device
        let is_connected = matches!(self.phase, Phase::Connected(_));
        while let Some(event) = if is_connected { self.channel.take() } else { self.channel.poll() }
        {
            changed = true;
            self.events += 1;
            self.follow(&event);
        }
        // behind the end of the connection, so that all that came before it is there
        if let Phase::Connecting(stream) | Phase::Connected(stream) = &mut self.phase {
            changed |= stream.process();
        }
        changed
    }

    fn follow(&mut self, event: &CmEvent) {
        match &mut self.phase {
            Phase::Idle | Phase::Datagrams(_) => {}
            Phase::Listening(waiting) => match event.kind() {
                EventKind::ConnectRequest => match Hello::parse(event.private_data()) {
                    Some(hello) => waiting.push_back((event.id().clone(), hello)),
                    None => {
                        let _ = event.id().reject(&[]); // its peer may be gone
                    }
                },
                // a peer does not wait any longer
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
        match (Hello::parse(event.private_data()), &mut self.phase) {
            (Some(hello), phase @ Phase::Connecting(_)) if established => {
                if let Phase::Connecting(mut stream) = std::mem::replace(phase, Phase::Idle) {
                    stream.meet(hello);
                    stream.open();
                    *phase = Phase::Connected(stream);
                }
            }
            _ => self.start_over(Some(reason(event))),
        }
    }

    /// Begins to connect.
    fn begin(&mut self, peer: SocketAddr) -> Result<Stream, Errno> {
        resolve(&self.id, &self.channel, None, peer)?;
        let stream = Stream::new(&self.id, self.settings).map_err(|error| of_cm(&error))?;
        self.id.connect(&stream.conn_param()).map_err(|error| of_cm(&error))?;
        Ok(stream)
    }

    /// Makes it as it was before an attempt to connect, but for its own address.
    fn start_over(&mut self, error: Option<Errno>) {
        let id = self.channel.create_id(PortSpace::Tcp);
        let Options { reuse_addr, afonly, tos } = self.options;
        id.set_tos(tos);
        // an id that is new takes them
        let _ = id.set_reuse_addr(reuse_addr);
        let _ = afonly.map(|only| id.set_afonly(only));
        (self.id, self.phase, self.error) = (id, Phase::Idle, error);
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
