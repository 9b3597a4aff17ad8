/* On every rank: writes frames through paceline.h, also wrong ones, and reads them back. */
#include <math.h>
#include <paceline_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 500 };
static int rank, size;
static paceline_comm comm;
static int64_t ids[N];
static double x[N][3], v[N][3], f[N][3], masses[N], charges[N];
static char names[N][8];
static const double cell[9] = {20, 0, 0, 4, 25, 0, -3, 2, 30};

static void fail(int line, const char *what, int status)
{
    fprintf(stderr, "rank %d, line %d: %s, status %d: %s\n", rank, line, what, status,
            paceline_message());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* All ranks have this status, and the message has these words. */
static void expect(int line, int status, int expected, const char *words)
{
    int ends[2] = {status, -status};
    MPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (ends[0] != expected || ends[1] != -expected || strstr(paceline_message(), words) == NULL)
        fail(line, words, status);
}
#define GOOD(call) expect(__LINE__, (call), PACELINE_OK, "")
#define BAD(call, code, words) expect(__LINE__, (call), PACELINE_ERROR_##code, words)

/* The values of c_interface.py. */
static double value(int64_t id, int k, int frame, int scale)
{
    return (double)((id * 37 + k * 11 + frame * 5 * scale) % (1000 * scale)) * 0.01 - 3;
}

static paceline_atoms own(int frame, int fields)
{
    paceline_atoms made = {.ids = ids, .positions = x[0], .names = names[0], .masses = masses,
                           .charges = charges};
    int64_t n = 0;
    for (int64_t id = N; id > 0; id--) {
        int holder = (int)((id * 7919 / 13 + frame) % size);
        /* Rank 0 has no atoms of one frame. */
        if ((frame == 2 && holder == 0 ? size - 1 : holder) != rank)
            continue;
        ids[n] = id;
        for (int k = 0; k < 3; k++) {
            x[n][k] = value(id, k, frame, 2);
            v[n][k] = value(id, k, frame, 1);
            f[n][k] = value(id, k, frame, 3);
        }
        memcpy(names[n], id % 2 ? "Na+     " : "Cl-\0\0\0\0\0", 8);
        masses[n] = id % 2 ? 22.99 : 35.45;
        charges[n] = id % 2 ? 1 : -1;
        n++;
    }
    made.n = n;
    made.velocities = fields > 1 ? v[0] : NULL;
    made.forces = fields > 2 ? f[0] : NULL;
    if (n == 0)
        memset(&made, 0, sizeof made);
    return made;
}

static int put(paceline_writer *writer, int frame, int fields)
{
    paceline_atoms atoms = own(frame, fields);
    return paceline_write(writer, &atoms, 10 * frame, 0.5 * frame, cell);
}

static void write_good(const char *folder)
{
    static const struct {
        const char *name;
        int fields, parts, wide;
    } files[] = {{"c.CONFIG", 3, 0, 0}, {"c.HISTORY", 2, 1, 0}, {"c.nc", 3, 1, 0},
                 {"c.dcd", 1, 1, 0},    {"c.h5md", 3, 1, 0},    {"c.h5", 3, 0, 1}};
    char path[4096];
    for (int k = 0; k < 6; k++)
        for (int method = PACELINE_SORTED; method <= PACELINE_DIRECT; method++) {
            paceline_options options = {.overwrite = 1, .method = method,
                                        .double_precision = files[k].wide};
            paceline_writer *writer;
            snprintf(path, sizeof path, "%s/%d%s", folder, method, files[k].name);
            GOOD(paceline_writer_open(&comm, path, N, &options, &writer));
            for (int frame = 0; frame < 3; frame++) {
                if (frame == 1 && files[k].parts) {
                    options.overwrite = 0;
                    options.append = 1;
                    GOOD(paceline_writer_close(&writer));
                    GOOD(paceline_writer_open(&comm, path, N, &options, &writer));
                }
                GOOD(put(writer, frame, files[k].fields));
            }
            if (paceline_writer_frames(writer) != 3)
                fail(__LINE__, path, 0);
            GOOD(paceline_writer_close(&writer));
        }
}

/* Of two files of the same atoms, the ranks write and read another one first, or open another. */
static void call_in_another_order(paceline_writer *history)
{
    int last = rank == size - 1;
    paceline_writer *writer, *no_writer;
    paceline_reader *readers[2], *no_reader;
    paceline_snapshot read;
    GOOD(paceline_writer_open(&comm, "second.HISTORY", N, NULL, &writer));
    BAD(put(last ? writer : history, 0, 2), ARGUMENT, "for the same file");
    BAD(put(last ? history : writer, 0, 2), ARGUMENT, "for the same file");
    for (int k = 0; k < 2; k++)
        GOOD(paceline_reader_open(&comm, "0c.dcd", NULL, &readers[k]));
    BAD(paceline_read(readers[last], 0, NULL, &read), ARGUMENT, "for the same file");
    BAD(last ? paceline_read(readers[0], 0, NULL, &read) : put(writer, 0, 2), ARGUMENT, "same call");
    BAD(last ? paceline_reader_open(&comm, "0c.dcd", NULL, &no_reader)
             : paceline_writer_open(&comm, "third.HISTORY", N, NULL, &no_writer),
        ARGUMENT, "same call");
    for (int k = 0; k < 2; k++)
        GOOD(paceline_reader_close(&readers[k]));
    GOOD(paceline_writer_close(&writer));
}

static void write_bad(const char *folder)
{
    char path[4096];
    int last = rank == size - 1;
    paceline_options options = {.format = "XYZ"}, dt = {.dt = 0.1}, minus = {.dt = -1},
                     both = {.append = 1, .overwrite = 1}, small = {.buffer = 1000},
                     large = {.buffer = INT64_MAX}, many = {.n_writers = 99}, odd = {.method = 7},
                     history = {.format = "HISTORY"}, append = {.append = 1};
    paceline_writer *writer = NULL, *none = NULL;
    paceline_comm wrong = comm;
    paceline_atoms atoms;
    wrong.rank = size;
    snprintf(path, sizeof path, "%s/bad.HISTORY", folder);
    BAD(paceline_writer_open(&wrong, path, N, NULL, &writer), ARGUMENT, "expected a rank below");
    wrong = comm;
    wrong.all_reduce = NULL;
    wrong.size = 2;
    wrong.rank = 0;
    BAD(paceline_writer_open(&wrong, path, N, NULL, &writer), ARGUMENT, "found NULL");
    BAD(paceline_writer_open(&comm, last ? NULL : path, N, NULL, &writer), ARGUMENT, "a path");
    BAD(paceline_writer_open(&comm, path, N, NULL, last ? NULL : &writer), ARGUMENT, "pointer");
    BAD(paceline_writer_open(&comm, path, 0, NULL, &writer), ARGUMENT, "at least 1 atom");
    BAD(paceline_writer_open(&comm, path, N, &options, &writer), UNSUPPORTED, "a format out of");
    BAD(paceline_writer_open(&comm, "md.xyz", N, NULL, &writer), UNSUPPORTED, "a name that ends");
    BAD(paceline_writer_open(&comm, "md.h5md", N, &dt, &writer), ARGUMENT, "no dt to choose");
    BAD(paceline_writer_open(&comm, "md.dcd", N, &dt, &writer), ARGUMENT, "no dt to choose");
    BAD(paceline_writer_open(&comm, path, N, &minus, &writer), ARGUMENT, "a dt of more than 0");
    BAD(paceline_writer_open(&comm, path, N, &both, &writer), ARGUMENT, "append or overwrite");
    BAD(paceline_writer_open(&comm, path, N, &large, &writer), ARGUMENT, "a buffer of up to");
    BAD(paceline_writer_open(&comm, path, N, &many, &writer), ARGUMENT, "writers, found 99");
    BAD(paceline_writer_open(&comm, path, N, &odd, &writer), ARGUMENT, "a method");
    BAD(paceline_writer_open(&comm, "/nowhere/HISTORY", N, NULL, &writer), IO, "does not exist");
    BAD(paceline_writer_open(&comm, folder, N, &history, &writer), IO, "is a folder");
    if (size > 1)
        BAD(paceline_writer_open(&comm, path, N + last, NULL, &writer), ARGUMENT, "about n_atoms");
    if (writer != NULL)
        fail(__LINE__, "a writer after an error", 0);
    BAD(put(none, 0, 2), ARGUMENT, "found NULL");
    GOOD(paceline_writer_open(&comm, path, N, &small, &writer));
    BAD(put(writer, 0, 2), ARGUMENT, "is not enough");
    GOOD(paceline_writer_close(&writer));
    GOOD(paceline_writer_open(&comm, path, N, NULL, &writer));
#define WRONG(change, code, words)                                                          \
    do {                                                                                    \
        const double *box = cell;                                                           \
        int64_t step = 0;                                                                   \
        double time = 0;                                                                    \
        atoms = own(0, 2);                                                                  \
        if (last) {                                                                         \
            change;                                                                         \
        }                                                                                   \
        BAD(paceline_write(writer, &atoms, step, time, box), code, words);                  \
        (void)step, (void)time, (void)box;                                                  \
    } while (0)
    BAD(paceline_write(writer, last ? NULL : (atoms = own(0, 2), &atoms), 0, 0, cell), ARGUMENT,
        "expected atoms");
    WRONG(atoms.n = -1, ARGUMENT, "a number of atoms");
    WRONG(atoms.n = INT64_MAX, ARGUMENT, "expected fewer");
    WRONG(atoms.ids = NULL, ARGUMENT, "ids of");
    WRONG(atoms.positions = NULL, ARGUMENT, "positions of");
    WRONG(atoms.positions = (const double *)((const char *)x + 1), ARGUMENT, "not aligned");
    WRONG(ids[0] = ids[1], UNWRITABLE, "is missing, and");
    WRONG(ids[0] = N + 1, UNWRITABLE, "found 501");
    WRONG(atoms.n--, UNWRITABLE, "is missing");
    WRONG(x[0][1] = NAN, UNWRITABLE, "a finite position");
    WRONG(memcpy(names[0], "N a     ", 8), UNWRITABLE, "expected a name");
    WRONG(time = NAN, ARGUMENT, "a finite time");
    if (size > 1) {
        WRONG(step = 7, ARGUMENT, "disagree about the step");
        WRONG(box = NULL, ARGUMENT, "disagree about the cell");
        WRONG(atoms.velocities = NULL, ARGUMENT, "disagree about the fields");
        /* Calls in another order; all ranks go on afterwards. */
        paceline_writer *kept = writer;
        int status = last ? paceline_writer_close(&writer) : put(writer, 0, 2);
        BAD(status, ARGUMENT, "in another order");
        if (writer != kept)
            fail(__LINE__, "the writer was closed", 0);
        call_in_another_order(writer);
    }
    atoms = own(0, 2);
    atoms.names = NULL;
    BAD(paceline_write(writer, &atoms, 0, 0, cell), UNWRITABLE, "expected names");
    GOOD(put(writer, 0, 2));
    BAD(put(writer, 1, 3), UNWRITABLE, "as its frames have");
    GOOD(put(writer, 1, 2));
    GOOD(put(writer, 2, 2));
    GOOD(paceline_writer_close(&writer));
    BAD(put(writer, 1, 2), ARGUMENT, "found NULL");
    BAD(paceline_writer_close(&writer), ARGUMENT, "is closed");
    BAD(paceline_writer_open(&comm, path, N, NULL, &writer), IO, "only with overwrite");
    BAD(paceline_writer_open(&comm, path, N + 1, &append, &writer), UNSUPPORTED,
        "expected 501 atoms, found 500");
    /* Names of another system. */
    GOOD(paceline_writer_open(&comm, path, N, &append, &writer));
    WRONG(memcpy(names[0], "K+      ", 8), UNWRITABLE, "belongs to another system");
    GOOD(paceline_writer_close(&writer));
}

/* What H5MD stores once. */
static void write_bad_h5md(const char *folder)
{
    int last = rank == size - 1, parts;
    char path[4096];
    paceline_writer *writer;
    paceline_options append = {.append = 1};
    paceline_atoms atoms;
    snprintf(path, sizeof path, "%s/once.h5md", folder);
    GOOD(paceline_writer_open(&comm, path, N, NULL, &writer));
    for (parts = 0; parts < 2; parts++) {
        WRONG(memcpy(names[0], "N\n      ", 8), UNWRITABLE, "expected a name of 1 to 8");
        WRONG(masses[0] = NAN, UNWRITABLE, "expected a finite mass");
        if (parts == 0)
            GOOD(put(writer, 0, 3));
        atoms = own(1, 3);
        if (last)
            charges[0] = 7;
        BAD(paceline_write(writer, &atoms, 10, 0, cell), UNWRITABLE, parts ? "another system" : "charges");
        atoms = own(1, 3);
        if (last)
            memcpy(names[0], "K+      ", 8);
        BAD(paceline_write(writer, &atoms, 10, 0, cell), UNWRITABLE, parts ? "another system" : "names");
        GOOD(paceline_writer_close(&writer));
        if (parts == 0)
            GOOD(paceline_writer_open(&comm, path, N, &append, &writer));
    }
}

static void read_back(const char *folder)
{
    static const char *const files[] = {"0c.CONFIG", "0c.HISTORY", "0c.nc",
                                        "0c.dcd",    "0c.h5md",    "0c.h5"};
    const int32_t grid[3] = {1, size, 1}, wrong[3] = {2, size, 1}, minus[3] = {-1, -size, 1};
    char path[4096];
    paceline_reader *reader = NULL;
    paceline_snapshot read;
    for (int k = 0; k < 6; k++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[k]);
        GOOD(paceline_reader_open(&comm, path, NULL, &reader));
        int frames = (int)paceline_reader_frames(reader);
        if (paceline_reader_atoms(reader) != N || frames != (k ? 3 : 1))
            fail(__LINE__, path, frames);
        for (int frame = 0; frame < frames; frame++)
            for (int by_grid = 0; by_grid < 2; by_grid++) {
                int was = k ? frame : 2;
                int64_t n;
                GOOD(paceline_read(reader, frame, by_grid ? grid : NULL, &read));
                n = read.n;
                MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
                if (n != N || !read.has_cell || fabs(read.cell[3] - 4) > 1e-4
                    || (k != 3 && fabs(read.time - 0.5 * was) > 1e-6)
                    || ((k == 1 || k > 3) && read.step != 10 * was))
                    fail(__LINE__, path, (int)n);
                for (int64_t i = 0; i < read.n; i++)
                    for (int j = 0; j < 3; j++)
                        if (fabs(read.positions[3 * i + j] - value(read.ids[i], j, was, 2)) > 1e-5)
                            fail(__LINE__, path, (int)read.ids[i]);
                for (int64_t i = 0; read.names != NULL && i < read.n; i++)
                    if (memcmp(read.names + 8 * i, read.ids[i] % 2 ? "Na+\0" : "Cl-\0", 4) != 0)
                        fail(__LINE__, path, (int)read.ids[i]);
                for (int64_t i = 0; k > 3 && i < read.n; i++)
                    if (read.masses[i] != (read.ids[i] % 2 ? 22.99 : 35.45)
                        || read.charges[i] != (read.ids[i] % 2 ? 1 : -1)
                        || fabs(read.forces[3 * i] - value(read.ids[i], 0, was, 3)) > 1e-5)
                        fail(__LINE__, path, (int)read.ids[i]);
                if ((read.names == NULL) != (k == 2 || k == 3)
                    || (read.velocities == NULL) != (k == 3))
                    fail(__LINE__, path, k);
            }
        BAD(paceline_read(reader, frames, NULL, &read), ARGUMENT, "out of range");
        BAD(paceline_read(reader, -1, NULL, &read), ARGUMENT, "from 0 on");
        BAD(paceline_read(reader, 0, wrong, &read), ARGUMENT, "one for each rank");
        BAD(paceline_read(reader, 0, minus, &read), ARGUMENT, "positive numbers");
        BAD(paceline_read(reader, 0, NULL, rank == size - 1 ? NULL : &read), ARGUMENT, "pointer");
        if (size > 1)
            BAD(paceline_read(reader, rank == size - 1, NULL, &read), ARGUMENT, "about frame");
        GOOD(paceline_reader_close(&reader));
        BAD(paceline_reader_close(&reader), ARGUMENT, "is closed");
        BAD(paceline_read(reader, 0, NULL, &read), ARGUMENT, "found NULL");
    }
    snprintf(path, sizeof path, "%s/nowhere", folder);
    BAD(paceline_reader_open(&comm, path, NULL, &reader), IO, "nowhere");
    snprintf(path, sizeof path, "%s/text", folder);
    BAD(paceline_reader_open(&comm, path, NULL, &reader), UNSUPPORTED, "text");
    snprintf(path, sizeof path, "%s/md.h5", folder);
    BAD(paceline_reader_open(&comm, path, NULL, &reader), DAMAGED, "an H5MD file");
    snprintf(path, sizeof path, "%s/md.dump", folder);
    BAD(paceline_reader_open(&comm, path, NULL, &reader), UNSUPPORTED, "dumps of LAMMPS");
    snprintf(path, sizeof path, "%s/cut.dcd", folder);
    BAD(paceline_reader_open(&comm, path, NULL, &reader), DAMAGED, "cut.dcd");
}

static int refuse(void *context, uint64_t *values, int n, int operation)
{
    (void)context, (void)values, (void)n, (void)operation;
    return 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    GOOD(paceline_comm_from_mpi(MPI_COMM_WORLD, &comm));
    if (argc > 2) {
        /* One rank's communicator fails: the program ends on all ranks. */
        paceline_writer *writer;
        if (rank == size - 1)
            comm.all_reduce = refuse;
        paceline_writer_open(&comm, "HISTORY", N, NULL, &writer);
        return 0;
    }
    write_good(argv[1]);
    write_bad(argv[1]);
    write_bad_h5md(argv[1]);
    read_back(argv[1]);
    GOOD(paceline_comm_free(&comm));
    if (rank == 0)
        printf("done\n");
    MPI_Finalize();
    return 0;
}
