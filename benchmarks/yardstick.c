/* How fast a plain loop in C computes RMSDs from a trajectory: read, gather, superpose, one thread.
 *
 *     cc -O2 -o yardstick yardstick.c -lm
 *     ./yardstick FILE FRAMES ATOMS.txt      atoms: indices from 0, ascending, in white space
 *
 * Goes over the first FRAMES frames once. Prints the microseconds a frame, opening not counted,
 * and the mean RMSD to frame 0, as a check. Reads what most programs write, told by the name:
 *
 *     .dcd   little-endian, 4-byte record markers, no fixed atoms, no 4th dimension
 *     .trr   floats of 32 bits, the same fields in every frame
 *     .nc    NetCDF-3 with 64-bit offsets, 32-bit coordinates, Å
 */
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRR_MAGIC = 1993, TRR_HEADER = 84 };

static int file, whole_frames; /* whole frames are read, or else ranges */
static enum { DCD, TRR, NETCDF } format;
static off_t header, frame_size;       /* frame 0 begins at `header` */
static off_t axis[3];                  /* x, y, z of atom 0 in a frame */
static long stored;                    /* atoms in a frame */
static long n_atoms, *atoms, first, span; /* wanted; span: from the first to the last */
static char *buffer;
static double *reference, *frame;

static void fail(const char *why) {
    fprintf(stderr, "yardstick: %s\n", why);
    exit(1);
}

static void read_at(void *to, size_t size, off_t offset) {
    if (pread(file, to, size, offset) != (ssize_t)size) fail("the file is too short");
}

static int32_t integer(off_t at) {
    int32_t value;
    return read_at(&value, 4, at), value;
}

static uint32_t swapped(const char *at) {
    uint32_t value;
    return memcpy(&value, at, 4), __builtin_bswap32(value);
}

static uint32_t big_endian(off_t at) {
    char bytes[4];
    return read_at(bytes, 4, at), swapped(bytes);
}

/* Bytes from an atom to the next. */
static long stride(void) { return format == DCD ? 4 : 12; }

static void open_dcd(void) {
    if (integer(0) != 84 || integer(40) != 0 || (integer(84) && integer(52) == 1))
        fail("not a DCD file of the kind that is read here");
    off_t title = 92, cell = integer(84) && integer(48) ? 56 : 0;
    off_t count = title + integer(title) + 8 + 4;
    off_t record = 4 * (off_t)integer(count);
    header = count + 8;
    stored = record / 4;
    for (int i = 0; i < 3; i++) axis[i] = cell + i * (record + 8) + 4;
    frame_size = cell + 3 * (record + 8);
}

/* Magic, version string with two lengths before it, ten sizes of blocks (box: 2, virial: 3,
 * pressure: 4, positions: 7, velocities: 8, forces: 9), atoms, step, nre, time, lambda. */
static void open_trr(void) {
    enum { SIZES = 24 };
    off_t before = 0, after = 0;
    for (int i = 2; i < 5; i++) before += big_endian(SIZES + 4 * i);
    for (int i = 8; i < 10; i++) after += big_endian(SIZES + 4 * i);
    off_t positions = big_endian(SIZES + 4 * 7);
    stored = big_endian(SIZES + 4 * 10);
    if (big_endian(0) != TRR_MAGIC || positions != 12 * stored)
        fail("not a TRR file of the kind that is read here");
    for (int i = 0; i < 3; i++) axis[i] = TRR_HEADER + before + 4 * i;
    frame_size = TRR_HEADER + before + positions + after;
}

/* A name begins at `at`: its end, padded to 4 bytes. */
static off_t after_name(off_t at) { return at + 4 + (big_endian(at) + 3) / 4 * 4; }

/* A list of attributes begins at `at`: its end. */
static off_t after_attributes(off_t at) {
    static const int size[] = {0, 1, 1, 2, 4, 4, 8};
    uint32_t count = big_endian(at + 4);
    for (at += 8; count > 0; count--) {
        at = after_name(at);
        uint32_t type = big_endian(at);
        if (type > 6) fail("an attribute of an unknown type");
        at += 8 + (size[type] * (off_t)big_endian(at + 4) + 3) / 4 * 4;
    }
    return at;
}

/* The header of a NetCDF-3 file: dimensions, of which `frame` is the first; attributes; variables.
 * A frame is a record: the variables that change from frame to frame, one after another. */
