/* finding: used_after_destroy

   The list of devices is freed before its device is opened. */

#include <infiniband/verbs.h>

#include "expect.h"

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL), *first;
    EXPECT(list != NULL && (first = list[0]) != NULL);
#ifndef REPAIRED
    ibv_free_device_list(list);
#endif
    struct ibv_context *context = ibv_open_device(first);
#ifdef REPAIRED
    ibv_free_device_list(list);
#endif
    EXPECT(context != NULL && ibv_get_device_name(context->device) != NULL && ibv_close_device(context) == 0);
    return 0;
}
