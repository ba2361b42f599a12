! SPDX-License-Identifier: MIT
! Unformatted records of an object (objects.cu) by the Fortran library, sequential, direct and as a stream.
program records
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    function objects_new(count) bind(c) result(at)
      import c_ptr, c_int
      integer(c_int), value :: count
      type(c_ptr) :: at
    end function
    subroutine objects_add(at, count, amount) bind(c)
      import c_ptr, c_int
      type(c_ptr), value :: at
      integer(c_int), value :: count, amount
    end subroutine
  end interface
  integer(c_int), parameter :: n = 300000
  type(c_ptr) :: at
  integer(c_int), pointer :: words(:)
  character(len=200) :: path
  integer :: i
  call get_command_argument(1, path)
  at = objects_new(n)
  call c_f_pointer(at, words, [n])
  words = [(i, i = 1, n)]
  call objects_add(at, n, 1)
  open (10, file=trim(path), form='unformatted', access='sequential', status='replace')
  write (10) words(1:100000)
  write (10) 5, words(7:n), words(1:9)
  rewind (10)
  call objects_add(at, n, 2)
  read (10) words(100001:200000)
  read (10) i, words(1:n - 6), words(n - 8:n)
  close (10)
  call objects_add(at, n, 3)
  print *, i, sum(int(words, 8)), words(1), words(n)
  open (10, file=trim(path), form='unformatted', access='direct', recl=4 * n, status='replace')
  write (10, rec=2) words
  call objects_add(at, n, 4)
  read (10, rec=2) words
  close (10)
  call objects_add(at, n, 5)
  print *, sum(int(words, 8)), words(1), words(n)
  open (10, file=trim(path), form='unformatted', access='stream', status='replace')
  write (10) words(2:n)
  call objects_add(at, n, 6)
  read (10, pos=5) words(10:n - 5)
  close (10)
  call objects_add(at, n, 7)
  print *, sum(int(words, 8)), words(9), words(10), words(n)
end program
