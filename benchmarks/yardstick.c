/* How fast a plain loop in C computes RMSDs from a DCD file: read, gather, superpose, one thread.
 *
 *     cc -O2 -o yardstick yardstick.c -lm
 *     ./yardstick FILE.dcd FRAMES ATOMS.txt      atoms: indices from 0, ascending, in white space
 *
 * Goes over the first FRAMES frames once. Prints the microseconds a frame, opening not counted,
 * and the mean RMSD to frame 0, as a check. Reads what most programs
 * write: little-endian, 4-byte record markers, no fixed atoms, no 4th dimension.
 */
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int file, whole_frames;            /* whole frames are read, or else ranges */
static off_t header, frame_size, axis[3]; /* axis: x, y, z of atom 0 in a frame */
static long n_atoms, *atoms, first, span; /* span: atoms from the first wanted to the last */
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

static void open_dcd(const char *path) {
    if ((file = open(path, O_RDONLY)) < 0) fail("cannot open the file");
    if (integer(0) != 84 || integer(40) != 0 || (integer(84) && integer(52) == 1))
        fail("not a DCD file of the kind that is read here");
    off_t title = 92, cell = integer(84) && integer(48) ? 56 : 0;
    off_t count = title + integer(title) + 8 + 4;
    off_t record = 4 * (off_t)integer(count);
    header = count + 8;
    for (int i = 0; i < 3; i++) axis[i] = cell + i * (record + 8) + 4;
    frame_size = cell + 3 * (record + 8);
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
    if (!n_atoms || 4 * atoms[n_atoms - 1] >= axis[1] - axis[0] - 8) fail("no such atoms");
    span = atoms[n_atoms - 1] - (first = atoms[0]) + 1;
    whole_frames = frame_size < 4 * 12 * span; /* one call, unless it reads 4 times too much */
    buffer = malloc(whole_frames ? frame_size : 12 * span);
    reference = malloc(3 * n_atoms * sizeof *reference);
    frame = malloc(3 * n_atoms * sizeof *frame);
    if (!buffer || !reference || !frame) fail("out of memory");
}

/* Gather the wanted atoms of one frame, centred; returns the sum of their squares. */
static double load(long number, double *out) {
    off_t start = header + number * frame_size;
    const char *from[3]; /* x, y, z of the first wanted atom */
    double centre[3] = {0, 0, 0}, squares = 0;
    for (int i = 0; i < 3; i++) {
        off_t at = axis[i] + 4 * first;
        from[i] = buffer + (whole_frames ? at : 4 * i * span);
        if (!whole_frames) read_at(buffer + 4 * i * span, 4 * span, start + at);
    }
    if (whole_frames) read_at(buffer, frame_size, start);
    for (long a = 0; a < n_atoms; a++)
        for (int i = 0; i < 3; i++) {
            float value;
            memcpy(&value, from[i] + 4 * (atoms[a] - first), 4);
            out[3 * a + i] = value;
            centre[i] += value;
        }
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
    if (argc != 4 || atol(argv[2]) < 1) fail("usage: yardstick FILE.dcd FRAMES ATOMS.txt");
    long n = atol(argv[2]);
    open_dcd(argv[1]);
    read_atoms(argv[3]);
    double mean, seconds = run(n, &mean);
    printf("%.3f us/frame, mean RMSD %.9f A over %ld frames of %ld atoms, %s\n",
           1e6 * seconds / n, mean, n, n_atoms, whole_frames ? "whole frames" : "ranges");
}
