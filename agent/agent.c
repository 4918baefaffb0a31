/*
 * Drives an RDMA device by libibverbs for a test on another host: `roce conform ADDRESS` there.
 *
 *     cc agent.c -o agent -libverbs && ./agent
 *
 * Without an argument it takes the first device that has an address. It listens on loopback,
 * `--listen` says where else, and prints a token, or has it from ROCE_AGENT_TOKEN.
 *
 * Who knows the token and reaches the port drives the device, and the memory that this program has
 * given it, and nothing else of the host. The first line is the token, and its answer []. Any other
 * line is a list of commands in JSON, and the answer is a line with a list of as many answers. A
 * command that fails is answered with {"error": NAME_OF_ERRNO, "text": REASON}.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Port where agents listen, and the longest line of commands. */
enum { LISTEN = 4792, LONGEST = 1 << 20 };
/* Seconds in which a test sends its next line, in which who connects shows the token, and for which
 * the commands of a line may wait. */
enum { SILENCE = 60, GREETING = 2, WAIT = 30 };
/* Commands in a line, objects at a time, bytes of all regions and of one, entries of a queue, letters of a name. */
enum { COMMANDS = 1024, OBJECTS = 4096, MEMORY = 256 << 20, LENGTH = 64 << 20, COUNT = 1 << 16, NAME = 64 };
/* Digits of a token. */
enum { DIGITS = 32 };
/* Byte n of a pattern is (seed + n) % PERIOD. */
enum { PERIOD = 251 };

/* What a command fails with, and where that is answered. */
static char reason[512];
static int reason_errno;
static jmp_buf command_failed;

static _Noreturn void fail(int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    reason_errno = error;
    longjmp(command_failed, 1);
}

/* The result of a function that returns an errno. */
static void check(const char *function, int error)
{
    if (error != 0)
        fail(error, "%s: %s", function, strerror(error));
}

/* The result of a function that returns a pointer and sets errno. */
static void *made(const char *function, void *object)
{
    if (object == NULL)
        fail(errno, "%s: %s", function, strerror(errno));
    return object;
}

static _Noreturn void stop(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("agent: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_FAILURE);
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes != 0 ? bytes : 1);
    if (memory == NULL)
        stop("there is no memory left");
    return memory;
}

/* JSON: values that last as long as a line. */

enum kind { NOTHING, BOOLEAN, NUMBER, TEXT, LIST, OBJECT };

struct value {
    enum kind kind;
    uint64_t number; /* also a boolean */
    double real;
    char *text;
    char *name;          /* as a member of an object */
    struct value *first; /* of a list or an object */
    struct value *next;  /* in a list or an object */
};

static struct value *values, *free_value, *values_end;
static char *at; /* what is read next */

static _Noreturn void malformed(void)
{
    fail(EPROTO, "no list of commands in JSON");
}

