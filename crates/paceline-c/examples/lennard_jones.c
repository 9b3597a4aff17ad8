/* Liquid argon on slabs of a box, one for each rank: writes HISTORY, CONFIG, NetCDF and H5MD, and
 * reads the CONFIG back by domains.
 *
 *     mpicc lennard_jones.c $(pkg-config --cflags --libs paceline-mpi) -lm \
 *         -Wl,-rpath,$(pkg-config --variable=libdir paceline) -o lennard_jones
 *     mpirun -n 4 ./lennard_jones FOLDER
 */
#include <math.h>
#include <paceline_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 5, LAYERS = 12, N_ATOMS = 4 * CELLS * CELLS * LAYERS, STEPS = 20, EVERY = 10 };
/* Å, kJ/mol, u, ps; 1 kJ/(mol·Å·u) is 100 Å/ps². */
static const double SPACING = 5.4, SIGMA = 3.405, EPSILON = 0.996, MASS = 39.948, CUTOFF = 6.0,
                    DT = 0.002, ACCELERATION = 100.0;
/* Forces and energies are summed as integers of this unit, in any order: the files are then equal
 * for any number of ranks. */
static const double UNIT = 1e-10;

typedef struct {
    int64_t id;
    double x[3], v[3], f[3];
} atom;

static int rank, size, n_own, n_all; /* own atoms, then copies of neighbours' */
static atom atoms[N_ATOMS];
static double box[3];

static void check(int status, const char *what)
{
    if (status == PACELINE_OK)
        return;
    /* All ranks have the same error, so that one of them prints it. */
    if (rank == 0)
        fprintf(stderr, "%s: %s (%d)\n", what, paceline_message(), status);
    MPI_Finalize();
    exit(1);
}

/* Rank whose slab contains a position in the box. */
static int owner(double z)
{
    return (int)fmin(z / box[2] * size, size - 1);
}

/* A face-centred lattice; atoms are numbered at random, as after a long run. */
static void begin(void)
{
    static const double basis[4][3] = {{0, 0, 0}, {.5, .5, 0}, {.5, 0, .5}, {0, .5, .5}};
    int64_t id = 0;
    for (int z = 0; z < LAYERS; z++)
        for (int y = 0; y < CELLS; y++)
            for (int x = 0; x < CELLS; x++)
                for (int b = 0; b < 4; b++, id++) {
                    atom one = {.id = id * 7 % N_ATOMS + 1};
                    const int at[3] = {x, y, z};
                    for (int k = 0; k < 3; k++) {
                        one.x[k] = (at[k] + basis[b][k] + 0.25) * SPACING;
                        one.v[k] = sin(12.9898 * (double)(3 * one.id + k)) * 2.5;
                    }
                    if (owner(one.x[2]) == rank)
                        atoms[n_own++] = one;
                }
}

