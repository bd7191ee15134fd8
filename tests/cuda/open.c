/* Opens the model with the weights that are given, on the device that is given ("" for none), and prints what came of it. */
#include <stdio.h>

#include "small.h"

int main(int count, char **words)
{
    attnc_model *model = 0;
    int32_t status;
    if (count != 3) {
        return 2;
    }
    status = attnc_model_open_on(words[2][0] ? words[2] : 0, words[1], 1, &model);
    if (status == ATTNC_OK) {
        printf("%d %s [%s]\n", (int)status, attnc_model_device(model), attnc_model_device_note(model));
    } else {
        printf("%d %s\n", (int)status, attnc_model_error(model));
    }
    attnc_model_close(model);
    return 0;
}
