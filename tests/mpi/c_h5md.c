/* On one rank: writes H5MD files as c_h5md.py does, into the working folder. */
#include <math.h>
#include <paceline.h>
#include <stdio.h>
#include <string.h>
#ifdef __unix__
#include <signal.h>
#include <sys/resource.h>
#endif

enum { N = 500 };
static int64_t ids[N];
static double x[N][3], v[N][3], f[N][3], masses[N], charges[N];
static char names[N][8];
static const double cell[9] = {20, 0, 0, 4, 25, 0, -3, 2, 30};

static double value(int64_t id, int k, int frame, int scale)
{
    return (double)((id * 37 + k * 11 + frame * 5 * scale) % (1000 * scale)) * 0.01 - 3;
}

static int put(paceline_writer *writer, int frame, int has_cell)
{
    const paceline_atoms atoms = {.n = N, .ids = ids, .positions = x[0], .velocities = v[0],
                                  .forces = f[0], .names = names[0], .masses = masses,
                                  .charges = charges};
    for (int n = 0; n < N; n++) {
        ids[n] = N - n;
        for (int k = 0; k < 3; k++) {
            x[n][k] = value(ids[n], k, frame, 2);
            v[n][k] = value(ids[n], k, frame, 1);
            f[n][k] = value(ids[n], k, frame, 3);
        }
        memcpy(names[n], ids[n] % 2 ? "Na+     " : "Cl-\0\0\0\0\0", 8);
        masses[n] = ids[n] % 2 ? 22.99 : 35.45;
        charges[n] = ids[n] % 2 ? 1 : -1;
    }
    return paceline_write(writer, &atoms, 10 * frame, 0.5 * frame, has_cell ? cell : NULL);
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, paceline_message());
    return 1;
}

/* Frames up to `stop`; the second half is added to the closed file if `parts`. */
static int write_file(const char *path, int stop, paceline_options options, int parts, int has_cell)
{
    paceline_writer *writer;
    if (paceline_writer_open(NULL, path, N, &options, &writer) != PACELINE_OK)
        return failed(path);
    for (int frame = 0; frame < stop; frame++) {
        if (parts && frame == stop / 2) {
            options.append = 1;
            if (paceline_writer_close(&writer) != PACELINE_OK
                || paceline_writer_open(NULL, path, N, &options, &writer) != PACELINE_OK)
                return failed(path);
        }
        if (put(writer, frame, has_cell) != PACELINE_OK)
            return failed(path);
    }
    return paceline_writer_close(&writer) == PACELINE_OK ? 0 : failed(path);
}

static int expect(int status, int expected, const char *words)
{
    if (status == expected && strstr(paceline_message(), words) != NULL)
        return 0;
    fprintf(stderr, "status %d, not %d: %s, not %s\n", status, expected, paceline_message(), words);
    return 1;
}

