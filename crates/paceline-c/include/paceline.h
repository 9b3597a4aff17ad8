/* Snapshots of simulations whose atoms are distributed over ranks: written as one file, ordered by
 * id, and read so that each atom reaches the rank that owns its domain.
 *
 * Units: lengths in Å, velocities in Å/ps, forces in kJ/(mol·Å), masses in u, charges in e, times
 * in ps. Integers have 64 bits, numbers are double, strings end with a zero byte.
 *
 * All ranks of a communicator make the same calls in the same order. A call fails on all ranks or on
 * none, with the same code; paceline_message() is the reason. After an error of a call, the file
 * keeps its earlier frames and the next call may follow, except after PACELINE_ERROR_MPI and
 * PACELINE_ERROR_INTERNAL, after which the program should end.
 *
 * A NULL handle is refused at once, without communication. If a handle or the communicator is NULL
 * on only some ranks, the other ranks therefore wait for these ranks forever.
 *
 * A writer, a reader and the communicator that they were opened with belong to one thread at a time.
 */
#ifndef PACELINE_H
#define PACELINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of calls. */
enum {
    PACELINE_OK = 0,
    PACELINE_ERROR_ARGUMENT = 1,    /* an argument is invalid, ranks disagree about one, or calls
                                       come in the wrong order */
    PACELINE_ERROR_UNWRITABLE = 2,  /* the file cannot hold this frame */
    PACELINE_ERROR_IO = 3,          /* the system reported an error */
    PACELINE_ERROR_UNSUPPORTED = 4, /* the format, or a feature of the file */
    PACELINE_ERROR_DAMAGED = 5,     /* the file contradicts its format */
    PACELINE_ERROR_MPI = 6,         /* a call-back of the communicator failed */
    PACELINE_ERROR_INTERNAL = 7     /* a defect of the library */
};

/* Reason of the last error in this thread, or a warning of a call that succeeded; else "". It is
 * valid until the next call. */
const char *paceline_message(void);

/* Version of the library. */
const char *paceline_version(void);

/* Operations of all_reduce. */
enum { PACELINE_SUM = 0, PACELINE_MAX = 1, PACELINE_MIN = 2 };

/* Communicator of the ranks: how the library exchanges messages. paceline_mpi.h makes it from an
 * MPI communicator; NULL is a program of one rank. Functions return 0, or any other number for an
 * error. The structure is copied; what `context` points to must live until all writers and readers
 * are closed. */
typedef struct paceline_comm {
    void *context;
    int rank;
    int size;
    /* Send send_counts[i] bytes to rank i, and receive receive_counts[i] bytes from rank i. In both
     * buffers, the bytes of the ranks follow each other in the order of ranks, without gaps. */
    int (*all_to_all)(void *context, const void *send, const uint64_t *send_counts, void *receive,
                      const uint64_t *receive_counts);
    /* Replace each of n values by its sum (modulo 2^64), maximum or minimum over all ranks. */
    int (*all_reduce)(void *context, uint64_t *values, int n, int operation);
    /* End the program on all ranks; NULL if that is impossible. */
    void (*abort)(void *context);
} paceline_comm;

/* Methods of writing. The bytes of the file are the same. */
enum {
    PACELINE_SORTED = 0, /* atoms are sent to some ranks, which sort them and make large writes */
    PACELINE_DIRECT = 1  /* every rank writes each of its atoms at its offset */
};

/* Options of a writer; zeros (paceline_options o = {0}) are the defaults. They must be the same on
 * all ranks. */
typedef struct paceline_options {
    const char *format; /* "CONFIG", "REVCON", "HISTORY", "H5MD", "NetCDF", "DCD"; NULL: by the name */
    const char *title;  /* CONFIG, REVCON, HISTORY: up to 72 characters; H5MD; NULL: none */
    double dt;          /* CONFIG, REVCON, HISTORY: length of a step, ps; 0: time divided by step */
    int64_t buffer;     /* memory of a rank in addition to its atoms, bytes; 0: 64 MiB */
    int append;         /* not 0: an existing file of the same atoms and fields grows */
    int overwrite;      /* not 0: an existing file is replaced when the first frame is complete */
    int sync;           /* not 0: each frame is on the disk before paceline_write returns */
    int method;         /* PACELINE_SORTED or PACELINE_DIRECT */
    int n_writers;      /* number of writing ranks; 0: chosen */
    int double_precision; /* H5MD: not 0: numbers of 64 bits */
    int64_t n_frames; /* H5MD: maximum number of frames, for contiguous storage; 0: chunks */
} paceline_options;