static void skip_blanks(void)
{
    while (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')
        at++;
}

static int eat(char letter)
{
    skip_blanks();
    if (*at != letter)
        return 0;
    at++;
    return 1;
}

/* A string, in the place where it stands; what commands say needs no escapes beyond these. */
static char *read_string(void)
{
    char *text = at, *end = at;
    while (*at != '"') {
        if (*at == '\0')
            malformed();
        if (*at == '\\') {
            at++;
            if (*at != '"' && *at != '\\' && *at != '/')
                malformed();
        }
        *end++ = *at++;
    }
    at++;
    *end = '\0';
    return text;
}

static struct value *read_value(int depth)
{
    struct value *value = free_value++;
    if (value == values_end || depth > 16)
        malformed();
    memset(value, 0, sizeof *value);
    skip_blanks();
    if (eat('"')) {
        value->kind = TEXT;
        value->text = read_string();
    } else if (*at == '[' || *at == '{') {
        int is_list = *at++ == '[';
        char end = is_list ? ']' : '}';
        struct value **last = &value->first;
        value->kind = is_list ? LIST : OBJECT;
        if (eat(end))
            return value;
        do {
            char *name = NULL;
            if (!is_list) {
                if (!eat('"'))
                    malformed();
                name = read_string();
                if (!eat(':'))
                    malformed();
            }
            *last = read_value(depth + 1);
            (*last)->name = name;
            last = &(*last)->next;
        } while (eat(','));
        if (!eat(end))
            malformed();
    } else if (strncmp(at, "true", 4) == 0 || strncmp(at, "null", 4) == 0) {
        value->kind = *at == 't' ? BOOLEAN : NOTHING;
        value->number = *at == 't';
        at += 4;
    } else if (strncmp(at, "false", 5) == 0) {
        value->kind = BOOLEAN;
        at += 5;
    } else {
        char *whole, *real;
        value->kind = NUMBER;
        value->number = strtoull(at, &whole, 10);
        value->real = strtod(at, &real);
        if (real == at)
            malformed();
        at = real;
    }
    return value;
}

/* A member of an object, or NULL. */
static const struct value *member(const struct value *object, const char *name)
{
    const struct value *value = object->first;
    while (value != NULL && strcmp(value->name, name) != 0)
        value = value->next;
    return value != NULL && value->kind != NOTHING ? value : NULL;
}

static const struct value *needed(const struct value *object, const char *name, enum kind kind)
{
    const struct value *value = member(object, name);
    if (value == NULL || value->kind != kind)
        fail(EPROTO, "the command has no %s, or something else", name);
    return value;
}

static uint64_t number(const struct value *object, const char *name)
{
    return needed(object, name, NUMBER)->number;
}

/* A number up to `most`. */
static uint64_t number_to(const struct value *object, const char *name, uint64_t most)
{
    uint64_t asked = number(object, name);
    if (asked > most)
        fail(EPROTO, "%s %" PRIu64 " is too large; at most %" PRIu64, name, asked, most);
    return asked;
}

static uint64_t number_or(const struct value *object, const char *name, uint64_t otherwise)
{
    return member(object, name) != NULL ? number(object, name) : otherwise;
}

static const char *text(const struct value *object, const char *name)
{
    return needed(object, name, TEXT)->text;
}

static int is_set(const struct value *object, const char *name)
{
    return member(object, name) != NULL && needed(object, name, BOOLEAN)->number != 0;
}

/* The answer to a line. */

static char *answer;
static size_t answer_length, answer_room;

static void say(const char *format, ...)
{
    for (;;) {
        va_list arguments;
        va_start(arguments, format);
        size_t room = answer_room - answer_length;
        int length = vsnprintf(answer + answer_length, room, format, arguments);
        va_end(arguments);
        if (length >= 0 && (size_t)length < room) {
            answer_length += (size_t)length;
            return;
        }
        answer_room = answer_room * 2 + 4096;
        answer = realloc(answer, answer_room);
        if (answer == NULL)
            stop("there is no memory left");
    }
}

static const char *errno_name(int error)
{
    static const struct { int error; const char *name; } names[] = {
        {EPERM, "EPERM"},   {ENOENT, "ENOENT"}, {EIO, "EIO"},       {EAGAIN, "EAGAIN"},
        {ENOMEM, "ENOMEM"}, {EACCES, "EACCES"}, {EFAULT, "EFAULT"}, {EBUSY, "EBUSY"},
        {ENODEV, "ENODEV"}, {EINVAL, "EINVAL"}, {ENOSPC, "ENOSPC"}, {ENOSYS, "ENOSYS"},
        {EPROTO, "EPROTO"}, {EOPNOTSUPP, "EOPNOTSUPP"}, {ETIMEDOUT, "ETIMEDOUT"},
    };
    static char other[16];
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        if (names[index].error == error)
            return names[index].name;
    snprintf(other, sizeof other, "%d", error);
    return other;
}

static void say_failure(void)
{
    say("\"error\": \"%s\", \"text\": \"", errno_name(reason_errno));
    for (const char *letter = reason; *letter != '\0'; letter++)
        say(*letter == '"' || *letter == '\\' ? "\\%c" : "%c", *letter < ' ' ? ' ' : *letter);
    say("\"");
}

/* Words, and their numbers. */

struct word {
    const char *word;
    int number;
};

static int find_word(const struct word *words, const char *word)
{
    for (; words->word != NULL; words++)
        if (strcmp(words->word, word) == 0)
            return words->number;
    fail(EPROTO, "%s is not known", word);
}

static const char *find_number(const struct word *words, int number)
{
    while (words->word != NULL && words->number != number)
        words++;
    return words->word;
}

static const struct word rights[] = {
    {"LOCAL_WRITE", IBV_ACCESS_LOCAL_WRITE},
    {"REMOTE_WRITE", IBV_ACCESS_REMOTE_WRITE},
    {"REMOTE_READ", IBV_ACCESS_REMOTE_READ},
    {"REMOTE_ATOMIC", IBV_ACCESS_REMOTE_ATOMIC},
    {"MW_BIND", IBV_ACCESS_MW_BIND},
    {"ZERO_BASED", IBV_ACCESS_ZERO_BASED},
    /* names that old headers do not have */
    {"FLUSH_GLOBAL", 1 << 8},
    {"FLUSH_PERSISTENT", 1 << 9},
    {NULL, 0},
};
static const struct word send_flags[] = {
    {"FENCE", IBV_SEND_FENCE},   {"SIGNALED", IBV_SEND_SIGNALED}, {"SOLICITED", IBV_SEND_SOLICITED},
    {"INLINE", IBV_SEND_INLINE}, {NULL, 0},
};
static const struct word services[] = {
    {"rc", IBV_QPT_RC}, {"uc", IBV_QPT_UC}, {"ud", IBV_QPT_UD}, {NULL, 0},
};
static const struct word states[] = {
    {"RESET", IBV_QPS_RESET}, {"INIT", IBV_QPS_INIT}, {"RTR", IBV_QPS_RTR}, {"RTS", IBV_QPS_RTS},
    {"SQD", IBV_QPS_SQD},     {"SQE", IBV_QPS_SQE},   {"ERR", IBV_QPS_ERR}, {NULL, 0},
};
static const struct word statuses[] = {
    {"SUCCESS", IBV_WC_SUCCESS},
    {"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},
    {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
    {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
    {"WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR},
    {"MW_BIND_ERR", IBV_WC_MW_BIND_ERR},
    {"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR},
    {"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},
    {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
    {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},
    {"REM_OP_ERR", IBV_WC_REM_OP_ERR},
    {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},
    {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
    {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},
    {"FATAL_ERR", IBV_WC_FATAL_ERR},
    {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR},
    {"GENERAL_ERR", IBV_WC_GENERAL_ERR},
    {NULL, 0},
};

static int bits(const struct word *words, const struct value *object, const char *name)
{
    int all = 0;
    const struct value *list = member(object, name);
    for (const struct value *one = list != NULL ? list->first : NULL; one != NULL; one = one->next)
        all |= one->kind == TEXT ? find_word(words, one->text) : 0;
    return all;
}

static enum ibv_mtu mtu_of(uint64_t bytes)
{
    for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
        if (bytes == 128u << mtu)
            return (enum ibv_mtu)mtu;
    fail(EINVAL, "a path MTU has 256, 512, 1024, 2048 or 4096 bytes");
}

/* The device, and what commands have made on it. */

static struct ibv_context *context;
static uint8_t port = 1;

enum type { GROUP, WINDOW, QUEUE_PAIR, HANDLE, REGION, SHARED_QUEUE, COMPLETION_QUEUE, DOMAIN, TYPES };

struct object {
    struct object *next;
    enum type type;
    char *name;
    void *object;
    unsigned char *memory; /* of a region, or the membership of a queue pair in a group */
};

struct membership {
    union ibv_gid gid;
    int socket; /* with it the host has joined the group */
};

static struct object *objects;

static struct object *find(enum type type, const char *name)
{
    struct object *object = objects;
    while (object != NULL && (object->type != type || strcmp(object->name, name) != 0))
        object = object->next;
    if (object == NULL)
        fail(EPROTO, "there is no %s", name);
    return object;
}

static struct object *keep(enum type type, const char *name, void *made)
{
    struct object *object = allocate(sizeof *object);
    object->next = objects;
    object->type = type;
    object->name = strdup(name);
    object->object = made;
    objects = object;
    return object;
}

/* Looks whether there may be one more object, of this name. */
static void check_room(const char *name)
{
    int count = 0;
    for (const struct object *object = objects; object != NULL; object = object->next)
        count++;
    if (count >= OBJECTS)
        fail(ENOMEM, "too many objects: %d; at most %d", count, OBJECTS);
    if (strlen(name) > NAME)
        fail(EPROTO, "a name has at most %d letters", NAME);
}

static int leave(struct object *object)
{
    struct membership *membership = (struct membership *)object->memory;
    if (membership->socket >= 0)
        close(membership->socket);
    membership->socket = -1;
    return ibv_detach_mcast(object->object, &membership->gid, 0);
}

static void destroy(struct object *object)
{
    struct object **link = &objects;
    switch (object->type) {
    case GROUP: check("ibv_detach_mcast", leave(object)); break;
    case WINDOW: check("ibv_dealloc_mw", ibv_dealloc_mw(object->object)); break;
    case QUEUE_PAIR: check("ibv_destroy_qp", ibv_destroy_qp(object->object)); break;
    case HANDLE: check("ibv_destroy_ah", ibv_destroy_ah(object->object)); break;
    case REGION: check("ibv_dereg_mr", ibv_dereg_mr(object->object)); break;
    case SHARED_QUEUE: check("ibv_destroy_srq", ibv_destroy_srq(object->object)); break;
    case COMPLETION_QUEUE: check("ibv_destroy_cq", ibv_destroy_cq(object->object)); break;
    case DOMAIN: check("ibv_dealloc_pd", ibv_dealloc_pd(object->object)); break;
    case TYPES: break;
    }
    while (*link != object)
        link = &(*link)->next;
    *link = object->next;
    free(object->memory);
    free(object->name);
    free(object);
}

static void clear(void)
{
    /* groups first: a queue pair stays while it is in one. Then windows: the destruction of a queue pair waits for those that are bound with it */
    for (int type = 0; type < TYPES; type++) {
        struct object *object = objects, *next;
        for (; object != NULL; object = next) {
            next = object->next;
            if (object->type == (enum type)type)
                destroy(object);
        }
    }
}

/* Addresses: GIDs of RoCEv2. */

struct address {
    int family;
    unsigned char bytes[16];
};

/* The index of the first GID of RoCEv2 with an address from `index` on, or -1. */
static int next_address(int index, char shown[INET6_ADDRSTRLEN], struct address *address)
{
    static const unsigned char mapped[12] = {[10] = 0xFF, [11] = 0xFF}, zeros[16];
    struct ibv_port_attr attributes;
    if (ibv_query_port(context, port, &attributes) != 0)
        return -1;
    for (; index < attributes.gid_tbl_len; index++) {
        struct ibv_gid_entry entry;
        const unsigned char *gid = entry.gid.raw;
        if (ibv_query_gid_ex(context, port, (uint32_t)index, &entry, 0) != 0)
            continue;
        int is_link_local = gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80;
        if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || memcmp(gid, zeros, 16) == 0 || is_link_local)
            continue;
        int is_v4 = memcmp(gid, mapped, 12) == 0;
        address->family = is_v4 ? AF_INET : AF_INET6;
        memcpy(address->bytes, is_v4 ? gid + 12 : gid, is_v4 ? 4 : 16);
        inet_ntop(address->family, address->bytes, shown, INET6_ADDRSTRLEN);
        return index;
    }
    return -1;
}

/* The index of the first GID of this family, or -1. */
static int own_index(int family)
{
    struct address own;
    char shown[INET6_ADDRSTRLEN];
    int index = -1;
    do
        index = next_address(index + 1, shown, &own);
    while (index >= 0 && own.family != family);
    return index;
}

/* The family of an address, and its GID, which is zero before. */
static int gid_of(const char *address, unsigned char gid[16])
{
    int family = strchr(address, ':') != NULL ? AF_INET6 : AF_INET;
    if (inet_pton(family, address, family == AF_INET ? gid + 12 : gid) != 1)
        fail(EPROTO, "%s is no address", address);
    if (family == AF_INET)
        gid[10] = gid[11] = 0xFF;
    return family;
}

/* The way to an address, from the own one of the same family. */
static struct ibv_ah_attr way_to(const char *to)
{
    struct ibv_ah_attr way = {.is_global = 1, .port_num = port};
    int index = own_index(gid_of(to, way.grh.dgid.raw));
    if (index < 0)
        fail(EINVAL, "the device has no address from which %s could be reached", to);
    way.grh.sgid_index = (uint8_t)index;
    way.grh.hop_limit = 64;
    return way;
}

/* Commands. */

static void do_hello(void)
{
    struct ibv_port_attr attributes;
    struct address address;
    char shown[INET6_ADDRSTRLEN];
    const char *between = "";
    check("ibv_query_port", ibv_query_port(context, port, &attributes));
    say("\"kind\": \"verbs\", \"active_mtu\": %d, \"addresses\": [", 128 << attributes.active_mtu);
    for (int index = -1; (index = next_address(index + 1, shown, &address)) >= 0; between = ", ")
        say("%s\"%s\"", between, shown);
    say("]");
}

static void do_mr(const struct value *command)
{
    size_t length = number_to(command, "length", LENGTH), total = length;
    for (const struct object *other = objects; other != NULL; other = other->next)
        total += other->type == REGION ? ((struct ibv_mr *)other->object)->length : 0;
    if (total > MEMORY)
        fail(ENOMEM, "too much memory: %zu bytes; at most %d", total, MEMORY);
    struct ibv_pd *pd = find(DOMAIN, text(command, "pd"))->object;
    unsigned char *memory = aligned_alloc(4096, (length + 4095) / 4096 * 4096);
    if (memory == NULL)
        fail(ENOMEM, "there is no memory for %zu bytes", length);
    memset(memory, 0, length);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, length, bits(rights, command, "access"));
    if (mr == NULL) {
        int error = errno;
        free(memory);
        check("ibv_reg_mr", error);
    }
    keep(REGION, text(command, "name"), mr)->memory = memory;
    say("\"lkey\": %" PRIu32 ", \"rkey\": %" PRIu32 ", \"address\": %" PRIuPTR, mr->lkey, mr->rkey,
        (uintptr_t)memory);
}

static void do_qp(const struct value *command)
{
    struct ibv_qp_init_attr attributes = {
        .send_cq = find(COMPLETION_QUEUE, text(command, "send_cq"))->object,
        .recv_cq = find(COMPLETION_QUEUE, text(command, "recv_cq"))->object,
        .cap = {64, 64, 4, 4, 64},
        .qp_type = (enum ibv_qp_type)find_word(services, text(command, "type")),
        .sq_sig_all = is_set(command, "sq_sig_all"),
    };
    const struct value *caps = member(command, "caps");
    if (caps != NULL)
        attributes.cap = (struct ibv_qp_cap){
            .max_send_wr = (uint32_t)number_or(caps, "max_send_wr", 64),
            .max_recv_wr = (uint32_t)number_or(caps, "max_recv_wr", 64),
            .max_send_sge = (uint32_t)number_or(caps, "max_send_sge", 4),
            .max_recv_sge = (uint32_t)number_or(caps, "max_recv_sge", 4),
            .max_inline_data = (uint32_t)number_or(caps, "max_inline_data", 64),
        };
    if (member(command, "srq") != NULL)
        attributes.srq = find(SHARED_QUEUE, text(command, "srq"))->object;
    struct ibv_pd *pd = find(DOMAIN, text(command, "pd"))->object;
    struct ibv_qp *qp = made("ibv_create_qp", ibv_create_qp(pd, &attributes));
    keep(QUEUE_PAIR, text(command, "name"), qp);
    say("\"qpn\": %" PRIu32, qp->qp_num);
}

static void do_modify(const struct value *command)
{
    struct ibv_qp *qp = find(QUEUE_PAIR, text(command, "qp"))->object;
    const struct value *to = needed(command, "to", OBJECT)->first;
    if (to == NULL || to->kind != OBJECT)
        malformed();
    int is_rc = qp->qp_type == IBV_QPT_RC, is_ud = qp->qp_type == IBV_QPT_UD;
    int mask = IBV_QP_STATE;
    struct ibv_qp_attr attributes = {0};
    if (strcmp(to->name, "init") == 0) {
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = port;
        attributes.qkey = (uint32_t)number_or(to, "qkey", 0);
        attributes.qp_access_flags = (unsigned)bits(rights, to, "access");
        mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    } else if (strcmp(to->name, "rtr") == 0) {
        attributes.qp_state = IBV_QPS_RTR;
        if (!is_ud) {
            const struct value *peer = needed(to, "peer", OBJECT);
            attributes.ah_attr = way_to(text(peer, "address"));
            attributes.dest_qp_num = (uint32_t)number(peer, "qpn");
            attributes.path_mtu = mtu_of(number(peer, "path_mtu"));
            attributes.rq_psn = (uint32_t)number_or(to, "rq_psn", 0);
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        }
        if (is_rc) {
            attributes.max_dest_rd_atomic = (uint8_t)number_or(to, "max_dest_rd_atomic", 0);
            attributes.min_rnr_timer = (uint8_t)number_or(to, "min_rnr_timer", 0);
            mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        }
    } else if (strcmp(to->name, "rts") == 0) {
        attributes.qp_state = IBV_QPS_RTS;
        attributes.sq_psn = (uint32_t)number(to, "sq_psn");
        mask |= IBV_QP_SQ_PSN;
        if (is_rc) {
            attributes.timeout = (uint8_t)number_or(to, "timeout", 0);
            attributes.retry_cnt = (uint8_t)number_or(to, "retry_cnt", 0);
            attributes.rnr_retry = (uint8_t)number_or(to, "rnr_retry", 0);
            attributes.max_rd_atomic = (uint8_t)number_or(to, "max_rd_atomic", 0);
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
    } else if (strcmp(to->name, "err") == 0) {
        attributes.qp_state = IBV_QPS_ERR;
    } else if (strcmp(to->name, "reset") == 0) {
        attributes.qp_state = IBV_QPS_RESET;
    } else {
        fail(EPROTO, "no transition to %s", to->name);
    }
    check("ibv_modify_qp", ibv_modify_qp(qp, &attributes, mask));
}

/* Joins a group on the interface of the device: an adapter need not see to that by itself. */
static int join_on_interface(int family, const unsigned char *group, unsigned interface)
{
    int error, opened = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (opened < 0)
        check("socket", errno);
    if (family == AF_INET) {
        struct ip_mreqn request = {.imr_ifindex = (int)interface};
        memcpy(&request.imr_multiaddr, group, 4);
        error = setsockopt(opened, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request);
    } else {
        struct ipv6_mreq request = {.ipv6mr_interface = interface};
        memcpy(&request.ipv6mr_multiaddr, group, 16);
        error = setsockopt(opened, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request);
    }
    if (error != 0) {
        error = errno;
        close(opened);
        check("the host's join", error);
    }
    return opened;
}

static void do_join(const struct value *command)
{
    struct ibv_qp *qp = find(QUEUE_PAIR, text(command, "qp"))->object;
    const char *group = text(command, "group");
    check_room(group);
    struct membership *membership = allocate(sizeof *membership);
    struct ibv_gid_entry entry;
    int family = gid_of(group, membership->gid.raw), index = own_index(family);
    if (index < 0)
        fail(EINVAL, "the device has no address of the family of %s", group);
    check("ibv_query_gid_ex", ibv_query_gid_ex(context, port, (uint32_t)index, &entry, 0));
    check("ibv_attach_mcast", ibv_attach_mcast(qp, &membership->gid, 0));
    membership->socket = -1;
    keep(GROUP, group, qp)->memory = (unsigned char *)membership;
    const unsigned char *address = membership->gid.raw + (family == AF_INET ? 12 : 0);
    membership->socket = join_on_interface(family, address, entry.ndev_ifindex);
}

static void do_query(const struct value *command)
{
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr made_with;
    struct ibv_qp *qp = find(QUEUE_PAIR, text(command, "qp"))->object;
    check("ibv_query_qp", ibv_query_qp(qp, &attributes, IBV_QP_STATE, &made_with));
    const char *state = find_number(states, (int)attributes.qp_state);
    say("\"state\": \"%s\"", state != NULL ? state : "UNKNOWN");
}

enum { MOST_SGES = 32, MOST_INLINE = 1024 };

static int scatter_list(const struct value *wr, struct ibv_sge sges[MOST_SGES])
{
    int count = 0;
    const struct value *list = member(wr, "sges");
    for (const struct value *one = list != NULL ? list->first : NULL; one != NULL; one = one->next) {
        if (count == MOST_SGES)
            fail(EINVAL, "a request has %d scatter/gather elements at most here", MOST_SGES);
        sges[count++] = (struct ibv_sge){
            number(one, "address"), (uint32_t)number(one, "length"), (uint32_t)number(one, "lkey"),
        };
    }
    return count;
}

static struct ibv_ah *handle_to(const char *address)
{
    struct object *object = objects;
    while (object != NULL && (object->type != HANDLE || strcmp(object->name, address) != 0))
        object = object->next;
    if (object == NULL) {
        struct ibv_ah_attr way = way_to(address);
        check_room(address);
        for (object = objects; object != NULL && object->type != DOMAIN;)
            object = object->next;
        if (object == NULL)
            fail(EPROTO, "there is no protection domain");
        struct ibv_ah *ah = made("ibv_create_ah", ibv_create_ah(object->object, &way));
        object = keep(HANDLE, address, ah);
    }
    return object->object;
}

/* Posts the bind of a window, and returns its new key. */
static uint32_t bind_window(struct ibv_qp *qp, const struct value *wr, unsigned flags)
{
    const struct value *bind = needed(wr, "bind", OBJECT);
    struct object *window = find(WINDOW, text(bind, "window"));
    struct object *region = find(REGION, text(bind, "region"));
    struct ibv_mw *mw = window->object;
    struct ibv_mw_bind_info info = {
        region->object,
        (uintptr_t)region->memory + number(bind, "offset"),
        number(bind, "length"),
        (unsigned)bits(rights, bind, "access"),
    };
    if (mw->type == IBV_MW_TYPE_1) {
        struct ibv_mw_bind request = {number(wr, "id"), flags, info};
        check("ibv_bind_mw", ibv_bind_mw(qp, mw, &request));
        return mw->rkey;
    }
    struct ibv_send_wr *bad, request = {
        .wr_id = number(wr, "id"),
        .opcode = IBV_WR_BIND_MW,
        .send_flags = flags,
        .bind_mw = {mw, ibv_inc_rkey(mw->rkey), info},
    };
    check("ibv_post_send", ibv_post_send(qp, &request, &bad));
    return mw->rkey = request.bind_mw.rkey;
}

static void post_send(struct ibv_qp *qp, const struct value *wr, unsigned flags)
{
    struct ibv_sge sges[MOST_SGES];
    const char *operation = text(wr, "op");
    const struct value *immediate = member(wr, "imm"), *remote = member(wr, "remote");
    const struct value *to = member(wr, "destination");
    struct ibv_send_wr *bad, request = {
        .wr_id = number(wr, "id"),
        .sg_list = sges,
        .num_sge = scatter_list(wr, sges),
        .send_flags = flags,
    };
    const struct value *inlined = member(wr, "inline");
    unsigned char bytes[MOST_INLINE];
    if (inlined != NULL) {
        uint64_t length = number(inlined, "length"), seed = number(inlined, "seed") % PERIOD;
        if (length > MOST_INLINE)
            fail(EINVAL, "a request has %d bytes inline at most here", MOST_INLINE);
        for (uint64_t index = 0; index < length; index++)
            bytes[index] = (unsigned char)((seed + index) % PERIOD);
        sges[0] = (struct ibv_sge){(uint64_t)(uintptr_t)bytes, (uint32_t)length, 0};
        request.num_sge = 1;
        request.send_flags |= IBV_SEND_INLINE;
    }
    if (immediate != NULL)
        request.imm_data = htonl((uint32_t)immediate->number);
    if (strcmp(operation, "send") == 0) {
        request.opcode = immediate != NULL ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    } else if (strcmp(operation, "write") == 0) {
        request.opcode = immediate != NULL ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    } else if (strcmp(operation, "read") == 0) {
        request.opcode = IBV_WR_RDMA_READ;
    } else if (strcmp(operation, "compare_swap") == 0) {
        request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        request.wr.atomic.compare_add = number(wr, "compare");
        request.wr.atomic.swap = number(wr, "swap");
    } else if (strcmp(operation, "fetch_add") == 0) {
        request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        request.wr.atomic.compare_add = number(wr, "add");
    } else if (strcmp(operation, "send_invalidate") == 0) {
        request.opcode = IBV_WR_SEND_WITH_INV;
        request.invalidate_rkey = (uint32_t)number(wr, "rkey");
    } else if (strcmp(operation, "local_invalidate") == 0) {
        request.opcode = IBV_WR_LOCAL_INV;
        request.invalidate_rkey = (uint32_t)number(wr, "rkey");
    } else {
        fail(EOPNOTSUPP, "this agent cannot post %s", operation);
    }
    if (remote != NULL && request.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
        request.wr.atomic.remote_addr = number(remote, "address");
        request.wr.atomic.rkey = (uint32_t)number(remote, "rkey");
    } else if (remote != NULL) {
        request.wr.rdma.remote_addr = number(remote, "address");
        request.wr.rdma.rkey = (uint32_t)number(remote, "rkey");
    }
    if (to != NULL) {
        request.wr.ud.ah = handle_to(text(to, "address"));
        request.wr.ud.remote_qpn = (uint32_t)number(to, "qpn");
        request.wr.ud.remote_qkey = (uint32_t)number(to, "qkey");
    }
    check("ibv_post_send", ibv_post_send(qp, &request, &bad));
}

static void do_send(const struct value *command)
{
    struct ibv_qp *qp = find(QUEUE_PAIR, text(command, "qp"))->object;
    const struct value *wr = needed(command, "wrs", LIST)->first;
    uint32_t keys[64];
    int posted = 0, bound = 0;
    for (; wr != NULL; wr = wr->next, posted++) {
        unsigned flags = (unsigned)bits(send_flags, wr, "flags");
        if (strcmp(text(wr, "op"), "bind_window") != 0)
            post_send(qp, wr, flags);
        else if (bound < 64)
            keys[bound++] = bind_window(qp, wr, flags);
    }
    say("\"posted\": %d, \"rkeys\": [", posted);
    for (int index = 0; index < bound; index++)
        say("%s%" PRIu32, index != 0 ? ", " : "", keys[index]);
    say("]");
}

static void do_recv(const struct value *command)
{
    int is_shared = member(command, "srq") != NULL;
    enum type type = is_shared ? SHARED_QUEUE : QUEUE_PAIR;
    void *queue = find(type, text(command, is_shared ? "srq" : "qp"))->object;
    const struct value *wr = needed(command, "wrs", LIST)->first;
    int posted = 0;
    for (; wr != NULL; wr = wr->next, posted++) {
        struct ibv_sge sges[MOST_SGES];
        struct ibv_recv_wr *bad, request = {
            .wr_id = number(wr, "id"), .sg_list = sges, .num_sge = scatter_list(wr, sges),
        };
        if (is_shared)
            check("ibv_post_srq_recv", ibv_post_srq_recv(queue, &request, &bad));
        else
            check("ibv_post_recv", ibv_post_recv(queue, &request, &bad));
    }
    say("\"posted\": %d", posted);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The test, and when the commands of its line wait no more. */
static int connection = -1;
static double line_end;

/* True if the test has closed its connection. */
static int is_gone(void)
{
    char letter;
    ssize_t count = recv(connection, &letter, 1, MSG_PEEK | MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

static void do_poll(const struct value *command)
{
    struct ibv_cq *cq = find(COMPLETION_QUEUE, text(command, "cq"))->object;
    uint64_t wanted = number_to(command, "count", COUNT), taken = 0;
    double timeout = needed(command, "timeout", NUMBER)->real;
    if (!(timeout >= 0 && timeout <= WAIT))
        fail(EPROTO, "the timeout %g s is out of range; expected 0 to %d s", timeout, WAIT);
    double end = seconds() + timeout;
    if (end > line_end)
        end = line_end;
    while (taken < wanted) {
        struct ibv_wc wc;
        int count = ibv_poll_cq(cq, 1, &wc);
        if (count < 0)
            fail(EIO, "ibv_poll_cq fails");
        if (count == 0) {
            if (seconds() >= end || is_gone())
                break;
            nanosleep(&(struct timespec){0, 500000}, NULL);
            continue;
        }
        const char *status = find_number(statuses, (int)wc.status);
        say("%s{\"id\": %" PRIu64 ", \"qpn\": %" PRIu32 ", \"status\": \"%s\"",
            taken++ != 0 ? ", " : "", wc.wr_id, wc.qp_num, status != NULL ? status : "UNKNOWN");
        if (wc.status == IBV_WC_SUCCESS) {
            say(", \"byte_len\": %" PRIu32, wc.byte_len);
            if (wc.wc_flags & IBV_WC_WITH_IMM)
                say(", \"imm\": %" PRIu32, ntohl(wc.imm_data));
        }
        say("}");
    }
}

/* A part of a region. */
static unsigned char *part(const struct value *command, uint64_t length)
{
    struct object *region = find(REGION, text(command, "mr"));
    uint64_t room = ((struct ibv_mr *)region->object)->length, offset = number(command, "offset");
    if (offset > room || length > room - offset)
        fail(EPROTO, "%s has %" PRIu64 " bytes", region->name, room);
    return region->memory + offset;
}

static void do_pattern(const struct value *command, int is_fill)
{
    uint64_t length = number(command, "length"), seed = number(command, "seed") % PERIOD;
    unsigned char *memory = part(command, length);
    for (uint64_t index = 0; index < length; index++) {
        unsigned char wanted = (unsigned char)((seed + index) % PERIOD);
        if (is_fill) {
            memory[index] = wanted;
        } else if (*(volatile unsigned char *)&memory[index] != wanted) {
            say("\"differs\": %" PRIu64, number(command, "offset") + index);
            return;
        }
    }
    if (!is_fill)
        say("\"differs\": null");
}

/* Carries out a command, and says the members of its answer. */
static void execute(const struct value *command)
{
    if (command->kind != OBJECT)
        malformed();
    const char *name = text(command, "do");
    if (member(command, "name") != NULL)
        check_room(text(command, "name"));
    if (strcmp(name, "hello") == 0) {
        do_hello();
    } else if (strcmp(name, "clear") == 0) {
        clear();
    } else if (strcmp(name, "pd") == 0) {
        keep(DOMAIN, text(command, "name"), made("ibv_alloc_pd", ibv_alloc_pd(context)));
    } else if (strcmp(name, "mr") == 0) {
        do_mr(command);
    } else if (strcmp(name, "window") == 0) {
        struct ibv_pd *pd = find(DOMAIN, text(command, "pd"))->object;
        int is_first = number(command, "window_type") == 1;
        struct ibv_mw *mw = ibv_alloc_mw(pd, is_first ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
        keep(WINDOW, text(command, "name"), made("ibv_alloc_mw", mw));
    } else if (strcmp(name, "cq") == 0) {
        struct ibv_cq *cq = ibv_create_cq(context, (int)number_to(command, "size", COUNT), NULL, NULL, 0);
        keep(COMPLETION_QUEUE, text(command, "name"), made("ibv_create_cq", cq));
    } else if (strcmp(name, "srq") == 0) {
        struct ibv_pd *pd = find(DOMAIN, text(command, "pd"))->object;
        struct ibv_srq_init_attr attributes = {
            .attr = {(uint32_t)number(command, "max_wr"), (uint32_t)number(command, "max_sge"), 0},
        };
        struct ibv_srq *srq = made("ibv_create_srq", ibv_create_srq(pd, &attributes));
        keep(SHARED_QUEUE, text(command, "name"), srq);
    } else if (strcmp(name, "qp") == 0) {
        do_qp(command);
    } else if (strcmp(name, "modify") == 0) {
        do_modify(command);
    } else if (strcmp(name, "join") == 0) {
        do_join(command);
    } else if (strcmp(name, "query") == 0) {
        do_query(command);
    } else if (strcmp(name, "send") == 0) {
        do_send(command);
    } else if (strcmp(name, "recv") == 0) {
        do_recv(command);
    } else if (strcmp(name, "fill") == 0 || strcmp(name, "differs") == 0) {
        do_pattern(command, *name == 'f');
    } else if (strcmp(name, "set_word") == 0) {
        uint64_t value = number(command, "value");
        memcpy(part(command, 8), &value, 8);
    } else if (strcmp(name, "word") == 0) {
        uint64_t value;
        memcpy(&value, part(command, 8), 8);
        say("\"value\": %" PRIu64, value);
    } else {
        fail(EPROTO, "no command is called %s", name);
    }
}

/* Says the answer to a command. */
static void answer_command(const struct value *command)
{
    const size_t start = answer_length;
    if (setjmp(command_failed) == 0) {
        /* a list is polled; everything else is answered with an object */
        if (command->kind == OBJECT && strcmp(text(command, "do"), "poll") == 0) {
            say("[");
            do_poll(command);
            say("]");
        } else {
            say("{");
            execute(command);
            say("}");
        }
    } else {
        answer_length = start;
        say("{");
        say_failure();
        say("}");
    }
}

/* The list of commands in a line, or NULL. */
static const struct value *read_line(char *line)
{
    at = line;
    free_value = values;
    if (setjmp(command_failed) != 0)
        return NULL;
    const struct value *commands = read_value(0);
    skip_blanks();
    return commands->kind == LIST && *at == '\0' ? commands : NULL;
}

/* Answers a line; 0 if it is no list of commands. */
static int answer_line(char *line)
{
    const struct value *commands = read_line(line);
    int count = 0;
    if (commands == NULL)
        return 0;
    for (const struct value *command = commands->first; command != NULL; command = command->next)
        count++;
    answer_length = 0;
    line_end = seconds() + WAIT;
    say("[");
    if (count > COMMANDS) {
        say("{\"error\": \"EPROTO\", \"text\": \"too many commands in a line: %d; at most %d\"}", count, COMMANDS);
        commands = NULL;
    }
    const struct value *command = commands != NULL ? commands->first : NULL;
    for (; command != NULL && !is_gone(); command = command->next) {
        answer_command(command);
        if (command->next != NULL)
            say(", ");
    }
    say("]\n");
    return 1;
}

/* What has come of the next line. */
static char line[LONGEST + 1];
static size_t line_length;

/* Waits until a line is there, and says where it ends; NULL if it does not come whole in time. */
static char *next_line(size_t most, int limit)
{
    double end = seconds() + limit;
    for (;;) {
        char *found = memchr(line, '\n', line_length);
        if (found != NULL)
            return found;
        double left = end - seconds();
        struct pollfd ready = {.fd = connection, .events = POLLIN};
        if (line_length >= most || left <= 0 || poll(&ready, 1, (int)(left * 1000) + 1) < 0)
            return NULL;
        ssize_t count = recv(connection, line + line_length, most - line_length, MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN))
            return NULL;
        line_length += count > 0 ? (size_t)count : 0;
    }
}

/* Forgets a line that ends there. */
static void drop_line(const char *end)
{
    line_length -= (size_t)(end + 1 - line);
    memmove(line, end + 1, line_length);
}

/* Sends all of a text; 0 if it is not taken. */
static int send_all(const char *text, size_t length)
{
    for (size_t sent = 0; sent < length;) {
        ssize_t count = send(connection, text + sent, length - sent, MSG_NOSIGNAL);
        if (count <= 0)
            return 0;
        sent += (size_t)count;
    }
    return 1;
}

/* True if a test shows the token. How long that takes does not tell how much of it is right. */
static int shows(const char token[DIGITS + 1])
{
    static const char taken[] = "[]\n", refused[] =
        "[{\"error\": \"EACCES\", \"text\": \"this is not the token that the agent has printed\"}]\n";
    char *end = next_line(DIGITS + 2, GREETING);
    if (end == NULL)
        return 0;
    size_t length = (size_t)(end - line);
    int differs = length != DIGITS;
    for (size_t index = 0; index < DIGITS && index < length; index++)
        differs |= tolower((unsigned char)line[index]) ^ token[index];
    drop_line(end);
    if (differs)
        send_all(refused, sizeof refused - 1);
    return !differs && send_all(taken, sizeof taken - 1);
}

/* Answers lines until there are no more, or one is too long or none. */
static void serve(void)
{
    char *end;
    while ((end = next_line(LONGEST, SILENCE)) != NULL) {
        *end = '\0';
        if (!answer_line(line) || !send_all(answer, answer_length))
            return;
        drop_line(end);
    }
}

/* The token of the environment, or a new one, which is printed; true if it is new. */
static int choose_token(char token[DIGITS + 1])
{
    unsigned char bytes[DIGITS / 2];
    const char *given = getenv("ROCE_AGENT_TOKEN");
    if (given != NULL) {
        if (strlen(given) != DIGITS || strspn(given, "0123456789abcdefABCDEF") != DIGITS)
            stop("ROCE_AGENT_TOKEN: a token is %d hexadecimal digits", DIGITS);
        for (int index = 0; index <= DIGITS; index++)
            token[index] = (char)tolower((unsigned char)given[index]);
        return 0;
    }
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        stop("there is no random number: %s", strerror(errno));
    for (size_t index = 0; index < sizeof bytes; index++)
        snprintf(token + 2 * index, 3, "%02x", bytes[index]);
    return 1;
}

static void clear_after_test(void)
{
    if (setjmp(command_failed) == 0)
        clear();
    else
        fprintf(stderr, "agent: %s\n", reason);
}

/* Opens a device by its name; NULL is the first that has an address. */
static void open_device(const char *name)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    for (int index = 0; list != NULL && index < count && context == NULL; index++) {
        struct address address;
        char shown[INET6_ADDRSTRLEN];
        if (name != NULL && strcmp(name, ibv_get_device_name(list[index])) != 0)
            continue;
        context = ibv_open_device(list[index]);
        if (context == NULL && name != NULL)
            stop("%s cannot be opened: %s", name, strerror(errno));
        if (context != NULL && name == NULL && next_address(0, shown, &address) < 0) {
            ibv_close_device(context);
            context = NULL;
        }
    }
    if (context == NULL && name != NULL)
        stop("there is no device %s; `ibv_devices` lists them", name);
    if (context == NULL)
        stop("no RDMA device has an address; see `rdma link` and `ip address`");
    ibv_free_device_list(list);
}

static const char usage[] =
    "usage: agent [DEVICE] [--port N] [--listen ADDRESS[:PORT]] [--once]\n"
    "\n"
    "Drives an RDMA device for a test on another host: `roce conform ADDRESS` there.\n"
    "\n"
    "  DEVICE                 a name that `ibv_devices` shows; by default the first with an address\n"
    "  --port N               port of the device; by default 1\n"
    "  --listen ADDRESS[:PORT]  where to listen, by default at port 4792: 127.0.0.1 or ::1\n"
    "  --once                 end when the first test is over\n";

/* Where only programs of this host reach the agent of a device with this address. */
static char *loopback(char *own)
{
    static char v4[] = "127.0.0.1", v6[] = "::1";
    if (strchr(own, ':') != NULL)
        return v6;
    return strncmp(own, "127.", 4) == 0 ? own : v4;
}

int main(int count, char **arguments)
{
    const char *device = NULL;
    char *place = NULL, shown[INET6_ADDRSTRLEN], own[INET6_ADDRSTRLEN];
    int once = 0, yes = 1;
    for (int index = 1; index < count; index++) {
        char *word = arguments[index], *end = "";
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        } else if (strcmp(word, "--once") == 0) {
            once = 1;
        } else if (strcmp(word, "--port") == 0 && index + 1 < count) {
            port = (uint8_t)strtoul(arguments[++index], &end, 10);
        } else if (strcmp(word, "--listen") == 0 && index + 1 < count) {
            place = arguments[++index];
        } else if (*word != '-' && device == NULL) {
            device = word;
        } else {
            end = word;
        }
        if (*end != '\0')
            stop("%s is not understood; --help says what is", end);
    }
    open_device(device);

    struct address address;
    if (next_address(0, own, &address) < 0)
        stop("%s has no address for RoCEv2; give its interface one",
             ibv_get_device_name(context->device));
    uint16_t number = LISTEN;
    if (place == NULL)
        place = loopback(own);
    if (inet_pton(AF_INET, place, address.bytes) == 1) {
        address.family = AF_INET;
    } else if (inet_pton(AF_INET6, place, address.bytes) == 1) {
        address.family = AF_INET6;
    } else {
        char *colon = strrchr(place, ':'), *end = NULL;
        unsigned long given = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
        if (colon == NULL || end == colon + 1 || *end != '\0' || given > 65535)
            stop("%s is no ADDRESS[:PORT]", place);
        number = (uint16_t)given;
        *colon = '\0';
        if (*place == '[' && colon[-1] == ']') {
            colon[-1] = '\0';
            place++;
        }
        address.family = strchr(place, ':') != NULL ? AF_INET6 : AF_INET;
        if (inet_pton(address.family, place, address.bytes) != 1)
            stop("%s is no address", place);
    }
    inet_ntop(address.family, address.bytes, shown, sizeof shown);
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(number)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(number)};
    int is_v4 = address.family == AF_INET;
    memcpy(&v4.sin_addr, address.bytes, 4);
    memcpy(&v6.sin6_addr, address.bytes, 16);
    struct sockaddr *name = is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    socklen_t length = is_v4 ? sizeof v4 : sizeof v6;
    int listener = socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(listener, name, length) != 0 || listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, name, &length) != 0)
        stop("cannot listen at %s port %d: %s; choose with --listen", shown, number,
             strerror(errno));
    char token[DIGITS + 1];
    int is_new = choose_token(token);
    printf(is_v4 ? "device %s (%s), agent %s:%d" : "device %s (%s), agent [%s]:%d",
           ibv_get_device_name(context->device), own, shown,
           ntohs(is_v4 ? v4.sin_port : v6.sin6_port));
    printf("%s%s\n", is_new ? ", token " : "", is_new ? token : "");
    fflush(stdout);

    /* every value has a letter at least */
    values = allocate((LONGEST / 2) * sizeof *values);
    values_end = values + LONGEST / 2;
    for (int is_over = 0; !once || !is_over;) {
        struct timeval silence = {SILENCE, 0};
        connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0)
            continue;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
        line_length = 0;
        is_over = shows(token);
        if (is_over)
            serve();
        close(connection);
        clear_after_test();
    }
    return 0;
}
