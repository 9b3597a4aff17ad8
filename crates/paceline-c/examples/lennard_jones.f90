! Liquid argon on slabs of a box, one for each rank: writes HISTORY, CONFIG, NetCDF and H5MD,
! and reads the CONFIG back by domains.
!
!   mpif90 paceline.f90 lennard_jones.f90 $(pkg-config --libs paceline-mpi) -o lennard_jones
!   mpirun -n 4 ./lennard_jones FOLDER
program lennard_jones
  use, intrinsic :: iso_c_binding
  use mpi
  use paceline
  implicit none
  integer, parameter :: cells = 5, layers = 12, n_atoms = 4 * cells**2 * layers, steps = 20, every = 10
  ! Å, kJ/mol, u, ps; 1 kJ/(mol·Å·u) is 100 Å/ps².
  real(c_double), parameter :: spacing = 5.4d0, sigma = 3.405d0, epsilon = 0.996d0, mass = 39.948d0, &
    cutoff = 6, dt = 0.002d0, acceleration = 100
  ! Forces and energies are summed as integers of this unit, in any order: the files are then equal for
  ! any number of ranks.
  real(c_double), parameter :: unit = 1d-10
  ! An atom is a column: id, position, velocity, force.
  integer, parameter :: id = 1, x(3) = [2, 3, 4], v(3) = [5, 6, 7], f(3) = [8, 9, 10], z = 4
  character(len=*), parameter :: names(4) = [character(len=7) :: 'HISTORY', 'CONFIG', 'md.nc', &
    'md.h5md']
  ! Own atoms, then copies of neighbours'.
  real(c_double) :: atoms(10, n_atoms), box(3), energy
  integer :: rank, size, n_own = 0, n_all, n_files = 4, status, k, at
  type(paceline_comm) :: comm
  type(paceline_writer) :: writers(4)
  type(paceline_reader) :: reader
  type(paceline_frame) :: found
  character(len=4096) :: folder
  integer :: n_read

  call mpi_init(status)
  call mpi_comm_rank(mpi_comm_world, rank, status)
  call mpi_comm_size(mpi_comm_world, size, status)
  folder = '.'
  if (command_argument_count() > 0) call get_command_argument(1, folder)
  box = spacing * [cells, cells, layers]
  call check(paceline_comm_from_mpi(mpi_comm_world, comm), 'communicator')
  do k = 1, 2
    call check(paceline_writer_open(comm, path_of(k), int(n_atoms, c_int64_t), writers(k), &
      title='Argon', dt=dt, overwrite=.true.), names(k))
  end do
  call check(paceline_writer_open(comm, path_of(3), int(n_atoms, c_int64_t), writers(3), &
    overwrite=.true.), names(3))
  status = paceline_writer_open(comm, path_of(4), int(n_atoms, c_int64_t), writers(4), overwrite=.true.)
  if (status == paceline_error_unsupported) then
    n_files = 3
    if (rank == 0) print '(2a)', 'without H5MD: ', paceline_message()
  else
    call check(status, names(4))
  end if
  call begin()
  call copy_borders()
  energy = forces()
  do at = 0, steps
    if (at > 0) energy = step()
    if (mod(at, every) == 0) call write_frame(at)
  end do
  do k = 1, n_files
    call check(paceline_writer_close(writers(k)), names(k))
  end do
  call mpi_allreduce(mpi_in_place, energy, 1, mpi_double_precision, mpi_sum, mpi_comm_world, status)
  ! Read the CONFIG, as a later job would begin: each rank gets a slab of the cell along z.
  call check(paceline_reader_open(comm, path_of(2), reader), names(2))
  call check(paceline_read(reader, 0_c_int64_t, found, [1, 1, size]), names(2))
  n_read = ubound(found%ids, 1)
  call mpi_allreduce(mpi_in_place, n_read, 1, mpi_integer, mpi_sum, mpi_comm_world, status)
  if (rank == 0) print '(i0, a, f0.4, a, i0, a, i0)', n_atoms, ' atoms, ', energy, &
    ' kJ/mol, read ', n_read, ' at step ', found%step
  call check(paceline_reader_close(reader), names(2))
  call check(paceline_comm_free(comm), 'communicator')
  call mpi_finalize(status)

