/* Tagged messages of many sizes, both ways, and puts into the peer's memory, over the transport
 * that UCX is configured for; every byte is checked. The processes find each other by TCP.
 *
 * usage: ucx_check [SERVER]
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define TCP_PORT 18517
#define LARGEST (4 << 20)

static ucp_worker_h worker;
static int tcp;

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

static void connect_tcp(const char *server)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(TCP_PORT) };
    int one = 1;

    tcp = socket(AF_INET, SOCK_STREAM, 0);
    if (server) {
        check(inet_pton(AF_INET, server, &address.sin_addr) == 1, "address");
        check(!connect(tcp, (struct sockaddr *)&address, sizeof address), "connect");
        return;
    }
    setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(!bind(tcp, (struct sockaddr *)&address, sizeof address) && !listen(tcp, 1), "listen");
    tcp = accept(tcp, NULL, NULL);
    check(tcp >= 0, "accept");
}

/* Exchanges data of any length with the other side. */
static void *exchange(const void *mine, uint64_t length)
{
    uint64_t theirs;
    void *data;

    check(write(tcp, &length, sizeof length) == sizeof length, "write");
    check(write(tcp, mine, length) == (ssize_t)length, "write");
    check(recv(tcp, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs, "recv");
    data = malloc(theirs);
    check(recv(tcp, data, theirs, MSG_WAITALL) == (ssize_t)theirs, "recv");
    return data;
}

/* Waits for the other side; our own requests make progress meanwhile. */
static void barrier(void)
{
    char go = 'g';

    check(write(tcp, &go, 1) == 1, "write");
    while (recv(tcp, &go, 1, MSG_DONTWAIT) != 1)
        ucp_worker_progress(worker);
}

static void await(ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status;

    if (!request)
        return;
    check(!UCS_PTR_IS_ERR(request), what);
    do
        ucp_worker_progress(worker);
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS);
    ucp_request_free(request);
    if (status != UCS_OK)
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
    check(status == UCS_OK, what);
}

static void fill(uint8_t *data, size_t length, uint32_t seed)
{
    for (size_t at = 0; at < length; at++)
        data[at] = seed + at * 7 + at / 251;
}

static void look(const uint8_t *data, size_t length, uint32_t seed, const char *what)
{
    for (size_t at = 0; at < length; at++)
        if (data[at] != (uint8_t)(seed + at * 7 + at / 251)) {
            fprintf(stderr, "%s of %zu bytes: byte %zu is wrong\n", what, length, at);
            exit(1);
        }
}

int main(int argc, char **argv)
{
    const char *server = argc > 1 ? argv[1] : NULL;
    uint32_t mine = server ? 1000 : 2000, peers = server ? 2000 : 1000;
    int messages = 0, puts_done = 0;

    ucp_params_t features = {
        .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA,
    };
    ucp_config_t *config;
    ucp_context_h context;
    check(ucp_config_read(NULL, NULL, &config) == UCS_OK, "ucp_config_read");
    check(ucp_init(&features, config, &context) == UCS_OK, "ucp_init");
    ucp_worker_params_t threads = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE,
    };
    check(ucp_worker_create(context, &threads, &worker) == UCS_OK, "ucp_worker_create");

    connect_tcp(server);
    ucp_address_t *address;
    size_t length;
    check(ucp_worker_get_address(worker, &address, &length) == UCS_OK, "ucp_worker_get_address");
    ucp_ep_params_t to_peer = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = exchange(address, length),
    };
    ucp_ep_h endpoint;
    check(ucp_ep_create(worker, &to_peer, &endpoint) == UCS_OK, "ucp_ep_create");

    uint8_t *out = malloc(LARGEST), *in = malloc(LARGEST), *window = calloc(1, LARGEST);
    ucp_request_param_t plain = { 0 };
    for (size_t size = 1; size <= LARGEST; size = size * 3 + 1) {
        for (int again = 0; again < 4; again++) {
            fill(out, size, mine + again);
            memset(in, 0xee, size);
            ucs_status_ptr_t receive = ucp_tag_recv_nbx(worker, in, size, size, ~0ull, &plain);
            await(ucp_tag_send_nbx(endpoint, out, size, size, &plain), "a message");
            await(receive, "receiving");
            look(in, size, peers + again, "a message");
            messages++;
        }
    }

    ucp_mem_map_params_t region = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = window, .length = LARGEST,
    };
    ucp_mem_h memory;
    void *packed;
    check(ucp_mem_map(context, &region, &memory) == UCS_OK, "ucp_mem_map");
    check(ucp_rkey_pack(context, memory, &packed, &length) == UCS_OK, "ucp_rkey_pack");
    ucp_rkey_h key;
    check(ucp_ep_rkey_unpack(endpoint, exchange(packed, length), &key) == UCS_OK,
          "ucp_ep_rkey_unpack");
    uint64_t here = (uintptr_t)window, *there = exchange(&here, sizeof here);
    for (size_t size = 1; size <= LARGEST; size = size * 5 + 3) {
        fill(out, size, mine + size);
        await(ucp_put_nbx(endpoint, out, size, *there, key, &plain), "a put");
        await(ucp_ep_flush_nbx(endpoint, &plain), "flushing");
        barrier();
        look(window, size, peers + size, "a put");
        barrier();
        puts_done++;
    }
    printf("%d messages and %d puts, all right\n", messages, puts_done);

    ucp_rkey_destroy(key);
    ucp_mem_unmap(context, memory);
    await(ucp_ep_close_nbx(endpoint, &plain), "closing");
    barrier();
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}
