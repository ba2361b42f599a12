# SPDX-License-Identifier: MIT
# `LIBRARY=... R --interactive <words.R`, `LIBRARY=... CRASH=1 Rscript words.R`: objects (objects.cu) beside stack overflows
# that R survives: deep evaluation, which it counts, and C's recursion, which it has from SIGSEGV.
dyn.load(Sys.getenv("LIBRARY"))
count <- 131072L
round <- function(words, seed) .C("words_round", words, count, seed, wrong = 0L)$wrong
words <- .C("words_new", count, at = 0)$at
if (nzchar(Sys.getenv("CRASH"))) {
  cat(round(words, 3L), "wrong, crashes\n")
  .C("words_crash")
}
# Only an interactive R goes on after the second.
.C("words_deep", words, count, 0L)
.C("words_deep", words, count, 1L)
overflow <- function() {
  deeper <- function(n) deeper(n + 1)
  text <- tryCatch(deeper(1), error = function(e) conditionMessage(e))
  cat(gsub("[0-9]+", "", text), "\n")
}
options(expressions = 500000)
overflow()
for (seed in 3:8) {
  cat(round(words, as.integer(seed)), "wrong\n")
  invisible(gc())
  garbage <- lapply(1:200, function(i) numeric(10000))
}
values <- .C("words_fetch", words, count, values = integer(count))$values
again <- .C("words_store", words, count, rev(values))
cat(identical(rev(values), .C("words_fetch", words, count, values = integer(count))$values), "\n")
overflow()
.C("words_deep", words, count, 1L)
cat(round(words, 3L), "wrong\n")