/* Refused frames and files; the file keeps its earlier frames, and the next frame may follow. */
static int refuse(void)
{
    paceline_options options = {.n_frames = 3}, append = {.append = 1}, none = {.n_frames = -1};
    paceline_writer *writer;
    paceline_reader *reader;
    paceline_snapshot read;
    int wrong = 0;
    wrong |= expect(paceline_writer_open(NULL, "a.h5", N, &none, &writer), 1, "number of frames");
    wrong |= expect(paceline_writer_open(NULL, "a.nc", N, &options, &writer), 1, "no n_frames");
    wrong |= expect(paceline_writer_open(NULL, "not.h5", N, &append, &writer), 5, "an H5MD file");
    wrong |= expect(paceline_writer_open(NULL, "other.h5", N, &append, &writer), 4, "has no part");
    wrong |= expect(paceline_writer_open(NULL, "packed.h5", N, &append, &writer), 4, "in chunks");
    wrong |= expect(paceline_reader_open(NULL, "not.h5", NULL, &reader), 4, "not.h5");
    wrong |= expect(paceline_reader_open(NULL, "other.h5", NULL, &reader), 4, "has no part");
    wrong |= expect(paceline_reader_open(NULL, "packed.h5", NULL, &reader), 4, "nor read by");
    wrong |= expect(paceline_writer_open(NULL, "bad.h5", N, &options, &writer), 0, "");
    wrong |= expect(put(writer, 0, 1), 0, "");
    wrong |= expect(put(writer, 0, 1), 2, "expected a step after 0");
    wrong |= expect(put(writer, 1, 0), 2, "a cell");
    wrong |= expect(put(writer, 1, 1), 0, "");
    wrong |= expect(put(writer, 2, 1), 0, "");
    wrong |= expect(put(writer, 3, 1), 2, "space for 3 frames");
    wrong |= expect(paceline_writer_close(&writer), 0, "");
    wrong |= expect(paceline_writer_open(NULL, "bad.h5", N + 1, &append, &writer), 4, "501 atoms");
    /* Contiguous values; names, masses and charges are in the file. */
    wrong |= expect(paceline_reader_open(NULL, "bad.h5", NULL, &reader), 0, "");
    wrong |= expect(paceline_read(reader, 2, NULL, &read), 0, "");
    wrong |= read.n != N || read.step != 20 || fabs(read.positions[6] - value(3, 0, 2, 2)) > 1e-5
             || memcmp(read.names, "Na+\0", 4) != 0 || read.charges[1] != -1;
    wrong |= expect(paceline_read(reader, 3, NULL, &read), 1, "out of range for 3 frames");
    wrong |= expect(paceline_reader_close(&reader), 0, "");
    wrong |= expect(paceline_writer_open(NULL, "full.h5md", N, NULL, &writer), 0, "");
#ifdef __unix__
    /* A full disk, in the first frame and at each size between those with one frame and with two. */
    struct rlimit limit, none_left;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    none_left.rlim_max = limit.rlim_max;
    for (none_left.rlim_cur = 512; none_left.rlim_cur < 100000; none_left.rlim_cur += 8192) {
        setrlimit(RLIMIT_FSIZE, &none_left);
        int status = put(writer, 0, 1);
        setrlimit(RLIMIT_FSIZE, &limit);
        wrong |= expect(status, 3, "full.h5md");
    }
    wrong |= expect(put(writer, 0, 1), 0, "");
    FILE *file = fopen("full.h5md", "rb");
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    fclose(file);
    for (long room = 512; room < 65536; room += 512) {
        struct rlimit full = {(rlim_t)(size + room), limit.rlim_max};
        setrlimit(RLIMIT_FSIZE, &full);
        int status = put(writer, 1, 1);
        setrlimit(RLIMIT_FSIZE, &limit);
        if (status == PACELINE_OK) {
            wrong |= expect(room > 4096 ? 0 : 1, 0, "");
            break;
        }
        wrong |= expect(status, 3, "full.h5md");
        if (paceline_writer_frames(writer) != 1)
            wrong |= failed("full.h5md");
    }
#else
    wrong |= expect(put(writer, 0, 1), 0, "") | expect(put(writer, 1, 1), 0, "");
#endif
    wrong |= expect(put(writer, 2, 1), 0, "");
    wrong |= expect(paceline_writer_close(&writer), 0, "");
    return wrong;
}

int main(int argc, char **argv)
{
    const paceline_options title = {.title = "NaCl", .overwrite = 0}, wide = {.double_precision = 1},
                           few = {.n_frames = 5}, none = {0};
    if (argc > 1 && strcmp(argv[1], "refuse") == 0)
        return refuse();
    if (argc > 1)
        /* Killed by the caller. */
        return write_file(argv[1], 100000, none, 0, 1);
    return write_file("long.h5md", 70, title, 0, 1) | write_file("parts.h5", 6, none, 1, 0)
           | write_file("wide.hdf5", 3, wide, 1, 1) | write_file("few.h5md", 3, few, 0, 1);
}
