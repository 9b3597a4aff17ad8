! Fortran interface of paceline.h, which describes units, errors and the order of calls.
!
! Compile this file with the compiler of the program: modules of different compilers differ.
! Numbers are real(c_double), ids integer(c_int64_t), vectors of shape (3, n) as Fortran orders them.
! Arrays of another shape or size than ids are refused, and a section with gaps is copied.
module paceline
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer(c_int), parameter, public :: paceline_ok = 0, paceline_error_argument = 1, &
    paceline_error_unwritable = 2, paceline_error_io = 3, paceline_error_unsupported = 4, &
    paceline_error_damaged = 5, paceline_error_mpi = 6, paceline_error_internal = 7, &
    paceline_sorted = 0, paceline_direct = 1

  ! Communicator: paceline_comm_from_mpi makes it.
  type, bind(c), public :: paceline_comm
    type(c_ptr) :: context = c_null_ptr
    integer(c_int) :: rank = 0, size = 1
    type(c_funptr) :: all_to_all = c_null_funptr, all_reduce = c_null_funptr, abort = c_null_funptr
  end type

  type, public :: paceline_writer
    private
    type(c_ptr) :: handle = c_null_ptr
  end type

  type, public :: paceline_reader
    private
    type(c_ptr) :: handle = c_null_ptr
  end type

  ! Atoms of one rank in a frame, copied; arrays that the file lacks are not allocated.
  type, public :: paceline_frame
    integer(c_int64_t), allocatable :: ids(:)
    real(c_double), allocatable :: positions(:, :), velocities(:, :), forces(:, :)
    character(len=8), allocatable :: names(:)
    real(c_double), allocatable :: masses(:), charges(:)
    integer(c_int64_t) :: step = 0
    real(c_double) :: time = 0, cell(3, 3) = 0
    logical :: has_cell = .false.
  end type

  public :: paceline_comm_from_mpi, paceline_comm_free, paceline_writer_open, paceline_write, &
    paceline_writer_frames, paceline_writer_close, paceline_reader_open, paceline_reader_atoms, &
    paceline_reader_frames, paceline_read, paceline_reader_close, paceline_message, paceline_version

  type, bind(c) :: c_options
    type(c_ptr) :: format = c_null_ptr, title = c_null_ptr
    real(c_double) :: dt = 0
    integer(c_int64_t) :: buffer = 0
    integer(c_int) :: append = 0, overwrite = 0, sync = 0, method = 0, n_writers = 0, &
      double_precision = 0
    integer(c_int64_t) :: n_frames = 0
  end type

  type, bind(c) :: c_reader_options
    integer(c_int64_t) :: buffer = 0
    integer(c_int) :: n_readers = 0, reserved = 0
  end type

  type, bind(c) :: c_atoms
    integer(c_int64_t) :: n = 0
    type(c_ptr) :: ids = c_null_ptr, positions = c_null_ptr, velocities = c_null_ptr, &
      forces = c_null_ptr, names = c_null_ptr, masses = c_null_ptr, charges = c_null_ptr
  end type

  type, bind(c) :: c_snapshot
    integer(c_int64_t) :: n = 0
    type(c_ptr) :: ids = c_null_ptr, positions = c_null_ptr, velocities = c_null_ptr, &
      forces = c_null_ptr, names = c_null_ptr, masses = c_null_ptr, charges = c_null_ptr
    integer(c_int64_t) :: step = 0
    real(c_double) :: time = 0, cell(9) = 0
    integer(c_int) :: has_cell = 0, reserved = 0
  end type

  interface
    ! MPI's handle of a communicator: MPI_COMM_WORLD of `use mpi`, comm%MPI_VAL of `use mpi_f08`.
    integer(c_int) function paceline_comm_from_mpi(comm, made) &
        bind(c, name='paceline_comm_from_fortran')
      import :: c_int, paceline_comm
      integer(c_int), value :: comm
      type(paceline_comm), intent(out) :: made
    end function
    integer(c_int) function paceline_comm_free(made) bind(c)
      import :: c_int, paceline_comm
      type(paceline_comm), intent(inout) :: made
    end function
    integer(c_int) function c_writer_open(comm, path, n_atoms, options, writer) &
        bind(c, name='paceline_writer_open')
      import :: c_int, c_int64_t, c_char, c_ptr, c_options, paceline_comm
      type(paceline_comm), intent(in) :: comm
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int64_t), value :: n_atoms
      type(c_options), intent(in) :: options
      type(c_ptr), intent(out) :: writer
    end function
    integer(c_int) function c_write(writer, atoms, step, time, cell) bind(c, name='paceline_write')
      import :: c_int, c_int64_t, c_double, c_ptr, c_atoms
      type(c_ptr), value :: writer
      type(c_atoms), intent(in) :: atoms
      integer(c_int64_t), value :: step
      real(c_double), value :: time
      type(c_ptr), value :: cell
    end function
    integer(c_int64_t) function c_writer_frames(writer) bind(c, name='paceline_writer_frames')
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: writer
    end function
    integer(c_int) function c_writer_close(writer) bind(c, name='paceline_writer_close')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: writer
    end function
    integer(c_int) function c_reader_open(comm, path, options, reader) &
        bind(c, name='paceline_reader_open')
      import :: c_int, c_char, c_ptr, c_reader_options, paceline_comm
      type(paceline_comm), intent(in) :: comm
      character(kind=c_char), intent(in) :: path(*)
      type(c_reader_options), intent(in) :: options
      type(c_ptr), intent(out) :: reader
    end function
    integer(c_int64_t) function c_reader_atoms(reader) bind(c, name='paceline_reader_atoms')
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: reader
    end function
    integer(c_int64_t) function c_reader_frames(reader) bind(c, name='paceline_reader_frames')
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: reader
    end function
    integer(c_int) function c_read(reader, frame, grid, snapshot) bind(c, name='paceline_read')
      import :: c_int, c_int64_t, c_ptr, c_snapshot
      type(c_ptr), value :: reader
      integer(c_int64_t), value :: frame
      type(c_ptr), value :: grid
      type(c_snapshot), intent(out) :: snapshot
    end function
    integer(c_int) function c_reader_close(reader) bind(c, name='paceline_reader_close')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: reader
    end function
    type(c_ptr) function c_message() bind(c, name='paceline_message')
      import :: c_ptr
    end function
    type(c_ptr) function c_version() bind(c, name='paceline_version')
      import :: c_ptr
    end function
    integer(c_size_t) function c_strlen(text) bind(c, name='strlen')
      import :: c_size_t, c_ptr
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! Open a file for frames of n_atoms atoms.
  integer(c_int) function paceline_writer_open(comm, path, n_atoms, writer, format, title, dt, &
      buffer, append, overwrite, sync, method, n_writers, double_precision, n_frames) result(status)
    type(paceline_comm), intent(in) :: comm
    character(len=*), intent(in) :: path
    integer(c_int64_t), intent(in) :: n_atoms
    type(paceline_writer), intent(out) :: writer
    character(len=*), intent(in), optional :: format, title
    real(c_double), intent(in), optional :: dt
    integer(c_int64_t), intent(in), optional :: buffer, n_frames
    logical, intent(in), optional :: append, overwrite, sync, double_precision
    integer(c_int), intent(in), optional :: method, n_writers
    character(kind=c_char), allocatable, target :: format_c(:), title_c(:)
    type(c_options) :: options
    if (present(format)) then
      format_c = c_text(format)
      options%format = c_loc(format_c)
    end if
    if (present(title)) then
      title_c = c_text(title)
      options%title = c_loc(title_c)
    end if
    if (present(dt)) options%dt = dt
    if (present(buffer)) options%buffer = buffer
    options%append = flag(append)
    options%overwrite = flag(overwrite)
    options%sync = flag(sync)
    if (present(method)) options%method = method
    if (present(n_writers)) options%n_writers = n_writers
    options%double_precision = flag(double_precision)
    if (present(n_frames)) options%n_frames = n_frames
    status = c_writer_open(comm, c_text(path), n_atoms, options, writer%handle)
  end function

  ! Write a frame. Vectors have the shape (3, n); cell(:, k) is vector k.
  integer(c_int) function paceline_write(writer, ids, positions, velocities, forces, names, masses, &
      charges, step, time, cell) result(status)
    type(paceline_writer), intent(in) :: writer
    integer(c_int64_t), intent(in), contiguous, target :: ids(:)
    real(c_double), intent(in), contiguous, target :: positions(:, :)
    real(c_double), intent(in), contiguous, optional, target :: velocities(:, :), forces(:, :)
    character(len=8), intent(in), contiguous, optional, target :: names(:)
    real(c_double), intent(in), contiguous, optional, target :: masses(:), charges(:)
    integer(c_int64_t), intent(in) :: step
    real(c_double), intent(in) :: time
    real(c_double), intent(in), contiguous, optional, target :: cell(:, :)
    type(c_atoms) :: atoms
    type(c_ptr) :: cell_c
    logical :: fits
    integer(c_int64_t) :: n
    n = size(ids, kind=c_int64_t)
    fits = all(shape(positions, kind=c_int64_t) == [3_c_int64_t, n])
    atoms%n = n
    cell_c = c_null_ptr
    if (present(velocities)) fits = fits .and. all(shape(velocities, kind=c_int64_t) == [3_c_int64_t, n])
    if (present(forces)) fits = fits .and. all(shape(forces, kind=c_int64_t) == [3_c_int64_t, n])
    if (present(names)) fits = fits .and. size(names, kind=c_int64_t) == n
    if (present(masses)) fits = fits .and. size(masses, kind=c_int64_t) == n
    if (present(charges)) fits = fits .and. size(charges, kind=c_int64_t) == n
    if (present(cell)) then
      fits = fits .and. all(shape(cell) == [3, 3])
      if (fits) cell_c = c_loc(cell)
    end if
    if (.not. fits) then
      ! The library refuses this number on all ranks.
      atoms%n = -1
    else if (n > 0) then
      atoms%ids = c_loc(ids)
      atoms%positions = c_loc(positions)
      if (present(velocities)) atoms%velocities = c_loc(velocities)
      if (present(forces)) atoms%forces = c_loc(forces)
      if (present(names)) atoms%names = c_loc(names)
      if (present(masses)) atoms%masses = c_loc(masses)
      if (present(charges)) atoms%charges = c_loc(charges)
    end if
    status = c_write(writer%handle, atoms, step, time, cell_c)
  end function

  ! Number of frames in the file.
  integer(c_int64_t) function paceline_writer_frames(writer) result(n_frames)
    type(paceline_writer), intent(in) :: writer
    n_frames = c_writer_frames(writer%handle)
  end function

  ! Finish the file.
  integer(c_int) function paceline_writer_close(writer) result(status)
    type(paceline_writer), intent(inout) :: writer
    status = c_writer_close(writer%handle)
  end function

  ! Open a file for reading.
  integer(c_int) function paceline_reader_open(comm, path, reader, buffer, n_readers) result(status)
    type(paceline_comm), intent(in) :: comm
    character(len=*), intent(in) :: path
    type(paceline_reader), intent(out) :: reader
    integer(c_int64_t), intent(in), optional :: buffer
    integer(c_int), intent(in), optional :: n_readers
    type(c_reader_options) :: options
    if (present(buffer)) options%buffer = buffer
    if (present(n_readers)) options%n_readers = n_readers
    status = c_reader_open(comm, c_text(path), options, reader%handle)
  end function

  ! Number of atoms of the file.
  integer(c_int64_t) function paceline_reader_atoms(reader) result(n_atoms)
    type(paceline_reader), intent(in) :: reader
    n_atoms = c_reader_atoms(reader%handle)
  end function

  ! Number of frames of the file.
  integer(c_int64_t) function paceline_reader_frames(reader) result(n_frames)
    type(paceline_reader), intent(in) :: reader
    n_frames = c_reader_frames(reader%handle)
  end function

  ! Read a frame, counted from 0: the atoms of this rank's domain of a grid, or a range of ids.
  integer(c_int) function paceline_read(reader, frame, atoms, grid) result(status)
    type(paceline_reader), intent(in) :: reader
    integer(c_int64_t), intent(in) :: frame
    type(paceline_frame), intent(out) :: atoms
    integer(c_int32_t), intent(in), optional :: grid(3)
    integer(c_int32_t), target :: shape_c(3)
    integer(c_int64_t), pointer :: ids(:)
    character(kind=c_char), pointer :: names(:, :)
    type(c_ptr) :: grid_c
    type(c_snapshot) :: found
    integer(c_int64_t) :: k
    grid_c = c_null_ptr
    if (present(grid)) then
      shape_c = grid
      grid_c = c_loc(shape_c)
    end if
    status = c_read(reader%handle, frame, grid_c, found)
    if (status /= paceline_ok) return
    call c_f_pointer(found%ids, ids, [found%n])
    atoms%ids = ids
    call copy_vectors(found%positions, found%n, atoms%positions)
    call copy_vectors(found%velocities, found%n, atoms%velocities)
    call copy_vectors(found%forces, found%n, atoms%forces)
    call copy_numbers(found%masses, found%n, atoms%masses)
    call copy_numbers(found%charges, found%n, atoms%charges)
    if (c_associated(found%names)) then
      call c_f_pointer(found%names, names, [8_c_int64_t, found%n])
      allocate (atoms%names(found%n))
      do k = 1, found%n
        atoms%names(k) = transfer(names(:, k), atoms%names(k))
        if (index(atoms%names(k), c_null_char) > 0) &
          atoms%names(k) (index(atoms%names(k), c_null_char):) = ' '
      end do
    end if
    atoms%step = found%step
    atoms%time = found%time
    atoms%cell = reshape(found%cell, [3, 3])
    atoms%has_cell = found%has_cell /= 0
  end function

  ! Close the file.
  integer(c_int) function paceline_reader_close(reader) result(status)
    type(paceline_reader), intent(inout) :: reader
    status = c_reader_close(reader%handle)
  end function

  ! Reason of the last error, or a warning.
  function paceline_message() result(text)
    character(len=:), allocatable :: text
    text = f_text(c_message())
  end function

  ! Version of the library.
  function paceline_version() result(text)
    character(len=:), allocatable :: text
    text = f_text(c_version())
  end function

  subroutine copy_vectors(from, n, to)
    type(c_ptr), intent(in) :: from
    integer(c_int64_t), intent(in) :: n
    real(c_double), allocatable, intent(out) :: to(:, :)
    real(c_double), pointer :: view(:, :)
    if (.not. c_associated(from)) return
    call c_f_pointer(from, view, [3_c_int64_t, n])
    to = view
  end subroutine

  subroutine copy_numbers(from, n, to)
    type(c_ptr), intent(in) :: from
    integer(c_int64_t), intent(in) :: n
    real(c_double), allocatable, intent(out) :: to(:)
    real(c_double), pointer :: view(:)
    if (.not. c_associated(from)) return
    call c_f_pointer(from, view, [n])
    to = view
  end subroutine

  integer(c_int) function flag(there)
    logical, intent(in), optional :: there
    flag = 0
    if (present(there)) flag = merge(1, 0, there)
  end function

  ! Text without trailing blanks, ended by a zero byte.
  function c_text(text) result(bytes)
    character(len=*), intent(in) :: text
    character(kind=c_char) :: bytes(len_trim(text) + 1)
    integer :: k
    do k = 1, len_trim(text)
      bytes(k) = text(k:k)
    end do
    bytes(len_trim(text) + 1) = c_null_char
  end function

  function f_text(pointer_c) result(text)
    type(c_ptr), intent(in) :: pointer_c
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: bytes(:)
    integer :: k
    call c_f_pointer(pointer_c, bytes, [c_strlen(pointer_c)])
    allocate (character(len=size(bytes)) :: text)
    do k = 1, size(bytes)
      text(k:k) = bytes(k)
    end do
  end function
end module paceline
