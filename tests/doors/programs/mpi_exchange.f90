! SPDX-License-Identifier: MIT
! Device memory as a Fortran array, sent in a ring and summed.
program mpi_exchange
#ifdef F08
   use mpi_f08
#else
   use mpi
#endif
   use iso_c_binding
   implicit none
   interface
      integer(c_int) function cudaMalloc(memory, bytes) bind(c, name="cudaMalloc")
         import
         type(c_ptr) :: memory
         integer(c_size_t), value :: bytes
      end function
      integer(c_int) function cudaMemset(memory, byte, bytes) bind(c, name="cudaMemset")
         import
         type(c_ptr), value :: memory
         integer(c_int), value :: byte
         integer(c_size_t), value :: bytes
      end function
   end interface
   integer, parameter :: n = 300000
   type(c_ptr) :: memory(2)
   integer, pointer :: out(:), in(:)
   integer :: rank, ranks, error, before, behind, wrong, i
#ifdef F08
   type(MPI_Request) :: requests(2)
#else
   integer :: requests(2)
#endif

   call MPI_Init(error)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
   before = modulo(rank - 1, ranks)
   behind = modulo(rank + 1, ranks)
   do i = 1, 2
      error = cudaMalloc(memory(i), int(4 * n, c_size_t))
      error = cudaMemset(memory(i), rank * (2 - i), int(4 * n, c_size_t))
   end do
   call c_f_pointer(memory(1), out, [n])
   call c_f_pointer(memory(2), in, [n])
   wrong = 0
   call MPI_Irecv(in, n, MPI_INTEGER, before, 1, MPI_COMM_WORLD, requests(1), error)
   call MPI_Isend(out, n, MPI_INTEGER, behind, 1, MPI_COMM_WORLD, requests(2), error)
   call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
   wrong = wrong + count(in /= before * 16843009)
   error = cudaMemset(memory(2), 1, int(4 * n, c_size_t))
   call MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
   wrong = wrong + count(in /= ranks * 16843009)
   print '("rank ", i0, ": ", i0, " wrong")', rank, wrong
   call MPI_Finalize(error)
end program