static void open_netcdf(void) {
    if (big_endian(0) != 0x43444602) fail("not a NetCDF file of the kind that is read here");
    off_t at = 16, positions = 0;
    for (uint32_t count = big_endian(12); count > 0; count--) at = after_name(at) + 4;
    at = after_attributes(at);
    uint32_t count = big_endian(at + 4);
    for (at += 8; count > 0; count--) {
        char name[11] = {0};
        uint32_t length = big_endian(at);
        read_at(name, length < sizeof name ? length : sizeof name, at + 4);
        at = after_name(at);
        off_t rank = big_endian(at), of_records = rank && big_endian(at + 4) == 0;
        at = after_attributes(at + 4 + 4 * rank);
        off_t size = big_endian(at + 4);
        off_t begin = (off_t)big_endian(at + 8) << 32 | big_endian(at + 12);
        at += 16;
        if (!of_records) continue;
        if (!header || begin < header) header = begin;
        if (!memcmp(name, "coordinates", 11)) positions = begin, stored = size / 12;
        frame_size += size;
    }
    if (!positions) fail("no coordinates");
    for (int i = 0; i < 3; i++) axis[i] = positions - header + 4 * i;
}

static void open_trajectory(const char *path) {
    const char *ending = strrchr(path, '.');
    if ((file = open(path, O_RDONLY)) < 0) fail("cannot open the file");
    if (ending && !strcmp(ending, ".dcd"))
        format = DCD, open_dcd();
    else if (ending && !strcmp(ending, ".trr"))
        format = TRR, open_trr();
    else if (ending && !strcmp(ending, ".nc"))
        format = NETCDF, open_netcdf();
    else
        fail("expected a name that ends in .dcd, .trr or .nc");
}

static void read_atoms(const char *path) {
    FILE *list = fopen(path, "r");
    if (!list) fail("cannot open the atoms");
    for (long atom; fscanf(list, "%ld", &atom) == 1;) {
        if (!(atoms = realloc(atoms, (n_atoms + 1) * sizeof *atoms))) fail("out of memory");
        if (atom < 0 || (n_atoms && atom <= atoms[n_atoms - 1])) fail("atoms must ascend");
        atoms[n_atoms++] = atom;
    }
    fclose(list);
    if (!n_atoms || atoms[n_atoms - 1] >= stored) fail("no such atoms");
    span = atoms[n_atoms - 1] - (first = atoms[0]) + 1;
    whole_frames = frame_size < 4 * 12 * span; /* one call, unless it reads 4 times too much */
    buffer = malloc(whole_frames ? frame_size : 12 * span);
    reference = malloc(3 * n_atoms * sizeof *reference);
    frame = malloc(3 * n_atoms * sizeof *frame);
    if (!buffer || !reference || !frame) fail("out of memory");
}

/* Read one frame, or of it what is wanted, and point to x, y, z of the first wanted atom. */
static void read_frame(off_t start, const char *from[3]) {
    char head[TRR_HEADER];
    for (int i = 0; i < 3; i++) {
        if (whole_frames)
            from[i] = buffer + axis[i] + stride() * first;
        else
            from[i] = buffer + (format == DCD ? 4 * i * span : 4 * i);
    }
    if (whole_frames) {
        read_at(buffer, frame_size, start);
        memcpy(head, buffer, 4);
    } else if (format == DCD) {
        for (int i = 0; i < 3; i++)
            read_at(buffer + 4 * i * span, 4 * span, start + axis[i] + 4 * first);
    } else {
        if (format == TRR) read_at(head, TRR_HEADER, start);
        read_at(buffer, 12 * span, start + axis[0] + 12 * first);
    }
    if (format == TRR && swapped(head) != TRR_MAGIC) fail("not a frame");
}

/* The wanted atoms' coordinates, Å, and their sum. Constants of a format make it a plain loop. */
static inline void gather(double *out, double sum[3], const char *from[3], long stride, int swap,
                          float scale) {
    for (long a = 0; a < n_atoms; a++)
        for (int i = 0; i < 3; i++) {
            const char *at = from[i] + stride * (atoms[a] - first);
            uint32_t bits;
            float value;
            memcpy(&bits, at, 4);
            if (swap) bits = __builtin_bswap32(bits);
            memcpy(&value, &bits, 4);
            out[3 * a + i] = value *= scale;
            sum[i] += value;
        }
}