/* Send atoms up and receive from below, or the reverse; append the received atoms at `end`. */
static int shift(const atom *leaving, int n, int up, int end)
{
    int above = (rank + 1) % size, below = (rank + size - 1) % size, came;
    int to = up ? above : below, from = up ? below : above;
    MPI_Sendrecv(&n, 1, MPI_INT, to, 0, &came, 1, MPI_INT, from, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(leaving, n * (int)sizeof(atom), MPI_BYTE, to, 1, atoms + end,
                 came * (int)sizeof(atom), MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return came;
}

/* Send the atoms that left this slab to its neighbours. */
static void migrate(void)
{
    static atom leaving[2][N_ATOMS];
    int n[2] = {0, 0}, n_left = 0;
    for (int i = 0; i < n_own; i++) {
        int slab = owner(atoms[i].x[2]), up = slab == (rank + 1) % size;
        if (slab == rank)
            atoms[n_left++] = atoms[i];
        else
            leaving[up][n[up]++] = atoms[i];
    }
    n_own = n_left;
    n_own += shift(leaving[1], n[1], 1, n_own);
    n_own += shift(leaving[0], n[0], 0, n_own);
}

/* Copy atoms near the borders of this slab to its neighbours. */
static void copy_borders(void)
{
    static atom near[2][N_ATOMS];
    double low = box[2] * rank / size, high = box[2] * (rank + 1) / size;
    int n[2] = {0, 0};
    n_all = n_own;
    if (size == 1)
        return;
    for (int i = 0; i < n_own; i++) {
        if (atoms[i].x[2] > high - CUTOFF)
            near[1][n[1]++] = atoms[i];
        if (atoms[i].x[2] < low + CUTOFF)
            near[0][n[0]++] = atoms[i];
    }
    n_all += shift(near[1], n[1], 1, n_all);
    n_all += shift(near[0], n[0], 0, n_all);
}

/* Forces on own atoms, kJ/(mol·Å); returns this rank's share of the potential energy. */
static double forces(void)
{
    static int64_t sums[N_ATOMS][3];
    int64_t energy = 0;
    memset(sums, 0, sizeof sums);
    for (int i = 0; i < n_own; i++)
        for (int j = i + 1; j < n_all; j++) {
            double d[3], r2 = 0;
            for (int k = 0; k < 3; k++) {
                d[k] = atoms[i].x[k] - atoms[j].x[k];
                d[k] -= box[k] * round(d[k] / box[k]);
                r2 += d[k] * d[k];
            }
            if (r2 > CUTOFF * CUTOFF)
                continue;
            double s2 = SIGMA * SIGMA / r2, s6 = s2 * s2 * s2;
            double over_r2 = 24 * EPSILON * s6 * (2 * s6 - 1) / r2;
            energy += (j < n_own ? 2 : 1) * llround(2 * EPSILON * s6 * (s6 - 1) / UNIT);
            for (int k = 0; k < 3; k++) {
                sums[i][k] += llround(over_r2 * d[k] / UNIT);
                if (j < n_own)
                    sums[j][k] -= llround(over_r2 * d[k] / UNIT);
            }
        }
    for (int i = 0; i < n_own; i++)
        for (int k = 0; k < 3; k++)
            atoms[i].f[k] = (double)sums[i][k] * UNIT;
    return (double)energy * UNIT;
}

/* Half a step of velocities, and if `move`, a step of positions. */
static void kick(int move)
{
    for (int i = 0; i < n_own; i++)
        for (int k = 0; k < 3; k++) {
            atoms[i].v[k] += 0.5 * DT * ACCELERATION / MASS * atoms[i].f[k];
            if (!move)
                continue;
            double x = atoms[i].x[k] + DT * atoms[i].v[k];
            atoms[i].x[k] = x - box[k] * floor(x / box[k]);
        }
}

static double step(void)
{
    kick(1);
    migrate();
    copy_borders();
    double energy = forces();
    kick(0);
    return energy;
}

/* Give this rank's atoms to a writer. */
static void write_frame(paceline_writer *writer, int with_forces, int at, const char *what)
{
    static int64_t ids[N_ATOMS];
    static double x[N_ATOMS][3], v[N_ATOMS][3], f[N_ATOMS][3], masses[N_ATOMS];
    static char names[N_ATOMS][8];
    const double cell[9] = {box[0], 0, 0, 0, box[1], 0, 0, 0, box[2]};
    for (int i = 0; i < n_own; i++) {
        ids[i] = atoms[i].id;
        masses[i] = MASS;
        memcpy(names[i], "Ar      ", 8);
        memcpy(x[i], atoms[i].x, sizeof x[i]);
        memcpy(v[i], atoms[i].v, sizeof v[i]);
        memcpy(f[i], atoms[i].f, sizeof f[i]);
    }
    const paceline_atoms own = {.n = n_own, .ids = ids, .positions = x[0], .velocities = v[0],
                                .forces = with_forces ? f[0] : NULL, .names = names[0],
                                .masses = masses};
    check(paceline_write(writer, &own, at, at * DT, cell), what);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"HISTORY", "CONFIG", "md.nc", "md.h5md"};
    paceline_writer *writers[4];
    paceline_reader *reader;
    paceline_snapshot read;
    paceline_comm comm;
    char path[4096];
    double energy;
    int n_files = 4, status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    box[0] = box[1] = CELLS * SPACING;
    box[2] = LAYERS * SPACING;
    check(paceline_comm_from_mpi(MPI_COMM_WORLD, &comm), "communicator");
    paceline_options options = {.dt = DT, .title = "Argon", .overwrite = 1}, plain = {.overwrite = 1};
    for (int k = 0; k < n_files; k++) {
        snprintf(path, sizeof path, "%s/%s", argc > 1 ? argv[1] : ".", names[k]);
        status = paceline_writer_open(&comm, path, N_ATOMS, k < 2 ? &options : &plain, &writers[k]);
        if (k == 3 && status == PACELINE_ERROR_UNSUPPORTED) {
            n_files = 3;
            if (rank == 0)
                fprintf(stderr, "without H5MD: %s\n", paceline_message());
        } else {
            check(status, path);
        }
    }
    begin();
    copy_borders();
    energy = forces();
    for (int at = 0; at <= STEPS; at++) {
        if (at > 0)
            energy = step();
        for (int k = 0; at % EVERY == 0 && k < n_files; k++)
            write_frame(writers[k], k > 0, at, names[k]);
    }
    for (int k = 0; k < n_files; k++)
        check(paceline_writer_close(&writers[k]), names[k]);
    MPI_Allreduce(MPI_IN_PLACE, &energy, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    /* Read the CONFIG, as a later job would begin: each rank gets a slab of the cell along z. */
    const int32_t grid[3] = {1, 1, size};
    snprintf(path, sizeof path, "%s/CONFIG", argc > 1 ? argv[1] : ".");
    check(paceline_reader_open(&comm, path, NULL, &reader), path);
    check(paceline_read(reader, 0, grid, &read), path);
    int64_t n_read = read.n;
    MPI_Allreduce(MPI_IN_PLACE, &n_read, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d atoms, %.4f kJ/mol, read %ld at step %ld\n", N_ATOMS, energy, (long)n_read,
               (long)read.step);
    check(paceline_reader_close(&reader), path);
    check(paceline_comm_free(&comm), "communicator");
    MPI_Finalize();
    return 0;
}
