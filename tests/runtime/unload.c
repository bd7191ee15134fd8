/* Unloads a library while its model and its threads are there: program LIBRARY. Prints "ok". */

#include "plus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : 0;
    const attnc_functions *(*functions)(void);
    attnc_model *model = 0;
    attnc_session *session = 0;
    float x[4] = {1, 2, 3, 4}, z[4];

    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    *(void **)&functions = dlsym(library, "attnc_library");
    if (functions()->abi_version != 8 || functions()->model_open(0, 4, &model) != ATTNC_OK
        || attnc_session_open(model, &session) != ATTNC_OK || plus_combine(session, 1, x, x, z) != ATTNC_OK) {
        printf("failed\n");
        return 1;
    }
    dlclose(library);
    usleep(100000);
    /* And what was open still works. */
    if (plus_combine(session, 1, z, z, x) != ATTNC_OK || x[3] != 16) {
        printf("failed after it was unloaded\n");
        return 1;
    }
    attnc_session_close(session);
    printf("ok\n");
    return 0;
}
