/* Call-backs of paceline.h through the MPI that this file is compiled with. */
#define _POSIX_C_SOURCE 200112L
#include <limits.h>
#include <paceline_mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Number of polls before the first sleep, and length of a sleep, ns. */
enum { POLLS = 2000, SLEEP = 50000 };

struct context {
    MPI_Comm comm;
    int size;
    /* Counts and offsets of the bytes that are sent, and of those that are received. */
    int *counts;
};

/* Convert counts and their offsets to MPI's type; fail if one is too large for it. */
static int convert(const uint64_t *counts, int size, int *converted)
{
    uint64_t offset = 0;
    for (int rank = 0; rank < size; rank++) {
        if (counts[rank] > INT_MAX || offset > INT_MAX)
            return MPI_ERR_COUNT;
        converted[rank] = (int)counts[rank];
        converted[size + rank] = (int)offset;
        offset += counts[rank];
    }
    return MPI_SUCCESS;
}

/* Wait, and leave the processor to ranks that are late: MPI_Wait would keep it. With 4 ranks on two
 * busy cores, the tests took 30 s with MPI_Wait. */
static int wait_for(MPI_Request *request)
{
    const struct timespec pause = {0, SLEEP};
    for (int polls = 0, done = 0;; polls++) {
        int status = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (status != MPI_SUCCESS || done)
            return status;
        if (polls < POLLS)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

static int all_to_all(void *context, const void *send, const uint64_t *send_counts, void *receive,
                      const uint64_t *receive_counts)
{
    struct context *own = context;
    int *sent = own->counts, *received = own->counts + 2 * own->size;
    char nothing = 0;
    /* If there are no bytes, the caller's address may equal a constant such as MPI_IN_PLACE. The
     * address of `nothing` is passed instead. */
    const void *from = &nothing;
    void *to = &nothing;
    MPI_Request request;
    if (convert(send_counts, own->size, sent) != MPI_SUCCESS
        || convert(receive_counts, own->size, received) != MPI_SUCCESS)
        return MPI_ERR_COUNT;
    for (int rank = 0; rank < own->size; rank++) {
        if (sent[rank] > 0)
            from = send;
        if (received[rank] > 0)
            to = receive;
    }
    /* Ranks wait for each other here, since MPI_Ialltoallv of Open MPI 4.1 never completes after a
     * call in which some rank neither sent nor received. */
    int status = MPI_Ibarrier(own->comm, &request);
    if (status == MPI_SUCCESS)
        status = wait_for(&request);
    if (status != MPI_SUCCESS)
        return status;
    return MPI_Alltoallv((void *)from, sent, sent + own->size, MPI_BYTE, to, received,
                         received + own->size, MPI_BYTE, own->comm);
}

static int all_reduce(void *context, uint64_t *values, int n, int operation)
{
    struct context *own = context;
    MPI_Op op = operation == PACELINE_SUM ? MPI_SUM : operation == PACELINE_MAX ? MPI_MAX : MPI_MIN;
    MPI_Request request;
    int status = MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_UINT64_T, op, own->comm, &request);
    return status == MPI_SUCCESS ? wait_for(&request) : status;
}

static void end(void *context)
{
    MPI_Abort(((struct context *)context)->comm, 1);
}

int paceline_comm_from_mpi(MPI_Comm comm, paceline_comm *made)
{
    MPI_Comm duplicate;
    struct context *own;
    int rank, size, status;
    if (made == NULL)
        return PACELINE_ERROR_ARGUMENT;
    memset(made, 0, sizeof *made);
    status = MPI_Comm_dup(comm, &duplicate);
    if (status != MPI_SUCCESS)
        return PACELINE_ERROR_MPI;
    /* Errors reach the caller of the library as codes. */
    MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN);
    MPI_Comm_rank(duplicate, &rank);
    MPI_Comm_size(duplicate, &size);
    own = malloc(sizeof *own);
    if (own != NULL)
        own->counts = malloc(4 * (size_t)size * sizeof *own->counts);
    if (own == NULL || own->counts == NULL) {
        /* The other ranks have a communicator by now, and would wait for this one. */
        MPI_Abort(duplicate, 1);
        return PACELINE_ERROR_INTERNAL;
    }
    own->comm = duplicate;
    own->size = size;
    made->context = own;
    made->rank = rank;
    made->size = size;
    made->all_to_all = all_to_all;
    made->all_reduce = all_reduce;
    made->abort = end;
    return PACELINE_OK;
}

int paceline_comm_from_fortran(MPI_Fint comm, paceline_comm *made)
{
    return paceline_comm_from_mpi(MPI_Comm_f2c(comm), made);
}

int paceline_comm_free(paceline_comm *made)
{
    struct context *own = made == NULL ? NULL : made->context;
    int status;
    if (own == NULL)
        return PACELINE_ERROR_ARGUMENT;
    status = MPI_Comm_free(&own->comm);
    free(own->counts);
    free(own);
    memset(made, 0, sizeof *made);
    return status == MPI_SUCCESS ? PACELINE_OK : PACELINE_ERROR_MPI;
}
