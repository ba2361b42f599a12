# SPDX-License-Identifier: MIT
# `ruby words.rb LIBRARY FILE [crash]`: objects (objects.cu) touched by C and by file reads, in threads, while stack
# overflows are rescued (Ruby has them from SIGSEGV, too) and garbage is collected.
require "fiddle"

COUNT = 1 << 17
LIBRARY = Fiddle.dlopen(ARGV[0])
WORD = Fiddle::TYPE_INT
MAKE = Fiddle::Function.new(LIBRARY["objects_new"], [WORD], Fiddle::TYPE_VOIDP)
ROUND = Fiddle::Function.new(LIBRARY["objects_round"], [Fiddle::TYPE_VOIDP, WORD, WORD], WORD)

def deeper(depth) = deeper(depth + 1) + 1
def overflow
  deeper(1)
rescue SystemStackError
  "overflow"
end
def use(seed)
  words = MAKE.call(COUNT)
  wrong = 3.times.sum { ROUND.call(words, COUNT, seed) }
  bytes = File.binread(ARGV[1])
  Fiddle::Pointer.new(words.to_i, COUNT * 4)[0, bytes.size] = bytes
  wrong + (Fiddle::Pointer.new(words.to_i, COUNT * 4)[0, bytes.size] == bytes ? 0 : 1)
end

if ARGV.size > 2
  puts "#{use(3)} wrong, crashes"
  STDOUT.flush
  Fiddle::Function.new(LIBRARY["objects_crash"], [], Fiddle::TYPE_VOID).call
end
puts overflow, "#{use(3)} wrong", overflow
threads = (0...4).map { |i| Thread.new { use(5 + 2 * i) } }
10.times { GC.start && overflow }
puts "#{threads.sum(&:value)} wrong in threads", overflow
