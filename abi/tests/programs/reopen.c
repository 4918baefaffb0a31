/* One address, opened and closed by threads side by side, and opened anew while objects of an earlier context are left. The
 * device is the first of the list. */

#include <infiniband/verbs.h>
#include <pthread.h>

#include "expect.h"

#define THREADS 4
#define TIMES 50

/* Opens the device, which must have its address: where another has that, there is no GID. */
static struct ibv_context *open_first(void) {
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    EXPECT(count >= 1);
    struct ibv_context *context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    EXPECT(context);
    union ibv_gid gid, none = {0};
    EXPECT(ibv_query_gid(context, 1, 0, &gid) == 0);
    EXPECT(memcmp(&gid, &none, sizeof gid) != 0);
    return context;
}

static void *open_and_close(void *unused) {
    for (int i = 0; i < TIMES; i++)
        EXPECT(ibv_close_device(open_first()) == 0);
    return unused;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, open_and_close, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 3; i++) {
        struct ibv_context *context = open_first();
        EXPECT(ibv_alloc_pd(context));
        EXPECT(ibv_close_device(context) == 0);
    }
    return 0;
}
