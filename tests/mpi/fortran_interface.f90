! On one rank: writes frames through the Fortran module, also wrong ones, and reads them back.
program fortran_interface
  use, intrinsic :: iso_c_binding
  use paceline
  implicit none
  integer, parameter :: n = 500
  type(paceline_comm) :: comm
  type(paceline_writer) :: writer
  type(paceline_reader) :: reader
  type(paceline_frame) :: found
  integer(c_int64_t) :: ids(n)
  real(c_double) :: positions(3, 2 * n), velocities(3, n), forces(3, n), masses(n), charges(n), cell(3, 3)
  character(len=8) :: names(n)
  character(len=4096) :: folder
  integer :: frame

  call get_command_argument(1, folder)
  ! The values of c_interface.py; vectors of the cell are columns.
  cell = reshape([20, 0, 0, 4, 25, 0, -3, 2, 30], [3, 3])
  call expect(paceline_writer_open(comm, trim(folder) // '/fortran.HISTORY', int(n, c_int64_t), writer), &
    paceline_ok, '')
  do frame = 0, 2
    call fill(frame)
    if (frame == 1) then
      ! Arrays of other lengths.
      call expect(put(ids(:n - 1), positions(:, ::2), velocities), paceline_error_argument, 'arrays of as many')
      call expect(put(ids, positions, velocities), paceline_error_argument, 'arrays of as many')
      call expect(put(ids, positions(:2, ::2), velocities), paceline_error_argument, 'arrays of as many')
      call expect(put(ids, positions(:, ::2), velocities(:, :n - 1)), paceline_error_argument, 'as many')
      call expect(paceline_write(writer, ids, positions(:, ::2), velocities, step=0_c_int64_t, time=0d0, &
        cell=cell), paceline_error_unwritable, 'expected names')
    end if
    ! Every second column: a section with gaps.
    call expect(put(ids, positions(:, ::2), velocities), paceline_ok, '')
  end do
  call expect(paceline_writer_close(writer), paceline_ok, '')
  call expect(paceline_writer_close(writer), paceline_error_argument, 'is closed')
  call expect(put(ids, positions(:, ::2), velocities), paceline_error_argument, 'found NULL')

  call expect(paceline_writer_open(comm, trim(folder) // '/fortran.h5md', int(n, c_int64_t), writer, &
    title='NaCl', n_frames=4_c_int64_t), paceline_ok, '')
  do frame = 0, 2
    call fill(frame)
    call expect(paceline_write(writer, ids, positions(:, ::2), velocities, forces, names, masses, charges, &
      10_c_int64_t * frame, 0.5d0 * frame, cell), paceline_ok, '')
  end do
  call expect(paceline_writer_close(writer), paceline_ok, '')

  call expect(paceline_reader_open(comm, trim(folder) // '/fortran.HISTORY', reader), paceline_ok, '')
  if (paceline_reader_atoms(reader) /= n .or. paceline_reader_frames(reader) /= 3) error stop 'sizes'
  call expect(paceline_read(reader, 2_c_int64_t, found, [1, 1, 1]), paceline_ok, '')
  if (any(found%ids /= [(int(frame, c_int64_t), frame=1, n)])) error stop 'ids'
  if (any(abs(found%positions(:, n:1:-1) - positions(:, ::2)) > 1d-8)) error stop 'positions'
  if (any(found%names(n:1:-1) /= names) .or. any(abs(found%masses(n:1:-1) - masses) > 1d-8)) error stop 'names'
  if (allocated(found%forces) .or. found%step /= 20 .or. any(abs(found%cell - cell) > 1d-8)) error stop 'frame'
  call expect(paceline_read(reader, 3_c_int64_t, found), paceline_error_argument, 'out of range')
  call expect(paceline_reader_close(reader), paceline_ok, '')
  print '(a)', 'done ' // paceline_version()

contains

  subroutine fill(at)
    integer, intent(in) :: at
    integer :: i, k
    do i = 1, n
      ids(i) = n + 1 - i
      do k = 1, 3
        positions(k, 2 * i - 1) = mod(ids(i) * 37 + (k - 1) * 11 + at * 10, 2000_c_int64_t) * 0.01d0 - 3
        velocities(k, i) = mod(ids(i) * 37 + (k - 1) * 11 + at * 5, 1000_c_int64_t) * 0.01d0 - 3
        forces(k, i) = mod(ids(i) * 37 + (k - 1) * 11 + at * 15, 3000_c_int64_t) * 0.01d0 - 3
      end do
      names(i) = merge('Na+', 'Cl-', mod(ids(i), 2_c_int64_t) == 1)
      masses(i) = merge(22.99d0, 35.45d0, mod(ids(i), 2_c_int64_t) == 1)
      charges(i) = merge(1, -1, mod(ids(i), 2_c_int64_t) == 1)
    end do
  end subroutine

  integer function put(own, x, v)
    integer(c_int64_t), intent(in) :: own(:)
    real(c_double), intent(in) :: x(:, :), v(:, :)
    put = paceline_write(writer, own, x, v, names=names, masses=masses, charges=charges, &
      step=int(10 * frame, c_int64_t), time=0.5d0 * frame, cell=cell)
  end function

  subroutine expect(status, expected, words)
    integer, intent(in) :: status, expected
    character(len=*), intent(in) :: words
    if (status == expected .and. index(paceline_message(), words) > 0) return
    print '(a, 2i3, 1x, a)', words, status, expected, paceline_message()
    error stop 1
  end subroutine
end program fortran_interface
