/* What the programs of rdma_cm beside this file share: a request of a client, and the two channels. The
   declarations are our own, as far as they are needed. */

#include <arpa/inet.h>
#include <netinet/in.h>

#include "wrong.h"

enum {
    ADDR_RESOLVED = 0,
    ROUTE_RESOLVED = 2,
    CONNECT_REQUEST = 4,
    CONNECT_RESPONSE = 5,
    REJECTED = 8,
    ESTABLISHED = 9,
    DISCONNECTED = 10,
    PORT_SPACE_TCP = 0x106
};

struct rdma_event_channel {
    int fd;
};

struct rdma_cm_id {
    struct ibv_context *verbs;
    struct rdma_event_channel *channel;
};

struct rdma_conn_param {
    const void *private_data;
    uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
    uint32_t qp_num;
};

struct rdma_cm_event {
    struct rdma_cm_id *id, *listen_id;
    int event, status;
    struct rdma_conn_param conn;
};

struct rdma_event_channel *rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct rdma_event_channel *channel);
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, int space);
int rdma_destroy_id(struct rdma_cm_id *id);
int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address);
int rdma_listen(struct rdma_cm_id *id, int backlog);
uint16_t rdma_get_src_port(struct rdma_cm_id *id);
int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int milliseconds);
int rdma_resolve_route(struct rdma_cm_id *id, int milliseconds);
int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
int rdma_establish(struct rdma_cm_id *id);
int rdma_disconnect(struct rdma_cm_id *id);
int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length);
int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event);
int rdma_ack_cm_event(struct rdma_cm_event *event);

static struct rdma_event_channel *server, *client;
static struct rdma_cm_id *listener, *caller;
static struct sockaddr_in there;

static inline struct rdma_cm_event *next(struct rdma_event_channel *of, int kind) {
    struct rdma_cm_event *event;
    EXPECT(rdma_get_cm_event(of, &event) == 0 && event->event == kind);
    return event;
}

/* A listener, and a client whose address is being resolved. */
static inline void begin(void) {
    there = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    EXPECT((server = rdma_create_event_channel()) != NULL && (client = rdma_create_event_channel()) != NULL);
    EXPECT(rdma_create_id(server, &listener, NULL, PORT_SPACE_TCP) == 0);
    EXPECT(rdma_bind_addr(listener, (struct sockaddr *)&there) == 0 && rdma_listen(listener, 1) == 0);
    there.sin_port = rdma_get_src_port(listener);
    EXPECT(rdma_create_id(client, &caller, NULL, PORT_SPACE_TCP) == 0);
    EXPECT(rdma_resolve_addr(caller, NULL, (struct sockaddr *)&there, 2000) == 0);
}

/* The request of the client, with this data. */
static inline struct rdma_cm_event *request(const char *data) {
    rdma_ack_cm_event(next(client, ADDR_RESOLVED));
    EXPECT(rdma_resolve_route(caller, 2000) == 0);
    rdma_ack_cm_event(next(client, ROUTE_RESOLVED));
    struct rdma_conn_param param = {.private_data = data, .private_data_len = strlen(data), .qp_num = 5};
    EXPECT(rdma_connect(caller, &param) == 0);
    return next(server, CONNECT_REQUEST);
}

static inline void end(void) {
    EXPECT(rdma_destroy_id(caller) == 0 && rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(client);
    rdma_destroy_event_channel(server);
}
