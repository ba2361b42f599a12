// SPDX-License-Identifier: MIT
// One step of one program (model.h): the class whose members are the steps, by subject in step_access.cpp,
// step_loans.cpp and step_calls.cpp. Each member appends the moves that are possible; none where the program waits.
//
// Values only; everything is borrowed for a step. One thread. Errors: none.
#pragma once

#include "tests/checker/model.h"

namespace checker {

// Flags of a thread.
constexpr Byte kMoved = 1;     // work was counted since it looked (InFlight::work())
constexpr Byte kEnds = 2;      // a context's end was over since it looked (Coherence::ends_)
constexpr Byte kGone = 4;      // the object was closed since it was found (Object::serial())
constexpr Byte kSlept = 8;     // in front of the gate (LaunchGate::enter, `waited`)
constexpr Byte kTried = 16;    // wait_in_order()'s attempts
constexpr Byte kFailed = 32;   // a flush
constexpr Byte kSent = 64;     // what a host function borrowed was flushed by others since it began (loans_sent_)
constexpr Byte kGaveUp = 128;  // waiting for launches to leave the gate

constexpr Byte kOver = 0xf0;  // pc of a host function that has run

inline const Statement& statement_of(const Scenario& scenario, unsigned program, unsigned pc) {
    static constexpr Statement end;
    const auto& all = program < kThreads ? scenario.threads[program] : scenario.calls[program - kThreads];
    return pc < all.size() ? all[pc] : end;
}
inline const Statement& statement_of(const Scenario& scenario, const Item& item) {
    return statement_of(scenario, item.what / 16, item.what % 16);
}

class Step {
public:
    using Moves = std::vector<Move<World>>;
    Step(const Scenario& scenario, const hpe::TransitionTable& table, Mend without, const World& world, unsigned actor,
         Moves& moves)
        : scenario_(scenario),
          table_(table),
          without_(without),
          a_(actor),
          me_(static_cast<Byte>(1u << actor)),
          s_(world),
          t_(s_.threads[actor]),
          st_(statement_of(scenario, actor, t_.pc)),
          moves_(moves) {}
    void run();

private:
    // What the steps are made of.
    bool without(Mend mend) const { return without_ == mend; }
    hpe::Transition on(hpe::State state, hpe::Event event) const {
        return table_[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
    }
    static Pages pages_of(hpe::State state) {
        return state == hpe::State::Dirty ? Pages::Open : hpe::valid_on_host(state) ? Pages::Readable : Pages::Closed;
    }
    BlockModel& block(unsigned index) { return s_.blocks[index]; }
    // An object is a bit; so are its blocks.
    Byte object_of(unsigned index) const { return scenario_.one_object ? 1 : static_cast<Byte>(1u << index); }
    bool is_of(Byte object, unsigned index) const { return object_of(index) == object; }
    bool mapped(unsigned index) const { return (s_.mapped & object_of(index)) != 0; }
    bool locks(unsigned index) {
        if (block(index).owner != 0) return false;
        block(index).owner = static_cast<Byte>(a_ + 1);
        return true;
    }
    void protect(unsigned index, hpe::State state) {
        for (unsigned i = 0; i < 2 && mapped(index); ++i) {
            if (allocated(index, i)) block(index).pages[i] = pages_of(state);
        }
    }
    // Of a borrowed block that stays valid.
    hpe::State of_pages(unsigned index, hpe::State state) const {
        const bool borrowed = s_.blocks[index].loan != Loan::None && !without(Mend::CloseBorrowed);
        return borrowed ? hpe::State::Invalid : state;
    }
    bool allocated(unsigned index, unsigned byte) const { return (s_.blocks[index].allocated >> byte & 1) != 0; }
    // The bytes between allocations stay behind.
    void fetch(unsigned index) {
        for (unsigned i = 0; i < 2; ++i) {
            if (allocated(index, i)) block(index).view[i] = block(index).device[i];
        }
    }
    bool takes(Byte& lock) {
        if (lock != 0) return false;
        lock = static_cast<Byte>(a_ + 1);
        return true;
    }
    bool flag(Byte f) const { return (t_.flags & f) != 0; }
    void set(Byte f) { t_.flags = static_cast<Byte>(t_.flags | f); }
    void clear(Byte f) { t_.flags = static_cast<Byte>(t_.flags & ~f); }
    static void leave(Byte& set, Byte members) { set = static_cast<Byte>(set & ~members); }
    static void join(Byte& set, Byte members) { set = static_cast<Byte>(set | members); }

    // Ends of a step.
    void go(At at, const char* words, int about = -1, Fair fair = Fair::Weak) {
        t_.at = at;
        moves_.push_back({s_, words, about, fair, Wrong::Nothing});
    }
    void again(const char* words, int about = -1) {  // the access, or whatever the statement is
        const Byte kept = a_ >= kThreads ? t_.flags & kSent : 0;
        t_ = Thread{.pc = t_.pc, .flags = kept};
        go(At::Begin, words, about);
    }
    void finish(const char* words, int about = -1, Fair fair = Fair::Weak) {
        const Byte kept = a_ >= kThreads ? t_.flags & kSent : 0;
        t_ = Thread{.pc = static_cast<Byte>(t_.pc + 1), .flags = kept};
        go(At::Begin, words, about, fair);
    }
    void wrong(Wrong kind, const char* words, int about = -1) {
        moves_.push_back({{}, words, about, Fair::Weak, kind});
    }
    void settle(At then, const char* words, int about = -1);

    // step_access.cpp
    void access();
    bool unordered() const { return a_ >= kThreads && !without(Mend::Borrow); }
    bool borrows() const { return unordered() || t_.borrows != 0; }
    // The block of the access that trapped.
    unsigned where() const { return st_.what == Do::Straddle ? t_.held : st_.block; }
    hpe::Event event() const { return st_.what == Do::Read ? hpe::Event::CpuRead : hpe::Event::CpuWrite; }
    void find();
    void find_again();
    void look();
    void snapshot(const char* words, Fair fair = Fair::Weak);
    bool came_that_far() const;
    bool runs_in(unsigned stream) const;
    void entered();
    void wait_in_gate();
    void serve();
    void ask_lent();
    void lock();
    void decide(const char* words);
    void bring();
    void open(const char* words);
    void map();
    void evict_lock();
    void evict_close();
    void evict_flush();
    void borrow_lock();
    void borrow_judge();
    void borrow_twin();
    void served(const char* words);
    // step_loans.cpp
    bool flush(unsigned index, Byte bytes);
    bool send_changes(unsigned index);
    void end_loan(unsigned index);
    void loan_close();
    void loan_drain();
    void loans();
    void settle_begin();
    void settle_drain();
    bool is_lent(unsigned index) const { return (s_.lent & object_of(index)) != 0; }
    void lend_wait();
    void lend_look();
    void received();
    void received_wait();
    void received_end();
    void call_begins();
    void call_returns();
    void call_settles();
    void call_ends();
    // step_gate.cpp
    void wake();
    void leave_fault();
    void leave_launch();
    void launch_begin();
    void launch_look();
    void launch_try();
    void fault_try();
    void fault_slots();
    bool launch_is_kept() const;
    bool goes_on(unsigned stream) const;
    // step_calls.cpp
    void allocate();
    void inside(const char* words, Fair fair = Fair::Weak);
    bool concerned(unsigned index) const;
    hpe::Transition transition(unsigned index);
    void apply_lock();
    void apply_close();
    void apply_rest();
    void apply_await();
    void apply_unlock();
    void make_wait();
    void full_stream(const char* words);
    void has_made_wait(const char* words);
    void push();
    void count();
    void free_drain();
    void free_lock();
    void free_loans();
    void free_close();
    void free_true();
    void part_begin();
    void part_lock();
    void part_drain();
    void part_true();
    void sync_wait();
    void acquire();
    void acquire_in();
    void acquire_blocks();

    const Scenario& scenario_;
    const hpe::TransitionTable& table_;
    const Mend without_;
    const unsigned a_;
    const Byte me_;
    World s_;
    Thread& t_;
    const Statement& st_;
    Moves& moves_;
};

// Of the device (model.cpp): the first item of a stream has ended.
void pop(World& world, unsigned stream);

}  // namespace checker