/* Atoms of one rank, in any order. All ranks together give each id from 1 to the number of atoms
 * once. All ranks with atoms give the same arrays; a rank without atoms may give NULL for all. */
typedef struct paceline_atoms {
    int64_t n;
    const int64_t *ids;       /* n */
    const double *positions;  /* n × 3: x, y, z of each atom in turn, Å */
    const double *velocities; /* n × 3, Å/ps, or NULL */
    const double *forces;     /* n × 3, kJ/(mol·Å), or NULL */
    const char *names;        /* n × 8 characters, padded with blanks or zero bytes, or NULL */
    const double *masses;     /* n, u, or NULL */
    const double *charges;    /* n, e, or NULL */
} paceline_atoms;

typedef struct paceline_writer paceline_writer;

/* Open a file for frames of n_atoms atoms. A new file appears under its name when the first frame
 * is complete. Rank 0's path is used; those of other ranks must name the same format. */
int paceline_writer_open(const paceline_comm *comm, const char *path, int64_t n_atoms,
                         const paceline_options *options, paceline_writer **writer);

/* Write a frame. cell: three vectors, 9 numbers, Å, or NULL. step, time (ps) and cell must be the
 * same on all ranks. */
int paceline_write(paceline_writer *writer, const paceline_atoms *atoms, int64_t step, double time,
                   const double *cell);

/* Number of frames in the file, or -1 for NULL; not collective. */
int64_t paceline_writer_frames(const paceline_writer *writer);

/* Finish the file; *writer becomes NULL. If ranks call in different order, the writer stays open. */
int paceline_writer_close(paceline_writer **writer);

/* Options of a reader; zeros are the defaults. */
typedef struct paceline_reader_options {
    int64_t buffer; /* memory of a rank in addition to its own atoms, bytes; 0: 64 MiB */
    int n_readers;  /* number of reading ranks; 0: chosen */
    int reserved;   /* 0 */
} paceline_reader_options;

/* Atoms of one rank in a frame, in the order of their ids. The arrays belong to the reader, until
 * its next call. What the file lacks is NULL. */
typedef struct paceline_snapshot {
    int64_t n;
    const int64_t *ids;
    const double *positions;
    const double *velocities;
    const double *forces;
    const char *names; /* n × 8 characters, padded with zero bytes */
    const double *masses;
    const double *charges;
    int64_t step;
    double time;
    double cell[9]; /* three vectors, Å */
    int has_cell;
    int reserved;
} paceline_snapshot;

typedef struct paceline_reader paceline_reader;

/* Open a file: CONFIG, REVCON, HISTORY, NetCDF, DCD, XTC, TRR, or H5MD of this library or of
 * paceline.snapshot. Only rank 0's path is used. */
int paceline_reader_open(const paceline_comm *comm, const char *path,
                         const paceline_reader_options *options, paceline_reader **reader);

/* Number of atoms and of frames, or -1 for NULL; not collective. */
int64_t paceline_reader_atoms(const paceline_reader *reader);
int64_t paceline_reader_frames(const paceline_reader *reader);

/* Read a frame, counted from 0. grid: numbers of equal domains along the cell's vectors, whose
 * product is the number of ranks; rank x + nx (y + ny z) owns domain (x, y, z). The cell of CONFIG,
 * REVCON and HISTORY is centred on the origin, that of other formats begins there. NULL: each rank
 * gets an equal range of ids. */
int paceline_read(paceline_reader *reader, int64_t frame, const int32_t *grid,
                  paceline_snapshot *snapshot);

/* Close the file; *reader becomes NULL. Not collective. */
int paceline_reader_close(paceline_reader **reader);

#ifdef __cplusplus
}
#endif
#endif
