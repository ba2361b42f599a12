// SPDX-License-Identifier: MIT
// Small programs that together meet every step of the model, and the mends with the scenario that needs each.
//
// Values only, made once. One thread. Errors: none.
#pragma once

#include <vector>

#include "tests/checker/model.h"

namespace checker {

struct Mended {
    Mend mend;
    const char* what;
    const char* scenario;
    Wrong wrong;  // what is found without it
};

const std::vector<Scenario>& scenarios();
const std::vector<Mended>& mends();

}  // namespace checker
