// A tensor back and forth over tensorpipe: tensorpipe_pingpong TRANSPORT listen|connect ADDRESS:PORT
#include <tensorpipe/tensorpipe.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>

namespace tp = tensorpipe;

static const size_t SIZES[] = {8, 4 << 10, 64 << 10, 1 << 20};
static const int ROUNDS = 300;

// Waits for an operation; an error is an exception.
template <typename Start>
static void wait(Start start) {
  auto done = std::make_shared<std::promise<void>>();
  start([done](const tp::Error& error) {
    if (error)
      done->set_exception(std::make_exception_ptr(std::runtime_error(error.what())));
    else
      done->set_value();
  });
  done->get_future().get();
}

static void send(tp::Pipe& pipe, std::vector<char>& bytes) {
  tp::Message message;
  message.tensors.push_back({tp::Buffer(tp::CpuBuffer{bytes.data()}), bytes.size()});
  wait([&](auto done) { pipe.write(message, done); });
}

static void receive(tp::Pipe& pipe, std::vector<char>& bytes) {
  wait([&](auto done) {
    pipe.readDescriptor([&, done](const tp::Error& error, tp::Descriptor descriptor) {
      if (!error) bytes.resize(descriptor.tensors.at(0).length);
      done(error);
    });
  });
  tp::Allocation allocation;
  allocation.tensors.push_back({tp::Buffer(tp::CpuBuffer{bytes.data()})});
  wait([&](auto done) { pipe.read(allocation, done); });
}

// Until the peer has all and closes.
static void respond(tp::Pipe& pipe) {
  std::vector<char> bytes;
  for (size_t rounds = 0;; rounds++) {
    try {
      receive(pipe, bytes);
    } catch (const std::runtime_error&) {
      if (rounds == ROUNDS * std::size(SIZES)) return;
      throw;
    }
    send(pipe, bytes);
  }
}

static void measure(tp::Pipe& pipe, size_t size) {
  std::vector<char> sent(size), received;
  std::vector<double> times;
  for (int round = 0; round < ROUNDS; round++) {
    memset(sent.data(), round, size);
    auto start = std::chrono::steady_clock::now();
    send(pipe, sent);
    receive(pipe, received);
    std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
    times.push_back(passed.count());
    if (sent != received) throw std::runtime_error("the tensor came back changed");
  }
  std::nth_element(times.begin(), times.begin() + ROUNDS / 2, times.end());
  printf("%zu B: round trip %.1f us\n", size, times[ROUNDS / 2]);
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "TRANSPORT listen|connect ADDRESS:PORT\n"), 2;
  std::string transport = argv[1], url = transport + "://" + argv[3];
  tp::Context context;
  auto way = transport == "ibv" ? tp::transport::ibv::create() : tp::transport::uv::create();
  if (!way->isViable()) return fprintf(stderr, "no %s here\n", argv[1]), 1;
  context.registerTransport(0, transport, way);
  context.registerChannel(0, "basic", tp::channel::basic::create());
  if (!strcmp(argv[2], "listen")) {
    auto listener = context.listen({url});
    std::promise<std::shared_ptr<tp::Pipe>> accepted;
    listener->accept([&](const tp::Error& error, std::shared_ptr<tp::Pipe> pipe) {
      if (error) throw std::runtime_error(error.what());
      accepted.set_value(pipe);
    });
    respond(*accepted.get_future().get());
  } else {
    auto pipe = context.connect(url);
    for (size_t size : SIZES) measure(*pipe, size);
    pipe->close();
  }
  puts("all right");
  fflush(stdout);
  context.join();
}