/* The wanted atoms of one frame, centred; returns the sum of their squares. */
static double load(long number, double *out) {
    const char *from[3];
    double centre[3] = {0, 0, 0}, squares = 0;
    read_frame(header + number * frame_size, from);
    if (format == DCD)
        gather(out, centre, from, 4, 0, 1);
    else
        gather(out, centre, from, 12, 1, format == TRR ? 10 : 1);
    for (int i = 0; i < 3; i++) centre[i] /= n_atoms;
    for (double *atom = out; atom < out + 3 * n_atoms; atom += 3)
        for (int i = 0; i < 3; i++) {
            atom[i] -= centre[i];
            squares += atom[i] * atom[i];
        }
    return squares;
}

/* Least RMSD by the quaternion characteristic polynomial: D. L. Theobald, Acta Cryst. A 61 (2005),
 * 478. The largest root of x^4 + c2 x^2 + c1 x + c0, by Newton's method from above. */
static double rmsd(double squares_reference, double squares) {
    double s[3][3] = {{0}}, c2 = 0;
    for (long a = 0; a < n_atoms; a++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) s[i][j] += frame[3 * a + i] * reference[3 * a + j];
    for (int i = 0; i < 9; i++) c2 -= 2 * s[i / 3][i % 3] * s[i / 3][i % 3];
    double c1 = -8 * (s[0][0] * (s[1][1] * s[2][2] - s[1][2] * s[2][1]) -
                      s[0][1] * (s[1][0] * s[2][2] - s[1][2] * s[2][0]) +
                      s[0][2] * (s[1][0] * s[2][1] - s[1][1] * s[2][0]));
    double a = s[1][2] - s[2][1], b = s[2][0] - s[0][2], c = s[0][1] - s[1][0];
    double d = s[0][1] + s[1][0], e = s[2][0] + s[0][2], f = s[1][2] + s[2][1];
    double k[4][4] = {{s[0][0] + s[1][1] + s[2][2], a, b, c},
                      {a, s[0][0] - s[1][1] - s[2][2], d, e},
                      {b, d, s[1][1] - s[0][0] - s[2][2], f},
                      {c, e, f, s[2][2] - s[0][0] - s[1][1]}};
#define MINOR(row, p, q) (k[row][p] * k[row + 1][q] - k[row][q] * k[row + 1][p])
    double c0 = MINOR(0, 0, 1) * MINOR(2, 2, 3) - MINOR(0, 0, 2) * MINOR(2, 1, 3) +
                MINOR(0, 0, 3) * MINOR(2, 1, 2) + MINOR(0, 1, 2) * MINOR(2, 0, 3) -
                MINOR(0, 1, 3) * MINOR(2, 0, 2) + MINOR(0, 2, 3) * MINOR(2, 0, 1);
    double start = (squares_reference + squares) / 2, x = start, step;
    for (int i = 0; i < 50; i++) {
        double slope = (4 * x * x + 2 * c2) * x + c1;
        x -= step = slope == 0 ? 0 : (((x * x + c2) * x + c1) * x + c0) / slope;
        if (fabs(step) <= 1e-11 * fabs(x)) break;
    }
    return sqrt(fmax(0, 2 * (start - x) / n_atoms));
}

/* Seconds for the first n frames. */
static double run(long n, double *mean) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    double sum = 0, squares = load(0, reference);
    for (long i = 0; i < n; i++) sum += rmsd(squares, load(i, frame));
    clock_gettime(CLOCK_MONOTONIC, &end);
    *mean = sum / n;
    return end.tv_sec - start.tv_sec + 1e-9 * (end.tv_nsec - start.tv_nsec);
}

int main(int argc, char **argv) {
    if (argc != 4 || atol(argv[2]) < 1) fail("usage: yardstick FILE FRAMES ATOMS.txt");
    long n = atol(argv[2]);
    open_trajectory(argv[1]);
    read_atoms(argv[3]);
    double mean, seconds = run(n, &mean);
    printf("%.3f us/frame, mean RMSD %.9f A over %ld frames of %ld atoms, %s\n",
           1e6 * seconds / n, mean, n, n_atoms, whole_frames ? "whole frames" : "ranges");
}
