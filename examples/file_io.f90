! SPDX-License-Identifier: MIT
! Unformatted Fortran I/O straight into and out of device memory. Under LD_PRELOAD=libhpe.so.
!
! Usage: file_io_f INPUT OUTPUT; n default integers of one record, which cudaMemset clears the first half of.
program file_io
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    integer(c_int) function cudaMalloc(pointer, bytes) bind(c, name='cudaMalloc')
      import
      type(c_ptr) :: pointer
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function cudaMemset(pointer, value, bytes) bind(c, name='cudaMemset')
      import
      type(c_ptr), value :: pointer
      integer(c_int), value :: value
      integer(c_size_t), value :: bytes
    end function
  end interface
  integer, parameter :: n = 1000000
  integer(c_int), pointer :: numbers(:)
  type(c_ptr) :: memory
  character(len=256) :: input, output

  call get_command_argument(1, input)
  call get_command_argument(2, output)
  if (cudaMalloc(memory, int(4 * n, c_size_t)) /= 0) stop 1
  call c_f_pointer(memory, numbers, [n])

  open (10, file=trim(input), form='unformatted', access='stream', action='read')
  read (10) numbers
  close (10)
  if (cudaMemset(memory, 0, int(2 * n, c_size_t)) /= 0) stop 2
  open (11, file=trim(output), form='unformatted', access='stream', action='write', status='replace')
  write (11) numbers
  close (11)
  print '(a, i0)', 'sum ', sum(int(numbers, c_long_long))
end program
