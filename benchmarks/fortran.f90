! Format atoms as DL_POLY does, n times over.
!
!     gfortran -O2 -o fortran fortran.f90
!     ./fortran FORMAT WAY NUMBERS ATOMS TIMES OUTPUT
!
! FORMAT: CONFIG or HISTORY. NUMBERS: a file of doubles: mass, charge, and x, y, z of position,
! velocity and force of each atom in turn. WAY: "records" formats into strings in memory, as DL_POLY
! does, and in the end writes the last round's to OUTPUT; "file" writes to OUTPUT, formatted.
program fortran
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  character(len=*), parameter :: vector = '(3g20.10,a12,a1)', line = '(3g20.10,a12)'
  character(len=1), parameter :: lf = new_line('a')
  character(len=12), parameter :: blank = ' '
  character(len=54), parameter :: blanks = ' '
  character(len=8), parameter :: name = 'Na+'
  character(len=200) :: form, way, output
  character(len=73), allocatable :: records(:)
  real(real64), allocatable :: numbers(:, :)
  integer :: n_atoms, n_times, i, k, round, unit
  logical :: history

  call get_command_argument(1, form)
  call get_command_argument(2, way)
  n_atoms = whole(4)
  n_times = whole(5)
  call get_command_argument(6, output)
  history = form == 'HISTORY'
  allocate (numbers(11, n_atoms))
  call load()

  if (way == 'records') then
    allocate (records(4 * n_atoms))
    do round = 1, n_times
      call to_records()
    end do
    open (newunit=unit, file=output, access='stream', form='unformatted', status='replace')
    write (unit) records
  else
    open (newunit=unit, file=output, form='formatted', status='replace')
    do round = 1, n_times
      rewind (unit)
      call to_file()
    end do
  end if
  close (unit)

contains

  integer function whole(number)
    integer, intent(in) :: number
    character(len=20) :: argument
    call get_command_argument(number, argument)
    read (argument, *) whole
  end function whole

  subroutine load()
    character(len=200) :: path
    call get_command_argument(3, path)
    open (newunit=unit, file=path, access='stream', form='unformatted', status='old')
    read (unit) numbers
    close (unit)
  end subroutine load

  subroutine to_records()
    do i = 1, n_atoms
      if (history) then
        write (records(4 * i - 3), '(a8,i10,3f12.6,a18,a1)') name, i, numbers(1:2, i), 0.0_real64, &
          repeat(' ', 18), lf
      else
        write (records(4 * i - 3), '(a8,i10,a54,a1)') name, i, blanks, lf
      end if
      do k = 0, 2
        write (records(4 * i - 2 + k), vector) numbers(3 * k + 3:3 * k + 5, i), blank, lf
      end do
    end do
  end subroutine to_records

  subroutine to_file()
    do i = 1, n_atoms
      if (history) then
        write (unit, '(a8,i10,3f12.6,a18)') name, i, numbers(1:2, i), 0.0_real64, repeat(' ', 18)
      else
        write (unit, '(a8,i10,a54)') name, i, blanks
      end if
      do k = 0, 2
        write (unit, line) numbers(3 * k + 3:3 * k + 5, i), blank
      end do
    end do
  end subroutine to_file

end program fortran
