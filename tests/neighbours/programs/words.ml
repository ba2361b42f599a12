(* SPDX-License-Identifier: MIT *)
(* `words FILE [crash]`: objects (objects.cu) touched by compiled code, by C and by file reads, in several threads, while
   stack overflows are caught (OCaml has them from SIGSEGV) and garbage is collected. *)
open Bigarray

type words = (int32, int32_elt, c_layout) Array1.t

external make : int -> words = "words_new"
external free : words -> unit = "words_free"
external add : words -> int -> int -> unit = "words_add"
external round : words -> int -> int -> int = "words_round"
external crash : unit -> unit = "words_crash"

let count = 1 lsl 17
let rec deeper n = 1 + deeper (n + 1)
let overflows () = try deeper 1 = 0 with Stack_overflow -> true
let file = Sys.argv.(1)

let use seed =
  let words = make count and wrong = ref 0 in
  for r = 0 to 3 do
    for i = 0 to count - 1 do words.{i} <- Int32.of_int (i * seed) done;
    add words count r;
    for i = 0 to count - 1 do
      if words.{i} <> Int32.of_int (i * seed + r) then incr wrong;
      if i mod 1024 = 0 then ignore (Sys.opaque_identity (Array.make 20000 r))
    done;
    Gc.full_major ();
    wrong := !wrong + round words count seed
  done;
  free words;
  !wrong

let () =
  if Array.length Sys.argv > 2 then begin
    let words = make count in
    Printf.printf "%d wrong, crashes\n%!" (round words count 3);
    crash ()
  end;
  Printf.printf "overflow %b\n%!" (overflows ());
  Printf.printf "%d wrong\n%!" (use 3);
  Printf.printf "overflow %b\n%!" (overflows ());
  let wrong = Atomic.make 0 in
  let threads =
    List.init 4 (fun i -> Thread.create (fun () -> ignore (Atomic.fetch_and_add wrong (use (5 + (2 * i))))) ())
  in
  List.iter Thread.join threads;
  Printf.printf "%d wrong in threads, overflow %b\n%!" (Atomic.get wrong) (overflows ());
  let words = make count in
  add words count 1;
  let input = Unix.openfile file [ Unix.O_RDONLY ] 0 in
  let mapped = array1_of_genarray (Unix.map_file input int32 c_layout false [| -1 |]) in
  Array1.blit mapped (Array1.sub words 1000 (Array1.dim mapped));
  add words count 1;
  Printf.printf "%ld %ld\n" words.{1000} words.{1000 + Array1.dim mapped - 1}
