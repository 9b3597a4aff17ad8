/* Communicators of MPI for paceline.h. The library libpaceline_mpi is compiled by `make install-c`
 * with the mpicc of one MPI; a program uses that of its own MPI. */
#ifndef PACELINE_MPI_H
#define PACELINE_MPI_H

#include <mpi.h>
#include <paceline.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator; all ranks call it. comm is duplicated, so that messages of the program are
 * not taken for those of the library. */
int paceline_comm_from_mpi(MPI_Comm comm, paceline_comm *made);

/* Make a communicator like paceline_comm_from_mpi, from Fortran's handle. */
int paceline_comm_from_fortran(MPI_Fint comm, paceline_comm *made);

/* Free the duplicate; all ranks call it after all writers and readers are closed. */
int paceline_comm_free(paceline_comm *made);

#ifdef __cplusplus
}
#endif
#endif