contains

  subroutine check(code, what)
    integer(c_int), intent(in) :: code
    character(len=*), intent(in) :: what
    integer :: ignored
    if (code == paceline_ok) return
    ! All ranks have the same error, so that one of them prints it.
    if (rank == 0) print '(4a)', trim(what), ': ', paceline_message()
    call mpi_finalize(ignored)
    stop 1
  end subroutine

  function path_of(number) result(path)
    integer, intent(in) :: number
    character(len=:), allocatable :: path
    path = trim(folder) // '/' // trim(names(number))
  end function

  ! Rank whose slab contains a position.
  integer function owner(position)
    real(c_double), intent(in) :: position
    owner = min(max(floor(position / box(3) * size), 0), size - 1)
  end function

  ! A face-centred lattice; atoms are numbered at random, as after a long run.
  subroutine begin()
    real(c_double), parameter :: basis(3, 4) = reshape([0., 0., 0., .5, .5, 0., .5, 0., .5, 0., .5, .5], [3, 4])
    real(c_double) :: one(10)
    integer :: number, a, b, c, i, m
    number = 0
    do c = 0, layers - 1
      do b = 0, cells - 1
        do a = 0, cells - 1
          do i = 1, 4
            one = 0
            one(id) = mod(number * 7, n_atoms) + 1
            one(x) = ([a, b, c] + basis(:, i) + 0.25) * spacing
            one(v) = [(sin(12.9898d0 * (3 * one(id) + m)) * 2.5, m=0, 2)]
            number = number + 1
            if (owner(one(z)) /= rank) cycle
            n_own = n_own + 1
            atoms(:, n_own) = one
          end do
        end do
      end do
    end do
  end subroutine

  ! Send atoms up and receive from below, or the reverse; append the received atoms.
  subroutine shift(leaving, up, last)
    real(c_double), intent(in) :: leaving(:, :)
    logical, intent(in) :: up
    integer, intent(inout) :: last
    integer :: to, from, n, came, ignored
    to = modulo(rank + merge(1, -1, up), size)
    from = modulo(rank - merge(1, -1, up), size)
    n = ubound(leaving, 2)
    call mpi_sendrecv(n, 1, mpi_integer, to, 0, came, 1, mpi_integer, from, 0, mpi_comm_world, &
      mpi_status_ignore, ignored)
    call mpi_sendrecv(leaving, 10 * n, mpi_double_precision, to, 1, atoms(:, last + 1:last + came), &
      10 * came, mpi_double_precision, from, 1, mpi_comm_world, mpi_status_ignore, ignored)
    last = last + came
  end subroutine

  ! Send the atoms that left this slab to its neighbours.
  subroutine migrate()
    real(c_double), allocatable :: up(:, :), down(:, :)
    integer :: slabs(n_own), above, i
    above = modulo(rank + 1, size)
    slabs = [(owner(atoms(z, i)), i=1, n_own)]
    up = atoms(:, pack([(i, i=1, n_own)], slabs == above .and. slabs /= rank))
    down = atoms(:, pack([(i, i=1, n_own)], slabs /= above .and. slabs /= rank))
    atoms(:, :count(slabs == rank)) = atoms(:, pack([(i, i=1, n_own)], slabs == rank))
    n_own = count(slabs == rank)
    call shift(up, .true., n_own)
    call shift(down, .false., n_own)
  end subroutine

  ! Copy atoms near the borders of this slab to its neighbours.
  subroutine copy_borders()
    integer :: i
    n_all = n_own
    if (size == 1) return
    call shift(atoms(:, pack([(i, i=1, n_own)], atoms(z, :n_own) > box(3) * (rank + 1) / size - cutoff)), &
      .true., n_all)
    call shift(atoms(:, pack([(i, i=1, n_own)], atoms(z, :n_own) < box(3) * rank / size + cutoff)), &
      .false., n_all)
  end subroutine

  ! Forces on own atoms, kJ/(mol·Å); returns this rank's share of the potential energy.
  real(c_double) function forces() result(potential)
    real(c_double) :: d(3), r2, s2, s6
    integer(c_int64_t) :: sums(3, n_own), push(3), total
    integer :: i, j
    sums = 0
    total = 0
    do i = 1, n_own
      do j = i + 1, n_all
        d = atoms(x, i) - atoms(x, j)
        d = d - box * anint(d / box)
        r2 = d(1)**2 + d(2)**2 + d(3)**2
        if (r2 > cutoff**2) cycle
        s2 = sigma * sigma / r2
        s6 = s2 * s2 * s2
        push = nint(24 * epsilon * s6 * (2 * s6 - 1) / r2 * d / unit, c_int64_t)
        total = total + merge(2, 1, j <= n_own) * nint(2 * epsilon * s6 * (s6 - 1) / unit, c_int64_t)
        sums(:, i) = sums(:, i) + push
        if (j <= n_own) sums(:, j) = sums(:, j) - push
      end do
    end do
    atoms(f, :n_own) = sums * unit
    potential = total * unit
  end function

  real(c_double) function step() result(potential)
    integer :: i
    atoms(v, :n_own) = atoms(v, :n_own) + 0.5 * dt * acceleration / mass * atoms(f, :n_own)
    do i = 1, n_own
      atoms(x, i) = modulo(atoms(x, i) + dt * atoms(v, i), box)
    end do
    call migrate()
    call copy_borders()
    potential = forces()
    atoms(v, :n_own) = atoms(v, :n_own) + 0.5 * dt * acceleration / mass * atoms(f, :n_own)
  end function

  ! Give this rank's atoms to the writers.
  subroutine write_frame(number)
    integer, intent(in) :: number
    integer(c_int64_t) :: ids(n_own)
    real(c_double) :: masses(n_own), cell(3, 3)
    character(len=8) :: labels(n_own)
    integer :: i
    ids = nint(atoms(id, :n_own), c_int64_t)
    masses = mass
    labels = 'Ar'
    cell = 0
    cell(1, 1) = box(1)
    cell(2, 2) = box(2)
    cell(3, 3) = box(3)
    call check(paceline_write(writers(1), ids, atoms(x, :n_own), velocities=atoms(v, :n_own), names=labels, &
      masses=masses, step=int(number, c_int64_t), time=number * dt, cell=cell), names(1))
    do i = 2, n_files
      call check(paceline_write(writers(i), ids, atoms(x, :n_own), velocities=atoms(v, :n_own), &
        forces=atoms(f, :n_own), names=labels, masses=masses, step=int(number, c_int64_t), &
        time=number * dt, cell=cell), names(i))
    end do
  end subroutine
end program lennard_jones
