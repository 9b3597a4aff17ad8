! Write the numbers whose bits stand on the lines of the input.
program write_numbers
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  integer(int64) :: bits, whole
  real(real64) :: value
  integer :: status

  do
    read (*, '(z16)', iostat=status) bits
    if (status /= 0) exit
    value = transfer(bits, value)
    whole = shifta(bits, int(iand(bits, 63_int64)))
    write (*, '(g20.10,f20.10,f12.6,f20.6,1p,e16.7,i10,i21)') &
      value, value, value, value, value, whole, whole
  end do
end program write_numbers
