! Read a number from each line of the input, and write its bits, or "no" where there is none.
program read_numbers
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  character(len=400) :: line
  real(real64) :: value
  integer :: status

  do
    read (*, '(a)', iostat=status) line
    if (status /= 0) exit
    read (line, *, iostat=status) value
    if (status == 0) then
      write (*, '(z16.16)') transfer(value, 0_int64)
    else
      write (*, '(a)') 'no'
    end if
  end do
end program read_numbers
