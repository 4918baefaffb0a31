/* Conditions of the programs beside this file. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                                                        \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "line %d: not so: %s (errno %d)\n", __LINE__, #condition, errno);                                    \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)
