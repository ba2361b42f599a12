// SPDX-License-Identifier: MIT
// MPI's files, written from and read into host and device buffers (mpi_twins.h).
// usage: mpi_files FOLDER CASE...; without a case prints all. The files are made in the folder.
#include <string>
#include <utility>

#include "mpi_twins.h"

namespace {

std::string folder;

// MPI says nothing of a source here.
void say_count(Said& said, const MPI_Status& status) {
    int count = 0;
    MPI_Get_count(&status, MPI_INT, &count);
    said.push_back(count);
}

void files(Twins& w) {
    const int n = 20000;
    MPI_Datatype gaps;
    MPI_Type_vector(n / 4, 2, 4, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    const auto bytes = 4u * n * 2;
    Pair send(w, bytes), receive(w, bytes);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        const std::string name = folder + (s == send.host() ? "/host" : "/device");
        MPI_File file;
        MPI_Status status;
        MPI_Request request;
        if (MPI_File_open(comm, name.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
            w.complain("no file");
            return;
        }
        const MPI_Offset mine = static_cast<MPI_Offset>(w.rank) * 4 * n;
        MPI_File_set_view(file, mine, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
        MPI_File_write(file, s, n / 2, MPI_INT, &status);
        MPI_File_write_at_all(file, n / 2, s + 2 * n, 1, gaps, &status);
        say_count(said, status);
        MPI_File_seek(file, 0, MPI_SEEK_SET);
        MPI_File_read_all(file, r, n / 4, MPI_INT, &status);
        say_count(said, status);
        MPI_File_iread_at(file, n / 4, r + n, 1, gaps, &request);
        MPI_Wait(&request, &status);
        say_count(said, status);
        MPI_File_iwrite_at(file, 0, s + 8, n / 4, MPI_INT, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_File_read_at_all_begin(file, 0, r + 4 * n, n / 4, MPI_INT);
        MPI_File_read_at_all_end(file, r + 4 * n, &status);
        say_count(said, status);
        MPI_File_write_at_all_begin(file, 0, s + 80, n / 4, MPI_INT);
        MPI_File_write_at_all_end(file, s + 80, MPI_STATUS_IGNORE);
        MPI_File_sync(file);
        MPI_Barrier(comm);
        MPI_File_sync(file);
        MPI_File_read_at(file, n - 100, r + 6 * n, 200, MPI_INT, &status);
        if (w.rank == w.ranks - 1) say_count(said, status);  // the end of the file
        MPI_File_close(&file);
    });
    MPI_Type_free(&gaps);
}

// A file of this rank alone. MPI_FILE_NULL: there is none, and it was said.
MPI_File own_file(Twins& w, const char* name, bool host, MPI_Info info = MPI_INFO_NULL) {
    const std::string path = folder + "/" + name + std::to_string(w.rank) + (host ? "host" : "device");
    MPI_File file = MPI_FILE_NULL;
    const int opened = MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
    if (opened == MPI_SUCCESS) return file;
    w.complain("no file");
    return MPI_FILE_NULL;
}

// Reads that ask for more than the file has: what is behind its end stays as it was. For collective ones some MPIs say
// that all of it came.
void past_the_end(Twins& w) {
    constexpr int kThere = 10000, kAsked = 20000;
    Pair send(w, 4 * kThere), receive(w, 6 * 4 * kAsked);
    both(w, send, receive, [&](MPI_Comm, char* s, char* r, Said&) {
        MPI_File file = own_file(w, "end", s == send.host());
        if (file == MPI_FILE_NULL) return;
        MPI_File_write_at(file, 0, s, kThere, MPI_INT, MPI_STATUS_IGNORE);
        const auto from_start = [&] {
            MPI_File_seek(file, 0, MPI_SEEK_SET);
            return std::exchange(r, r + 4 * kAsked);
        };
        MPI_File_read(file, from_start(), kAsked, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_read_all(file, from_start(), kAsked, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_read_at_all(file, 0, from_start(), kAsked, MPI_INT, MPI_STATUS_IGNORE);
#ifndef OPEN_MPI  // which waits for ever for bytes that do not come
        MPI_Request request;
        MPI_File_iread(file, from_start(), kAsked, MPI_INT, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_File_iread_all(file, from_start(), kAsked, MPI_INT, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        char* const halves = from_start();
        MPI_File_read_all_begin(file, halves, kAsked, MPI_INT);
        MPI_File_read_all_end(file, halves, MPI_STATUS_IGNORE);
#endif
        MPI_File_close(&file);
    });
}

// The same into memory with gaps. ROMIO says that all came, and leaves the rest of the buffer alone, unless it reads
// more than is asked for, to read it at once (data sieving).
void past_the_end_with_gaps(Twins& w) {
    constexpr int kThere = 5000, kAsked = 10000, kReads = 4;
    Pair send(w, 4 * kThere), receive(w, kReads * 2 * 4 * kAsked);
    MPI_Datatype gaps;
    MPI_Type_vector(kAsked, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Info no_sieving;
    MPI_Info_create(&no_sieving);
    MPI_Info_set(no_sieving, "romio_ds_read", "disable");
    both(w, send, receive, [&](MPI_Comm, char* s, char* r, Said&) {
        MPI_File file = own_file(w, "gaps", s == send.host(), no_sieving);
        if (file == MPI_FILE_NULL) return;
        const auto next = [&] { return std::exchange(r, r + 2 * 4 * kAsked); };
        MPI_File_write_at(file, 0, s, kThere, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_read_at(file, 0, next(), 1, gaps, MPI_STATUS_IGNORE);
        MPI_File_seek(file, 0, MPI_SEEK_SET);
        MPI_File_read(file, next(), 1, gaps, MPI_STATUS_IGNORE);
#ifndef OPEN_MPI  // which may wait for ever, as above
        MPI_Request request;
        MPI_File_iread_at(file, 0, next(), 1, gaps, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_File_seek(file, 0, MPI_SEEK_SET);
        MPI_File_iread(file, next(), 1, gaps, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
#endif
        MPI_File_close(&file);
    });
    MPI_Info_free(&no_sieving);
    MPI_Type_free(&gaps);
}

// Numbers that have another size in the file than in memory: of those that came, some MPIs count the file's bytes.
void external_numbers(Twins& w) {
    constexpr int kCount = 8000, kReads = 20;
    Pair send(w, 8 * kCount), receive(w, kReads * 8 * kCount);
    both(w, send, receive, [&](MPI_Comm, char* s, char* r, Said&) {
        MPI_File file = own_file(w, "external", s == send.host());
        if (file == MPI_FILE_NULL) return;
        MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL);
        MPI_File_write_at(file, 0, s, kCount, MPI_LONG, MPI_STATUS_IGNORE);
        MPI_File_read_at(file, 0, r, kCount, MPI_LONG, MPI_STATUS_IGNORE);
        MPI_File_seek(file, 0, MPI_SEEK_SET);
        MPI_File_read(file, r + 8 * kCount, kCount, MPI_LONG, MPI_STATUS_IGNORE);
#ifdef OPEN_MPI  // MPICH's own numbers are garbage
        for (int i = 2; i < kReads; ++i) {
            MPI_Request request;
            MPI_File_iread_at(file, 0, r + i * 8 * kCount, kCount, MPI_LONG, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
#endif
        MPI_File_close(&file);
    });
}

const Cases cases = {
    {"files", files},
    {"past_the_end", past_the_end},
    {"past_the_end_with_gaps", past_the_end_with_gaps},
    {"external_numbers", external_numbers},
};

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1) folder = argv[1];
    return run_cases(argc, argv, cases, 7, MPI_THREAD_MULTIPLE, 2);
}
