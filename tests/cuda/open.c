/*
 * Opens the model with the weights that are given, on the device that is given ("" for none), prints what came of it, and closes it. Then
 * nothing may be left in the stand-in driver.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "small.h"

int main(int count, char **words)
{
    attnc_model *model = 0;
    void *driver = dlopen(getenv("ATTNC_CUDA_LIB"), RTLD_NOW);
    uint64_t (*live)(void);
    int32_t status;
    if (count != 3 || !driver) {
        return 2;
    }
    *(void **)&live = dlsym(driver, "attnc_standin_live");
    status = attnc_model_open_on(words[2][0] ? words[2] : 0, words[1], 1, &model);
    if (status == ATTNC_OK) {
        printf("%d %s [%s]\n", (int)status, attnc_model_device(model), attnc_model_device_note(model));
    } else {
        printf("%d %s\n", (int)status, attnc_model_error(model));
    }
    attnc_model_close(model);
    if (live() != 0) {
        printf("%d objects are left\n", (int)live());
    }
    return 0;
}
