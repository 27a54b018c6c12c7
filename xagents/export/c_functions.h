/* Functions of exported headers. `c_source.py` copies those that a policy needs. They compile as C99 and as C++11. */

/* Return x, limited to the numbers from low to high. */
static float policy_clip(float x, float low, float high)
{
    return x < low ? low : (x > high ? high : x);
}

/* Copy n numbers. */
static void policy_copy(const float *x, float *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] = x[i];
}

/* Write 1 to the element of a choice and 0 to the others; a choice outside of 0 to n - 1 has no element. */
static void policy_one_hot(int64_t choice, float *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] = i == choice ? 1.0f : 0.0f;
}

/* Scale x by mean and factor, and limit it to the numbers from -10 to 10. */
static void policy_normalize(float *x, const float *mean, const float *scale, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = policy_clip((x[i] - mean[i]) * scale[i], -10.0f, 10.0f);
}

/*
y = x W + b; bias may be null. The sums of four units stay in registers, so w has the weights [inputs][4] of each four
units, then the weights [inputs] of each unit of the rest.
*/
static void policy_dense(const float *w, const float *bias, const float *x, float *y, int32_t inputs, int32_t units)
{
    int32_t j = 0;
    for (; j + 4 <= units; j += 4) {
        float a = bias ? bias[j] : 0.0f, b = bias ? bias[j + 1] : 0.0f;
        float c = bias ? bias[j + 2] : 0.0f, d = bias ? bias[j + 3] : 0.0f;
        for (int32_t i = 0; i < inputs; i++, w += 4) {
            a += w[0] * x[i];
            b += w[1] * x[i];
            c += w[2] * x[i];
            d += w[3] * x[i];
        }
        y[j] = a;
        y[j + 1] = b;
        y[j + 2] = c;
        y[j + 3] = d;
    }
    for (; j < units; j++, w += inputs) {
        float a = bias ? bias[j] : 0.0f;
        for (int32_t i = 0; i < inputs; i++)
            a += w[i] * x[i];
        y[j] = a;
    }
}

/* A convolution without padding of x[height][width][channels]: a dense layer of each patch[rows][columns][channels]. */
static void policy_convolution(const float *w, const float *bias, const float *x, float *y, float *patch,
                               int32_t height, int32_t width, int32_t channels, int32_t rows, int32_t columns,
                               int32_t filters, int32_t down, int32_t right)
{
    const int32_t n = columns * channels;
    for (int32_t top = 0; top + rows <= height; top += down) {
        for (int32_t left = 0; left + columns <= width; left += right, y += filters) {
            for (int32_t i = 0; i < rows; i++)
                policy_copy(x + ((top + i) * width + left) * channels, patch + i * n, n);
            policy_dense(w, bias, patch, y, rows * n, filters);
        }
    }
}

/* y = x + second. */
static void policy_add(const float *x, const float *second, float *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] = x[i] + second[i];
}

/* Normalise each of the rows x[rows][units] to mean 0 and variance 1; w is scale and offset. */
static void policy_layer_norm(const float *w, const float *x, float *y, int32_t rows, int32_t units, float epsilon)
{
    for (; rows > 0; rows--, x += units, y += units) {
        float mean = 0.0f, variance = 0.0f;
        for (int32_t i = 0; i < units; i++)
            mean += x[i];
        mean /= (float)units;
        for (int32_t i = 0; i < units; i++)
            variance += (x[i] - mean) * (x[i] - mean);
        variance = 1.0f / sqrtf(variance / (float)units + epsilon);
        for (int32_t i = 0; i < units; i++)
            y[i] = (x[i] - mean) * variance * w[i] + w[units + i];
    }
}

/* Scale each of the rows x[rows][units] by moving statistics; w is mean, factor and offset. */
static void policy_batch_norm(const float *w, const float *x, float *y, int32_t rows, int32_t units)
{
    for (; rows > 0; rows--, x += units, y += units)
        for (int32_t i = 0; i < units; i++)
            y[i] = (x[i] - w[i]) * w[units + i] + w[2 * units + i];
}

/* Copy values, with -1e30 for those whose mask is 0, unless the whole mask is 0. */
static void policy_mask_illegal(const float *x, const float *mask, float *y, int32_t n)
{
    int32_t legal = 0;
    for (int32_t i = 0; i < n; i++)
        legal += mask[i] > 0.5f;
    for (int32_t i = 0; i < n; i++)
        y[i] = legal && mask[i] < 0.5f ? -1e30f : x[i];
}

/* Means of the distributions x[actions][atoms] plus value[atoms] minus their mean over actions; value may be null. */
static void policy_action_values(const float *x, const float *value, const float *support, float *y, float *offset,
                                 int32_t actions, int32_t atoms)
{
    for (int32_t k = 0; k < atoms; k++) {
        offset[k] = 0.0f;
        for (int32_t a = 0; value && a < actions; a++)
            offset[k] += x[a * atoms + k];
        offset[k] = value ? value[k] - offset[k] / (float)actions : 0.0f;
    }
    for (int32_t a = 0; a < actions; a++, x += atoms) {
        float largest = x[0] + offset[0], total = 0.0f, mean = 0.0f;
        for (int32_t k = 1; support && k < atoms; k++)
            largest = x[k] + offset[k] > largest ? x[k] + offset[k] : largest;
        for (int32_t k = 0; k < atoms; k++) {
            float share = support ? expf(x[k] + offset[k] - largest) : 1.0f;
            mean += support ? share * support[k] : x[k] + offset[k];
            total += share;
        }
        y[a] = mean / total;
    }
}

