#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The layer test finds violations that were planted."""
import sys

import layers

ORDER = {"low": [], "high": ["low"]}
CASES = [
    ("a clean tree", {"low/a.h": "", "low/a.cpp": '#include "low/a.h"\n', "high/b.cpp": '#include "low/a.h"\n'}, None),
    ("an include upwards", {"low/a.h": '#include "high/b.h"\n', "high/b.h": ""}, "must not include high/b.h"),
    ("a relative include upwards", {"low/a.h": '#include "../high/b.h"\n', "high/b.h": ""}, "must not include high/b.h"),
    ("angle brackets", {"low/a.h": "#include <high/b.h>\n", "high/b.h": ""}, "must not include high/b.h"),
    ("a circle of files", {"low/a.h": '#include "low/b.h"\n', "low/b.h": '#include "low/a.h"\n'}, "a circle of files"),
    ("a circle by the file's own folder", {"low/a.h": '#include "b.h"\n', "low/b.h": '#include "a.h"\n'},
     "a circle of files"),
    ("a circle of subjects", {"low/a.h": "", "low/a.cpp": '#include "low/a.h"\n#include "low/b.h"\n', "low/b.h": "",
                              "low/b.cpp": '#include "low/a.h"\n'}, "a circle of subjects"),
    ("a circle of subjects where they may be", {"high/a.h": "", "high/a.cpp": '#include "high/b.h"\n', "high/b.h": "",
                                                "high/b.cpp": '#include "high/a.h"\n'}, None),
    ("a circle of folders", {"low/a.h": '#include "high/b.h"\n', "low/c.h": "", "high/d.h": '#include "low/c.h"\n',
                             "high/b.h": ""}, "a circle of folders"),
    ("a lower header implemented above", {"low/a.h": "", "high/a.cpp": '#include "low/a.h"\n'},
     "implements low/a.h, a header of another folder"),
    ("a file in no folder", {"elsewhere/a.h": ""}, "in no known folder"),
]
failures = []
for name, tree, wanted in CASES:
    found = layers.problems_of(tree, ORDER, ["low"])
    if (wanted is None and found) or (wanted is not None and not any(wanted in problem for problem in found)):
        failures.append(f"{name}: wanted {wanted}, found {found}")
print("\n".join(failures) or f"{len(CASES)} planted trees")
sys.exit(1 if failures else 0)
