/* The parts of a program with a Python wheel. With COPY the wheel's libibverbs, which has no device;
 * with EXTENSION the module that is linked with it; else the interpreter, which loads what it is
 * given, the module first.
 */
#include <dlfcn.h>
#include <stdio.h>

#ifdef COPY
void **ibv_get_device_list(int *number)
{
    static void *none;

    *number = 0;
    return &none;
}
#elif defined EXTENSION
void **ibv_get_device_list(int *number);

int count_devices(void)
{
    int number = -1;

    ibv_get_device_list(&number);
    return number;
}
#else
int main(int argc, char **argv)
{
    void *module = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*count_devices)(void) = module ? dlsym(module, "count_devices") : NULL;

    if (!count_devices || (argc > 2 && !dlopen(argv[2], RTLD_NOW))) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    printf("%d devices\n", count_devices());
    return 0;
}
#endif
