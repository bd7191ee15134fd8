/* Calls COMBINE of the one model whose header was included before, by the names that every model has. */

#include <stdlib.h>

float NAME(float a, float b);

float NAME(float a, float b)
{
    attnc_model *model = 0;
    attnc_session *session = 0;
    float x[4], y[4], z[4];

    x[0] = x[1] = x[2] = x[3] = a;
    y[0] = y[1] = y[2] = y[3] = b;
    if (attnc_entry_count() != 1 || attnc_model_open(0, 1, &model) != ATTNC_OK
        || attnc_session_open(model, &session) != ATTNC_OK || COMBINE(session, 1, x, y, z) != ATTNC_OK) {
        exit(1);
    }
    attnc_session_close(session);
    attnc_model_close(model);
    return z[3];
}