/* Logarithms of probabilities. */
static void policy_log(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = logf(x[i] > 1.17549435e-38f ? x[i] : 1.17549435e-38f);
}

static void policy_tanh(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = tanhf(x[i]);
}

static void policy_relu(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

/* 1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2, which does not overflow. */
static void policy_sigmoid(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = tanhf(x[i] * 0.5f) * 0.5f + 0.5f;
}

/* The softmax of each of the rows x[rows][units]. */
static void policy_softmax(float *x, int32_t rows, int32_t units)
{
    for (; rows > 0; rows--, x += units) {
        float largest = x[0], total = 0.0f;
        for (int32_t i = 1; i < units; i++)
            largest = x[i] > largest ? x[i] : largest;
        for (int32_t i = 0; i < units; i++) {
            x[i] = expf(x[i] - largest);
            total += x[i];
        }
        for (int32_t i = 0; i < units; i++)
            x[i] /= total;
    }
}

static void policy_softplus(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = (x[i] > 0.0f ? x[i] : 0.0f) + log1pf(expf(-fabsf(x[i])));
}

static void policy_exponential(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = expf(x[i]);
}

static void policy_elu(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = x[i] > 0.0f ? x[i] : expm1f(x[i]);
}

static void policy_selu(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = 1.0507009873554805f * (x[i] > 0.0f ? x[i] : 1.6732632423543772f * expm1f(x[i]));
}

static void policy_silu(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] *= tanhf(x[i] * 0.5f) * 0.5f + 0.5f;
}

static void policy_leaky_relu(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = x[i] > 0.0f ? x[i] : 0.2f * x[i];
}

static void policy_softsign(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] /= fabsf(x[i]) + 1.0f;
}

/* x times the normal distribution function, by equation 7.1.26 of Abramowitz and Stegun 1964. */
static void policy_gelu(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        float t = 1.0f / (1.0f + 0.231641888f * fabsf(x[i]));
        float tail = (((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f;
        tail *= 0.5f * t * expf(-0.5f * x[i] * x[i]);
        x[i] *= x[i] > 0.0f ? 1.0f - tail : tail;
    }
}

/* One step of a GRU: h' = z h + (1 - z) n. w is the kernel of the gates z, r, n, their bias, and both recurrent for h. */
static void policy_gru(const float *w, const float *x, float *h, float *y, float *p, int32_t inputs, int32_t units)
{
    const float *recurrent = w + (inputs + 1) * 3 * units;
    float *q = p + 3 * units;
    policy_dense(w, w + inputs * 3 * units, x, p, inputs, 3 * units);
    policy_dense(recurrent, recurrent + units * 3 * units, h, q, units, 3 * units);
    for (int32_t i = 0; i < 2 * units; i++)
        p[i] = tanhf((p[i] + q[i]) * 0.5f) * 0.5f + 0.5f;
    for (int32_t i = 0; i < units; i++) {
        float next = tanhf(p[2 * units + i] + p[units + i] * q[2 * units + i]);
        h[i] = p[i] * h[i] + (1.0f - p[i]) * next;
        y[i] = h[i];
    }
}

/* One step of an LSTM: c' = f c + i g, h' = o tanh(c'), for h followed by c, and the gates i, f, g, o. */
static void policy_lstm(const float *w, const float *x, float *h, float *y, float *p, int32_t inputs, int32_t units)
{
    float *q = p + 4 * units, *cell = h + units;
    policy_dense(w, w + inputs * 4 * units, x, p, inputs, 4 * units);
    policy_dense(w + (inputs + 1) * 4 * units, 0, h, q, units, 4 * units);
    for (int32_t i = 0; i < 4 * units; i++)
        p[i] = i / units == 2 ? tanhf(p[i] + q[i]) : tanhf((p[i] + q[i]) * 0.5f) * 0.5f + 0.5f;
    for (int32_t i = 0; i < units; i++) {
        cell[i] = p[units + i] * cell[i] + p[i] * p[2 * units + i];
        h[i] = p[3 * units + i] * tanhf(cell[i]);
        y[i] = h[i];
    }
}

/* Return the index of the first of the largest numbers. */
static int32_t policy_argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Return the action of an output before rounding and bounds; row is limit, half range, middle, low, high. */
static float policy_scale(float x, const float *row)
{
    return policy_clip(x, -row[0], row[0]) * row[1] + row[2];
}

/* Return whether two numbers differ by at most 1e-5 of a unit. */
static int policy_is_near(float x, float y, float unit)
{
    return fabsf(x - y) <= 1e-5f * unit;
}

/* Return 1, or the largest absolute value of n numbers if it is larger. */
static float policy_unit(const float *x, int32_t n)
{
    float unit = 1.0f;
    for (int32_t i = 0; i < n; i++)
        unit = fabsf(x[i]) > unit ? fabsf(x[i]) : unit;
    return unit;
}
